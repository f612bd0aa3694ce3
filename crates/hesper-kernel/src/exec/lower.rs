//! The lowering of each instruction.

use super::code::*;
use super::compile::{CompileError, CompiledValue, Compiler};
#[cfg(feature = "text")]
use super::folds::{self, FoldKind};
use super::groups;
use super::lanes::{self, convert, half, select};
use super::roots::{NULL, const_object, param_object, thread_object, threadgroup_object};
use crate::ir::*;
use crate::math::scalar::to_lane;

type LowerResult = Result<(), CompileError>;

/// Builtins that are the same for a whole launch.
pub(super) fn is_launch_wide(what: Builtin) -> bool {
    matches!(
        what,
        Builtin::DispatchThreadsPerThreadgroup
            | Builtin::ThreadgroupsPerGrid
            | Builtin::ThreadsPerGrid
            | Builtin::ThreadsPerSimdgroup
            | Builtin::DispatchSimdgroupsPerThreadgroup
            | Builtin::DispatchQuadgroupsPerThreadgroup
    )
}

impl Compiler<'_> {
    /// Whether the result is the same for the whole launch.
    fn is_fixed(&self, inst: &Inst) -> bool {
        match inst.op {
            Op::Load { ptr, .. } => self.fixed[ptr.index()] && self.is_frozen(ptr),
            value_op!() => {
                let mut all = !matches!(inst.op, Op::Builtin { what, .. } if !is_launch_wide(what));
                inst.op.for_each_operand(|u| all &= self.fixed[u.index()]);
                all
            }
            Op::Get(_) | Op::Set(..) | Op::Store { .. } => false,
            group_op!() | atomic_op!() | sync_op!() | control_op!() => false,
        }
    }

    /// Whether a pointer points into memory that the launch does not write.
    fn is_frozen(&self, ptr: ValueId) -> bool {
        let CompiledValue::Ptr { root: Root::Object(o), .. } = self.vals[ptr.index()] else {
            return false;
        };
        if (const_object(self.kernel, 0)..threadgroup_object(self.kernel, 0)).contains(&o) {
            return true;
        }
        let param = (o as usize).checked_sub(1).and_then(|i| self.kernel.params.get(i));
        matches!(param.map(|p| p.kind), Some(ParamKind::Buffer { access: Access::Read, .. }))
    }

    pub(super) fn inst(&mut self, inst: &Inst) -> LowerResult {
        let fixed = self.is_fixed(inst) && self.may_hoist();
        self.hoist = fixed;
        let r = self.lower(inst);
        self.hoist = false;
        if let Some(v) = inst.result {
            self.fixed[v.index()] = fixed;
        }
        r
    }

    fn lower(&mut self, inst: &Inst) -> LowerResult {
        let Some(d) = inst.result else {
            return self.lower_effect(inst.op, inst.loc);
        };
        let ty = self.kernel.ty(d);
        let s = ty.scalar().unwrap_or(Scalar::U64);
        match inst.op {
            Op::Const(bits) => {
                self.constants[d.index()] = Some(bits);
                let r = self.constant(lane_size(s), register_bits(s, bits));
                self.scalar(d, r);
            }
            Op::AsyncBegin => {
                let r = self.constant(lane_size(s), 1);
                self.scalar(d, r);
            }
            Op::NullPtr => self.object(d, NULL),
            Op::Param(i) => {
                let mut r = [0; 4];
                for (j, r) in r.iter_mut().enumerate().take(ty.lanes() as usize) {
                    *r = self.alloc_own(lane_size(s));
                    self.retain(*r);
                    self.code.values.push((*r, i, j as u32 * s.size() as u32, s));
                }
                self.define(d, CompiledValue::Regs(r, ty.lanes()));
            }
            Op::ParamPtr(i) => self.object(d, param_object(i)),
            Op::ConstPtr(i) => self.object(d, const_object(self.kernel, i)),
            Op::ThreadgroupPtr(i) => self.object(d, threadgroup_object(self.kernel, i)),
            Op::ThreadPtr(i) => self.object(d, thread_object(self.kernel, i)),
            Op::Builtin { what, axis } => {
                let r = self.builtin(what, axis, s == Scalar::U64);
                self.scalar(d, r);
            }
            Op::Unary(op, a) => {
                let s = self.kernel.ty(a).scalar().unwrap_or(s);
                self.map(d, a, |c, a| c.unary(op, s, a))?;
            }
            Op::Binary(op, a, b) => {
                if ty == Type::F32 && self.fused_product(d, op, a, b)? {
                    return Ok(());
                }
                self.map2(d, a, b, |c, a, b| c.binary(op, s, a, b))?;
            }
            Op::Compare(op, a, b) => {
                let at = self.kernel.ty(a);
                if at.is_ptr() {
                    return self.compare_pointers(d, op, a, b);
                }
                let s = at.scalar().unwrap_or(s);
                self.map2(d, a, b, |c, a, b| c.compare(op, s, a, b))?;
            }
            Op::Ternary(op, a, b, c) => {
                let f = lanes::ternary(op, s, self.level);
                let f = f.ok_or_else(|| self.error(format!("{op:?} does not take {s}")))?;
                let ((a, n), (b, _), (c, _)) = (self.regs(a)?, self.regs(b)?, self.regs(c)?);
                self.each(d, n, |this, i| {
                    let r = this.alloc(lane_size(s));
                    this.emit(Ins::Tern { f, d: r, a: a[i], b: b[i], c: c[i] });
                    Ok(r)
                })?;
            }
            Op::Select { cond, if_true, if_false } => self.select(d, cond, if_true, if_false)?,
            Op::Convert(a) => {
                let from = self.kernel.ty(a).scalar().unwrap_or(s);
                self.map(d, a, |c, a| c.convert(from, s, a))?;
            }
            Op::Bitcast(a) => self.bitcast(d, a)?,
            Op::Splat(a) => {
                let r = self.reg(a)?;
                self.define(d, CompiledValue::Regs([r; 4], ty.lanes()));
            }
            Op::Compose(parts) => {
                let mut r = [0; 4];
                for (r, &p) in r.iter_mut().zip(parts.as_slice()) {
                    *r = self.reg(p)?;
                }
                self.define(d, CompiledValue::Regs(r, ty.lanes()));
            }
            Op::Extract { vec, lane } => {
                let r = self.regs(vec)?.0[lane as usize & 3];
                self.scalar(d, r);
            }
            Op::Insert { vec, lane, value } => {
                let (mut r, n) = self.regs(vec)?;
                r[lane as usize & 3] = self.reg(value)?;
                self.define(d, CompiledValue::Regs(r, n));
            }
            Op::Shuffle { vec, lanes } => {
                let (from, _) = self.regs(vec)?;
                let mut r = [0; 4];
                for (r, &l) in r.iter_mut().zip(lanes.as_slice()) {
                    *r = from[l as usize & 3];
                }
                self.define(d, CompiledValue::Regs(r, ty.lanes()));
            }
            Op::ExtractDyn { vec, index } => {
                let (r, n) = self.regs(vec)?;
                let f = self.select_fn(lane_size(s));
                let mut out = self.constant(lane_size(s), 0);
                for (i, &r) in r[..n as usize].iter().enumerate() {
                    let here = self.index_is(index, i as u64)?;
                    let next = self.alloc(lane_size(s));
                    self.emit(Ins::Tern { f, d: next, a: here, b: r, c: out });
                    self.discard(here);
                    self.discard(out);
                    out = next;
                }
                self.scalar(d, out);
            }
            Op::InsertDyn { vec, index, value } => {
                let (r, n) = self.regs(vec)?;
                let value = self.reg(value)?;
                let f = self.select_fn(lane_size(s));
                self.each(d, n, |this, i| {
                    let here = this.index_is(index, i as u64)?;
                    let out = this.alloc(lane_size(s));
                    this.emit(Ins::Tern { f, d: out, a: here, b: value, c: r[i] });
                    this.discard(here);
                    Ok(out)
                })?;
            }
            Op::AllOf(a) => self.across(d, a, BinaryOp::And)?,
            Op::AnyOf(a) => self.across(d, a, BinaryOp::Or)?,

            Op::Get(v) => self.get(d, v)?,
            Op::PtrOffset { ptr, index, stride } => self.ptr_offset(d, ptr, index, stride)?,
            Op::PtrDiff { a, b, stride } => self.ptr_diff(d, a, b, stride)?,
            Op::Load { ptr, .. } => {
                let (root, offset, imm) = self.pointer(ptr)?;
                let mut regs = [0; 4];
                for r in &mut regs[..ty.lanes() as usize] {
                    *r = self.alloc(lane_size(s));
                }
                let pack = half::unpack(s, self.level);
                let (n, space, loc) = (ty.lanes(), self.space(ptr), inst.loc);
                let access = MemAccess { root, offset, imm, scalar: s, n, regs, pack, space, loc };
                let i = self.code.accesses.len() as u32;
                self.code.accesses.push(access);
                self.emit(Ins::Load(i));
                self.define(d, CompiledValue::Regs(regs, ty.lanes()));
            }
            Op::AtomicRmw { op, ptr, value } => {
                self.atomic(inst.loc, Some(d), s, AtomicKind::Rmw(op), ptr, [Some(value), None])?;
            }
            Op::AtomicLoad { ptr } => self.atomic(inst.loc, Some(d), s, AtomicKind::Load, ptr, [None; 2])?,
            Op::AtomicCompareExchange { ptr, expected, desired } => {
                let operands = [Some(desired), Some(expected)];
                self.atomic(inst.loc, Some(d), s, AtomicKind::CompareExchange, ptr, operands)?;
            }
            group_op!() => return self.lower_group(d, inst.op, s),
            Op::Set(..) | Op::Store { .. } | Op::AtomicStore { .. } | sync_op!() | control_op!() => {
                return Err(self.error(format!("{:?} has no result", inst.op)));
            }
        }
        Ok(())
    }

    fn lower_effect(&mut self, op: Op, loc: Loc) -> LowerResult {
        match op {
            Op::Set(v, value) => self.set(v, value)?,
            Op::Store { ptr, value, .. } => {
                let (root, offset, imm) = self.pointer(ptr)?;
                let (regs, n) = self.regs(value)?;
                let scalar = self.kernel.ty(value).scalar().unwrap_or(Scalar::U8);
                let pack = half::pack(scalar, self.level);
                let space = self.space(ptr);
                self.emit_store(MemAccess { root, offset, imm, scalar, n, regs, pack, space, loc }, value);
            }
            Op::AtomicStore { ptr, value } => {
                let s = self.kernel.ty(value).scalar().unwrap_or(Scalar::U32);
                self.atomic(loc, None, s, AtomicKind::Store, ptr, [Some(value), None])?;
            }
            // Lanes of a SIMD group run in lock step, so its barrier has no effect.
            Op::Barrier { scope: Scope::Simdgroup, .. } => {}
            // An asynchronous copy runs synchronously, where it is described.
            Op::AsyncEnd | Op::AsyncWait(_) => {}
            Op::Barrier { scope: Scope::Threadgroup, .. } => {
                self.code.barriers = true;
                self.code.grouped = true;
                self.cut();
                self.emit(Ins::Barrier);
                self.cut();
            }
            Op::Fence { .. } => self.emit(Ins::Fence),
            control_op!() => self.control(op)?,
            Op::AtomicRmw { .. }
            | Op::AtomicLoad { .. }
            | Op::AtomicCompareExchange { .. }
            | Op::Get(_)
            | Op::Load { .. }
            | value_op!()
            | group_op!() => {
                return Err(self.error(format!("the result of {op:?} is not named")));
            }
        }
        Ok(())
    }

    fn lower_group(&mut self, d: ValueId, op: Op, s: Scalar) -> LowerResult {
        self.code.lanewise = true;
        self.code.grouped = true;
        match op {
            #[cfg(not(feature = "text"))]
            Op::GroupReduce { .. } | Op::GroupScan { .. } => {
                return Err(self.error(format!("{op:?} needs the feature `text`")));
            }
            #[cfg(feature = "text")]
            Op::GroupReduce { group, op, value } => {
                let f = folds::fold(FoldKind::All, op, s, self.level)
                    .ok_or_else(|| self.error(format!("a reduction by {op:?} does not take {s}")))?;
                let identity = folds::identity(op, s);
                self.map(d, value, |c, a| {
                    let r = c.alloc(lane_size(s));
                    c.emit(Ins::Reduce { f, d: r, a, identity, group });
                    Ok(r)
                })?;
            }
            #[cfg(feature = "text")]
            Op::GroupScan { group, op, inclusive, value } => {
                let over = if inclusive { FoldKind::Inclusive } else { FoldKind::Exclusive };
                let f = folds::fold(over, op, s, self.level)
                    .ok_or_else(|| self.error(format!("a scan by {op:?} does not take {s}")))?;
                let identity = folds::identity(op, s);
                self.map(d, value, |c, a| {
                    let r = c.alloc(lane_size(s));
                    c.emit(Ins::Scan { f, d: r, a, identity, group });
                    Ok(r)
                })?;
            }
            Op::GroupShuffle { group, kind, value, arg } => {
                let from = self.kernel.ty(arg).scalar().unwrap_or(Scalar::U32);
                let arg = self.reg(arg)?;
                let to = if from.is_signed_int() { Scalar::I32 } else { Scalar::U32 };
                let mut arg = self.convert(from, to, arg)?;
                if from == Scalar::U32 && matches!(kind, ShuffleKind::Up | ShuffleKind::Down) {
                    // Every distance past the end of the group acts alike; clamped, it is not negative as an
                    // i32.
                    let far = self.constant(4, 64);
                    arg = self.binary(BinaryOp::Min, Scalar::U32, arg, far)?;
                }
                let f = groups::shuffle(lane_size(s), self.level);
                self.map(d, value, |c, a| {
                    let r = c.alloc(lane_size(s));
                    c.emit(Ins::Shuffle { f, d: r, a, arg, kind, group });
                    Ok(r)
                })?;
                self.discard(arg);
            }
            Op::GroupBroadcastFirst { group, value } => {
                let f = groups::first(lane_size(s));
                self.map(d, value, |c, a| {
                    let r = c.alloc(lane_size(s));
                    c.emit(Ins::First { f, d: r, a, group });
                    Ok(r)
                })?;
            }
            Op::GroupBallot { group, value } => self.vote(d, Some(value), Vote::Ballot, group)?,
            Op::GroupAll { group, value } => self.vote(d, Some(value), Vote::All, group)?,
            Op::GroupAny { group, value } => self.vote(d, Some(value), Vote::Any, group)?,
            Op::GroupIsFirst { group } => self.vote(d, None, Vote::IsFirst, group)?,
            Op::GroupActiveMask { group } => self.vote(d, None, Vote::Ballot, group)?,
            Op::SimdMatMulAcc { a, b, c } => {
                let f = groups::matmul(s, self.level);
                let mut of = |v| -> Result<[Reg; 2], CompileError> {
                    let (r, _) = self.regs(v)?;
                    Ok([self.full(r[0]), self.full(r[1])])
                };
                let (a, b, c) = (of(a)?, of(b)?, of(c)?);
                let r = [self.alloc(4), self.alloc(4)];
                self.emit(Ins::Matrix { f, a, b, c, d: r });
                for x in a.into_iter().chain(b).chain(c) {
                    self.discard(x);
                }
                self.define(d, CompiledValue::Regs([r[0], r[1], 0, 0], 2));
            }
            Op::Get(_) | Op::Set(..) | Op::Load { .. } | Op::Store { .. } => {}
            value_op!() | atomic_op!() | sync_op!() | control_op!() => {}
        }
        Ok(())
    }

    // ---- Helpers ----

    fn scalar(&mut self, d: ValueId, r: Reg) {
        self.define(d, CompiledValue::Regs([r, 0, 0, 0], 1));
    }

    fn object(&mut self, d: ValueId, object: u32) {
        let offset = self.constant(8, 0);
        self.define(d, CompiledValue::Ptr { root: Root::Object(object), offset, imm: 0 });
    }

    /// Defines a value component by component.
    fn each(
        &mut self,
        d: ValueId,
        n: u8,
        mut f: impl FnMut(&mut Self, usize) -> Result<Reg, CompileError>,
    ) -> LowerResult {
        let mut r = [0; 4];
        for (i, r) in r.iter_mut().enumerate().take(n as usize) {
            *r = f(self, i)?;
        }
        self.define(d, CompiledValue::Regs(r, n));
        Ok(())
    }

    fn map(
        &mut self,
        d: ValueId,
        a: ValueId,
        mut f: impl FnMut(&mut Self, Reg) -> Result<Reg, CompileError>,
    ) -> LowerResult {
        let (a, n) = self.regs(a)?;
        self.each(d, n, |this, i| f(this, a[i]))
    }

    fn map2(
        &mut self,
        d: ValueId,
        a: ValueId,
        b: ValueId,
        mut f: impl FnMut(&mut Self, Reg, Reg) -> Result<Reg, CompileError>,
    ) -> LowerResult {
        let ((a, n), (b, _)) = (self.regs(a)?, self.regs(b)?);
        self.each(d, n, |this, i| f(this, a[i], b[i]))
    }

    fn un(&mut self, f: super::lanes::Fn1, size: u8, a: Reg) -> Reg {
        let d = self.alloc(size);
        self.emit(Ins::Un { f, d, a, affine: Affine::No });
        d
    }

    /// Rounds to a 16-bit float type, if needed.
    fn rounded(&mut self, s: Scalar, r: Reg, needed: bool) -> Reg {
        match half::round(s, self.level).filter(|_| needed) {
            Some(f) => {
                let d = self.un(f, 4, r);
                self.discard(r);
                d
            }
            None => r,
        }
    }

    fn unary(&mut self, op: UnaryOp, s: Scalar, a: Reg) -> Result<Reg, CompileError> {
        if op == UnaryOp::Neg && s.is_int() && s.size() >= 4 {
            // A difference keeps affine integers affine.
            let zero = self.constant(s.size() as u8, 0);
            return self.binary(BinaryOp::Sub, s, zero, a);
        }
        let (f, round) =
            lanes::unary(op, s, self.level).ok_or_else(|| self.error(format!("{op:?} does not take {s}")))?;
        let d = self.un(f, lane_size(op.result(s)), a);
        Ok(self.rounded(s, d, round))
    }

    pub(super) fn binary(&mut self, op: BinaryOp, s: Scalar, a: Reg, b: Reg) -> Result<Reg, CompileError> {
        let (f, round) = lanes::binary(op, s, self.level)
            .ok_or_else(|| self.error(format!("{op:?} does not take {s}")))?;
        let affine = match op {
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Shl
            | BinaryOp::Div
            | BinaryOp::Rem
            | BinaryOp::Shr
            | BinaryOp::And
                if matches!(s, Scalar::I32 | Scalar::U32 | Scalar::I64 | Scalar::U64) =>
            {
                Affine::Op(op, s)
            }
            _ => Affine::No,
        };
        let d = self.alloc(lane_size(s));
        self.emit(Ins::Bin { f, d, a, b, affine });
        Ok(self.rounded(s, d, round))
    }

    /// Fuses a sum with the product just emitted, if the product has no other use. Both are rounded.
    fn fused_product(
        &mut self,
        d: ValueId,
        op: BinaryOp,
        a: ValueId,
        b: ValueId,
    ) -> Result<bool, CompileError> {
        if self.hoist || a == b || !matches!(op, BinaryOp::Add | BinaryOp::Sub) {
            return Ok(false);
        }
        for (product, other, on_left) in [(a, b, true), (b, a, false)] {
            let r = self.reg(product)?;
            if self.info.uses[product.index()] != 1 || self.info.end[product.index()] != self.position {
                continue;
            }
            let Some((x, y)) = self.take_last_product(r) else {
                continue;
            };
            let how = match (op, on_left) {
                (BinaryOp::Add, _) => select::Product::Plus,
                (_, true) => select::Product::Minus,
                (_, false) => select::Product::From,
            };
            let f = select::product(how, self.level);
            let c = self.reg(other)?;
            // The registers of the factors may be free again; the result must not reuse them.
            let mut taken = Vec::new();
            let mut out = self.alloc(4);
            while out == x || out == y {
                taken.push(std::mem::replace(&mut out, 0));
                out = self.alloc(4);
            }
            taken.into_iter().for_each(|r| self.discard(r));
            self.emit(Ins::Tern { f, d: out, a: x, b: y, c });
            self.scalar(d, out);
            return Ok(true);
        }
        Ok(false)
    }

    fn compare(&mut self, op: CmpOp, s: Scalar, a: Reg, b: Reg) -> Result<Reg, CompileError> {
        let f = lanes::compare(op, s, self.level);
        let d = self.alloc(1);
        self.emit(Ins::Cmp { f, d, a, b, op, scalar: s });
        Ok(d)
    }

    pub(super) fn convert(&mut self, from: Scalar, to: Scalar, a: Reg) -> Result<Reg, CompileError> {
        if from == to || convert::is_free(from, to) {
            return Ok(a);
        }
        let f = convert::convert(from, to, self.level);
        let wide = |s: Scalar| s.is_int() && s.size() >= 4;
        let affine = if wide(from) && wide(to) { Affine::Convert(from, to) } else { Affine::No };
        let d = self.alloc(lane_size(to));
        self.emit(Ins::Un { f, d, a, affine });
        Ok(d)
    }

    /// Whether a run-time index is `i`.
    fn index_is(&mut self, index: ValueId, i: u64) -> Result<Reg, CompileError> {
        let s = self.kernel.ty(index).scalar().unwrap_or(Scalar::U32);
        let r = self.reg(index)?;
        let i = self.constant(lane_size(s), i);
        self.compare(CmpOp::Eq, s, r, i)
    }

    fn across(&mut self, d: ValueId, a: ValueId, op: BinaryOp) -> LowerResult {
        let (r, n) = self.regs(a)?;
        let mut out = r[0];
        for &r in &r[1..n as usize] {
            let next = self.binary(op, Scalar::Bool, out, r)?;
            self.discard(out);
            out = next;
        }
        self.scalar(d, out);
        Ok(())
    }

    fn choose(&mut self, size: u8, cond: Reg, a: Reg, b: Reg) -> Reg {
        let f = self.select_fn(size);
        let d = self.alloc(size);
        self.emit(Ins::Tern { f, d, a: cond, b: a, c: b });
        d
    }

    fn select(&mut self, d: ValueId, cond: ValueId, if_true: ValueId, if_false: ValueId) -> LowerResult {
        let (cond, parts) = self.regs(cond)?;
        if let (CompiledValue::Ptr { .. }, CompiledValue::Ptr { .. }) =
            (self.vals[if_true.index()], self.vals[if_false.index()])
        {
            let (ra, oa, ia) = self.pointer(if_true)?;
            let (rb, ob, ib) = self.pointer(if_false)?;
            let (wa, wb) = (self.whole_offset(oa, ia)?, self.whole_offset(ob, ib)?);
            let offset = self.choose(8, cond[0], wa, wb);
            self.discard(wa);
            self.discard(wb);
            let root = if ra == rb {
                ra
            } else {
                let (x, y) = (self.object_reg(ra), self.object_reg(rb));
                Root::Dynamic(self.choose(4, cond[0], x, y))
            };
            self.define(d, CompiledValue::Ptr { root, offset, imm: 0 });
            return Ok(());
        }
        let ((a, n), (b, _)) = (self.regs(if_true)?, self.regs(if_false)?);
        self.each(d, n, |this, i| {
            let c = if parts == 1 { cond[0] } else { cond[i] };
            Ok(this.choose(this.lane_size(a[i]), c, a[i], b[i]))
        })
    }

    fn builtin(&mut self, what: Builtin, axis: u8, is_u64: bool) -> Reg {
        if !is_launch_wide(what) && what != Builtin::ThreadPositionInGrid {
            self.code.grouped = true;
        }
        let axis = if what.has_axes() { axis } else { 0 };
        let known =
            self.code.builtins.iter().find(|b| b.what == what && b.axis == axis && b.is_u64 == is_u64);
        if let Some(b) = known {
            return b.reg;
        }
        // It is filled at the start of every block of lanes, so it is not reused.
        let reg = self.alloc_own(if is_u64 { 8 } else { 4 });
        self.retain(reg);
        self.code.builtins.push(BuiltinReg { what, axis, is_u64, reg });
        reg
    }

    fn vote(&mut self, d: ValueId, a: Option<ValueId>, what: Vote, group: Group) -> LowerResult {
        let a = a.map(|a| self.reg(a)).transpose()?;
        let r = self.alloc(if what == Vote::Ballot { 4 } else { 1 });
        self.emit(Ins::Vote { d: r, a, what, group });
        self.scalar(d, r);
        Ok(())
    }

    /// The address space of a pointer.
    fn space(&self, ptr: ValueId) -> Space {
        self.kernel.ty(ptr).space().unwrap_or(Space::Device)
    }

    fn atomic(
        &mut self,
        loc: Loc,
        d: Option<ValueId>,
        scalar: Scalar,
        kind: AtomicKind,
        ptr: ValueId,
        [value, expected]: [Option<ValueId>; 2],
    ) -> LowerResult {
        let (root, offset, imm) = self.pointer(ptr)?;
        let value = value.map(|v| self.reg(v)).transpose()?;
        let expected = expected.map(|v| self.reg(v)).transpose()?;
        let used = d.filter(|d| self.info.uses[d.index()] > 0);
        let result = used.map(|_| self.alloc(lane_size(scalar)));
        let (i, space) = (self.code.atomics.len() as u32, self.space(ptr));
        let atomic = Atomic { kind, root, offset, imm, scalar, value, expected, result, space, loc };
        self.code.atomics.push(atomic);
        self.emit(Ins::Atomic(i));
        if let (Some(d), Some(r)) = (used, result) {
            self.scalar(d, r);
        }
        Ok(())
    }

    // ---- Pointers ----

    fn ptr_offset(&mut self, d: ValueId, ptr: ValueId, index: ValueId, stride: i64) -> LowerResult {
        let (root, offset, imm) = self.pointer(ptr)?;
        let s = self.kernel.ty(index).scalar().unwrap_or(Scalar::I64);
        if let Some(bits) = self.constants[index.index()] {
            let i = match s {
                Scalar::I32 => i64::from(bits as u32 as i32),
                Scalar::U32 => i64::from(bits as u32),
                _ => bits as i64,
            };
            let imm = imm.wrapping_add(i.wrapping_mul(stride));
            self.define(d, CompiledValue::Ptr { root, offset, imm });
            return Ok(());
        }
        let f = convert::address(s, self.level).ok_or_else(|| {
            self.error(format!("a pointer offset takes an index of 32 or 64 bits, not a {s}"))
        })?;
        let index = self.reg(index)?;
        let stride = self.constant(8, stride as u64);
        let r = self.alloc(8);
        self.emit(Ins::Address { f, d: r, index, offset, stride, scalar: s });
        self.define(d, CompiledValue::Ptr { root, offset: r, imm });
        Ok(())
    }

    fn ptr_diff(&mut self, d: ValueId, a: ValueId, b: ValueId, stride: i64) -> LowerResult {
        let (ra, oa, ia) = self.pointer(a)?;
        let (rb, ob, ib) = self.pointer(b)?;
        let diff = self.binary(BinaryOp::Sub, Scalar::I64, oa, ob)?;
        let whole = self.whole_offset(diff, ia.wrapping_sub(ib))?;
        let by = self.constant(8, stride as u64);
        let out = self.binary(BinaryOp::Div, Scalar::I64, whole, by)?;
        self.discard(diff);
        self.discard(whole);
        let out = match (ra, rb) {
            (Root::Object(a), Root::Object(b)) if a == b && a != NULL => out,
            _ => {
                // The distance between different objects, or of null, is 0.
                let (x, y) = (self.object_reg(ra), self.object_reg(rb));
                let null = self.constant(4, u64::from(NULL));
                let zero = self.constant(8, 0);
                let same = self.compare(CmpOp::Eq, Scalar::U32, x, y)?;
                let real = self.compare(CmpOp::Ne, Scalar::U32, x, null)?;
                let both = self.binary(BinaryOp::And, Scalar::Bool, same, real)?;
                let r = self.choose(8, both, out, zero);
                for t in [same, real, both, out] {
                    self.discard(t);
                }
                r
            }
        };
        self.scalar(d, out);
        Ok(())
    }

    fn compare_pointers(&mut self, d: ValueId, op: CmpOp, a: ValueId, b: ValueId) -> LowerResult {
        let (ra, oa, ia) = self.pointer(a)?;
        let (rb, ob, ib) = self.pointer(b)?;
        let (oa, ob) = (self.whole_offset(oa, ia)?, self.whole_offset(ob, ib)?);
        let (x, y) = (self.object_reg(ra), self.object_reg(rb));
        // The offset of null does not count.
        let null = self.constant(4, u64::from(NULL));
        let zero = self.constant(8, 0);
        let a_null = self.compare(CmpOp::Eq, Scalar::U32, x, null)?;
        let b_null = self.compare(CmpOp::Eq, Scalar::U32, y, null)?;
        let oa = self.choose(8, a_null, zero, oa);
        let ob = self.choose(8, b_null, zero, ob);
        let same = self.compare(CmpOp::Eq, Scalar::U32, x, y)?;
        let by_offset = self.compare(op, Scalar::I64, oa, ob)?;
        let by_object = self.compare(op, Scalar::U32, x, y)?;
        let r = self.choose(1, same, by_offset, by_object);
        for t in [a_null, b_null, oa, ob, same, by_offset, by_object] {
            self.discard(t);
        }
        self.scalar(d, r);
        Ok(())
    }

    // ---- Reinterpretation ----

    fn bitcast(&mut self, d: ValueId, a: ValueId) -> LowerResult {
        let (from_ty, to_ty) = (self.kernel.ty(a), self.kernel.ty(d));
        if from_ty.is_ptr() || to_ty.is_ptr() {
            let val = self.vals[a.index()];
            self.define(d, val);
            return Ok(());
        }
        let (Some(from), Some(to)) = (from_ty.scalar(), to_ty.scalar()) else {
            return Err(self.error("a bitcast of a pointer"));
        };
        // Through unsigned integers of the form in memory.
        let (r, n) = self.regs(a)?;
        let mut parts = Vec::new();
        for &r in &r[..n as usize] {
            parts.push(match half::pack(from, self.level) {
                Some(f) => self.un(f, 2, r),
                None => r,
            });
        }
        let unsigned = |s: Scalar| match s.size() {
            1 => Scalar::U8,
            2 => Scalar::U16,
            4 => Scalar::U32,
            _ => Scalar::U64,
        };
        let (fu, tu) = (unsigned(from), unsigned(to));
        let parts = self.regroup(parts, fu, tu)?;
        let mut out = [0; 4];
        for (out, p) in out.iter_mut().zip(parts) {
            *out = match half::unpack(to, self.level) {
                Some(f) => self.un(f, lane_size(to), p),
                None => p,
            };
        }
        self.define(d, CompiledValue::Regs(out, to_ty.lanes()));
        Ok(())
    }

    /// The same bytes in integers of another size, low ones first.
    fn regroup(&mut self, parts: Vec<Reg>, from: Scalar, to: Scalar) -> Result<Vec<Reg>, CompileError> {
        if from == to {
            return Ok(parts);
        }
        let mut out = Vec::new();
        if from.size() < to.size() {
            for group in parts.chunks((to.size() / from.size()) as usize) {
                let mut all = self.constant(to.size() as u8, 0);
                for (i, &p) in group.iter().enumerate() {
                    let wide = self.convert(from, to, p)?;
                    let by = self.constant(to.size() as u8, i as u64 * u64::from(from.bits()));
                    let shifted = self.binary(BinaryOp::Shl, to, wide, by)?;
                    all = self.binary(BinaryOp::Or, to, all, shifted)?;
                }
                out.push(all);
            }
        } else {
            for p in parts {
                for i in 0..from.size() / to.size() {
                    let by = self.constant(from.size() as u8, i * u64::from(to.bits()));
                    let shifted = self.binary(BinaryOp::Shr, from, p, by)?;
                    out.push(self.convert(from, to, shifted)?);
                }
            }
        }
        Ok(out)
    }
}

/// A constant's bits in the form of a register.
fn register_bits(s: Scalar, bits: u64) -> u64 {
    if s == Scalar::Bool { u64::from(bits & 0xff != 0) } else { to_lane(s, bits) }
}
