//! Pointers, loads, stores and atomics, plain or with bounds.
//!
//! Memory is read and written as unsigned words, so that accesses of different types alias.

use super::kernel::Emitter;
use crate::cpp::scalar::{COMPONENTS, type_name};
use crate::ir::registry::atomic_ops;
use crate::ir::*;

/// The unsigned word of a scalar's size.
fn word_name(s: Scalar) -> &'static str {
    match s.size() {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        _ => "u64",
    }
}

/// The bits of a scalar.
pub(super) fn to_bits(s: Scalar, value: &str) -> String {
    match s {
        Scalar::F32 => format!("bits({value})"),
        Scalar::F16 | Scalar::BF16 => format!("{value}.b"),
        _ => format!("({}){value}", word_name(s)),
    }
}

/// A scalar of these bits.
pub(super) fn from_bits(s: Scalar, bits: &str) -> String {
    match s {
        Scalar::Bool => format!("{bits} != (u8)0"),
        Scalar::F32 => format!("f32_of({bits})"),
        Scalar::F16 | Scalar::BF16 => format!("{}{{{bits}}}", s.name()),
        _ if s.is_unsigned_int() => bits.to_string(),
        _ => format!("({}){bits}", s.name()),
    }
}

/// Metal's vector of words, where an access of this alignment can be one of them.
fn native_vector(s: Scalar, n: u8, align: u32) -> Option<String> {
    let name = match s.size() {
        1 => "uchar",
        2 => "ushort",
        4 => "uint",
        _ => "ulong",
    };
    let bytes = s.size() * u64::from(n);
    (matches!(n, 2 | 4) && bytes <= 16 && u64::from(align) >= bytes).then(|| format!("{name}{n}"))
}

/// A value of `ty` from the texts of its components.
fn joined(ty: Type, parts: &[String]) -> String {
    if ty.is_vec() { format!("{}{{{}}}", type_name(ty), parts.join(", ")) } else { parts[0].clone() }
}

/// The address of component `k`.
fn at(base: &str, s: Scalar, k: usize) -> String {
    if k == 0 { base.to_string() } else { format!("{base} + {}", s.size() as usize * k) }
}

