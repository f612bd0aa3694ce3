//! Instructions other than control flow: one statement each.

use super::control::Mask;
use super::kernel::Emitter;
use super::memory::from_memory;
use super::scalar::{self, COMPONENTS, type_name};
use crate::ir::registry::reduce_ops;
use crate::ir::*;
use crate::math::scalar::identity;

impl Emitter<'_> {
    /// Writes `const T v = text;`.
    pub(super) fn define(&mut self, v: ValueId, text: &str) {
        let ty = self.type_of(self.kernel.ty(v));
        self.line(&format!("const {ty} v{} = {text};", v.0));
    }

    pub(super) fn instruction(&mut self, inst: &Inst, mask: Mask) {
        match inst.op {
            Op::Set(var, value) => self.line(&format!("x{} = v{};", var.0, value.0)),
            Op::Store { ptr, value, align } => self.store(ptr, value, align),
            atomic_op!() => self.atomic(inst),
            Op::Barrier { scope: Scope::Threadgroup, .. } => self.line("threadgroup_barrier();"),
            Op::Barrier { scope: Scope::Simdgroup, .. } => {
                let text = format!("__syncwarp({});", name(mask));
                self.line(&text);
            }
            Op::Fence { mem } if mem.device => self.line("__threadfence();"),
            Op::Fence { .. } => self.line("__threadfence_block();"),
            Op::Get(_) | Op::Load { .. } | value_op!() | group_op!() => {
                if let Some(result) = inst.result {
                    self.value(inst, result, mask);
                }
            }
            // Written by `block`.
            control_op!() => {}
        }
    }

    fn value(&mut self, inst: &Inst, result: ValueId, mask: Mask) {
        let text = match inst.op {
            Op::Load { ptr, align } => return self.load(result, ptr, align),
            group_op!() => self.group_value(&inst.op, mask),
            _ => self.expression(&inst.op, self.kernel.ty(result)),
        };
        self.define(result, &text);
    }

    fn component_type(&self, v: ValueId) -> Scalar {
        // Pointers never get here.
        self.kernel.ty(v).scalar().unwrap_or(Scalar::U32)
    }

    /// An expression for each component, from the names of the operands' components.
    fn each(&self, ty: Type, operands: &[ValueId], f: impl Fn(&[String]) -> String) -> String {
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

    fn expression(&self, op: &Op, ty: Type) -> String {
        match *op {
            Op::Const(bits) => scalar::constant(ty.scalar().unwrap_or(Scalar::U32), bits),
            Op::Param(i) => from_memory(ty, &format!("p{i}")),
            Op::Builtin { what, axis } => builtin(what, axis, ty),
            Op::Unary(f, a) => {
                let s = self.component_type(a);
                let template = scalar::unary(f, s, self.options.fast_half);
                self.each(ty, &[a], |x| template.fill(&[(&x[0], s)]))
            }
            Op::Binary(f, a, b) => {
                let s = self.component_type(a);
                let template = scalar::binary(f, s, self.options.fast_half);
                self.each(ty, &[a, b], |x| template.fill(&[(&x[0], s), (&x[1], f.right(s))]))
            }
            Op::Compare(f, a, b) if self.kernel.ty(a).is_ptr() => self.compare_pointers(f, a, b),
            Op::Compare(f, a, b) => {
                let s = self.component_type(a);
                self.each(ty, &[a, b], |x| scalar::compare(f, s, &x[0], &x[1]))
            }
            Op::Ternary(f, a, b, c) => {
                let s = self.component_type(a);
                let template = scalar::ternary(f, s, self.options.fast_half);
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
            Op::Bitcast(a) => format!("bit_cast_to<{}>(v{})", type_name(ty), a.0),
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
            Op::NullPtr
            | Op::ParamPtr(_)
            | Op::ThreadgroupPtr(_)
            | Op::ThreadPtr(_)
            | Op::ConstPtr(_)
            | Op::PtrOffset { .. }
            | Op::PtrDiff { .. } => self.pointer_value(op),
            Op::Set(..) | Op::Load { .. } | Op::Store { .. } => String::new(),
            group_op!() | atomic_op!() | sync_op!() | control_op!() => String::new(),
        }
    }

    fn fold(&self, a: ValueId, operator: &str) -> String {
        let n = usize::from(self.kernel.ty(a).lanes());
        let parts: Vec<String> = COMPONENTS[..n].iter().map(|c| format!("v{}.{c}", a.0)).collect();
        parts.join(operator)
    }

    /// Operations over the lanes of a SIMD group or quad.
    fn group_value(&self, op: &Op, mask: Mask) -> String {
        let m = name(mask);
        let width = |g: Group| g.width();
        match *op {
            Op::GroupReduce { group, op, value } => {
                let id = scalar::constant(self.component_type(value), self.identity(op, value));
                let f = if group == Group::Simd { "simd_reduce" } else { "quad_reduce" };
                let o = reduce_name(op);
                self.each(self.kernel.ty(value), &[value], |x| format!("{f}<{o}>({m}, {}, {id})", x[0]))
            }
            Op::GroupScan { group, op, inclusive, value } => {
                let id = scalar::constant(self.component_type(value), self.identity(op, value));
                let f = if group == Group::Simd { "simd_scan" } else { "quad_scan" };
                let o = reduce_name(op);
                self.each(self.kernel.ty(value), &[value], |x| {
                    format!("{f}<{o}>({m}, {}, {id}, {inclusive})", x[0])
                })
            }
            Op::GroupShuffle { group, kind, value, arg } => {
                let (f, sign) = match kind {
                    ShuffleKind::Lane => ("lane_at", ""),
                    ShuffleKind::Up => ("lane_moved", "-"),
                    ShuffleKind::Down => ("lane_moved", ""),
                    ShuffleKind::Xor => ("lane_xor", ""),
                    ShuffleKind::RotateUp => ("lane_rotated", "-"),
                    ShuffleKind::RotateDown => ("lane_rotated", ""),
                };
                format!("shuffle({m}, v{}, {f}<{}>({sign}(i64)v{}))", value.0, width(group), arg.0)
            }
            Op::GroupBroadcastFirst { group, value } => {
                format!("from_lane({m}, v{}, first_lane<{}>({m}))", value.0, width(group))
            }
            Op::GroupBallot { group, value } => format!("ballot<{}>({m}, v{})", width(group), value.0),
            Op::GroupAll { group, value } => format!("all_of<{}>({m}, v{})", width(group), value.0),
            Op::GroupAny { group, value } => format!("any_of<{}>({m}, v{})", width(group), value.0),
            Op::GroupIsFirst { group } => format!("is_first<{}>({m})", width(group)),
            Op::GroupActiveMask { group } => format!("active_in<{}>({m})", width(group)),
            Op::SimdMatMulAcc { a, b, c } => format!("matrix_fma({m}, v{}, v{}, v{})", a.0, b.0, c.0),
            Op::Get(_) | Op::Set(..) | Op::Load { .. } | Op::Store { .. } => String::new(),
            value_op!() | atomic_op!() | sync_op!() | control_op!() => String::new(),
        }
    }

    fn identity(&self, op: ReduceOp, value: ValueId) -> u64 {
        identity(op, self.component_type(value))
    }
}

macro_rules! reduce_names {
    ($($(#[$doc:meta])* $Name:ident = $Binary:ident, $cuda:literal;)*) => {
        fn reduce_name(op: ReduceOp) -> &'static str {
            match op { $(ReduceOp::$Name => $cuda,)* }
        }
    };
}
reduce_ops!(reduce_names);

/// The name of a mask. The analysis provides one wherever it is needed.
fn name(mask: Mask) -> String {
    mask.map_or_else(|| "0xffffffffu".to_string(), |m| format!("m{m}"))
}

fn builtin(what: Builtin, axis: u8, ty: Type) -> String {
    let a = COMPONENTS[usize::from(axis)];
    let text = match what {
        Builtin::ThreadPositionInGrid => format!("at.g{a} * blockDim.{a} + at.p{a}"),
        Builtin::ThreadgroupPositionInGrid => format!("at.g{a}"),
        Builtin::ThreadPositionInThreadgroup => format!("at.p{a}"),
        Builtin::ThreadsPerThreadgroup => format!("at.s{a}"),
        Builtin::DispatchThreadsPerThreadgroup => format!("blockDim.{a}"),
        Builtin::ThreadgroupsPerGrid => format!("groups_along(grid.{a}, blockDim.{a})"),
        Builtin::ThreadsPerGrid => format!("grid.{a}"),
        Builtin::ThreadIndexInThreadgroup => "at.index".to_string(),
        Builtin::SimdgroupIndexInThreadgroup => "at.index / 32u".to_string(),
        Builtin::ThreadIndexInSimdgroup => "at.index % 32u".to_string(),
        Builtin::ThreadsPerSimdgroup => "32u".to_string(),
        Builtin::SimdgroupsPerThreadgroup => "(at.threads + 31u) / 32u".to_string(),
        Builtin::DispatchSimdgroupsPerThreadgroup => {
            "(blockDim.x * blockDim.y * blockDim.z + 31u) / 32u".to_string()
        }
        Builtin::QuadgroupIndexInThreadgroup => "at.index / 4u".to_string(),
        Builtin::ThreadIndexInQuadgroup => "at.index % 4u".to_string(),
        Builtin::QuadgroupsPerThreadgroup => "(at.threads + 3u) / 4u".to_string(),
        Builtin::DispatchQuadgroupsPerThreadgroup => {
            "(blockDim.x * blockDim.y * blockDim.z + 3u) / 4u".to_string()
        }
    };
    format!("({})({text})", type_name(ty))
}
