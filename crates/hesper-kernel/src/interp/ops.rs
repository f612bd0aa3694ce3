//! Instructions other than control flow, for every active thread.

use super::access::{decode, encode};
use super::finding::FindingKind;
use super::machine::Machine;
use super::mask::Mask;
use super::memory::Pointer;
use crate::ir::*;
use crate::launch::SIMD_WIDTH;
use crate::math::scalar;

impl Machine<'_> {
    /// Carries out one instruction for the threads of `mask`, which is not empty.
    #[inline(never)]
    pub fn instruction(&mut self, inst: &Inst, mask: &Mask) {
        if self.checks.is_some() {
            self.check_operands(inst, mask);
        }
        match inst.op {
            Op::Set(var, value) => self.set(var, value, mask),
            Op::Store { ptr, value, align } => self.store(inst, ptr, value, align, mask),
            Op::Barrier { scope, mem } => self.barrier(scope, mem, inst.loc, mask),
            atomic_op!() => self.atomic_instruction(inst, mask),
            Op::AsyncEnd => self.async_end(mask),
            Op::AsyncWait(event) => self.async_wait(event, inst.loc, mask),
            Op::Get(_) | Op::Load { .. } | value_op!() | group_op!() => {
                if let Some(result) = inst.result {
                    self.value_instruction(inst, result, mask);
                }
            }
            // Lock step needs no fences; the machine runs control flow.
            Op::Fence { .. } | control_op!() => {}
        }
    }

    fn value_instruction(&mut self, inst: &Inst, result: ValueId, mask: &Mask) {
        match inst.op {
            Op::Load { ptr, align } => self.load(inst, result, ptr, align, mask),
            group_op!() => self.group_instruction(inst, result, mask),
            Op::AsyncBegin => self.async_begin(inst, mask),
            _ => {
                let ty = self.kernel.ty(result);
                let mut out = self.fresh(ty);
                let w = out.len() / self.threads.max(1);
                for t in mask.iter() {
                    self.evaluate(inst, ty, t, &mut out[t * w..][..w]);
                }
                self.define(result, out);
            }
        }
    }

    fn set(&mut self, var: VarId, value: ValueId, mask: &Mask) {
        let i = var.index();
        for t in mask.iter() {
            let w = self.at(value, t).len();
            for k in 0..w {
                self.vars[i][t * w + k] = self.at(value, t)[k];
            }
        }
        self.var_set[i] = self.var_set[i].or(mask);
    }

    /// Component type of an operand; pointers have none and never get here.
    fn component(&self, v: ValueId) -> Scalar {
        self.kernel.ty(v).scalar().unwrap_or(Scalar::U32)
    }

    fn pointer(&self, v: ValueId, t: usize) -> Pointer {
        Pointer::from_words(self.at(v, t))
    }

    fn int(&self, v: ValueId, t: usize) -> i128 {
        scalar::to_int(self.component(v), self.at(v, t)[0])
    }

    /// The words of an instruction's result for one thread.
    fn evaluate(&self, inst: &Inst, ty: Type, t: usize, out: &mut [u64]) {
        match inst.op {
            Op::Const(bits) => out[0] = bits,
            Op::NullPtr => {}
            Op::Param(i) => {
                let p = self.memory.param(i);
                if let Some(range) = self.memory.range(p, ty.size()) {
                    decode(ty, &self.memory.read(range, t), out);
                }
            }
            Op::ParamPtr(i) => out.copy_from_slice(&self.memory.param(i).to_words()),
            Op::ThreadgroupPtr(i) => {
                out.copy_from_slice(&self.memory.threadgroup_var(i).to_words());
            }
            Op::ConstPtr(i) => out.copy_from_slice(&self.memory.table(i).to_words()),
            Op::ThreadPtr(i) => out.copy_from_slice(&self.memory.thread_var(i).to_words()),
            Op::Builtin { what, axis } => {
                let x = self.builtin(what, usize::from(axis), t);
                out[0] = if ty == Type::U32 { x & 0xffff_ffff } else { x };
            }
            Op::Unary(op, a) => {
                let (s, x) = (self.component(a), self.at(a, t));
                zip1(out, x, |x| scalar::unary(op, s, x));
            }
            Op::Binary(op, a, b) => {
                let s = self.component(a);
                zip2(out, self.at(a, t), self.at(b, t), |x, y| scalar::binary(op, s, x, y));
            }
            Op::Compare(op, a, b) => {
                let (x, y) = (self.at(a, t), self.at(b, t));
                if self.kernel.ty(a).is_ptr() {
                    // By object, then by offset, as one order.
                    let key = |p: &[u64]| (p[0], p[1] as i64);
                    let order = key(x).cmp(&key(y));
                    out[0] = u64::from(match op {
                        CmpOp::Eq => order.is_eq(),
                        CmpOp::Ne => order.is_ne(),
                        CmpOp::Lt => order.is_lt(),
                        CmpOp::Le => order.is_le(),
                        CmpOp::Gt => order.is_gt(),
                        CmpOp::Ge => order.is_ge(),
                    });
                } else {
                    let s = self.component(a);
                    zip2(out, x, y, |x, y| u64::from(scalar::compare(op, s, x, y)));
                }
            }
            Op::Ternary(op, a, b, c) => {
                let s = self.component(a);
                let (x, y, z) = (self.at(a, t), self.at(b, t), self.at(c, t));
                for (i, o) in out.iter_mut().enumerate() {
                    *o = scalar::ternary(op, s, x[i], y[i], z[i]);
                }
            }
            Op::Select { cond, if_true, if_false } => {
                let c = self.at(cond, t);
                let (x, y) = (self.at(if_true, t), self.at(if_false, t));
                for (i, o) in out.iter_mut().enumerate() {
                    // One condition chooses for all components.
                    let holds = c[i.min(c.len() - 1)] != 0;
                    *o = if holds { x[i] } else { y[i] };
                }
            }
            Op::Convert(a) => {
                let (from, to) = (self.component(a), ty.scalar().unwrap_or(Scalar::U32));
                zip1(out, self.at(a, t), |x| scalar::convert(from, to, x));
            }
            Op::Bitcast(a) => decode(ty, &encode(self.kernel.ty(a), self.at(a, t)), out),
            Op::Splat(a) => out.fill(self.at(a, t)[0]),
            Op::Compose(parts) => {
                for (o, &p) in out.iter_mut().zip(parts.as_slice()) {
                    *o = self.at(p, t)[0];
                }
            }
            Op::Extract { vec, lane } => out[0] = self.at(vec, t)[usize::from(lane)],
            Op::Insert { vec, lane, value } => {
                out.copy_from_slice(self.at(vec, t));
                out[usize::from(lane)] = self.at(value, t)[0];
            }
            Op::ExtractDyn { vec, index } => {
                let i = usize::try_from(self.int(index, t)).unwrap_or(usize::MAX);
                out[0] = self.at(vec, t).get(i).copied().unwrap_or(0);
            }
            Op::InsertDyn { vec, index, value } => {
                out.copy_from_slice(self.at(vec, t));
                let i = usize::try_from(self.int(index, t)).unwrap_or(usize::MAX);
                if let Some(o) = out.get_mut(i) {
                    *o = self.at(value, t)[0];
                }
            }
            Op::Shuffle { vec, lanes } => {
                for (o, &l) in out.iter_mut().zip(lanes.as_slice()) {
                    *o = self.at(vec, t)[usize::from(l)];
                }
            }
            Op::AllOf(a) => out[0] = u64::from(self.at(a, t).iter().all(|&x| x != 0)),
            Op::AnyOf(a) => out[0] = u64::from(self.at(a, t).iter().any(|&x| x != 0)),
            Op::Get(var) => {
                let w = out.len();
                out.copy_from_slice(&self.vars[var.index()][t * w..][..w]);
            }
            Op::PtrOffset { ptr, index, stride } => {
                let mut p = self.pointer(ptr, t);
                if p.object != 0 {
                    let bytes = (self.int(index, t) as i64).wrapping_mul(stride);
                    p.offset = p.offset.wrapping_add(bytes);
                }
                out.copy_from_slice(&p.to_words());
            }
            Op::PtrDiff { a, b, stride } => {
                let (p, q) = (self.pointer(a, t), self.pointer(b, t));
                let bytes = p.offset.wrapping_sub(q.offset);
                let same = p.object == q.object;
                out[0] = if same { (bytes / stride) as u64 } else { 0 };
            }
            Op::AsyncBegin | Op::Set(..) | Op::Load { .. } | Op::Store { .. } => {}
            group_op!() | atomic_op!() | sync_op!() | control_op!() => {}
        }
    }

    fn builtin(&self, what: Builtin, axis: usize, t: usize) -> u64 {
        let launch = &self.launch;
        let threads = self.threads as u64;
        let full: u64 = launch.threadgroup.iter().product();
        let t64 = t as u64;
        match what {
            Builtin::ThreadPositionInGrid => self.position(self.group, t).in_grid[axis],
            Builtin::ThreadgroupPositionInGrid => self.group_position[axis],
            Builtin::ThreadPositionInThreadgroup => self.local_position(t)[axis],
            Builtin::ThreadsPerThreadgroup => self.group_size[axis],
            Builtin::DispatchThreadsPerThreadgroup => launch.threadgroup[axis],
            Builtin::ThreadgroupsPerGrid => launch.groups()[axis],
            Builtin::ThreadsPerGrid => launch.grid[axis],
            Builtin::ThreadIndexInThreadgroup => t64,
            Builtin::SimdgroupIndexInThreadgroup => t64 / SIMD_WIDTH,
            Builtin::ThreadIndexInSimdgroup => t64 % SIMD_WIDTH,
            Builtin::ThreadsPerSimdgroup => SIMD_WIDTH,
            Builtin::SimdgroupsPerThreadgroup => threads.div_ceil(SIMD_WIDTH),
            Builtin::DispatchSimdgroupsPerThreadgroup => full.div_ceil(SIMD_WIDTH),
            Builtin::QuadgroupIndexInThreadgroup => t64 / 4,
            Builtin::ThreadIndexInQuadgroup => t64 % 4,
            Builtin::QuadgroupsPerThreadgroup => threads.div_ceil(4),
            Builtin::DispatchQuadgroupsPerThreadgroup => full.div_ceil(4),
        }
    }

    /// Reports invalid operands in checked mode, before the instruction runs.
    fn check_operands(&mut self, inst: &Inst, mask: &Mask) {
        match inst.op {
            Op::Binary(BinaryOp::Div | BinaryOp::Rem, a, b) if self.component(a).is_int() => {
                let s = self.component(a);
                for t in mask.iter() {
                    if let Some(i) = self.at(b, t).iter().position(|&x| x == 0) {
                        let dividend = scalar::to_int(s, self.at(a, t)[i]);
                        let kind = FindingKind::DivisionByZero { dividend };
                        self.report(kind, inst.loc, t);
                    }
                }
            }
            Op::Binary(BinaryOp::Shl | BinaryOp::Shr, a, b) if self.options.check_shifts => {
                let s = self.component(a);
                let width = s.bits();
                for t in mask.iter() {
                    let counts = self.at(b, t).iter().map(|&x| scalar::to_int(s, x));
                    let bad = counts.into_iter().find(|c| !(0..i128::from(width)).contains(c));
                    if let Some(count) = bad {
                        let kind = FindingKind::ShiftCount { count, width };
                        self.report(kind, inst.loc, t);
                    }
                }
            }
            Op::ExtractDyn { vec, index } | Op::InsertDyn { vec, index, .. } => {
                let components = self.kernel.ty(vec).lanes();
                for t in mask.iter() {
                    let i = self.int(index, t);
                    if !(0..i128::from(components)).contains(&i) {
                        let index = i.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
                        let kind = FindingKind::ComponentIndex { index, components };
                        self.report(kind, inst.loc, t);
                    }
                }
            }
            Op::Get(var) => {
                let unset = mask.minus(&self.var_set[var.index()]);
                if let Some(t) = unset.iter().next() {
                    let name = self.kernel.vars[var.index()].name.clone();
                    let kind = FindingKind::UninitialisedVariable { name };
                    self.report(kind, inst.loc, t);
                }
            }
            _ => {}
        }
    }
}

fn zip1(out: &mut [u64], x: &[u64], f: impl Fn(u64) -> u64) {
    for (o, &x) in out.iter_mut().zip(x) {
        *o = f(x);
    }
}

fn zip2(out: &mut [u64], x: &[u64], y: &[u64], f: impl Fn(u64, u64) -> u64) {
    for (o, (&x, &y)) in out.iter_mut().zip(x.iter().zip(y)) {
        *o = f(x, y);
    }
}
