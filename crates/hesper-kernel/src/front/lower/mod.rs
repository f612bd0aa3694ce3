//! Type checking and lowering: the syntax tree to IR, in one walk.
//!
//! Every call is inlined and every template instantiated where it is used, so that checking and lowering see
//! concrete types only. A variable starts in the cheapest storage (a plain value). If a later use needs more
//! (the variable is written through a reference, its address is taken), the walk is repeated with that
//! storage.
//!
//! Errors carry the location in the user's text. A failed statement is skipped and the walk continues, so
//! that several errors are reported at once. Depth, inlining and IR size are bounded.

mod builtins;
mod call;
mod consts;
mod control;
mod convert;
mod deduce;
mod entry;
mod expr;
mod init;
mod loops;
mod names;
mod objects;
mod ops;
mod overload;
mod scope;
mod stmt;
mod structs;
mod switch;
mod types;
mod value;

pub(crate) use entry::{Body, Elem, EntryParam, Lowered, ParamSpec, lower_body, lower_kernels};

use super::ast::*;
use super::diag::{Diagnostic, ErrorKind, Severity, Sink};
use super::lexer::Name;
use super::source::{Sources, Span};
use super::types::Ty;
use crate::ir::{Builder, Loc, SourceLoc, VarId};
use scope::{Entity, Scope};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use structs::StructInfo;
use value::{ExprResult, LValue, StorageClass};

/// Deepest nesting of everything together: expressions, statements, inlined calls, instantiations.
const MAX_DEPTH: usize = 1500;
/// Deepest chain of inlined calls.
const MAX_CALLS: usize = 128;
/// Most instructions after inlining.
const MAX_INSTS: usize = 400_000;
/// Most instructions of a kernel whose loops are unrolled; beyond, it is lowered again with its loops kept.
const MAX_UNROLLED_INSTS: usize = 60_000;
/// Most loop iterations at compile time.
const MAX_CONST_STEPS: usize = 200_000;
/// Most inlined calls in one kernel.
const MAX_INLINED: usize = 100_000;

/// Why a step failed.
pub(crate) enum Fail {
    /// An error, not yet reported.
    Diag(Box<Diagnostic>),
    /// Already reported.
    Reported,
}

pub(crate) type LowerResult<T> = Result<T, Fail>;

pub(crate) fn fail<T>(kind: ErrorKind, span: Span, message: impl Into<String>) -> LowerResult<T> {
    Err(Fail::Diag(Box::new(Diagnostic::error(kind, span, message))))
}

/// All declarations of a kernel's texts.
pub(crate) struct Unit {
    /// Those of the prelude.
    pub library: &'static [Item],
    /// The user's.
    pub items: Vec<Item>,
    /// Names that may stand in front of `::`, besides types.
    pub namespaces: HashSet<Name>,
    /// Values of function constants.
    pub constants: Vec<super::FunctionConstant>,
}

/// Global declarations by name.
#[derive(Default)]
struct Globals<'a> {
    functions: HashMap<Name, Vec<&'a FnDecl>>,
    structs: HashMap<Name, Vec<&'a StructDecl>>,
    vars: HashMap<Name, (&'a VarDecl, Option<&'a [TemplateParam]>)>,
    aliases: HashMap<Name, &'a AliasDecl>,
}

/// A function being inlined.
struct Frame<'a> {
    /// For messages and recursion checks.
    decl: Option<&'a FnDecl>,
    name: Arc<str>,
    /// Template arguments as text, for notes.
    bindings: String,
    call_span: Span,
    assigned: &'a Assigned,
    this: Option<LValue>,
    /// Declared return type; none for `auto`, set by the first return.
    ret_ty: Option<Ty>,
    ret_ref: bool,
    /// The object that holds the result of a function with several returns.
    ret_object: Option<LValue>,
    /// The result of a `return` at the end of the function.
    direct: Option<ExprResult>,
    /// Set at run time once the function has returned from inside other control flow.
    flag: Option<VarId>,
    /// Open regions and loops at the call.
    base_region: usize,
    base_loops: usize,
    /// The kernel itself: `return` ends the thread.
    is_entry: bool,
    /// The location of the call.
    inlined_at: Option<Loc>,
}

/// An open loop of the IR.
#[derive(Clone, Copy)]
enum OpenLoop {
    Loop,
    /// A one-trip loop around a `switch`; `continue` inside sets the flag.
    Switch {
        continue_flag: Option<VarId>,
    },
}

struct LambdaInfo<'a> {
    lambda: &'a Lambda,
    scope: Rc<Scope<'a>>,
    this: Option<LValue>,
    assigned: &'a Assigned,
}

