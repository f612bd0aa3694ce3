//! Ops on scalars and vectors: the expression of each, from the names `v0`, `v1`, ... of its operands.

use super::scalar::{self, COMPONENTS, type_name};
use crate::ir::*;

/// The values of a kernel as texts.
pub(crate) struct Values<'a> {
    pub kernel: &'a Kernel,
    /// See [`crate::cuda::Options::fast_half`].
    pub fast: bool,
}

impl Values<'_> {
    /// The scalar of an operand.
    pub fn component_type(&self, v: ValueId) -> Scalar {
        // Pointers never get here.
        self.kernel.ty(v).scalar().unwrap_or(Scalar::U32)
    }

    /// An expression for each component, from the names of the operands' components.
    pub fn each(&self, ty: Type, operands: &[ValueId], f: impl Fn(&[String]) -> String) -> String {
        let component = |c: Option<&str>| {
            let names: Vec<String> = operands
                .iter()
                .map(|o| match c.filter(|_| self.kernel.ty(*o).is_vec()) {
                    Some(c) => format!("v{}.{c}", o.0),
                    None => format!("v{}", o.0),
                })
                .collect();
            f(&names)
        };
        match ty {
            Type::Vec(_, n) => {
                let parts: Vec<String> =
                    COMPONENTS[..usize::from(n)].iter().map(|c| component(Some(c))).collect();
                format!("{}{{{}}}", type_name(ty), parts.join(", "))
            }
            _ => component(None),
        }
    }

    /// The text of an op on values other than pointers.
    pub fn expression(&self, op: &Op, ty: Type) -> String {
        match *op {
            Op::Const(bits) => scalar::constant(ty.scalar().unwrap_or(Scalar::U32), bits),
            Op::Unary(f, a) => {
                let s = self.component_type(a);
                let template = scalar::unary(f, s, self.fast);
                self.each(ty, &[a], |x| template.fill(&[(&x[0], s)]))
            }
            Op::Binary(f, a, b) => {
                let s = self.component_type(a);
                let template = scalar::binary(f, s, self.fast);
                self.each(ty, &[a, b], |x| template.fill(&[(&x[0], s), (&x[1], f.right(s))]))
            }
            Op::Compare(f, a, b) => {
                let s = self.component_type(a);
                self.each(ty, &[a, b], |x| scalar::compare(f, s, &x[0], &x[1]))
            }
            Op::Ternary(f, a, b, c) => {
                let s = self.component_type(a);
                let template = scalar::ternary(f, s, self.fast);
                self.each(ty, &[a, b, c], |x| template.fill(&[(&x[0], s), (&x[1], s), (&x[2], s)]))
            }
            Op::Select { cond, if_true, if_false } => {
                if self.kernel.ty(cond).is_vec() {
                    self.each(ty, &[cond, if_true, if_false], |x| format!("{} ? {} : {}", x[0], x[1], x[2]))
                } else {
                    format!("v{} ? v{} : v{}", cond.0, if_true.0, if_false.0)
                }
            }
            Op::Convert(a) => {
                let (from, to) = (self.component_type(a), ty.scalar().unwrap_or(Scalar::U32));
                self.each(ty, &[a], |x| scalar::convert(from, to, &x[0]))
            }
            Op::Splat(a) => self.each(ty, &[a], |x| x[0].clone()),
            Op::Compose(parts) => {
                let parts: Vec<String> = parts.as_slice().iter().map(|p| format!("v{}", p.0)).collect();
                format!("{}{{{}}}", type_name(ty), parts.join(", "))
            }
            Op::Extract { vec, lane } => format!("v{}.{}", vec.0, COMPONENTS[usize::from(lane)]),
            Op::Insert { vec, lane, value } => {
                let parts: Vec<String> = (0..ty.lanes())
                    .map(|i| match i == lane {
                        true => format!("v{}", value.0),
                        false => format!("v{}.{}", vec.0, COMPONENTS[usize::from(i)]),
                    })
                    .collect();
                format!("{}{{{}}}", type_name(ty), parts.join(", "))
            }
            Op::ExtractDyn { vec, index } => {
                let mut text = String::new();
                for (i, c) in COMPONENTS[..usize::from(self.kernel.ty(vec).lanes())].iter().enumerate() {
                    text += &format!("(u64)v{} == {i}ull ? v{}.{c} : ", index.0, vec.0);
                }
                format!("{text}{}{{}}", type_name(ty))
            }
            Op::InsertDyn { vec, index, value } => {
                let parts: Vec<String> = (0..usize::from(ty.lanes()))
                    .map(|i| {
                        let c = COMPONENTS[i];
                        format!("(u64)v{} == {i}ull ? v{} : v{}.{c}", index.0, value.0, vec.0)
                    })
                    .collect();
                format!("{}{{{}}}", type_name(ty), parts.join(", "))
            }
            Op::Shuffle { vec, lanes } => {
                let parts: Vec<String> = lanes
                    .as_slice()
                    .iter()
                    .map(|&l| format!("v{}.{}", vec.0, COMPONENTS[usize::from(l)]))
                    .collect();
                match parts.as_slice() {
                    [one] => one.clone(),
                    _ => format!("{}{{{}}}", type_name(ty), parts.join(", ")),
                }
            }
            Op::AllOf(a) => self.fold(a, " && "),
            Op::AnyOf(a) => self.fold(a, " || "),
            Op::Get(var) => format!("x{}", var.0),
            Op::AsyncBegin => "1u".to_string(),
            // Written by the printer of the device.
            Op::NullPtr
            | Op::ParamPtr(_)
            | Op::ThreadgroupPtr(_)
            | Op::ThreadPtr(_)
            | Op::ConstPtr(_)
            | Op::PtrOffset { .. }
            | Op::PtrDiff { .. }
            | Op::Param(_)
            | Op::Builtin { .. }
            | Op::Bitcast(_)
            | Op::Set(..)
            | Op::Load { .. }
            | Op::Store { .. } => String::new(),
            group_op!() | atomic_op!() | sync_op!() | control_op!() => String::new(),
        }
    }

    fn fold(&self, a: ValueId, operator: &str) -> String {
        let n = usize::from(self.kernel.ty(a).lanes());
        let parts: Vec<String> = COMPONENTS[..n].iter().map(|c| format!("v{}.{c}", a.0)).collect();
        parts.join(operator)
    }
}

