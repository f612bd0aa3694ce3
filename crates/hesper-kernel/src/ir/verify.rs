//! The verifier: structure, dominance and types of a kernel.
//!
//! It assumes nothing about its input: ids may be out of range, blocks may form cycles. A kernel that it
//! accepts is safe to walk recursively (nesting is bounded) and to index without further checks, and every op
//! has operands of the types that its documentation demands.

use super::inst::*;
use super::kernel::*;
use super::ops::*;
use super::types::{Scalar, Space, Type};

/// Checks a kernel. Fails with the first violation in program order.
pub fn verify(kernel: &Kernel) -> Result<(), IrError> {
    let mut v = Verifier {
        k: kernel,
        visible: vec![false; kernel.values.len()],
        defined: vec![false; kernel.values.len()],
        seen: vec![false; kernel.blocks.len()],
        loc: Loc::UNKNOWN,
    };
    v.tables()
        .and_then(|()| v.block(kernel.body, 1, Inside::Nothing))
        .map_err(|message| IrError::at(kernel, v.loc, message))
}

type CheckResult = Result<(), String>;

/// The part of a loop that encloses a block. It decides which jumps the block may hold.
#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Nothing,
    Body,
    Continuing,
}

struct Verifier<'a> {
    k: &'a Kernel,
    /// By value: whether it can be used at this point.
    visible: Vec<bool>,
    /// By value: whether an instruction has defined it.
    defined: Vec<bool>,
    /// By block: whether an instruction holds it.
    seen: Vec<bool>,
    loc: Loc,
}

fn ensure(ok: bool, message: impl FnOnce() -> String) -> CheckResult {
    if ok { Ok(()) } else { Err(message()) }
}

