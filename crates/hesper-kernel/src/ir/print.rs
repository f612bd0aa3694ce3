//! Kernels as readable text.
//!
//! One instruction per line, blocks indented, the source position as a trailing comment. The
//! text is for people (`hesper kernel show --ir`) and for tests; nothing parses it.

use std::fmt;

use super::inst::*;
use super::kernel::{Access, Kernel, ParamKind};
use super::ops::{MemFlags, Scope};
use super::types::{Scalar, Type};

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "kernel {}(", self.name)?;
        for (i, p) in self.params.iter().enumerate() {
            match p.kind {
                ParamKind::Value(ty) => writeln!(f, "  #{i} {}: {ty},", p.name)?,
                ParamKind::Buffer { space, elem, access } => {
                    let access = match access {
                        Access::Read => "read",
                        Access::ReadWrite => "read write",
                        Access::Atomic => "atomic",
                    };
                    writeln!(f, "  #{i} {}: {space} {elem}[] {access},", p.name)?;
                }
            }
        }
        writeln!(f, ") {{")?;
        for (kind, vars) in [("threadgroup", &self.threadgroup_vars), ("thread", &self.thread_vars)] {
            for (i, v) in vars.iter().enumerate() {
                let (name, size, align) = (&v.name, v.size, v.align);
                writeln!(f, "  {kind} {i} {name}: {size} bytes, align {align}")?;
            }
        }
        for (i, v) in self.const_vars.iter().enumerate() {
            writeln!(f, "  const {i} {}: {} bytes, align {}", v.name, v.data.len(), v.align)?;
        }
        for (i, v) in self.vars.iter().enumerate() {
            writeln!(f, "  var ${i} {}: {}", v.name, v.ty)?;
        }
        print_block(f, self, self.body, 1)?;
        writeln!(f, "}}")
    }
}

fn print_block(f: &mut fmt::Formatter<'_>, k: &Kernel, id: BlockId, depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth.min(64));
    // A block out of range or nested too deep belongs to a kernel the verifier refuses.
    let Some(block) = k.blocks.get(id.index()) else {
        return writeln!(f, "{pad}<no block {}>", id.0);
    };
    if depth > super::MAX_NESTING as usize {
        return writeln!(f, "{pad}<too deep>");
    }
    for inst in &block.insts {
        f.write_str(&pad)?;
        match inst.op {
            Op::If { cond, then, els } => {
                write!(f, "if {cond} {{")?;
                print_loc(f, k, inst.loc)?;
                print_block(f, k, then, depth + 1)?;
                if k.blocks.get(els.index()).is_some_and(|b| !b.insts.is_empty()) {
                    writeln!(f, "{pad}}} else {{")?;
                    print_block(f, k, els, depth + 1)?;
                }
                writeln!(f, "{pad}}}")?;
            }
            Op::Loop { body, continuing } => {
                write!(f, "loop {{")?;
                print_loc(f, k, inst.loc)?;
                print_block(f, k, body, depth + 1)?;
                if k.blocks.get(continuing.index()).is_some_and(|b| !b.insts.is_empty()) {
                    writeln!(f, "{pad}}} continuing {{")?;
                    print_block(f, k, continuing, depth + 1)?;
                }
                writeln!(f, "{pad}}}")?;
            }
            _ => {
                if let Some(v) = inst.result {
                    match k.values.get(v.index()) {
                        Some(info) => write!(f, "{v}: {} = ", info.ty)?,
                        None => write!(f, "{v}: ? = ")?,
                    }
                }
                print_op(f, k, inst)?;
                print_loc(f, k, inst.loc)?;
            }
        }
    }
    Ok(())
}

fn print_loc(f: &mut fmt::Formatter<'_>, k: &Kernel, loc: Loc) -> fmt::Result {
    for (i, l) in k.loc_chain(loc).iter().enumerate() {
        let lead = if i == 0 { "  ; " } else { " < " };
        write!(f, "{lead}{}:{}", l.line, l.column)?;
    }
    writeln!(f)
}

