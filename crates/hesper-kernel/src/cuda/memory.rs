//! Pointers, loads, stores and atomics, plain or with bounds.

use super::analysis::only_read;
use super::kernel::Emitter;
use crate::cpp::scalar::{COMPONENTS, type_name};
use crate::ir::registry::atomic_ops;
use crate::ir::*;

/// The type of a value's bytes in memory: a `Bool` is a byte.
pub(super) fn memory_type(ty: Type) -> Type {
    if ty.scalar() == Some(Scalar::Bool) { ty.with_scalar(Scalar::U8) } else { ty }
}

/// A value of `ty` from its bytes in memory.
pub(super) fn from_memory(ty: Type, bytes: &str) -> String {
    match ty {
        Type::Scalar(Scalar::Bool) => format!("{bytes} != (u8)0"),
        Type::Vec(Scalar::Bool, n) => {
            let parts: Vec<String> =
                COMPONENTS[..usize::from(n)].iter().map(|c| format!("{bytes}.{c} != (u8)0")).collect();
            format!("vec{n}<bool>{{{}}}", parts.join(", "))
        }
        _ => bytes.to_string(),
    }
}

pub(super) fn to_memory(ty: Type, value: &str) -> String {
    match ty {
        Type::Scalar(Scalar::Bool) => format!("(u8){value}"),
        Type::Vec(Scalar::Bool, n) => {
            let parts: Vec<String> =
                COMPONENTS[..usize::from(n)].iter().map(|c| format!("(u8){value}.{c}")).collect();
            format!("vec{n}<u8>{{{}}}", parts.join(", "))
        }
        _ => value.to_string(),
    }
}