pub(crate) struct Lower<'a> {
    b: Builder,
    pub sink: Sink,
    sources: &'a Sources,
    unit: &'a Unit,
    /// Function constants that the kernel needs and that have no value: index and name.
    unset_constants: BTreeSet<(u64, Name)>,
    globals: Rc<Globals<'a>>,
    root: Rc<Scope<'a>>,
    scope: Rc<Scope<'a>>,
    storage: HashMap<DeclId, StorageClass>,
    restart: bool,
    structs: Vec<StructInfo<'a>>,
    struct_index: HashMap<(usize, Vec<types::TArg>), super::types::StructId>,
    lambdas: Vec<LambdaInfo<'a>>,
    frames: Vec<Frame<'a>>,
    open_loops: Vec<OpenLoop>,
    regions: usize,
    dead: bool,
    depth: usize,
    inlined: usize,
    /// Functions reached by calls, to find those that were never checked.
    reached: HashSet<usize>,
    global_values: HashMap<(usize, Vec<types::TArg>), LValue>,
    evaluating: HashSet<usize>,
    threadgroup_vars: HashMap<(DeclId, u64), u32>,
    threadgroup_bytes: u64,
    loc_cache: HashMap<(Span, Option<Loc>), Loc>,
    /// Whether short loops are unrolled.
    unroll: bool,
    /// Size limit reported.
    too_large: bool,
    /// A limit was reached: the walk ends.
    aborted: bool,
    /// Nesting of expressions that must be known at compile time; functions in them are evaluated, not
    /// lowered.
    const_mode: usize,
    const_loops: usize,
    const_steps: usize,
    /// The jump that ends the current iteration of a loop run at compile time; true leaves it.
    const_jump: Option<bool>,
}

impl<'a> Lower<'a> {
    fn new(name: &str, unit: &'a Unit, sources: &'a Sources, storage: HashMap<DeclId, StorageClass>) -> Self {
        let root = Scope::new(None);
        let mut lower = Lower {
            b: Builder::new(name),
            sink: Sink::default(),
            sources,
            unit,
            unset_constants: BTreeSet::new(),
            globals: Rc::default(),
            scope: root.clone(),
            root,
            storage,
            restart: false,
            structs: Vec::new(),
            struct_index: HashMap::new(),
            lambdas: Vec::new(),
            frames: Vec::new(),
            open_loops: Vec::new(),
            regions: 0,
            dead: false,
            depth: 0,
            inlined: 0,
            reached: HashSet::new(),
            global_values: HashMap::new(),
            evaluating: HashSet::new(),
            threadgroup_vars: HashMap::new(),
            threadgroup_bytes: 0,
            loc_cache: HashMap::new(),
            unroll: true,
            too_large: false,
            aborted: false,
            const_mode: 0,
            const_loops: 0,
            const_steps: 0,
            const_jump: None,
        };
        lower.enter_globals(unit);
        lower
    }

    /// Enters the global declarations into the tables.
    fn enter_globals(&mut self, unit: &'a Unit) {
        let mut g = Globals::default();
        let mut enums = Vec::new();
        for item in unit.library.iter().chain(&unit.items) {
            match item {
                Item::Function(f) => {
                    let list = g.functions.entry(f.name.clone()).or_default();
                    // A later definition completes an earlier declaration.
                    list.push(f);
                }
                Item::Struct(s) if !s.is_forward || s.template.is_some() => {
                    let list = g.structs.entry(s.name.clone()).or_default();
                    if s.spec_args.is_none() && !s.is_prelude {
                        list.retain(|o| !o.is_prelude);
                    }
                    list.push(s);
                }
                Item::Var(v, t) => {
                    g.vars.insert(v.name.clone(), (v, t.as_deref()));
                }
                Item::Alias(a) => {
                    g.aliases.insert(a.name.clone(), a);
                }
                Item::Enum(e) => enums.push(e),
                _ => {}
            }
        }
        self.globals = Rc::new(g);
        for (i, e) in enums.iter().enumerate() {
            if let Err(f) = self.enum_decl(i as u32, e) {
                self.report(f);
            }
        }
        for item in &unit.items {
            let checked = match item {
                Item::StaticAssert(e, text, span) => self.static_assert(e, text.as_deref(), *span),
                // Those of a template are checked for each instance.
                Item::Struct(s) if s.template.is_none() && !s.asserts.is_empty() => {
                    let root = self.root.clone();
                    self.instantiate_struct(s, Vec::new(), Vec::new(), root, s.span).map(|_| ())
                }
                _ => Ok(()),
            };
            if let Err(f) = checked {
                self.report(f);
            }
        }
    }