fn print_op(f: &mut fmt::Formatter<'_>, k: &Kernel, inst: &Inst) -> fmt::Result {
    let name_of = |i: u32| k.params.get(i as usize).map_or("?", |p| p.name.as_str());
    match inst.op {
        Op::Const(bits) => {
            let ty = inst.result.and_then(|v| k.values.get(v.index()));
            print_const(f, ty.map(|i| i.ty), bits)
        }
        Op::NullPtr => f.write_str("null"),
        Op::Param(i) => write!(f, "param #{i} {}", name_of(i)),
        Op::ParamPtr(i) => write!(f, "param_ptr #{i} {}", name_of(i)),
        Op::ThreadgroupPtr(i) => write!(f, "threadgroup_ptr {i}"),
        Op::ThreadPtr(i) => write!(f, "thread_ptr {i}"),
        Op::ConstPtr(i) => write!(f, "const_ptr {i}"),
        Op::Builtin { what, axis } if what.has_axes() => {
            write!(f, "{}.{}", snake(&what), ["x", "y", "z"][axis.min(2) as usize])
        }
        Op::Builtin { what, .. } => f.write_str(&snake(&what)),
        Op::Unary(op, a) => write!(f, "{} {a}", snake(&op)),
        Op::Binary(op, a, b) => write!(f, "{} {a}, {b}", snake(&op)),
        Op::Compare(op, a, b) => write!(f, "{} {a}, {b}", snake(&op)),
        Op::Ternary(op, a, b, c) => write!(f, "{} {a}, {b}, {c}", snake(&op)),
        Op::Select { cond, if_true, if_false } => write!(f, "select {cond}, {if_true}, {if_false}"),
        Op::Convert(a) => write!(f, "convert {a}"),
        Op::Bitcast(a) => write!(f, "bitcast {a}"),
        Op::Splat(a) => write!(f, "splat {a}"),
        Op::Compose(parts) => {
            f.write_str("compose")?;
            for (i, p) in parts.as_slice().iter().enumerate() {
                write!(f, "{} {p}", if i == 0 { "" } else { "," })?;
            }
            Ok(())
        }
        Op::Extract { vec, lane } => write!(f, "extract {vec}.{lane}"),
        Op::Insert { vec, lane, value } => write!(f, "insert {vec}.{lane}, {value}"),
        Op::ExtractDyn { vec, index } => write!(f, "extract {vec}[{index}]"),
        Op::InsertDyn { vec, index, value } => write!(f, "insert {vec}[{index}], {value}"),
        Op::Shuffle { vec, lanes } => {
            write!(f, "shuffle {vec}.")?;
            lanes.as_slice().iter().try_for_each(|&l| f.write_str(["x", "y", "z", "w"][l.min(3) as usize]))
        }
        Op::AllOf(a) => write!(f, "all_of {a}"),
        Op::AnyOf(a) => write!(f, "any_of {a}"),
        Op::Get(v) => write!(f, "get ${}", v.0),
        Op::Set(v, a) => write!(f, "set ${}, {a}", v.0),
        Op::PtrOffset { ptr, index, stride } => write!(f, "{ptr} + {index} * {stride}"),
        Op::PtrDiff { a, b, stride } => write!(f, "({a} - {b}) / {stride}"),
        Op::Load { ptr, align } => write!(f, "load {ptr}, align {align}"),
        Op::Store { ptr, value, align } => write!(f, "store {ptr}, {value}, align {align}"),
        Op::AtomicRmw { op, ptr, value } => write!(f, "atomic_{} {ptr}, {value}", snake(&op)),
        Op::AtomicLoad { ptr } => write!(f, "atomic_load {ptr}"),
        Op::AtomicStore { ptr, value } => write!(f, "atomic_store {ptr}, {value}"),
        Op::AtomicCompareExchange { ptr, expected, desired } => {
            write!(f, "atomic_compare_exchange {ptr}, {expected}, {desired}")
        }
        Op::GroupReduce { group, op, value } => {
            write!(f, "{}_{} {value}", snake(&group), snake(&op))
        }
        Op::GroupScan { group, op, inclusive, value } => {
            let kind = if inclusive { "inclusive" } else { "exclusive" };
            write!(f, "{}_prefix_{kind}_{} {value}", snake(&group), snake(&op))
        }
        Op::GroupShuffle { group, kind, value, arg } => {
            write!(f, "{}_shuffle_{} {value}, {arg}", snake(&group), snake(&kind))
        }
        Op::GroupBroadcastFirst { group, value } => {
            write!(f, "{}_broadcast_first {value}", snake(&group))
        }
        Op::GroupBallot { group, value } => write!(f, "{}_ballot {value}", snake(&group)),
        Op::GroupAll { group, value } => write!(f, "{}_all {value}", snake(&group)),
        Op::GroupAny { group, value } => write!(f, "{}_any {value}", snake(&group)),
        Op::GroupIsFirst { group } => write!(f, "{}_is_first", snake(&group)),
        Op::GroupActiveMask { group } => write!(f, "{}_active_mask", snake(&group)),
        Op::SimdMatMulAcc { a, b, c } => write!(f, "simd_matmul_acc {a}, {b}, {c}"),
        Op::Barrier { scope, mem } => {
            let scope = match scope {
                Scope::Threadgroup => "threadgroup",
                Scope::Simdgroup => "simdgroup",
            };
            write!(f, "{scope}_barrier {}", flags(mem))
        }
        Op::Fence { mem } => write!(f, "fence {}", flags(mem)),
        Op::AsyncBegin => f.write_str("async_begin"),
        Op::AsyncEnd => f.write_str("async_end"),
        Op::AsyncWait(event) => write!(f, "async_wait {event}"),
        Op::If { .. } | Op::Loop { .. } => Ok(()),
        Op::Break => f.write_str("break"),
        Op::Continue => f.write_str("continue"),
        Op::Return => f.write_str("return"),
    }
}

fn flags(mem: MemFlags) -> &'static str {
    match (mem.device, mem.threadgroup) {
        (false, false) => "none",
        (true, false) => "device",
        (false, true) => "threadgroup",
        (true, true) => "device threadgroup",
    }
}

fn print_const(f: &mut fmt::Formatter<'_>, ty: Option<Type>, bits: u64) -> fmt::Result {
    match ty.and_then(Type::scalar) {
        Some(Scalar::Bool) => write!(f, "{}", bits != 0),
        Some(Scalar::I8) => write!(f, "{}", bits as i8),
        Some(Scalar::I16) => write!(f, "{}", bits as i16),
        Some(Scalar::I32) => write!(f, "{}", bits as i32),
        Some(Scalar::I64) => write!(f, "{}", bits as i64),
        Some(Scalar::F16) => write!(f, "{:?}", half::f16::from_bits(bits as u16).to_f32()),
        Some(Scalar::BF16) => write!(f, "{:?}", half::bf16::from_bits(bits as u16).to_f32()),
        Some(Scalar::F32) => write!(f, "{:?}", f32::from_bits(bits as u32)),
        Some(Scalar::F64) => write!(f, "{:?}", f64::from_bits(bits)),
        _ => write!(f, "{bits}"),
    }
}

/// The `Debug` name of an enum value in snake case.
fn snake(x: &impl fmt::Debug) -> String {
    let mut out = String::new();
    for (i, c) in format!("{x:?}").chars().enumerate() {
        if c.is_uppercase() && i > 0 {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}