impl Emitter<'_> {
    /// The Metal type of a value or variable.
    pub(super) fn type_of(&self, ty: Type) -> String {
        match ty {
            Type::Ptr(space) if self.options.bounds => format!("{space}_ptr"),
            Type::Ptr(space) => byte_pointer(space),
            _ => type_name(ty),
        }
    }

    /// A null pointer.
    pub(super) fn null(&self, space: Space) -> String {
        let null = format!("({})0", byte_pointer(space));
        self.object(space, null, "0ull", 0, false)
    }

    /// A pointer to the start of an object, by its [number](crate::bounds::Target::object).
    fn object(&self, space: Space, address: String, size: &str, number: usize, writable: bool) -> String {
        if self.options.bounds {
            format!("{space}_ptr{{{address}, 0ll, {size}, {number}u, {writable}}}")
        } else {
            address
        }
    }

    fn space(&self, ptr: ValueId) -> Space {
        match self.kernel.ty(ptr) {
            Type::Ptr(space) => space,
            // The verifier keeps other values away from accesses.
            _ => Space::Thread,
        }
    }

    /// The operand of an access that is not checked.
    fn address(&self, ptr: ValueId) -> String {
        if self.options.bounds { format!("proven(v{})", ptr.0) } else { format!("v{}", ptr.0) }
    }

    /// The report of a dropped write by the current instruction, 0 being none.
    fn dropped(&self, ptr: ValueId) -> String {
        let p = ptr.0;
        format!("drop_write(report, {}u, v{p}.object, v{p}.size, v{p}.offset);", self.number + 1)
    }

    /// The value of a pointer op.
    pub(super) fn pointer_value(&self, op: &Op, ty: Type) -> String {
        let kernel = self.kernel;
        let (params, tables) = (kernel.params.len(), kernel.const_vars.len());
        let first_shared = 1 + params + tables;
        let first_thread = first_shared + kernel.threadgroup_vars.len();
        match *op {
            Op::NullPtr => match ty {
                Type::Ptr(space) => self.null(space),
                _ => String::new(),
            },
            Op::ParamPtr(i) => {
                let (space, writes) = match kernel.params[i as usize].kind {
                    ParamKind::Buffer { space, access, .. } => (space, access.writes()),
                    ParamKind::Value(_) => (Space::Constant, false),
                };
                let is_buffer = |p: &&Param| matches!(p.kind, ParamKind::Buffer { .. });
                let place = kernel.params[..i as usize].iter().filter(is_buffer).count();
                let address = format!("({})p{i}", byte_pointer(space));
                self.object(space, address, &format!("lengths[{place}]"), 1 + i as usize, writes)
            }
            Op::ThreadgroupPtr(i) => {
                let address = format!("(threadgroup u8*)shared + {}", self.shared_offsets[i as usize]);
                let size = kernel.threadgroup_vars[i as usize].size;
                let number = first_shared + i as usize;
                self.object(Space::Threadgroup, address, &format!("{size}ull"), number, true)
            }
            Op::ThreadPtr(i) => {
                let size = kernel.thread_vars[i as usize].size;
                let address = format!("(thread u8*)t{i}");
                self.object(Space::Thread, address, &format!("{size}ull"), first_thread + i as usize, true)
            }
            Op::ConstPtr(i) => {
                let size = kernel.const_vars[i as usize].data.len();
                let address = format!("({})c{i}", byte_pointer(Space::Constant));
                self.object(Space::Constant, address, &format!("{size}ull"), 1 + params + i as usize, false)
            }
            Op::PtrOffset { ptr, index, stride } => {
                let bytes = match self.kernel.ty(index) {
                    Type::I32 => format!("(i64)v{} * {stride}ll", index.0),
                    _ => format!("(i64)((u64)v{} * {}ull)", index.0, stride as u64),
                };
                match self.options.bounds {
                    true => format!("moved(v{}, {bytes})", ptr.0),
                    false if self.has_null => format!("v{0} ? v{0} + {bytes} : v{0}", ptr.0),
                    false => format!("v{} + {bytes}", ptr.0),
                }
            }
            Op::PtrDiff { a, b, stride } => match self.options.bounds {
                true => format!("apart(v{}, v{}) / {stride}ll", a.0, b.0),
                false => format!("(i64)(v{} - v{}) / {stride}ll", a.0, b.0),
            },
            _ => String::new(),
        }
    }

    /// The value of a by-value parameter.
    pub(super) fn param(&self, i: u32, ty: Type) -> String {
        let s = ty.scalar().unwrap_or(Scalar::U32);
        let space = if (i as usize) < self.arguments { Space::Thread } else { Space::Constant };
        let word = |k| format!("*(const {space} {}*)({})", word_name(s), at(&format!("p{i}"), s, k));
        let parts: Vec<String> = (0..usize::from(ty.lanes())).map(|k| from_bits(s, &word(k))).collect();
        joined(ty, &parts)
    }

    /// The address of a checked access, null if it is refused, and whether its words are aligned.
    fn checked(&mut self, ptr: ValueId, ty: Type, writes: bool) -> (String, String) {
        let (id, space, p) = (self.fresh(), self.space(ptr), ptr.0);
        let s = ty.scalar().unwrap_or(Scalar::U8);
        let inside = format!("inside(v{p}, {}ull)", ty.size());
        let pointer = byte_pointer(space);
        let inside = if writes { format!("v{p}.writable ? {inside} : ({pointer})0") } else { inside };
        self.line(&format!("{pointer} const q{id} = {inside};"));
        self.line(&format!("const bool w{id} = aligned(v{p}, {}ull);", s.size()));
        (format!("q{id}"), format!("w{id}"))
    }

    /// A load.
    pub(super) fn load(&mut self, result: ValueId, ptr: ValueId, align: u32) {
        let (ty, space) = (self.kernel.ty(result), self.space(ptr));
        let s = ty.scalar().unwrap_or(Scalar::U8);
        let word = word_name(s);
        let count = usize::from(ty.lanes());
        if self.is_checked() {
            let (base, whole) = self.checked(ptr, ty, false);
            let part = |k| from_bits(s, &format!("load_{word}({}, {whole})", at(&base, s, k)));
            let value = joined(ty, &(0..count).map(part).collect::<Vec<_>>());
            let text = format!("{base} ? {value} : {}", self.zero(ty));
            return self.define(result, &text);
        }
        let base = self.address(ptr);
        if let Some(vector) = native_vector(s, ty.lanes(), align) {
            let id = self.fresh();
            self.line(&format!("const {vector} w{id} = *(const {space} {vector}*){base};"));
            let part = |c: &&str| from_bits(s, &format!("w{id}.{c}"));
            let parts: Vec<String> = COMPONENTS[..count].iter().map(part).collect();
            return self.define(result, &joined(ty, &parts));
        }
        let part = |k| {
            let at = at(&base, s, k);
            let aligned = u64::from(align) >= s.size();
            from_bits(
                s,
                &match aligned {
                    true => format!("*(const {space} {word}*)({at})"),
                    false => format!("load_{word}({at}, false)"),
                },
            )
        };
        let text = joined(ty, &(0..count).map(part).collect::<Vec<_>>());
        self.define(result, &text);
    }

    /// A store of a function's result.
    pub(super) fn store_result(&mut self, value: ValueId, number: usize) {
        let s = self.scalar_of(value);
        let (word, place) = (word_name(s), at("out", s, number));
        let bits = to_bits(s, &format!("v{}", value.0));
        self.line(&format!("*(thread {word}*)({place}) = {bits};"));
    }

    /// A store.
    pub(super) fn store(&mut self, ptr: ValueId, value: ValueId, align: u32) {
        let (ty, space) = (self.kernel.ty(value), self.space(ptr));
        let s = ty.scalar().unwrap_or(Scalar::U8);
        let word = word_name(s);
        let names: Vec<String> = match ty.lanes() {
            1 => vec![format!("v{}", value.0)],
            n => COMPONENTS[..usize::from(n)].iter().map(|c| format!("v{}.{c}", value.0)).collect(),
        };
        let parts: Vec<String> = names.iter().map(|name| to_bits(s, name)).collect();
        if space == Space::Constant {
            if self.options.bounds {
                let text = self.dropped(ptr);
                self.line(&text);
            }
        } else if self.is_checked() {
            let (base, whole) = self.checked(ptr, ty, true);
            self.line(&format!("if ({base}) {{"));
            for (k, part) in parts.iter().enumerate() {
                self.line(&format!("  store_{word}({}, {part}, {whole});", at(&base, s, k)));
            }
            let text = format!("}} else {}", self.dropped(ptr));
            self.line(&text);
        } else if let Some(vector) = native_vector(s, ty.lanes(), align) {
            let base = self.address(ptr);
            self.line(&format!("*({space} {vector}*){base} = {vector}({});", parts.join(", ")));
        } else {
            let base = self.address(ptr);
            for (k, part) in parts.iter().enumerate() {
                let at = at(&base, s, k);
                let text = match u64::from(align) >= s.size() {
                    true => format!("*({space} {word}*)({at}) = {part};"),
                    false => format!("store_{word}({at}, {part}, false);"),
                };
                self.line(&text);
            }
        }
    }

    /// An atomic instruction.
    pub(super) fn atomic(&mut self, inst: &Inst) {
        let result = inst.result.map_or(Scalar::U32, |v| self.scalar_of(v));
        let bits = |e: &Self, v: ValueId| to_bits(e.scalar_of(v), &format!("v{}", v.0));
        let (ptr, call, writes) = match inst.op {
            Op::AtomicRmw { op, ptr, value } => {
                (ptr, format!("atomic_{}(@, v{})", atomic_name(op), value.0), true)
            }
            Op::AtomicLoad { ptr } => (ptr, from_bits(result, "atomic_load(@)"), false),
            Op::AtomicStore { ptr, value } => (ptr, format!("atomic_store(@, {})", bits(self, value)), true),
            Op::AtomicCompareExchange { ptr, expected, desired } => {
                let call = format!("atomic_cas(@, {}, {})", bits(self, expected), bits(self, desired));
                (ptr, from_bits(result, &call), true)
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
        let (to, p) = (self.fresh(), ptr.0);
        let pointer = byte_pointer(self.space(ptr));
        let place = format!("atomic_inside(v{p}, 4ull)");
        let place = if writes { format!("v{p}.writable ? {place} : ({pointer})0") } else { place };
        self.line(&format!("{pointer} const a{to} = {place};"));
        let call = call.replace('@', &format!("a{to}"));
        match inst.result {
            Some(v) => {
                let text = format!("a{to} ? {call} : {}", self.zero(self.kernel.ty(v)));
                self.define(v, &text);
            }
            None => self.line(&format!("if (a{to}) {call};")),
        }
        if writes {
            let text = format!("if (!a{to}) {}", self.dropped(ptr));
            self.line(&text);
        }
    }
}

/// A pointer to bytes of a space.
fn byte_pointer(space: Space) -> String {
    if space == Space::Constant { "const constant u8*".to_string() } else { format!("{space} u8*") }
}

macro_rules! atomic_names {
    ($($(#[$doc:meta])* $Name:ident $(= $Binary:ident)?, $text:literal $builtins:tt;)*) => {
        fn atomic_name(op: AtomicOp) -> &'static str {
            match op { $(AtomicOp::$Name => $text,)* }
        }
    };
}
atomic_ops!(atomic_names);
