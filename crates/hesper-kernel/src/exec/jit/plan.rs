//! Splits a straight-line kernel into the host's ops per row and the nodes of machine code per lane. Gives up
//! (`None`) on other kernels: control flow beyond guards on the thread's position, addresses that depend on
//! data, ops that depend on the threadgroup.

use std::collections::HashMap;

use super::host::{HostOp, MAX_OPS, Slot};
use super::lower::is_native;
use super::node::{
    Access, LaneFunction, LongUniform, MAX_ACCESSES, Node, Operand, UniformEntry, UniformTable, Value,
    is_long,
};
use super::target::Capabilities;
use crate::exec::lanes::{self, convert};
use crate::exec::level::SimdLevel;
use crate::exec::lower::is_launch_wide;
use crate::ir::{Access as IrAccess, *};

/// The most instructions of a kernel, and the most nodes of its plan.
const MAX_INSTS: usize = 4096;
const MAX_NODES: usize = 1024;
/// The deepest nesting of a guard's condition.
const MAX_CONDITIONS: u32 = 16;

/// A component of a value.
#[derive(Clone, Copy)]
enum Component {
    /// Uniform over a row.
    Uniform(Slot),
    /// An integer `base + lane * stride`.
    Linear(Slot),
    Lanes(Value),
}

#[derive(Clone, Copy)]
enum PlannedValue {
    Parts([Component; 4], u8),
    /// A pointer into a parameter's buffer.
    Pointer {
        param: u32,
        offset: Slot,
        linear: bool,
    },
}

/// A split kernel.
pub(super) struct Plan {
    pub ops: Vec<HostOp>,
    pub nodes: Vec<Node>,
    pub accesses: Vec<Access>,
    pub table: UniformTable,
    /// Ranges of lanes; the kernel runs in their intersection.
    pub guards: Vec<Slot>,
    /// Whether some lanes are of 64 bits; a step then has half as many.
    pub long: bool,
}

/// An item of a straight-line kernel.
enum LineItem<'k> {
    Inst(&'k Inst),
    /// Only threads in which the condition has this value continue.
    Guard(ValueId, bool),
}

struct Planner<'k> {
    kernel: &'k Kernel,
    level: SimdLevel,
    can: Capabilities,
    plan: Plan,
    vals: Vec<Option<PlannedValue>>,
    vars: Vec<Option<PlannedValue>>,
    /// Nodes that compute the lanes of linear slots.
    laid_out: HashMap<(Slot, bool), Value>,
    stored: Vec<u32>,
    groups: u32,
    /// The op of each value.
    ops: Vec<Option<Op>>,
}

/// Splits a kernel for a target that can do this; calls are of lane functions of the level.
pub(super) fn plan(kernel: &Kernel, level: SimdLevel, can: Capabilities) -> Option<Plan> {
    let items = items(kernel)?;
    if items.len() > MAX_INSTS {
        return None;
    }
    let mut ops = vec![None; kernel.values.len()];
    for item in &items {
        if let LineItem::Inst(Inst { result: Some(r), op, .. }) = item {
            ops[r.index()] = Some(*op);
        }
    }
    let live = live_values(&items, &ops);
    let table = UniformTable::new(can.lanes);
    let (nodes, accesses) = (Vec::new(), Vec::new());
    let plan = Plan { ops: Vec::new(), nodes, accesses, table, guards: Vec::new(), long: false };
    let mut p = Planner {
        kernel,
        level,
        can,
        plan,
        vals: vec![None; kernel.values.len()],
        vars: vec![None; kernel.vars.len()],
        laid_out: HashMap::new(),
        stored: Vec::new(),
        groups: 0,
        ops,
    };
    for item in &items {
        match *item {
            LineItem::Guard(cond, holds) => {
                // Threads that a guard stops must still perform the stores before it; lane ranges cannot
                // express that.
                if !p.stored.is_empty() {
                    return None;
                }
                let range = p.range(cond, holds, MAX_CONDITIONS)?;
                p.plan.guards.push(range);
            }
            LineItem::Inst(inst) if inst.result.is_none_or(|r| live[r.index()]) => p.inst(inst)?,
            LineItem::Inst(_) => {}
        }
        if p.plan.nodes.len() > MAX_NODES || p.plan.ops.len() > MAX_OPS {
            return None;
        }
    }
    let mut plan = p.plan;
    let stores_long = |n: &Node| matches!(n, Node::Store { scalar, .. } if is_long(*scalar));
    let reads_long = |n: &Node| matches!(n, Node::Call(_, args, _) if args.iter().any(|a| a.1));
    plan.long = plan.nodes.iter().any(|n| n.is_long() || stores_long(n) || reads_long(n));
    if plan.long {
        plan.table.lanes = can.lanes / 2;
    }
    (!p.stored.is_empty() && plan.accesses.len() <= MAX_ACCESSES).then_some(plan)
}

