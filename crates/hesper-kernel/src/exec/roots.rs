//! Pointer variables that always point into one object.

use super::analyse::Analysis;
use crate::ir::{Kernel, Op, Type, ValueId};

/// Object numbers: null, the parameters, constant tables, threadgroup variables, thread variables.
pub(super) const NULL: u32 = 0;

pub(super) fn param_object(i: u32) -> u32 {
    1 + i
}

pub(super) fn const_object(kernel: &Kernel, i: u32) -> u32 {
    1 + kernel.params.len() as u32 + i
}

pub(super) fn threadgroup_object(kernel: &Kernel, i: u32) -> u32 {
    const_object(kernel, kernel.const_vars.len() as u32) + i
}

pub(super) fn thread_object(kernel: &Kernel, i: u32) -> u32 {
    threadgroup_object(kernel, kernel.threadgroup_vars.len() as u32) + i
}

#[derive(Clone, Copy, PartialEq)]
enum Pointee {
    Unknown,
    One(u32),
    Many,
}

impl Pointee {
    fn join(self, other: Pointee) -> Pointee {
        match (self, other) {
            (Pointee::Unknown, x) | (x, Pointee::Unknown) => x,
            (a, b) if a == b => a,
            _ => Pointee::Many,
        }
    }
}

/// The object of each pointer variable that has just one; a variable that may be read before it
/// is set may be null and has none.
pub(super) fn variable_roots(kernel: &Kernel, info: &Analysis) -> Vec<Option<u32>> {
    if !kernel.vars.iter().any(|v| v.ty.is_ptr()) {
        return vec![None; kernel.vars.len()];
    }
    let mut vars = vec![Pointee::Unknown; kernel.vars.len()];
    for (v, pointee) in vars.iter_mut().enumerate() {
        if info.zeroed[v] {
            *pointee = Pointee::Many;
        }
    }
    let mut values = vec![Pointee::Unknown; kernel.values.len()];
    // A fixed point: each variable rises at most twice, from unknown to one object to many.
    loop {
        let mut changed = false;
        for inst in kernel.blocks.iter().flat_map(|b| &b.insts) {
            if let Op::Set(v, value) = inst.op
                && kernel.var_ty(v).is_ptr()
            {
                let pointee = vars[v.index()].join(values[value.index()]);
                changed |= pointee != vars[v.index()];
                vars[v.index()] = pointee;
            }
            let Some(r) = inst.result.filter(|&r| matches!(kernel.ty(r), Type::Ptr(_))) else {
                continue;
            };
            let of = |v: ValueId| values[v.index()];
            let pointee = match inst.op {
                Op::NullPtr => Pointee::One(NULL),
                Op::ParamPtr(i) => Pointee::One(param_object(i)),
                Op::ConstPtr(i) => Pointee::One(const_object(kernel, i)),
                Op::ThreadgroupPtr(i) => Pointee::One(threadgroup_object(kernel, i)),
                Op::ThreadPtr(i) => Pointee::One(thread_object(kernel, i)),
                Op::PtrOffset { ptr, .. } => of(ptr),
                Op::Select { if_true, if_false, .. } => of(if_true).join(of(if_false)),
                Op::Get(v) => vars[v.index()],
                _ => Pointee::Many,
            };
            let pointee = values[r.index()].join(pointee);
            changed |= pointee != values[r.index()];
            values[r.index()] = pointee;
        }
        if !changed {
            break;
        }
    }
    let one = |l: Pointee| match l {
        Pointee::One(o) => Some(o),
        _ => None,
    };
    vars.into_iter().map(one).collect()
}
