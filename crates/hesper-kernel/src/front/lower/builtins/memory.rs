//! Barriers, fences, asynchronous copies and atomics.

use super::*;
use crate::ir::{CmpOp, MemFlags, Scope as BarrierScope, Type, ValueId};

/// Barriers, fences, asynchronous copies, and atomics other than read-modify-write.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub(super) enum MemoryFunction {
    ThreadgroupBarrier,
    SimdgroupBarrier,
    Fence,
    Load,
    Store,
    CompareExchange,
    AsyncBegin,
    AsyncEnd,
    AsyncWait,
}

impl<'a> Lower<'a> {
    fn mem_flags(&mut self, v: &RValue, span: Span) -> LowerResult<MemFlags> {
        match v.as_int() {
            Some(f) => Ok(MemFlags { device: f & 1 != 0, threadgroup: f & 2 != 0 }),
            None => fail(ErrorKind::Constant, span, "the flags of a barrier must be known at compile time"),
        }
    }

    /// The atomic object an argument points at.
    fn atomic_ptr(&mut self, a: &Arg<'a>, name: &str, span: Span) -> LowerResult<(ValueId, Scalar)> {
        let v = self.values(name, std::slice::from_ref(a), 1..=1, span)?.remove(0);
        let Ty::Pointer(p) = &v.ty else {
            return self.wrong_argument(name, &v.ty, "a pointer to an atomic object", span);
        };
        let Ty::Atomic(s) = p.pointee else {
            let found = self.type_name(&v.ty);
            let text = format!("`{name}` takes a pointer to an atomic object, found `{found}`");
            let d = Diagnostic::error(ErrorKind::Call, span, text)
                .help("cast it: `(device atomic_uint*)p`, or ask for `atomic_outputs`");
            return Err(Fail::Diag(Box::new(d)));
        };
        if p.is_const && !name.starts_with("atomic_load") {
            return fail(ErrorKind::Type, span, "the atomic object is `const`");
        }
        let space = p.space;
        if !matches!(s, Scalar::I32 | Scalar::U32 | Scalar::I64 | Scalar::U64 | Scalar::F32) {
            let found = self.type_name(&Ty::Atomic(s));
            return fail(ErrorKind::Type, span, format!("there are no operations on `{found}`"));
        }
        if !matches!(space, Some(crate::ir::Space::Device | crate::ir::Space::Threadgroup)) {
            return fail(ErrorKind::Type, span, "atomic objects live in `device` or `threadgroup` memory");
        }
        Ok((self.ir(&v), s))
    }

    pub(super) fn atomic_rmw(
        &mut self,
        op: AtomicOp,
        name: &str,
        args: &[Arg<'a>],
        span: Span,
    ) -> LowerResult<RValue> {
        if !(2..=3).contains(&args.len()) {
            return fail(ErrorKind::Call, span, format!("`{name}` takes 3 arguments, {} given", args.len()));
        }
        let (ptr, s) = self.atomic_ptr(&args[0], name, span)?;
        let v = self.values(name, &args[1..2], 1..=1, span)?.remove(0);
        let v = self.convert(v, &Ty::Scalar(s), false, span)?;
        if s.is_float() && matches!(op, AtomicOp::And | AtomicOp::Or | AtomicOp::Xor) {
            return fail(ErrorKind::Call, span, format!("`{name}` does not work on floats"));
        }
        let id = self.ir(&v);
        Ok(RValue::ir(Ty::Scalar(s), self.b.atomic(op, ptr, id)))
    }

    pub(super) fn memory_call(
        &mut self,
        m: MemoryFunction,
        name: &str,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<RValue> {
        match m {
            MemoryFunction::ThreadgroupBarrier | MemoryFunction::SimdgroupBarrier => {
                let v = self.values(name, &args, 1..=2, span)?;
                let mem = self.mem_flags(&v[0], span)?;
                let scope = if m == MemoryFunction::ThreadgroupBarrier {
                    BarrierScope::Threadgroup
                } else {
                    BarrierScope::Simdgroup
                };
                self.b.barrier(scope, mem);
                Ok(RValue::void())
            }
            MemoryFunction::AsyncBegin => {
                self.values(name, &args, 0..=0, span)?;
                Ok(RValue::ir(Ty::UINT, self.b.async_begin()))
            }
            MemoryFunction::AsyncEnd => {
                self.values(name, &args, 0..=0, span)?;
                self.b.async_end();
                Ok(RValue::void())
            }
            MemoryFunction::AsyncWait => {
                let event = self.values(name, &args, 1..=1, span)?.remove(0);
                let event = self.convert(event, &Ty::UINT, false, span)?;
                let event = self.ir(&event);
                self.b.async_wait(event);
                Ok(RValue::void())
            }
            MemoryFunction::Fence => {
                let v = self.values(name, &args, 1..=3, span)?;
                let mem = self.mem_flags(&v[0], span)?;
                self.b.fence(mem);
                Ok(RValue::void())
            }
            MemoryFunction::Load => {
                if args.is_empty() || args.len() > 2 {
                    return fail(
                        ErrorKind::Call,
                        span,
                        format!("`{name}` takes 2 arguments, {} given", args.len()),
                    );
                }
                let (ptr, s) = self.atomic_ptr(&args[0], name, span)?;
                Ok(RValue::ir(Ty::Scalar(s), self.b.atomic_load(ptr, Type::Scalar(s))))
            }
            MemoryFunction::Store => {
                if !(2..=3).contains(&args.len()) {
                    return fail(
                        ErrorKind::Call,
                        span,
                        format!("`{name}` takes 3 arguments, {} given", args.len()),
                    );
                }
                let (ptr, s) = self.atomic_ptr(&args[0], name, span)?;
                let v = self.values(name, &args[1..2], 1..=1, span)?.remove(0);
                let v = self.convert(v, &Ty::Scalar(s), false, span)?;
                let id = self.ir(&v);
                self.b.atomic_store(ptr, id);
                Ok(RValue::void())
            }
            MemoryFunction::CompareExchange => {
                if !(3..=5).contains(&args.len()) {
                    return fail(
                        ErrorKind::Call,
                        span,
                        format!("`{name}` takes 5 arguments, {} given", args.len()),
                    );
                }
                let (ptr, s) = self.atomic_ptr(&args[0], name, span)?;
                let expected = self.values(name, &args[1..2], 1..=1, span)?.remove(0);
                let ExprResult::Object(storage) = self.deref(&expected, span)? else {
                    return Err(Fail::Reported);
                };
                if storage.ty != Ty::Scalar(s) {
                    let want = crate::front::types::scalar_name(s);
                    return self.wrong_argument(name, &expected.ty, &format!("a pointer to `{want}`"), span);
                }
                let desired = self.values(name, &args[2..3], 1..=1, span)?.remove(0);
                let desired = self.convert(desired, &Ty::Scalar(s), false, span)?;
                let before = self.load(&storage, span)?;
                let (before, desired) = (self.ir(&before), self.ir(&desired));
                let old = self.b.atomic_compare_exchange(ptr, before, desired);
                // The bits are compared, as the exchange does: a NaN equals itself.
                let bits = match s.size() {
                    8 => Scalar::U64,
                    _ => Scalar::U32,
                };
                let (a, b) = (self.b.bitcast(old, bits.into()), self.b.bitcast(before, bits.into()));
                let same = self.b.compare(CmpOp::Eq, a, b);
                self.store(&storage, &RValue::ir(Ty::Scalar(s), old), span)?;
                Ok(RValue::ir(Ty::BOOL, same))
            }
        }
    }
}