impl Verifier<'_> {
    fn tables(&self) -> CheckResult {
        let k = self.k;
        for p in &k.params {
            let (ty, space) = match p.kind {
                ParamKind::Value(ty) => (ty, Space::Constant),
                ParamKind::Buffer { space, elem, access } => {
                    ensure(!(space == Space::Constant && access.writes()), || {
                        format!("parameter {} writes to constant memory", p.name)
                    })?;
                    (elem, space)
                }
            };
            ensure(storable(ty), || format!("parameter {} has type {ty}, which cannot be stored", p.name))?;
            ensure(matches!(space, Space::Device | Space::Constant), || {
                format!("parameter {} is in {space} memory, not in device or constant memory", p.name)
            })?;
        }
        let vars = k.threadgroup_vars.iter().chain(&k.thread_vars).map(|v| (&v.name, v.align));
        for (name, align) in vars.chain(k.const_vars.iter().map(|v| (&v.name, v.align))) {
            ensure(is_alignment(align), || {
                format!("alignment {align} of {name} is not a power of two up to 256")
            })?;
        }
        ensure(k.const_vars.iter().map(|v| v.data.len() as u64).sum::<u64>() <= MAX_CONST_BYTES, || {
            format!("constant tables are limited to {MAX_CONST_BYTES} bytes")
        })?;
        let sum = |vars: &[MemVar], limit: u64, what: &str| {
            let total = vars.iter().try_fold(0u64, |t, v| t.checked_add(v.size));
            ensure(total.is_some_and(|t| t <= limit), || format!("{what} memory is limited to {limit} bytes"))
        };
        sum(&k.threadgroup_vars, MAX_THREADGROUP_BYTES, "threadgroup")?;
        sum(&k.thread_vars, MAX_THREAD_BYTES, "thread")?;
        for v in &k.vars {
            ensure(valid(v.ty), || format!("variable {} has the type {}, which is not valid", v.name, v.ty))?;
        }
        for (i, v) in k.values.iter().enumerate() {
            ensure(valid(v.ty), || format!("value %{i} has the type {}, which is not valid", v.ty))?;
        }
        ensure(k.inst_count() <= MAX_INSTS, || format!("more than {MAX_INSTS} instructions"))
    }

    fn block(&mut self, id: BlockId, depth: u32, inside: Inside) -> CheckResult {
        ensure(depth <= MAX_NESTING, || format!("blocks nest deeper than {MAX_NESTING}"))?;
        match self.seen.get_mut(id.index()) {
            Some(seen) if !*seen => *seen = true,
            Some(_) => return Err(format!("block {} is used twice", id.0)),
            None => return Err(format!("no block {}", id.0)),
        }
        let k = self.k;
        let insts = &k.block(id).insts;
        for (n, inst) in insts.iter().enumerate() {
            self.loc = inst.loc;
            ensure(inst.loc.index() < k.locs.len(), || format!("no location {}", inst.loc.0))?;
            ensure(!inst.op.is_terminator() || n + 1 == insts.len(), || {
                "unreachable code after a jump".into()
            })?;
            let mut operands = Ok(());
            inst.op.for_each_operand(|v| {
                if operands.is_ok() && !self.visible.get(v.index()).is_some_and(|&x| x) {
                    operands = Err(format!("{v} is not defined here"));
                }
            });
            operands?;
            match inst.op {
                Op::If { cond, then, els } => {
                    self.expect(cond, Type::BOOL)?;
                    self.block(then, depth + 1, inside)?;
                    self.block(els, depth + 1, inside)?;
                }
                Op::Loop { body, continuing } => {
                    self.block(body, depth + 1, Inside::Body)?;
                    self.block(continuing, depth + 1, Inside::Continuing)?;
                }
                Op::Break => ensure(inside != Inside::Nothing, || "break outside a loop".into())?,
                Op::Continue => ensure(inside == Inside::Body, || "continue outside a loop's body".into())?,
                _ => {}
            }
            self.loc = inst.loc;
            let want = self.result_type(inst)?;
            match (want, inst.result) {
                (ExpectedResult::None, None) => {}
                (ExpectedResult::None, Some(v)) => {
                    return Err(format!("{v} is named as the result of an instruction that has none"));
                }
                (_, None) => return Err("the result is not named".into()),
                (ExpectedResult::Any, Some(v)) => self.define(v)?,
                (ExpectedResult::Type(ty), Some(v)) => {
                    self.define(v)?;
                    self.expect(v, ty)?;
                }
            }
        }
        for inst in insts {
            if let Some(v) = inst.result {
                self.visible[v.index()] = false;
            }
        }
        Ok(())
    }

    fn define(&mut self, v: ValueId) -> CheckResult {
        match self.defined.get_mut(v.index()) {
            Some(d) if !*d => *d = true,
            Some(_) => return Err(format!("{v} is defined twice")),
            None => return Err(format!("{v} is not in the table of values")),
        }
        self.visible[v.index()] = true;
        Ok(())
    }

    fn ty(&self, v: ValueId) -> Type {
        self.k.ty(v)
    }

    fn expect(&self, v: ValueId, ty: Type) -> CheckResult {
        ensure(self.ty(v) == ty, || format!("{v} is a {} where a {ty} is needed", self.ty(v)))
    }

    fn same(&self, a: ValueId, b: ValueId) -> CheckResult {
        self.expect(b, self.ty(a))
    }

    fn scalar_of(&self, v: ValueId, operands: Operands) -> Result<Scalar, String> {
        match self.ty(v).scalar() {
            Some(s) if operands.accept(s) => Ok(s),
            _ => Err(format!("{v} is a {} where {} is needed", self.ty(v), operands.describe())),
        }
    }

    fn index(&self, v: ValueId) -> CheckResult {
        let ok = matches!(self.ty(v), Type::Scalar(Scalar::I32 | Scalar::U32 | Scalar::I64 | Scalar::U64));
        ensure(ok, || format!("{v} is a {}, not an index", self.ty(v)))
    }

    fn ptr(&self, v: ValueId) -> Result<Space, String> {
        self.ty(v).space().ok_or_else(|| format!("{v} is a {}, not a pointer", self.ty(v)))
    }

    fn vec(&self, v: ValueId) -> Result<(Scalar, u8), String> {
        match self.ty(v) {
            Type::Vec(s, n) => Ok((s, n)),
            t => Err(format!("{v} is a {t}, not a vector")),
        }
    }

    fn access(&self, ptr: ValueId, ty: Type, align: u32) -> CheckResult {
        self.ptr(ptr)?;
        ensure(storable(ty), || format!("a {ty} cannot be loaded or stored"))?;
        ensure(is_alignment(align), || format!("alignment {align} is not a power of two up to 256"))
    }

    fn atomic(&self, ptr: ValueId, ty: Type) -> CheckResult {
        let space = self.ptr(ptr)?;
        ensure(matches!(space, Space::Device | Space::Threadgroup), || {
            format!("no atomic access to {space} memory")
        })?;
        let ok =
            matches!(ty, Type::Scalar(Scalar::I32 | Scalar::U32 | Scalar::I64 | Scalar::U64 | Scalar::F32));
        ensure(ok, || format!("no atomic access to a {ty}"))
    }

    /// Checks the operand types; gives the type of the result.
    fn result_type(&self, inst: &Inst) -> Result<ExpectedResult, String> {
        let k = self.k;
        // The declared result type, for ops that leave it open.
        let declared = inst.result.and_then(|v| k.values.get(v.index())).map(|i| i.ty);
        let declared_or = || declared.ok_or_else(|| "the result is not named".to_string());
        let bools = |t: Type| ExpectedResult::Type(t.with_scalar(Scalar::Bool));
        Ok(match inst.op {
            Op::Const(bits) => {
                let Type::Scalar(s) = declared_or()? else {
                    return Err("a constant must be a scalar".into());
                };
                let width = if s == Scalar::Bool { 1 } else { s.bits() };
                ensure(width == 64 || bits >> width == 0, || format!("constant {bits:#x} does not fit {s}"))?;
                ExpectedResult::Any
            }
            Op::NullPtr => {
                ensure(declared_or()?.is_ptr(), || "the type of null must be a pointer".into())?;
                ExpectedResult::Any
            }
            Op::Param(i) => match k.params.get(i as usize).map(|p| p.kind) {
                Some(ParamKind::Value(ty)) => ExpectedResult::Type(ty),
                _ => return Err(format!("parameter {i} is not passed by value")),
            },
            Op::ParamPtr(i) => match k.params.get(i as usize).map(|p| p.kind) {
                Some(ParamKind::Buffer { space, .. }) => ExpectedResult::Type(Type::Ptr(space)),
                _ => return Err(format!("parameter {i} is not a buffer")),
            },
            Op::ThreadgroupPtr(i) => {
                ensure((i as usize) < k.threadgroup_vars.len(), || format!("no threadgroup variable {i}"))?;
                ExpectedResult::Type(Type::Ptr(Space::Threadgroup))
            }
            Op::ThreadPtr(i) => {
                ensure((i as usize) < k.thread_vars.len(), || format!("no thread variable {i}"))?;
                ExpectedResult::Type(Type::Ptr(Space::Thread))
            }
            Op::ConstPtr(i) => {
                ensure((i as usize) < k.const_vars.len(), || format!("no constant table {i}"))?;
                ExpectedResult::Type(Type::Ptr(Space::Constant))
            }
            Op::Builtin { what, axis } => {
                let axes = if what.has_axes() { 3 } else { 1 };
                ensure(axis < axes, || format!("{what:?} has no axis {axis}"))?;
                let t = declared_or()?;
                ensure(t == Type::U32 || t == Type::U64, || format!("a builtin is u32 or u64, not {t}"))?;
                ExpectedResult::Any
            }
            Op::Unary(op, a) => {
                let s = self.scalar_of(a, op.operands())?;
                ExpectedResult::Type(self.ty(a).with_scalar(op.result(s)))
            }
            Op::Binary(op, a, b) => {
                let s = self.scalar_of(a, op.operands())?;
                self.expect(b, self.ty(a).with_scalar(op.right(s)))?;
                ExpectedResult::Type(self.ty(a))
            }
            Op::Compare(op, a, b) => {
                self.same(a, b)?;
                let equality = matches!(op, CmpOp::Eq | CmpOp::Ne);
                ensure(equality || self.ty(a).scalar() != Some(Scalar::Bool), || {
                    "bools compare only for equality".into()
                })?;
                match self.ty(a) {
                    Type::Ptr(_) => ExpectedResult::Type(Type::BOOL),
                    t => bools(t),
                }
            }
            Op::Ternary(op, a, b, c) => {
                self.scalar_of(a, op.operands())?;
                self.same(a, b)?;
                self.same(a, c)?;
                ExpectedResult::Type(self.ty(a))
            }
            Op::Select { cond, if_true, if_false } => {
                self.same(if_true, if_false)?;
                let t = self.ty(if_true);
                if self.ty(cond) != Type::BOOL {
                    ensure(t.is_vec(), || "a vector condition needs vector operands".into())?;
                    self.expect(cond, t.with_scalar(Scalar::Bool))?;
                }
                ExpectedResult::Type(t)
            }
            Op::Convert(a) => {
                let (from, to) = (self.ty(a), declared_or()?);
                ensure(storable(from) && storable(to) && from.lanes() == to.lanes(), || {
                    format!("no conversion from {from} to {to}")
                })?;
                ExpectedResult::Any
            }
            Op::Bitcast(a) => {
                let (from, to) = (self.ty(a), declared_or()?);
                let bits = |t: Type| storable(t) && t.scalar() != Some(Scalar::Bool);
                ensure(bits(from) && bits(to) && from.size() == to.size(), || {
                    format!("no bitcast from {from} to {to}")
                })?;
                ExpectedResult::Any
            }
            Op::Splat(a) => match (self.ty(a), declared_or()?) {
                (Type::Scalar(s), Type::Vec(t, _)) if s == t => ExpectedResult::Any,
                (from, to) => return Err(format!("no splat from {from} to {to}")),
            },
            Op::Compose(parts) => {
                let parts = parts.as_slice();
                let Type::Scalar(s) = self.ty(parts[0]) else {
                    return Err("vectors are composed of scalars".into());
                };
                for &p in parts {
                    self.same(parts[0], p)?;
                }
                ensure(parts.len() >= 2, || "a vector needs at least 2 components".into())?;
                ExpectedResult::Type(Type::Vec(s, parts.len() as u8))
            }
            Op::Extract { vec, lane } => {
                let (s, n) = self.vec(vec)?;
                ensure(lane < n, || format!("no component {lane} in a vector of {n}"))?;
                ExpectedResult::Type(Type::Scalar(s))
            }
            Op::Insert { vec, lane, value } => {
                let (s, n) = self.vec(vec)?;
                ensure(lane < n, || format!("no component {lane} in a vector of {n}"))?;
                self.expect(value, Type::Scalar(s))?;
                ExpectedResult::Type(self.ty(vec))
            }
            Op::ExtractDyn { vec, index } => {
                self.index(index)?;
                ExpectedResult::Type(Type::Scalar(self.vec(vec)?.0))
            }
            Op::InsertDyn { vec, index, value } => {
                self.index(index)?;
                self.expect(value, Type::Scalar(self.vec(vec)?.0))?;
                ExpectedResult::Type(self.ty(vec))
            }
            Op::Shuffle { vec, lanes } => {
                let (s, n) = self.vec(vec)?;
                let lanes = lanes.as_slice();
                ensure(lanes.iter().all(|&l| l < n), || format!("no swizzle {lanes:?} of {n} components"))?;
                ExpectedResult::Type(Type::of(s, lanes.len() as u8))
            }
            Op::AllOf(a) | Op::AnyOf(a) => {
                let (s, _) = self.vec(a)?;
                ensure(s == Scalar::Bool, || format!("{a} is not a bool vector"))?;
                ExpectedResult::Type(Type::BOOL)
            }
            Op::Get(v) => {
                ensure(v.index() < k.vars.len(), || format!("no variable {}", v.0))?;
                ExpectedResult::Type(k.var_ty(v))
            }
            Op::Set(v, a) => {
                ensure(v.index() < k.vars.len(), || format!("no variable {}", v.0))?;
                self.expect(a, k.var_ty(v))?;
                ExpectedResult::None
            }
            Op::PtrOffset { ptr, index, .. } => {
                self.ptr(ptr)?;
                self.index(index)?;
                ExpectedResult::Type(self.ty(ptr))
            }
            Op::PtrDiff { a, b, stride } => {
                self.ptr(a)?;
                self.same(a, b)?;
                ensure(stride > 0, || format!("stride {stride} is not positive"))?;
                ExpectedResult::Type(Type::I64)
            }
            Op::Load { ptr, align } => {
                self.access(ptr, declared_or()?, align)?;
                ExpectedResult::Any
            }
            Op::Store { ptr, value, align } => {
                self.access(ptr, self.ty(value), align)?;
                ensure(self.ptr(ptr)? != Space::Constant, || "store to constant memory".into())?;
                ExpectedResult::None
            }
            Op::AtomicRmw { op, ptr, value } => {
                let ty = self.ty(value);
                self.atomic(ptr, ty)?;
                if let Some(binary) = op.binary() {
                    self.scalar_of(value, binary.operands())?;
                }
                ExpectedResult::Type(ty)
            }
            Op::AtomicLoad { ptr } => {
                self.atomic(ptr, declared_or()?)?;
                ExpectedResult::Any
            }
            Op::AtomicStore { ptr, value } => {
                self.atomic(ptr, self.ty(value))?;
                ExpectedResult::None
            }
            Op::AtomicCompareExchange { ptr, expected, desired } => {
                self.atomic(ptr, self.ty(desired))?;
                self.same(desired, expected)?;
                ExpectedResult::Type(self.ty(desired))
            }
            Op::GroupReduce { op, value, .. } => {
                self.scalar_of(value, op.binary().operands())?;
                ExpectedResult::Type(self.ty(value))
            }
            Op::GroupScan { op, value, .. } => {
                ensure(matches!(op, ReduceOp::Sum | ReduceOp::Product), || {
                    format!("a scan takes Sum or Product, not {op:?}")
                })?;
                self.scalar_of(value, op.binary().operands())?;
                ExpectedResult::Type(self.ty(value))
            }
            Op::GroupShuffle { value, arg, .. } => {
                let t = self.ty(value);
                ensure(storable(t), || format!("cannot shuffle a {t}"))?;
                let a = self.ty(arg);
                let ok = matches!(a, Type::Scalar(Scalar::I16 | Scalar::U16 | Scalar::I32 | Scalar::U32));
                ensure(ok, || format!("{arg} is a {a}, not a lane number"))?;
                ExpectedResult::Type(t)
            }
            Op::GroupBroadcastFirst { value, .. } => {
                let t = self.ty(value);
                ensure(storable(t), || format!("cannot broadcast a {t}"))?;
                ExpectedResult::Type(t)
            }
            Op::GroupBallot { value, .. } => {
                self.expect(value, Type::BOOL)?;
                ExpectedResult::Type(Type::U32)
            }
            Op::GroupAll { value, .. } | Op::GroupAny { value, .. } => {
                self.expect(value, Type::BOOL)?;
                ExpectedResult::Type(Type::BOOL)
            }
            Op::GroupIsFirst { .. } => ExpectedResult::Type(Type::BOOL),
            Op::GroupActiveMask { .. } => ExpectedResult::Type(Type::U32),
            Op::SimdMatMulAcc { a, b, c } => {
                for v in [a, b, c] {
                    let ok = matches!(self.ty(v), Type::Vec(Scalar::F16 | Scalar::BF16 | Scalar::F32, 2));
                    ensure(ok, || format!("{v} is a {}, not two elements of a matrix", self.ty(v)))?;
                }
                ExpectedResult::Type(self.ty(c))
            }
            Op::AsyncBegin => ExpectedResult::Type(Type::U32),
            Op::AsyncWait(event) => {
                self.expect(event, Type::U32)?;
                ExpectedResult::None
            }
            Op::Barrier { .. }
            | Op::Fence { .. }
            | Op::AsyncEnd
            | Op::If { .. }
            | Op::Loop { .. }
            | Op::Break
            | Op::Continue
            | Op::Return => ExpectedResult::None,
        })
    }
}

/// The result that an instruction must have.
enum ExpectedResult {
    None,
    /// Any type; the declared one is already checked.
    Any,
    Type(Type),
}

fn is_alignment(align: u32) -> bool {
    align.is_power_of_two() && align <= 256
}

fn valid(ty: Type) -> bool {
    match ty {
        Type::Vec(_, n) => (2..=4).contains(&n),
        _ => true,
    }
}

fn storable(ty: Type) -> bool {
    valid(ty) && !ty.is_ptr()
}