impl Emitter<'_> {
    /// The C++ type of a value or variable.
    pub(super) fn type_of(&self, ty: Type) -> String {
        if ty.is_ptr() && self.options.bounds { "checked_ptr".to_string() } else { type_name(ty) }
    }

    /// A pointer to the start of an object, by its [number](crate::bounds::Target::object).
    fn object(&self, address: String, size: &str, number: usize, writable: bool) -> String {
        if self.options.bounds {
            format!("checked_ptr{{{address}, 0, {size}, {number}u, {writable}}}")
        } else {
            address
        }
    }

    /// The operand of an access that is not checked.
    fn address(&self, ptr: ValueId) -> String {
        if self.options.bounds { format!("proven(v{})", ptr.0) } else { format!("v{}", ptr.0) }
    }

    /// The report and the current instruction in it, 0 being none.
    fn site(&self) -> String {
        format!("report, {}ull", self.number + 1)
    }

    fn offset(&self, ptr: ValueId, index: ValueId, stride: i64) -> String {
        let bytes = match self.kernel.ty(index) {
            Type::I32 => format!("(i64)v{} * {stride}ll", index.0),
            _ => format!("(i64)((u64)v{} * {}ull)", index.0, stride as u64),
        };
        if self.options.bounds {
            let or_null = if self.has_null { "_or_null" } else { "" };
            format!("moved{or_null}(v{}, {bytes})", ptr.0)
        } else if self.has_null {
            format!("v{0} ? v{0} + {bytes} : v{0}", ptr.0)
        } else {
            format!("v{} + {bytes}", ptr.0)
        }
    }

    /// The value of a pointer op.
    pub(super) fn pointer_value(&self, op: &Op) -> String {
        let kernel = self.kernel;
        let (params, tables) = (kernel.params.len(), kernel.const_vars.len());
        let first_shared = 1 + params + tables;
        let first_thread = first_shared + kernel.threadgroup_vars.len();
        match *op {
            Op::NullPtr if self.options.bounds => "checked_ptr{}".to_string(),
            Op::NullPtr => "(u8*)0".to_string(),
            Op::ParamPtr(i) => {
                let writes = match kernel.params[i as usize].kind {
                    ParamKind::Buffer { access, .. } => access.writes(),
                    ParamKind::Value(_) => false,
                };
                self.object(format!("(u8*)p{i}"), &format!("n{i}"), 1 + i as usize, writes)
            }
            Op::ThreadgroupPtr(i) => {
                let at = self.shared_offsets[i as usize];
                let size = kernel.threadgroup_vars[i as usize].size;
                self.object(format!("shared + {at}"), &format!("{size}ull"), first_shared + i as usize, true)
            }
            Op::ThreadPtr(i) => {
                let size = kernel.thread_vars[i as usize].size;
                self.object(format!("t{i}"), &format!("{size}ull"), first_thread + i as usize, true)
            }
            Op::ConstPtr(i) => {
                let size = kernel.const_vars[i as usize].data.len();
                self.object(format!("(u8*)c{i}"), &format!("{size}ull"), 1 + params + i as usize, false)
            }
            Op::PtrOffset { ptr, index, stride } => self.offset(ptr, index, stride),
            Op::PtrDiff { a, b, stride } => {
                if self.options.bounds {
                    format!("distance(v{}, v{}) / {stride}ll", a.0, b.0)
                } else {
                    format!("(i64)(v{} - v{}) / {stride}ll", a.0, b.0)
                }
            }
            _ => String::new(),
        }
    }

    /// A load.
    pub(super) fn load(&mut self, result: ValueId, ptr: ValueId, align: u32) {
        let ty = self.kernel.ty(result);
        let stored = type_name(memory_type(ty));
        let early = self.turns > 1 && only_read(self.kernel, ptr);
        let from = if self.is_checked() { format!("v{}", ptr.0) } else { self.address(ptr) };
        let load = format!("{}<{align}, {stored}>({from})", if early { "load_early" } else { "load" });
        if ty.scalar() == Some(Scalar::Bool) && ty.is_vec() {
            self.line(&format!("const {stored} b{} = {load};", result.0));
            let text = from_memory(ty, &format!("b{}", result.0));
            self.define(result, &text);
        } else {
            let text = from_memory(ty, &load);
            self.define(result, &text);
        }
    }

    /// A store.
    pub(super) fn store(&mut self, ptr: ValueId, value: ValueId, align: u32) {
        let value = to_memory(self.kernel.ty(value), &format!("v{}", value.0));
        let text = if self.is_checked() {
            format!("store<{align}>(v{}, {value}, {});", ptr.0, self.site())
        } else {
            format!("store<{align}>({}, {value});", self.address(ptr))
        };
        self.line(&text);
    }

    /// An atomic instruction.
    pub(super) fn atomic(&mut self, inst: &Inst) {
        let (ptr, call, writes, size) = match inst.op {
            Op::AtomicRmw { op, ptr, value } => {
                let size = self.kernel.ty(value).size();
                (ptr, format!("atomic_{}(@, v{})", atomic_name(op), value.0), true, size)
            }
            Op::AtomicLoad { ptr } => {
                let ty = inst.result.map_or(Type::U32, |v| self.kernel.ty(v));
                (ptr, format!("atomic_load<{}>(@)", type_name(ty)), false, ty.size())
            }
            Op::AtomicStore { ptr, value } => {
                (ptr, format!("atomic_store(@, v{})", value.0), true, self.kernel.ty(value).size())
            }
            Op::AtomicCompareExchange { ptr, expected, desired } => {
                let size = self.kernel.ty(desired).size();
                (ptr, format!("atomic_cas(@, v{}, v{})", expected.0, desired.0), true, size)
            }
            _ => return,
        };
        if !self.is_checked() {
            let call = call.replace('@', &self.address(ptr));
            return match inst.result {
                Some(v) => self.define(v, &call),
                None => self.line(&format!("{call};")),
            };
        }
        let to = self.fresh();
        let text = if writes {
            format!("u8* const a{to} = atomic_inside_to_write(v{}, {size}ull, {});", ptr.0, self.site())
        } else {
            format!("u8* const a{to} = atomic_inside(v{}, {size}ull);", ptr.0)
        };
        self.line(&text);
        let call = call.replace('@', &format!("a{to}"));
        match inst.result {
            Some(v) => {
                let ty = type_name(self.kernel.ty(v));
                self.define(v, &format!("a{to} ? {call} : {ty}{{}}"));
            }
            None => self.line(&format!("if (a{to}) {call};")),
        }
    }
}

macro_rules! atomic_names {
    ($($(#[$doc:meta])* $Name:ident $(= $Binary:ident)?, $cuda:literal $builtins:tt;)*) => {
        fn atomic_name(op: AtomicOp) -> &'static str {
            match op { $(AtomicOp::$Name => $cuda,)* }
        }
    };
}
atomic_ops!(atomic_names);