/// A comparison of pointers, which are structures if they have bounds.
pub(crate) fn compare_pointers(op: CmpOp, a: ValueId, b: ValueId, bounds: bool) -> String {
    let (a, b) = (a.0, b.0);
    if !bounds {
        return format!("v{a} {} v{b}", op.operator());
    }
    match op {
        CmpOp::Eq => format!("same(v{a}, v{b})"),
        CmpOp::Ne => format!("!same(v{a}, v{b})"),
        CmpOp::Lt => format!("before(v{a}, v{b})"),
        CmpOp::Le => format!("!before(v{b}, v{a})"),
        CmpOp::Gt => format!("before(v{b}, v{a})"),
        CmpOp::Ge => format!("!before(v{a}, v{b})"),
    }
}

/// The function that finds the lane a shuffle reads from, and the sign of its argument.
pub(crate) fn shuffled_lane(kind: ShuffleKind) -> (&'static str, &'static str) {
    match kind {
        ShuffleKind::Lane => ("lane_at", ""),
        ShuffleKind::Up => ("lane_moved", "-"),
        ShuffleKind::Down => ("lane_moved", ""),
        ShuffleKind::Xor => ("lane_xor", ""),
        ShuffleKind::RotateUp => ("lane_rotated", "-"),
        ShuffleKind::RotateDown => ("lane_rotated", ""),
    }
}