    /// Enters an enumeration and its names into the global tables or the scope.
    fn enum_decl(&mut self, index: u32, e: &'a EnumDecl) -> LowerResult<()> {
        let s = match &e.underlying {
            Some(t) => match self.resolve_type(t)?.ty {
                Ty::Scalar(s) if s.is_int() => s,
                _ => {
                    return fail(
                        ErrorKind::Type,
                        t.span,
                        "the underlying type of an enumeration must be an integer",
                    );
                }
            },
            None => crate::ir::Scalar::I32,
        };
        let ty = Ty::Enum(index, s);
        let mut next = 0i64;
        for (name, value, _) in &e.items {
            if let Some(v) = value {
                next = self.const_int(v)?;
            }
            let v = value::RValue {
                ty: ty.clone(),
                val: value::ValueRepr::Const(Rc::new([value::ConstValue::Int(consts::wrap(next, s))])),
            };
            let qualified: Name = format!("{}::{name}", e.name).into();
            self.scope.insert(&qualified, Entity::Object(LValue::value(v.clone())));
            if !e.scoped {
                self.scope.insert(name, Entity::Object(LValue::value(v)));
            }
            next = next.wrapping_add(1);
        }
        if !e.name.is_empty() {
            self.scope.insert(&e.name, Entity::Type(ty));
        }
        Ok(())
    }

    // ---- errors ----

    /// Reports an error with the chain of template instantiations that led here.
    fn report(&mut self, f: Fail) {
        let Fail::Diag(mut d) = f else { return };
        // Errors after a limit is reached are noise.
        self.aborted |= d.kind == ErrorKind::Limit;
        let user = |f: &&Frame<'a>| !f.bindings.is_empty() && f.decl.is_some_and(|d| !d.is_prelude);
        for frame in self.frames.iter().rev().filter(user).take(6) {
            let text = format!("in the instantiation of `{}` with {}", frame.name, frame.bindings);
            d.notes.push((Some(frame.call_span), text));
        }
        self.sink.push(*d);
    }

    fn warn(&mut self, kind: ErrorKind, span: Span, message: String) {
        let d = Diagnostic { severity: Severity::Warning, ..Diagnostic::error(kind, span, message) };
        self.sink.push(d);
    }

    /// Counts a level of recursion; pair with [`Lower::leave`].
    fn enter(&mut self, span: Span) -> LowerResult<()> {
        if self.depth >= MAX_DEPTH {
            let text = format!("the kernel nests too deeply; the limit is {MAX_DEPTH} levels");
            return fail(ErrorKind::Limit, span, text);
        }
        let insts = self.b.kernel().values.len();
        if insts > if self.unroll { MAX_UNROLLED_INSTS } else { MAX_INSTS } {
            if std::mem::replace(&mut self.too_large, true) {
                return Err(Fail::Reported);
            }
            let text = format!("the kernel grows past {MAX_INSTS} instructions after inlining");
            return fail(ErrorKind::Limit, span, text);
        }
        self.depth += 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    // ---- source locations ----

    /// Sets the location of the instructions that follow.
    fn at(&mut self, span: Span) {
        let inlined_at = self.frames.last().and_then(|f| f.inlined_at);
        let key = (span, inlined_at);
        let loc = match self.loc_cache.get(&key) {
            Some(loc) => *loc,
            None => {
                let user = self.sources.user_span(span);
                let (label, line, column) = self.sources.place(user);
                let function = self.frames.last().filter(|f| !f.is_entry).map(|f| f.name.clone());
                let file = Some(label);
                let loc = self.b.loc_entry(SourceLoc { line, column, file, function, inlined_at });
                self.loc_cache.insert(key, loc);
                loc
            }
        };
        self.b.at(loc);
    }

    // ---- storage ----

    /// Requires better storage for a variable; the walk is repeated.
    fn escalate(&mut self, decl: DeclId, to: StorageClass) {
        let slot = self.storage.entry(decl).or_insert(StorageClass::Value);
        if *slot < to {
            *slot = to;
            self.restart = true;
        }
    }

    fn storage_of(&self, decl: DeclId) -> StorageClass {
        self.storage.get(&decl).copied().unwrap_or(StorageClass::Value)
    }

    /// Whether the text of the current function writes a variable of this name.
    fn is_assigned(&self, name: &Name, ty: &Ty) -> bool {
        self.frames.last().is_none_or(|f| writes(f.assigned, name, ty))
    }

    /// Runs `f` in a fresh scope.
    fn scoped<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let saved = self.scope.clone();
        self.scope = Scope::new(Some(saved.clone()));
        let r = f(self);
        self.scope = saved;
        r
    }

    fn declare(&mut self, name: &Name, lv: LValue, span: Span) -> LowerResult<()> {
        if name.is_empty() {
            return Ok(());
        }
        if self.scope.local(name).is_some() {
            self.scope.insert(name, Entity::Object(lv));
            return fail(ErrorKind::Name, span, format!("`{name}` is already declared in this scope"));
        }
        self.scope.insert(name, Entity::Object(lv));
        Ok(())
    }
}

/// Whether a variable of this type and name is written: `p[i] = x` changes a vector, but not a pointer.
fn writes(assigned: &Assigned, name: &Name, ty: &Ty) -> bool {
    assigned.whole.contains(name) || (!matches!(ty, Ty::Pointer(_)) && assigned.parts.contains(name))
}
