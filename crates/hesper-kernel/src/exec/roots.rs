//! Which object a pointer variable leads to, where it is always the same one.

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
enum Lead {
    Unknown,
    One(u32),
    Many,
}

impl Lead {
    fn join(self, other: Lead) -> Lead {
        match (self, other) {
            (Lead::Unknown, x) | (x, Lead::Unknown) => x,
            (a, b) if a == b => a,
            _ => Lead::Many,
        }
    }
}

/// The object of each pointer variable that has just one; a variable that may be read before it
/// is set may be null and has none.
pub(super) fn variable_roots(kernel: &Kernel, info: &Analysis) -> Vec<Option<u32>> {
    if !kernel.vars.iter().any(|v| v.ty.is_ptr()) {
        return vec![None; kernel.vars.len()];
    }
    let mut vars = vec![Lead::Unknown; kernel.vars.len()];
    for (v, lead) in vars.iter_mut().enumerate() {
        if info.zeroed[v] {
            *lead = Lead::Many;
        }
    }
    let mut values = vec![Lead::Unknown; kernel.values.len()];
    // Leads only rise, by at most two steps for each variable.
    loop {
        let mut changed = false;
        for inst in kernel.blocks.iter().flat_map(|b| &b.insts) {
            if let Op::Set(v, value) = inst.op
                && kernel.var_ty(v).is_ptr()
            {
                let lead = vars[v.index()].join(values[value.index()]);
                changed |= lead != vars[v.index()];
                vars[v.index()] = lead;
            }
            let Some(r) = inst.result.filter(|&r| matches!(kernel.ty(r), Type::Ptr(_))) else {
                continue;
            };
            let of = |v: ValueId| values[v.index()];
            let lead = match inst.op {
                Op::NullPtr => Lead::One(NULL),
                Op::ParamPtr(i) => Lead::One(param_object(i)),
                Op::ConstPtr(i) => Lead::One(const_object(kernel, i)),
                Op::ThreadgroupPtr(i) => Lead::One(threadgroup_object(kernel, i)),
                Op::ThreadPtr(i) => Lead::One(thread_object(kernel, i)),
                Op::PtrOffset { ptr, .. } => of(ptr),
                Op::Select { if_true, if_false, .. } => of(if_true).join(of(if_false)),
                Op::Get(v) => vars[v.index()],
                _ => Lead::Many,
            };
            let lead = values[r.index()].join(lead);
            changed |= lead != values[r.index()];
            values[r.index()] = lead;
        }
        if !changed {
            break;
        }
    }
    let one = |l: Lead| match l {
        Lead::One(o) => Some(o),
        _ => None,
    };
    vars.into_iter().map(one).collect()
}
