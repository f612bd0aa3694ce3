//! Instructions other than control flow: one statement each.

use super::control::Mask;
use super::kernel::Emitter;
use super::memory::from_memory;
use crate::cpp::scalar::{self, COMPONENTS, type_name};
use crate::cpp::value::{Values, compare_pointers, shuffled_lane};
use crate::cpp::writer::{lane_value, reduce_name};
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
            // An asynchronous copy runs synchronously, where it is described.
            Op::AsyncEnd | Op::AsyncWait(_) => {}
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

    fn expression(&self, op: &Op, ty: Type) -> String {
        match *op {
            Op::Param(i) => from_memory(ty, &format!("p{i}")),
            Op::Builtin { .. } if self.is_function => format!("({})index", type_name(ty)),
            Op::Builtin { what, axis } => builtin(what, axis, ty),
            Op::Compare(f, a, b) if self.kernel.ty(a).is_ptr() => {
                compare_pointers(f, a, b, self.options.bounds)
            }
            Op::Bitcast(a) => format!("bit_cast_to<{}>(v{})", type_name(ty), a.0),
            Op::NullPtr
            | Op::ParamPtr(_)
            | Op::ThreadgroupPtr(_)
            | Op::ThreadPtr(_)
            | Op::ConstPtr(_)
            | Op::PtrOffset { .. }
            | Op::PtrDiff { .. } => self.pointer_value(op),
            _ => self.values().expression(op, ty),
        }
    }

    fn values(&self) -> Values<'_> {
        Values { kernel: self.kernel, fast: self.options.fast_half }
    }

    /// Operations over the lanes of a SIMD group or quad.
    fn group_value(&self, op: &Op, mask: Mask) -> String {
        let m = name(mask);
        let width = |g: Group| g.width();
        match *op {
            Op::GroupReduce { group, op, value } => {
                let id = scalar::constant(self.values().component_type(value), self.identity(op, value));
                let f = if group == Group::Simd { "simd_reduce" } else { "quad_reduce" };
                let o = reduce_name(op);
                self.values()
                    .each(self.kernel.ty(value), &[value], |x| format!("{f}<{o}>({m}, {}, {id})", x[0]))
            }
            Op::GroupScan { group, op, inclusive, value } => {
                let id = scalar::constant(self.values().component_type(value), self.identity(op, value));
                let f = if group == Group::Simd { "simd_scan" } else { "quad_scan" };
                let o = reduce_name(op);
                self.values().each(self.kernel.ty(value), &[value], |x| {
                    format!("{f}<{o}>({m}, {}, {id}, {inclusive})", x[0])
                })
            }
            Op::GroupShuffle { group, kind, value, arg } => {
                let (f, sign) = shuffled_lane(kind);
                format!("shuffle({m}, v{}, {f}<{}>({sign}(i64)v{}))", value.0, width(group), arg.0)
            }
            Op::GroupBroadcastFirst { group, value } => {
                format!("from_lane({m}, v{}, first_lane<{}>({m}))", value.0, width(group))
            }
            _ => lane_value(op, &m),
        }
    }

    fn identity(&self, op: ReduceOp, value: ValueId) -> u64 {
        identity(op, self.values().component_type(value))
    }
}

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