/// The kernel as a straight line: `if (c) return;` and a last `if (c) { .. }` are guards.
fn items(kernel: &Kernel) -> Option<Vec<LineItem<'_>>> {
    let mut items = Vec::new();
    let mut block = Some(kernel.body);
    while let Some(b) = block.take() {
        let insts = &kernel.block(b).insts;
        for (i, inst) in insts.iter().enumerate() {
            let is_last = matches!(insts[i + 1..], [] | [Inst { op: Op::Return, .. }]);
            match inst.op {
                Op::Return => break,
                Op::If { cond, then, els } if kernel.block(els).insts.is_empty() => {
                    if matches!(kernel.block(then).insts[..], [Inst { op: Op::Return, .. }]) {
                        items.push(LineItem::Guard(cond, false));
                    } else if is_last {
                        items.push(LineItem::Guard(cond, true));
                        block = Some(then);
                        break;
                    } else {
                        return None;
                    }
                }
                Op::If { .. } | Op::Loop { .. } => return None,
                _ => items.push(LineItem::Inst(inst)),
            }
        }
    }
    Some(items)
}

/// Which values are live.
fn live_values(items: &[LineItem<'_>], ops: &[Option<Op>]) -> Vec<bool> {
    let mut live = vec![false; ops.len()];
    for item in items.iter().rev() {
        match item {
            LineItem::Inst(inst) if inst.result.is_none_or(|r| live[r.index()]) => {
                inst.op.for_each_operand(|v| live[v.index()] = true);
            }
            LineItem::Inst(_) => {}
            // A guard becomes lane ranges: the operands of its comparisons are live, the condition is not.
            LineItem::Guard(cond, _) => {
                let mut open = vec![*cond];
                while let Some(v) = open.pop() {
                    match ops[v.index()] {
                        Some(Op::Compare(_, a, b)) => {
                            live[a.index()] = true;
                            live[b.index()] = true;
                        }
                        Some(Op::Binary(_, a, b)) => open.extend([a, b]),
                        Some(Op::Unary(UnaryOp::Not, a)) => open.push(a),
                        _ => live[v.index()] = true,
                    }
                }
            }
        }
    }
    live
}

impl Planner<'_> {
    fn inst(&mut self, inst: &Inst) -> Option<()> {
        let Some(d) = inst.result else {
            return match inst.op {
                Op::Set(v, value) => {
                    self.vars[v.index()] = self.vals[value.index()];
                    Some(())
                }
                Op::Store { ptr, value, .. } => self.store(ptr, value, inst.loc),
                _ => None,
            };
        };
        let val = self.value(inst.op, self.kernel.ty(d))?;
        self.vals[d.index()] = Some(val);
        Some(())
    }

    fn value(&mut self, op: Op, ty: Type) -> Option<PlannedValue> {
        let n = ty.lanes();
        let s = ty.scalar().unwrap_or(Scalar::U64);
        let scalar_of = |v: ValueId| self.kernel.ty(v).scalar();
        match op {
            Op::Const(bits) => {
                let slot = self.host(HostOp::Const(bits));
                Some(PlannedValue::Parts([Component::Uniform(slot); 4], 1))
            }
            Op::Param(i) => self.each(n, |p, j| {
                let offset = j as u32 * s.size() as u32;
                Some(Component::Uniform(p.host(HostOp::Param { param: i, offset, scalar: s })))
            }),
            Op::ParamPtr(param) => {
                let offset = self.host(HostOp::Const(0));
                Some(PlannedValue::Pointer { param, offset, linear: false })
            }
            Op::Builtin { what, axis } => {
                let grid = what == Builtin::ThreadPositionInGrid;
                if !grid && !is_launch_wide(what) {
                    return None;
                }
                let axis = if what.has_axes() { axis } else { 0 };
                let slot = self.host(HostOp::Builtin { what, axis, is_u64: s == Scalar::U64 });
                let part = if grid && axis == 0 { Component::Linear(slot) } else { Component::Uniform(slot) };
                Some(PlannedValue::Parts([part; 4], 1))
            }
            Op::Unary(op, a) => {
                let s = scalar_of(a)?;
                self.map(n, [a; 3], |p, [a, ..]| p.unary(op, s, a))
            }
            Op::Binary(op, a, b) => self.map(n, [a, b, b], |p, [a, b, _]| p.binary(op, s, a, b)),
            Op::Ternary(op, a, b, c) => self.map(n, [a, b, c], |p, [a, b, c]| match (a, b, c) {
                (Component::Uniform(a), Component::Uniform(b), Component::Uniform(c)) => {
                    Some(Component::Uniform(p.host(HostOp::Ternary(op, s, a, b, c))))
                }
                _ => {
                    let [a, b, c] = [p.lanes(a, s)?, p.lanes(b, s)?, p.lanes(c, s)?];
                    p.node(Node::Ternary(op, s, a, b, c))
                }
            }),
            Op::Compare(op, a, b) => {
                let s = scalar_of(a)?;
                self.map(n, [a, b, b], |p, [a, b, _]| p.compare(op, s, a, b))
            }
            Op::Select { cond, if_true, if_false } => {
                let cond_parts = self.kernel.ty(cond).lanes();
                let (c, _) = self.parts(cond)?;
                let ((a, n), (b, _)) = (self.parts(if_true)?, self.parts(if_false)?);
                self.each(n, |p, i| p.select(s, if cond_parts == 1 { c[0] } else { c[i] }, a[i], b[i]))
            }
            Op::Convert(a) => {
                let from = scalar_of(a)?;
                self.map(n, [a; 3], |p, [a, ..]| p.convert(from, s, a))
            }
            Op::Bitcast(a) => {
                let from = self.kernel.ty(a);
                if from.is_ptr() || ty.is_ptr() || from.lanes() != n {
                    return None;
                }
                let from = from.scalar()?;
                self.map(n, [a; 3], |p, [a, ..]| p.bitcast(from, s, a))
            }
            Op::Splat(a) => {
                let (p, _) = self.parts(a)?;
                Some(PlannedValue::Parts([p[0]; 4], n))
            }
            Op::Compose(list) => {
                let list: Vec<Component> =
                    list.as_slice().iter().map(|&v| Some(self.parts(v)?.0[0])).collect::<Option<_>>()?;
                self.each(n, |_, i| list.get(i).copied())
            }
            Op::Extract { vec, lane } => {
                let (p, _) = self.parts(vec)?;
                Some(PlannedValue::Parts([p[lane as usize & 3]; 4], 1))
            }
            Op::Insert { vec, lane, value } => {
                let (mut p, n) = self.parts(vec)?;
                p[lane as usize & 3] = self.parts(value)?.0[0];
                Some(PlannedValue::Parts(p, n))
            }
            Op::Shuffle { vec, lanes } => {
                let (p, _) = self.parts(vec)?;
                self.each(n, |_, i| Some(p[lanes.as_slice()[i] as usize & 3]))
            }
            Op::AllOf(a) => self.across(a, BinaryOp::And),
            Op::AnyOf(a) => self.across(a, BinaryOp::Or),
            Op::Get(v) => self.vars[v.index()],
            Op::PtrOffset { ptr, index, stride } => self.offset(ptr, index, stride),
            Op::Load { ptr, .. } => self.load(ptr, s, n),
            _ => None,
        }
    }

    // ---- Parts of the plan ----

    /// The slot of an op; equal ops share one.
    fn host(&mut self, op: HostOp) -> Slot {
        let ops = &mut self.plan.ops;
        let at = ops.iter().position(|o| *o == op).unwrap_or_else(|| {
            ops.push(op);
            ops.len() - 1
        });
        at as Slot
    }

    fn push(&mut self, node: Node) -> Value {
        self.plan.nodes.push(node);
        self.plan.nodes.len() as Value - 1
    }

    /// A node, or the call of the lane function that computes it.
    fn node(&mut self, node: Node) -> Option<Component> {
        if is_native(&node, &self.can) {
            return Some(Component::Lanes(self.push(node)));
        }
        let word = |s: Scalar| s.is_float() || s.size() >= 4;
        let (function, args, round, s) = match node {
            Node::Unary(op, s, a) if word(s) && word(op.result(s)) => {
                let (f, round) = lanes::unary(op, s, self.level)?;
                (LaneFunction::One(f), [(a, is_long(s)); 2], round, op.result(s))
            }
            Node::Binary(op, s, a, b) if word(s) => {
                let (f, round) = lanes::binary(op, s, self.level)?;
                (LaneFunction::Two(f), [(a, is_long(s)), (b, is_long(op.right(s)))], round, s)
            }
            Node::Convert(from, to, a) if word(from) && word(to) => (
                LaneFunction::One(convert::convert(from, to, self.level)),
                [(a, is_long(from)); 2],
                false,
                to,
            ),
            _ => return None,
        };
        let called = self.push(Node::Call(function, args, is_long(s)));
        if round {
            return Some(Component::Lanes(self.push(Node::Convert(Scalar::F32, s, Operand::Lanes(called)))));
        }
        Some(Component::Lanes(called))
    }

    fn parts(&self, v: ValueId) -> Option<([Component; 4], u8)> {
        match self.vals[v.index()]? {
            PlannedValue::Parts(p, n) => Some((p, n)),
            PlannedValue::Pointer { .. } => None,
        }
    }

    fn each(
        &mut self,
        n: u8,
        mut f: impl FnMut(&mut Self, usize) -> Option<Component>,
    ) -> Option<PlannedValue> {
        let mut parts = [f(self, 0)?; 4];
        for (i, part) in parts.iter_mut().enumerate().take(n as usize).skip(1) {
            *part = f(self, i)?;
        }
        Some(PlannedValue::Parts(parts, n))
    }

    fn map(
        &mut self,
        n: u8,
        operands: [ValueId; 3],
        mut f: impl FnMut(&mut Self, [Component; 3]) -> Option<Component>,
    ) -> Option<PlannedValue> {
        let [(a, _), (b, _), (c, _)] =
            [self.parts(operands[0])?, self.parts(operands[1])?, self.parts(operands[2])?];
        self.each(n, |p, i| f(p, [a[i], b[i], c[i]]))
    }

    /// A component as an operand of a node.
    fn lanes(&mut self, part: Component, s: Scalar) -> Option<Operand> {
        let table = &mut self.plan.table;
        Some(match part {
            Component::Lanes(v) => Operand::Lanes(v),
            Component::Uniform(slot) if is_long(s) => {
                Operand::Uniform(table.intern_long(LongUniform::Value(slot)))
            }
            Component::Uniform(slot) => Operand::Uniform(table.intern(UniformEntry::Value(slot, s))),
            Component::Linear(slot) => self.lay_out(slot, is_long(s)),
        })
    }

    /// The lanes of a linear integer, modulo 2^32 or 2^64.
    fn lay_out(&mut self, slot: Slot, long: bool) -> Operand {
        if let Some(v) = self.laid_out.get(&(slot, long)) {
            return Operand::Lanes(*v);
        }
        let table = &mut self.plan.table;
        let (base, stride) = if long {
            (table.intern_long(LongUniform::Base(slot)), table.intern_long(LongUniform::Stride(slot)))
        } else {
            (table.intern(UniformEntry::Base(slot)), table.intern(UniformEntry::Stride(slot)))
        };
        let (base, stride) = (Operand::Uniform(base), Operand::Uniform(stride));
        let v = self.push(Node::Linear { base, stride, long });
        self.laid_out.insert((slot, long), v);
        Operand::Lanes(v)
    }

    /// A 64-bit integer of the host as `I32` lanes, in rows where it fits.
    fn narrowed(&mut self, part: Component, s: Scalar) -> Option<Operand> {
        match part {
            Component::Uniform(slot) => {
                self.host(HostOp::Fits(s, slot));
                Some(Operand::Uniform(self.plan.table.intern(UniformEntry::Value(slot, Scalar::I32))))
            }
            Component::Linear(slot) => {
                self.host(HostOp::Fits(s, slot));
                Some(self.lay_out(slot, false))
            }
            Component::Lanes(_) => None,
        }
    }

    // ---- Ops ----

    fn unary(&mut self, op: UnaryOp, s: Scalar, a: Component) -> Option<Component> {
        match a {
            Component::Uniform(a) => Some(Component::Uniform(self.host(HostOp::Unary(op, s, a)))),
            Component::Linear(a) if op == UnaryOp::Neg => {
                let zero = self.host(HostOp::Const(0));
                Some(Component::Linear(self.host(HostOp::LinearBinary(BinaryOp::Sub, s, zero, a))))
            }
            a => {
                let a = self.lanes(a, s)?;
                self.node(Node::Unary(op, s, a))
            }
        }
    }

    fn binary(&mut self, op: BinaryOp, s: Scalar, a: Component, b: Component) -> Option<Component> {
        use BinaryOp as B;
        if let (Component::Uniform(a), Component::Uniform(b)) = (a, b) {
            return Some(Component::Uniform(self.host(HostOp::Binary(op, s, a, b))));
        }
        let host = |p: Component| match p {
            Component::Uniform(s) | Component::Linear(s) => Some(s),
            Component::Lanes(_) => None,
        };
        if let (Some(x), Some(y)) = (host(a), host(b)) {
            let keeps = match op {
                B::Add | B::Sub => true,
                B::Mul => matches!(a, Component::Uniform(_)) || matches!(b, Component::Uniform(_)),
                B::Shl => matches!(b, Component::Uniform(_)),
                _ => false,
            };
            if keeps && s.is_int() && s.size() >= 4 {
                return Some(Component::Linear(self.host(HostOp::LinearBinary(op, s, x, y))));
            }
        }
        let (a, b) = (self.lanes(a, s)?, self.lanes(b, op.right(s))?);
        self.node(Node::Binary(op, s, a, b))
    }

    fn compare(&mut self, op: CmpOp, s: Scalar, a: Component, b: Component) -> Option<Component> {
        if let (Component::Uniform(a), Component::Uniform(b)) = (a, b) {
            return Some(Component::Uniform(self.host(HostOp::Compare(op, s, a, b))));
        }
        let on_host = |part: Component| !matches!(part, Component::Lanes(_));
        if s.is_int() && s.size() == 8 && on_host(a) && on_host(b) {
            let (a, b) = (self.narrowed(a, s)?, self.narrowed(b, s)?);
            return self.node(Node::Compare(op, Scalar::I32, a, b));
        }
        let (a, b) = (self.lanes(a, s)?, self.lanes(b, s)?);
        self.node(Node::Compare(op, s, a, b))
    }

    fn select(&mut self, s: Scalar, c: Component, a: Component, b: Component) -> Option<Component> {
        if let (Component::Uniform(c), Component::Uniform(a), Component::Uniform(b)) = (c, a, b) {
            return Some(Component::Uniform(self.host(HostOp::Select(c, a, b))));
        }
        let (c, a, b) = (self.lanes(c, Scalar::Bool)?, self.lanes(a, s)?, self.lanes(b, s)?);
        self.node(Node::Select(s, c, a, b))
    }

    fn convert(&mut self, from: Scalar, to: Scalar, a: Component) -> Option<Component> {
        if from == to {
            return Some(a);
        }
        let wide = |s: Scalar| s.is_int() && s.size() >= 4;
        match a {
            Component::Uniform(a) => Some(Component::Uniform(self.host(HostOp::Convert(from, to, a)))),
            Component::Linear(a) if wide(from) && wide(to) => {
                Some(Component::Linear(self.host(HostOp::LinearConvert(from, to, a))))
            }
            Component::Linear(_) if from.size() == 8 => {
                let a = self.narrowed(a, from)?;
                self.node(Node::Convert(Scalar::I32, to, a))
            }
            a => {
                let widths = (from.size() <= 4, to.size() <= 4);
                let free = (from.is_float() && to == Scalar::F32 && widths.0)
                    || (from.is_int() && to.is_int() && to.size() >= 4 && widths.0 == widths.1);
                let a = self.lanes(a, from)?;
                match a {
                    Operand::Lanes(v) if free => Some(Component::Lanes(v)),
                    a => self.node(Node::Convert(from, to, a)),
                }
            }
        }
    }

    fn bitcast(&mut self, from: Scalar, to: Scalar, a: Component) -> Option<Component> {
        if from == to {
            return Some(a);
        }
        let ints = from.is_int() && to.is_int();
        match a {
            // A `Bool` is normalised in lanes, not in memory.
            Component::Uniform(_) if from != Scalar::Bool && to != Scalar::Bool => Some(a),
            Component::Linear(_) if ints => Some(a),
            a if from.size() >= 4 && from.size() == to.size() => match self.lanes(a, from)? {
                Operand::Lanes(v) => Some(Component::Lanes(v)),
                Operand::Uniform(_) => None,
            },
            a if ints && from.size() < 4 => {
                let a = self.lanes(a, from)?;
                self.node(Node::Convert(from, to, a))
            }
            _ => None,
        }
    }

    fn across(&mut self, a: ValueId, op: BinaryOp) -> Option<PlannedValue> {
        let (parts, n) = self.parts(a)?;
        let mut out = parts[0];
        for &part in &parts[1..n as usize] {
            out = self.binary(op, Scalar::Bool, out, part)?;
        }
        Some(PlannedValue::Parts([out; 4], 1))
    }

    /// The range of lanes in which a condition holds or does not, if it is a range.
    fn range(&mut self, cond: ValueId, holds: bool, depth: u32) -> Option<Slot> {
        let depth = depth.checked_sub(1)?;
        match self.ops[cond.index()] {
            Some(Op::Compare(op, a, b)) => {
                let scalar = self.kernel.ty(a).scalar().filter(|s| s.is_int() && s.size() >= 4)?;
                let of = |v: ValueId| match self.parts(v)?.0[0] {
                    Component::Uniform(slot) | Component::Linear(slot) => Some(slot),
                    Component::Lanes(_) => None,
                };
                let (a, b) = (of(a)?, of(b)?);
                let (strict, a, b) = match (op, holds) {
                    (CmpOp::Lt, true) | (CmpOp::Ge, false) => (true, a, b),
                    (CmpOp::Le, true) | (CmpOp::Gt, false) => (false, a, b),
                    (CmpOp::Gt, true) | (CmpOp::Le, false) => (true, b, a),
                    (CmpOp::Ge, true) | (CmpOp::Lt, false) => (false, b, a),
                    (CmpOp::Eq | CmpOp::Ne, _) => return None,
                };
                Some(self.host(HostOp::Within { strict, scalar, a, b }))
            }
            Some(Op::Binary(op, a, b)) => {
                let together = if holds { BinaryOp::And } else { BinaryOp::Or };
                if op != together {
                    return None;
                }
                let (a, b) = (self.range(a, holds, depth)?, self.range(b, holds, depth)?);
                Some(self.host(HostOp::Both(a, b)))
            }
            Some(Op::Unary(UnaryOp::Not, a)) => self.range(a, !holds, depth),
            _ => match self.parts(cond)?.0[0] {
                Component::Uniform(slot) => Some(self.host(HostOp::When(slot, holds))),
                _ => None,
            },
        }
    }

    // ---- Memory ----

    fn offset(&mut self, ptr: ValueId, index: ValueId, stride: i64) -> Option<PlannedValue> {
        let PlannedValue::Pointer { param, offset, linear } = self.vals[ptr.index()]? else {
            return None;
        };
        let scalar = self.kernel.ty(index).scalar()?;
        let (index, grows) = match self.parts(index)?.0[0] {
            Component::Uniform(slot) => (slot, false),
            Component::Linear(slot) => (slot, true),
            Component::Lanes(_) => return None,
        };
        let offset = self.host(HostOp::Address { index, scalar, offset, stride });
        Some(PlannedValue::Pointer { param, offset, linear: linear || grows })
    }

    fn access(&self, param: u32) -> Option<IrAccess> {
        match self.kernel.params.get(param as usize)?.kind {
            ParamKind::Buffer { access, .. } => Some(access),
            ParamKind::Value(_) => None,
        }
    }

    fn load(&mut self, ptr: ValueId, s: Scalar, n: u8) -> Option<PlannedValue> {
        let PlannedValue::Pointer { param, offset, linear } = self.vals[ptr.index()]? else {
            return None;
        };
        let total = s.size() * u64::from(n);
        if !linear {
            if self.access(param)? != IrAccess::Read {
                return None;
            }
            return self.each(n, |p, j| {
                let within = j as u64 * s.size();
                Some(Component::Uniform(p.host(HostOp::Load { param, offset, within, total, scalar: s })))
            });
        }
        // Staged lanes are gathered before any store, so a load after a store to its buffer could be stale.
        if self.stored.contains(&param) {
            return None;
        }
        self.groups += 1;
        self.each(n, |p, j| {
            let access = p.add_access(param, offset, j, s, total, None);
            let pair = p.plan.accesses[access as usize].pair;
            Some(Component::Lanes(p.push(Node::Load { access, scalar: s, pair })))
        })
    }

    fn store(&mut self, ptr: ValueId, value: ValueId, loc: Loc) -> Option<()> {
        let PlannedValue::Pointer { param, offset, linear } = self.vals[ptr.index()]? else {
            return None;
        };
        let ty = self.kernel.ty(value);
        let s = ty.scalar()?;
        if !linear || !self.access(param)?.writes() {
            return None;
        }
        let (parts, n) = self.parts(value)?;
        self.groups += 1;
        self.stored.push(param);
        let mut stores = Vec::with_capacity(n as usize);
        for (j, &part) in parts[..n as usize].iter().enumerate() {
            let value = self.lanes(part, s)?;
            stores.push((self.add_access(param, offset, j, s, ty.size(), Some(loc)), value));
        }
        if let [(access, a), (_, b)] = stores[..]
            && self.plan.accesses[access as usize].pair.is_some()
        {
            self.push(Node::StorePair { access, values: [a, b] });
            return Some(());
        }
        for (access, value) in stores {
            self.push(Node::Store { access, scalar: s, value });
        }
        Some(())
    }

    /// Adds an access: a load, or a store with its source location.
    fn add_access(
        &mut self,
        param: u32,
        offset: Slot,
        j: usize,
        s: Scalar,
        total: u64,
        store: Option<Loc>,
    ) -> u16 {
        let (size, group) = (s.size() as u8, self.groups);
        let within = j as u64 * s.size();
        let is_pair = self.can.pairs && size == 4 && total == 8;
        let pair = is_pair.then_some(j as u8);
        let (store, loc) = (store.is_some(), store.unwrap_or(Loc::UNKNOWN));
        self.plan.accesses.push(Access { param, offset, within, size, total, store, group, pair, loc });
        self.plan.accesses.len() as u16 - 1
    }
}
