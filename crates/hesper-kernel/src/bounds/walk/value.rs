//! The values of instructions.

use super::super::expr::{Arith, Facts, Id, Range};
use super::memory::read_integer;
use super::*;
use crate::math::scalar;

impl Walk<'_> {
    /// A value that is a `Bool` or an integer.
    pub(super) fn integer(&mut self, v: ValueId) -> Id {
        match self.vals[v.index()] {
            Value::Integers([Some(id), ..]) => id,
            _ => {
                let range = self.kernel.ty(v).scalar().map_or(Range::of(Scalar::U64), Range::of);
                self.exprs.opaque(range)
            }
        }
    }

    pub(super) fn parts(&self, v: ValueId) -> [Option<Id>; 4] {
        match self.vals[v.index()] {
            Value::Integers(parts) => parts,
            _ => [None; 4],
        }
    }

    pub(super) fn instruction(&mut self, inst: &Inst, number: usize, state: &mut State) {
        let ty = inst.result.map_or(Type::BOOL, |result| self.kernel.ty(result));
        let val = match inst.op {
            Op::Set(var, value) => {
                state.vars[var.index()] = self.vals[value.index()];
                return;
            }
            Op::Store { ptr, value, align } => {
                let size = self.kernel.ty(value).size();
                self.access(number, ptr, size, align, true, state);
                if self.recording
                    && let Value::Pointer(Object::Param(param), at) = self.vals[ptr.index()]
                    && let Some(offset) = self.exprs.linear(&state.facts, at)
                {
                    let width = i128::from(size);
                    self.stores.push(Store { param, offset, width, path: self.path.clone() });
                }
                return;
            }
            Op::AtomicStore { ptr, value } => return self.atomic(number, ptr, value, state),
            Op::Load { ptr, align } => {
                self.access(number, ptr, ty.size(), align, false, state);
                self.mark_read(ptr);
                self.load_known(ptr, ty, state)
            }
            Op::AtomicRmw { ptr, value, .. } | Op::AtomicCompareExchange { ptr, desired: value, .. } => {
                self.atomic(number, ptr, value, state);
                self.unknown(ty)
            }
            Op::AtomicLoad { ptr } => {
                self.access(number, ptr, ty.size(), ty.size() as u32, false, state);
                self.mark_read(ptr);
                self.unknown(ty)
            }
            Op::Get(var) => state.vars[var.index()],
            value_op!() => self.value(inst.op, ty, state),
            group_op!() => self.unknown(ty),
            // The walk follows one thread only; `block` walks control flow.
            sync_op!() | control_op!() => return,
        };
        if let Some(result) = inst.result {
            self.vals[result.index()] = val;
        }
    }

    fn value(&mut self, op: Op, ty: Type, state: &State) -> Value {
        let facts = &state.facts;
        let n = usize::from(ty.lanes());
        let one = |id: Id| Value::Integers([Some(id), None, None, None]);
        match op {
            Op::ParamPtr(i) => self.pointer(Object::Param(i)),
            Op::ThreadgroupPtr(i) => self.pointer(Object::Threadgroup(i)),
            Op::ThreadPtr(i) => self.pointer(Object::Thread(i)),
            Op::ConstPtr(i) => self.pointer(Object::Table(i)),
            Op::NullPtr => Value::UnknownPointer,
            Op::PtrOffset { ptr, index, stride } => {
                let Value::Pointer(root, offset) = self.vals[ptr.index()] else {
                    return Value::UnknownPointer;
                };
                let index = self.integer(index);
                let stride = self.exprs.constant(i128::from(stride));
                let wide = self.exprs.convert(facts, Scalar::I64, index);
                let by = self.exprs.binary(facts, Arith::Mul, Scalar::I64, wide, stride);
                Value::Pointer(root, self.exprs.binary(facts, Arith::Add, Scalar::I64, offset, by))
            }
            _ if ty.is_ptr() => match op {
                Op::Select { if_true, if_false, .. } => {
                    match (self.vals[if_true.index()], self.vals[if_false.index()]) {
                        (Value::Pointer(root, a), Value::Pointer(other, b)) if root == other => {
                            Value::Pointer(root, self.join_ids(None, (facts, a), (facts, b)))
                        }
                        _ => Value::UnknownPointer,
                    }
                }
                Op::Bitcast(a) => self.vals[a.index()],
                _ => Value::UnknownPointer,
            },
            _ if !is_integer(ty) => Value::Integers([None; 4]),
            Op::Const(bits) => {
                let s = ty.scalar().unwrap_or(Scalar::U32);
                let x = if s == Scalar::Bool { i128::from(bits & 1) } else { scalar::to_int(s, bits) };
                one(self.exprs.constant(x))
            }
            Op::AsyncBegin => one(self.exprs.constant(1)),
            Op::Param(i) => {
                let s = ty.scalar().unwrap_or(Scalar::U32);
                let bytes = self.args.get(i as usize).and_then(|arg| arg.contents);
                match bytes.filter(|bytes| bytes.len() as u64 >= ty.size()) {
                    Some(bytes) => {
                        let mut parts = [None; 4];
                        for (j, part) in parts[..n].iter_mut().enumerate() {
                            let value = read_integer(bytes, j * s.size() as usize, s);
                            *part = Some(self.exprs.constant(value));
                        }
                        Value::Integers(parts)
                    }
                    None => self.unknown(ty),
                }
            }
            Op::Builtin { what, axis } => {
                let axis = if what.has_axes() { axis } else { 0 };
                let known = self.builtins.get(&(what, axis)).copied();
                let id = known.unwrap_or_else(|| {
                    let id = self.builtin(what, axis);
                    self.builtins.insert((what, axis), id);
                    id
                });
                let s = ty.scalar().unwrap_or(Scalar::U32);
                one(self.exprs.convert(facts, s, id))
            }
            Op::Splat(a) => Value::Integers([self.parts(a)[0]; 4]),
            Op::Compose(list) => {
                let mut parts = [None; 4];
                for (part, v) in parts.iter_mut().zip(list.as_slice()) {
                    *part = self.parts(*v)[0];
                }
                Value::Integers(parts)
            }
            Op::Extract { vec, lane } => Value::Integers([self.parts(vec)[usize::from(lane) & 3]; 4]),
            Op::Insert { vec, lane, value } => {
                let mut parts = self.parts(vec);
                parts[usize::from(lane) & 3] = self.parts(value)[0];
                Value::Integers(parts)
            }
            Op::Shuffle { vec, lanes } => {
                let from = self.parts(vec);
                let mut parts = [None; 4];
                for (part, lane) in parts.iter_mut().zip(lanes.as_slice()) {
                    *part = from[usize::from(*lane) & 3];
                }
                Value::Integers(parts)
            }
            _ => {
                let mut parts = [None; 4];
                for (i, part) in parts[..n].iter_mut().enumerate() {
                    *part = Some(self.component(&op, ty, i, facts));
                }
                Value::Integers(parts)
            }
        }
    }

    /// A component of an op that works component by component.
    fn component(&mut self, op: &Op, ty: Type, i: usize, facts: &Facts) -> Id {
        let s = ty.scalar().unwrap_or(Scalar::U32);
        let of = |walk: &Self, v: ValueId| {
            let parts = walk.parts(v);
            if walk.kernel.ty(v).is_vec() { parts[i] } else { parts[0] }
        };
        let known = match *op {
            Op::Unary(UnaryOp::Neg, a) => of(self, a).map(|a| {
                let zero = self.exprs.constant(0);
                self.exprs.binary(facts, Arith::Sub, s, zero, a)
            }),
            Op::Unary(UnaryOp::Not, a) if s == Scalar::Bool => of(self, a).map(|a| self.exprs.not(a)),
            Op::Unary(UnaryOp::Abs, a) => of(self, a).filter(|a| self.exprs.range(facts, *a).lo >= 0),
            Op::Binary(op, a, b) => match (of(self, a), of(self, b)) {
                (Some(a), Some(b)) => self.arithmetic(op, s, a, b, facts),
                _ => None,
            },
            Op::Ternary(TernaryOp::Clamp, x, least, most) => {
                match (of(self, x), of(self, least), of(self, most)) {
                    (Some(x), Some(least), Some(most)) => {
                        let x = self.exprs.binary(facts, Arith::Max, s, x, least);
                        Some(self.exprs.binary(facts, Arith::Min, s, x, most))
                    }
                    _ => None,
                }
            }
            Op::Compare(op, a, b) => match (of(self, a), of(self, b)) {
                (Some(a), Some(b)) => Some(self.exprs.compare(facts, op, a, b)),
                _ => None,
            },
            Op::Select { cond, if_true, if_false } => {
                match (of(self, cond), of(self, if_true), of(self, if_false)) {
                    (Some(cond), Some(a), Some(b)) => Some(self.selected(cond, a, b, facts)),
                    _ => None,
                }
            }
            Op::Convert(a) => match (of(self, a), s) {
                (Some(a), Scalar::Bool) => {
                    if Range::BOOL.contains(self.exprs.range(&Facts::default(), a)) {
                        Some(a)
                    } else {
                        let zero = self.exprs.constant(0);
                        Some(self.exprs.compare(facts, CmpOp::Ne, a, zero))
                    }
                }
                (Some(a), s) => Some(self.exprs.convert(facts, s, a)),
                _ => None,
            },
            Op::Bitcast(a) => {
                let from = self.kernel.ty(a);
                let same =
                    from.lanes() == ty.lanes() && is_integer(from) && from.scalar() != Some(Scalar::Bool);
                of(self, a).filter(|_| same).map(|a| self.exprs.convert(facts, s, a))
            }
            _ => None,
        };
        known.unwrap_or_else(|| self.exprs.opaque(Range::of(s)))
    }

    fn selected(&mut self, cond: Id, a: Id, b: Id, facts: &Facts) -> Id {
        match self.exprs.range(facts, cond).single() {
            Some(0) => return b,
            Some(_) => return a,
            None => {}
        }
        let (mut yes, mut no) = (facts.clone(), facts.clone());
        // The value of a side that contradicts the facts does not matter.
        let _ = (self.exprs.assume(&mut yes, cond, true), self.exprs.assume(&mut no, cond, false));
        self.join_ids(Some(cond), (&yes, a), (&no, b))
    }

    fn arithmetic(&mut self, op: BinaryOp, s: Scalar, a: Id, b: Id, facts: &Facts) -> Option<Id> {
        use BinaryOp as B;
        if s == Scalar::Bool {
            return match op {
                B::And => Some(self.exprs.and(facts, a, b)),
                B::Or => Some(self.exprs.or(facts, a, b)),
                _ => None,
            };
        }
        let op = match op {
            B::Add => Arith::Add,
            B::Sub => Arith::Sub,
            B::Mul => Arith::Mul,
            B::Div => Arith::Div,
            B::Rem => Arith::Rem,
            B::Min => Arith::Min,
            B::Max => Arith::Max,
            B::And => Arith::And,
            B::Shl => {
                let by = self.exprs.range(facts, b).single()?;
                let by = u32::try_from(by).ok().filter(|by| *by < s.bits())?;
                let factor = self.exprs.constant(1 << by);
                return Some(self.exprs.binary(facts, Arith::Mul, s, a, factor));
            }
            B::Shr => {
                let by = self.exprs.range(facts, b);
                if by.lo < 0 || by.hi >= i128::from(s.bits()) {
                    return None;
                }
                // A right shift of a non-negative number is a division, and the analysis knows more about
                // those.
                if let (Some(by), 0..) = (by.single(), self.exprs.range(facts, a).lo) {
                    let by = self.exprs.constant(1 << by);
                    return Some(self.exprs.binary(facts, Arith::Div, s, a, by));
                }
                Arith::Shr
            }
            _ => return None,
        };
        // A mask of the low bits is a remainder.
        if op == Arith::And
            && let (Some(mask), 0..) = (self.exprs.range(facts, b).single(), self.exprs.range(facts, a).lo)
            && mask > 0
            && (mask + 1) & mask == 0
            && Range::of(s).hi > mask
        {
            let by = self.exprs.constant(mask + 1);
            return Some(self.exprs.binary(facts, Arith::Rem, s, a, by));
        }
        Some(self.exprs.binary(facts, op, s, a, b))
    }

    fn pointer(&mut self, root: Object) -> Value {
        Value::Pointer(root, self.exprs.constant(0))
    }
}
