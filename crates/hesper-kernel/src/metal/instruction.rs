//! Instructions other than control flow: one or a few statements each.

use super::kernel::Emitter;
use super::memory::{from_bits, to_bits};
use crate::cpp::scalar::{COMPONENTS, constant, type_name};
use crate::cpp::value::{Values, compare_pointers, shuffled_lane};
use crate::cpp::writer::{lane_value, reduce_name};
use crate::ir::*;
use crate::math::scalar::identity;

impl Emitter<'_> {
    /// Writes `const T v = text;`.
    pub(super) fn define(&mut self, v: ValueId, text: &str) {
        let ty = self.kernel.ty(v);
        // `const` before a pointer type would apply to the pointee.
        let name = self.type_of(ty);
        match ty {
            Type::Ptr(_) if !self.options.bounds => self.line(&format!("{name} const v{} = {text};", v.0)),
            _ => self.line(&format!("const {name} v{} = {text};", v.0)),
        }
    }

    pub(super) fn scalar_of(&self, v: ValueId) -> Scalar {
        self.values().component_type(v)
    }

    fn values(&self) -> Values<'_> {
        Values { kernel: self.kernel, fast: false }
    }

    pub(super) fn instruction(&mut self, inst: &Inst) {
        match inst.op {
            Op::Set(var, value) => self.line(&format!("x{} = v{};", var.0, value.0)),
            Op::Store { ptr, value, align } => self.store(ptr, value, align),
            atomic_op!() => self.atomic(inst),
            Op::Barrier { scope, mem } => {
                let scope = if scope == Scope::Threadgroup { "threadgroup" } else { "simdgroup" };
                self.line(&format!("{scope}_barrier({});", flags(mem)));
            }
            Op::Fence { mem } => {
                self.line(&format!(
                    "atomic_thread_fence({}, memory_order_seq_cst, thread_scope_device);",
                    flags(mem)
                ));
            }
            Op::Get(_) | Op::Load { .. } | value_op!() | group_op!() => {
                if let Some(result) = inst.result {
                    self.value(inst, result);
                }
            }
            // An asynchronous copy runs synchronously, where it is described.
            Op::AsyncEnd | Op::AsyncWait(_) => {}
            // Written by `block`.
            control_op!() => {}
        }
    }

    fn value(&mut self, inst: &Inst, result: ValueId) {
        let ty = self.kernel.ty(result);
        let text = match inst.op {
            Op::Load { ptr, align } => return self.load(result, ptr, align),
            Op::Param(i) => self.param(i, ty),
            Op::Builtin { what, axis } => self.builtin(what, axis, ty),
            Op::Compare(f, a, b) if self.kernel.ty(a).is_ptr() => {
                compare_pointers(f, a, b, self.options.bounds)
            }
            Op::Bitcast(a) => self.bitcast(a, ty),
            Op::NullPtr
            | Op::ParamPtr(_)
            | Op::ThreadgroupPtr(_)
            | Op::ThreadPtr(_)
            | Op::ConstPtr(_)
            | Op::PtrOffset { .. }
            | Op::PtrDiff { .. } => self.pointer_value(&inst.op, ty),
            group_op!() => {
                let lanes = self.fresh();
                self.attribute("thread_index_in_simdgroup", false);
                self.line(&format!("const simd_lanes m{lanes} = lanes_of(thread_index_in_simdgroup);"));
                self.group_value(&inst.op, ty, &format!("m{lanes}"))
            }
            _ => self.values().expression(&inst.op, ty),
        };
        self.define(result, &text);
    }

    /// The components of a value as bits, split or combined into those of the result.
    fn bitcast(&self, a: ValueId, ty: Type) -> String {
        let from = self.kernel.ty(a);
        let (s, t) = (self.scalar_of(a), ty.scalar().unwrap_or(Scalar::U32));
        let source = |k: u64| match from.is_vec() {
            true => to_bits(s, &format!("v{}.{}", a.0, COMPONENTS[k as usize])),
            false => to_bits(s, &format!("v{}", a.0)),
        };
        let word = |size: u64| format!("u{}", 8 * size);
        let part = |k: u64| {
            let (size, at) = (t.size(), k * t.size());
            let bits = if size <= s.size() {
                format!("({})({} >> {})", word(size), source(at / s.size()), 8 * (at % s.size()))
            } else {
                let n = size / s.size();
                let terms: Vec<String> = (0..n)
                    .map(|i| format!("({}){} << {}", word(size), source(at / s.size() + i), 8 * s.size() * i))
                    .collect();
                format!("({})({})", word(size), terms.join(" | "))
            };
            from_bits(t, &bits)
        };
        let parts: Vec<String> = (0..u64::from(ty.lanes())).map(part).collect();
        if ty.is_vec() { format!("{}{{{}}}", type_name(ty), parts.join(", ")) } else { parts[0].clone() }
    }

    /// Operations over the active lanes `m` of a SIMD group or quad.
    fn group_value(&self, op: &Op, ty: Type, m: &str) -> String {
        let width = |g: Group| g.width();
        match *op {
            Op::GroupReduce { group, op, value } => {
                let s = self.scalar_of(value);
                let (o, id, w) = (reduce_name(op), constant(s, identity(op, s)), width(group));
                let levels = w.trailing_zeros();
                self.values()
                    .each(ty, &[value], |x| format!("reduce<{o}, {w}, {levels}>({m}, {}, {id})", x[0]))
            }
            Op::GroupScan { group, op, inclusive, value } => {
                let s = self.scalar_of(value);
                let (o, id, w) = (reduce_name(op), constant(s, identity(op, s)), width(group));
                self.values()
                    .each(ty, &[value], |x| format!("scan<{o}, {w}>({m}, {}, {id}, {inclusive})", x[0]))
            }
            Op::GroupShuffle { group, kind, value, arg } => {
                let (f, sign) = shuffled_lane(kind);
                let lane = format!("{f}<{}>({m}, {sign}(i64)v{})", width(group), arg.0);
                self.values().each(ty, &[value], |x| format!("shuffle({m}, {}, {lane})", x[0]))
            }
            Op::GroupBroadcastFirst { group, value } => {
                let lane = format!("first_lane<{}>({m})", width(group));
                self.values().each(ty, &[value], |x| format!("from_lane({}, {lane})", x[0]))
            }
            _ => lane_value(op, m),
        }
    }

    /// Records that the entry takes an attribute, with axes or not.
    pub(super) fn attribute(&mut self, name: &'static str, axes: bool) {
        self.attributes.insert(name, axes);
    }

    fn builtin(&mut self, what: Builtin, axis: u8, ty: Type) -> String {
        let name = match what {
            Builtin::ThreadPositionInGrid => "thread_position_in_grid",
            Builtin::ThreadgroupPositionInGrid => "threadgroup_position_in_grid",
            Builtin::ThreadPositionInThreadgroup => "thread_position_in_threadgroup",
            Builtin::ThreadsPerThreadgroup => "threads_per_threadgroup",
            Builtin::DispatchThreadsPerThreadgroup => "dispatch_threads_per_threadgroup",
            Builtin::ThreadgroupsPerGrid => "threadgroups_per_grid",
            Builtin::ThreadsPerGrid => "threads_per_grid",
            Builtin::ThreadIndexInThreadgroup => "thread_index_in_threadgroup",
            Builtin::SimdgroupIndexInThreadgroup => "simdgroup_index_in_threadgroup",
            Builtin::ThreadIndexInSimdgroup => "thread_index_in_simdgroup",
            Builtin::ThreadsPerSimdgroup => "threads_per_simdgroup",
            Builtin::SimdgroupsPerThreadgroup => "simdgroups_per_threadgroup",
            Builtin::DispatchSimdgroupsPerThreadgroup => "dispatch_simdgroups_per_threadgroup",
            Builtin::QuadgroupIndexInThreadgroup => "quadgroup_index_in_threadgroup",
            Builtin::ThreadIndexInQuadgroup => "thread_index_in_quadgroup",
            Builtin::QuadgroupsPerThreadgroup => "quadgroups_per_threadgroup",
            Builtin::DispatchQuadgroupsPerThreadgroup => "dispatch_quadgroups_per_threadgroup",
        };
        self.attribute(name, what.has_axes());
        match what.has_axes() {
            true => format!("({}){name}.{}", type_name(ty), COMPONENTS[usize::from(axis)]),
            false => format!("({}){name}", type_name(ty)),
        }
    }
}

fn flags(mem: MemFlags) -> &'static str {
    match (mem.device, mem.threadgroup) {
        (true, true) => "mem_flags::mem_device | mem_flags::mem_threadgroup",
        (true, false) => "mem_flags::mem_device",
        (false, true) => "mem_flags::mem_threadgroup",
        (false, false) => "mem_flags::mem_none",
    }
}
