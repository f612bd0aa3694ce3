//! Entry points: the body of a custom kernel with its generated parameters, and whole `kernel` functions.

use super::scope::Entity;
use super::types::{bind, space_of};
use super::value::{LValue, RValue, Storage, ValueRepr};
use super::*;
use crate::front::attributes::THREADGROUP_ARGUMENTS;
use crate::front::diag::did_you_mean;
use crate::ir::{Access, Builtin, Kernel, Op, ParamKind, Scalar, Space, Type};

/// What a generated parameter is.
#[derive(Clone, Debug)]
pub(crate) enum ParamSpec {
    /// A buffer of elements; `reference` binds the first element itself.
    Buffer { elem: Elem, space: Space, writable: bool, atomic: bool, reference: bool },
    /// A scalar passed by value.
    Value(Scalar),
    /// A thread position or size.
    Attribute(Builtin),
    /// `grid_origin`: always zero.
    Origin,
    /// A template argument that is a type.
    Type(Elem),
    /// A template argument that is a value.
    Const(i64, Scalar),
}

/// Element types of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Elem {
    Scalar(Scalar),
    /// `complex64_t`, a struct of the prelude.
    Complex,
}

/// A generated parameter of a custom kernel.
#[derive(Clone, Debug)]
pub(crate) struct EntryParam {
    pub name: Name,
    pub id: DeclId,
    pub spec: ParamSpec,
}

/// The body of a custom kernel.
pub(crate) struct Body<'a> {
    pub name: &'a str,
    pub block: &'a Block,
    pub assigned: &'a Assigned,
    pub params: &'a [EntryParam],
    /// The location of errors that have no other.
    pub span: Span,
}

/// The most repetitions of the walk; each moves at least one variable to better storage.
const MAX_PASSES: usize = 40;

/// A kernel, and the function constants without a value that it needs: index and name.
pub(crate) type Lowered = (Kernel, BTreeSet<(u64, Name)>);

/// Lowers the body of a custom kernel. Errors and warnings go to the sink.
pub(crate) fn lower_body(unit: &Unit, sources: &Sources, body: &Body<'_>, sink: &mut Sink) -> Option<Kernel> {
    let (kernel, unset) = repeat(body.name, unit, sources, body.span, sink, |l| {
        l.bind_entry(body);
        l.open_entry(body.assigned, body.span);
        l.scope = Scope::new(Some(l.scope.clone()));
        l.function_body(body.block);
    })?;
    for (_, name) in &unset {
        let declared = unit.items.iter().find_map(|item| match item {
            Item::Var(v, _) if v.name == *name => Some(v.span),
            _ => None,
        });
        let text = format!("the function constant `{name}` has no value in a custom kernel");
        let d = Diagnostic::error(ErrorKind::Constant, declared.unwrap_or(body.span), text);
        sink.push(d.help("use a template argument"));
    }
    unset.is_empty().then_some(kernel)
}

/// Repeats the walk until every variable has the storage it needs.
fn repeat<'a>(
    name: &str,
    unit: &'a Unit,
    sources: &'a Sources,
    span: Span,
    sink: &mut Sink,
    mut walk: impl FnMut(&mut Lower<'a>),
) -> Option<Lowered> {
    let mut storage = HashMap::new();
    let mut unroll = true;
    for pass in 0..MAX_PASSES {
        let mut l = Lower::new(name, unit, sources, storage);
        l.unroll = unroll;
        walk(&mut l);
        if l.too_large && unroll {
            // Too large when unrolled: repeat the walk without unrolling.
            unroll = false;
            storage = HashMap::new();
            continue;
        }
        if l.restart && pass + 1 < MAX_PASSES && !l.aborted {
            storage = std::mem::take(&mut l.storage);
            continue;
        }
        let failed = l.sink.has_errors() || l.restart;
        let reached = std::mem::take(&mut l.reached);
        let unset = std::mem::take(&mut l.unset_constants);
        for d in std::mem::take(&mut l.sink).into_vec() {
            sink.push(d);
        }
        if failed {
            if !sink.has_errors() {
                sink.push(Diagnostic::error(
                    ErrorKind::Limit,
                    span,
                    "the kernel takes the address of too many variables",
                ));
            }
            return None;
        }
        return match l.b.finish() {
            Ok(mut k) => {
                mark_atomics(&mut k);
                check_unreached(unit, sources, &reached, sink);
                Some((k, unset))
            }
            Err(e) => {
                let kind = if e.message.contains("nest")
                    || e.message.contains("memory")
                    || e.message.contains("grows")
                {
                    ErrorKind::Limit
                } else {
                    ErrorKind::Unsupported
                };
                let text =
                    format!("the kernel cannot be compiled: {} (line {}:{})", e.message, e.line, e.column);
                sink.push(Diagnostic::error(kind, span, text));
                None
            }
        };
    }
    None
}

/// Writable buffers may be the target of any atomic in the kernel, whatever type they were declared with.
fn mark_atomics(k: &mut Kernel) {
    let device_atomic = k.blocks.iter().flat_map(|b| &b.insts).any(|i| match i.op {
        Op::AtomicRmw { ptr, .. }
        | Op::AtomicLoad { ptr }
        | Op::AtomicStore { ptr, .. }
        | Op::AtomicCompareExchange { ptr, .. } => k.ty(ptr) == Type::Ptr(Space::Device),
        _ => false,
    });
    if !device_atomic {
        return;
    }
    for p in &mut k.params {
        if let ParamKind::Buffer { access, .. } = &mut p.kind
            && *access == Access::ReadWrite
        {
            *access = Access::Atomic;
        }
    }
}

/// Checks functions of the header that no call reached; their errors become warnings.
fn check_unreached(unit: &Unit, sources: &Sources, reached: &HashSet<usize>, sink: &mut Sink) {
    let candidates = unit.items.iter().filter_map(|i| match i {
        Item::Function(f) if !f.is_prelude && !f.is_kernel && f.template.is_none() => Some(f),
        _ => None,
    });
    for f in candidates.take(64) {
        let Some(body) = &f.body else { continue };
        if reached.contains(&(f as *const FnDecl as usize)) {
            continue;
        }
        let mut l = Lower::new(&f.name, unit, sources, HashMap::new());
        l.check_function(f, body);
        for mut d in l.sink.into_vec() {
            d.severity = Severity::Warning;
            sink.push(d);
        }
    }
}

/// Lowers every `kernel` function of a file, and every explicit instantiation.
pub(crate) fn lower_kernels(unit: &Unit, sources: &Sources, sink: &mut Sink) -> Vec<Lowered> {
    let mut out = Vec::new();
    let functions = || {
        unit.items.iter().filter_map(|i| match i {
            Item::Function(f) => Some(f),
            _ => None,
        })
    };
    for f in functions().filter(|f| f.is_kernel && f.template.is_none()) {
        out.extend(lower_kernel(unit, sources, f, None, &f.name, sink));
    }
    for item in &unit.items {
        let Item::Instantiation(i) = item else { continue };
        let seg = i.path.last();
        let Some(f) = functions().find(|f| f.name == seg.name && f.template.is_some() && f.is_kernel) else {
            let mut d = Diagnostic::error(
                ErrorKind::Name,
                seg.span,
                format!("unknown kernel template `{}`", seg.name),
            );
            if let Some(n) = did_you_mean(&seg.name, functions().map(|f| &*f.name)) {
                d = d.help(format!("did you mean `{n}`?"));
            }
            sink.push(d);
            continue;
        };
        let name = i.host_name.clone().unwrap_or_else(|| seg.name.clone());
        out.extend(lower_kernel(unit, sources, f, Some(i), &name, sink));
    }
    if out.is_empty() && !sink.has_errors() {
        check_unreached(unit, sources, &HashSet::new(), sink);
    }
    out
}

fn lower_kernel<'a>(
    unit: &'a Unit,
    sources: &'a Sources,
    f: &'a FnDecl,
    instance: Option<&'a Instantiation>,
    name: &str,
    sink: &mut Sink,
) -> Option<Lowered> {
    let body = f.body.as_ref()?;
    repeat(name, unit, sources, f.span, sink, |l| {
        let mut scope = Scope::new(Some(l.root.clone()));
        if let (Some(params), Some(i)) = (&f.template, instance) {
            let seg = i.path.last();
            let given = seg.args.as_deref().unwrap_or(&[]);
            let root = l.root.clone();
            match l.template_args(params, given, root, seg.span) {
                Ok(args) => bind(&scope, params, &args),
                Err(e) => return l.report(e),
            }
            scope = Scope::new(Some(scope));
        }
        l.scope = scope;
        l.open_entry(&f.assigned, f.span);
        if let Err(e) = l.kernel_params(f) {
            return l.report(e);
        }
        l.function_body(body);
    })
}

impl<'a> Lower<'a> {
    fn open_entry(&mut self, assigned: &'a Assigned, span: Span) {
        self.frames.push(Frame {
            decl: None,
            name: "kernel".into(),
            bindings: String::new(),
            call_span: span,
            assigned,
            this: None,
            ret_ty: Some(Ty::Void),
            ret_ref: false,
            ret_object: None,
            direct: None,
            flag: None,
            base_region: self.regions,
            base_loops: 0,
            is_entry: true,
            inlined_at: None,
        });
    }

    fn elem_type(&mut self, e: Elem) -> Ty {
        match e {
            Elem::Scalar(s) => Ty::Scalar(s),
            Elem::Complex => {
                let Some(s) = self.global_struct("complex64_t") else {
                    return Ty::Error;
                };
                let root = self.root.clone();
                self.struct_with_args(s, Vec::new(), root, s.span).unwrap_or(Ty::Error)
            }
        }
    }

    /// Enters the generated parameters of a custom kernel into the scope.
    fn bind_entry(&mut self, body: &Body<'a>) {
        // A scope for the body alone: functions of the header see neither parameters nor template arguments.
        self.scope = Scope::new(Some(self.root.clone()));
        // In order, so that buffers get their numbers.
        for p in body.params {
            let lv = match &p.spec {
                ParamSpec::Type(e) => {
                    let ty = self.elem_type(*e);
                    self.scope.insert(&p.name, Entity::Type(ty));
                    continue;
                }
                ParamSpec::Origin => match self.zero(&Ty::Vector(Scalar::U32, 3), body.span) {
                    Ok(v) => self.entry_value(p, v),
                    Err(_) => continue,
                },
                ParamSpec::Const(v, s) => {
                    let mut lv = LValue::value(RValue::int(*s, *v));
                    lv.is_const = true;
                    lv
                }
                ParamSpec::Value(s) => {
                    let i = self.b.add_param(p.name.to_string(), ParamKind::Value(Type::Scalar(*s)));
                    let id = self.b.param(i);
                    let v = RValue::ir(Ty::Scalar(*s), id);
                    LValue { ty: v.ty.clone(), storage: Storage::Value(v), is_const: true, decl: Some(p.id) }
                }
                ParamSpec::Attribute(what) => {
                    match self.attribute(*what, if what.has_axes() { 3 } else { 1 }, Scalar::U32) {
                        Ok(v) => self.entry_value(p, v),
                        Err(e) => {
                            self.report(e);
                            continue;
                        }
                    }
                }
                ParamSpec::Buffer { elem, space, writable, atomic, reference } => {
                    let ty = self.elem_type(*elem);
                    let access = match (writable, atomic) {
                        (false, _) => Access::Read,
                        (true, false) => Access::ReadWrite,
                        (true, true) => Access::Atomic,
                    };
                    let ir = ty.ir().unwrap_or(Type::Scalar(Scalar::U8));
                    let kind = ParamKind::Buffer { space: *space, elem: ir, access };
                    let i = self.b.add_param(p.name.to_string(), kind);
                    let ptr = self.b.param_ptr(i);
                    let is_const = !*writable;
                    if *reference {
                        let lv =
                            LValue { ty, storage: Storage::Mem { ptr, space: *space }, is_const, decl: None };
                        // One read serves all uses: inputs are not written.
                        match self.load(&lv, body.span) {
                            Ok(v) if *space == Space::Constant => {
                                let ty = v.ty.clone();
                                LValue { ty, storage: Storage::Value(v), is_const, decl: Some(p.id) }
                            }
                            _ => lv,
                        }
                    } else {
                        let pointee = match (*atomic, &ty) {
                            (true, Ty::Scalar(s)) => Ty::Atomic(*s),
                            _ => ty,
                        };
                        let v = RValue::ir(Ty::pointer(pointee, Some(*space), is_const), ptr);
                        self.entry_value(p, v)
                    }
                }
            };
            if self.storage_of(p.id) == value::StorageClass::Memory {
                let (ty, name) = (lv.ty.clone(), p.name.clone());
                let moved = self
                    .load(&lv, body.span)
                    .and_then(|v| self.make_local(&name, p.id, &ty, lv.is_const, Some(v), body.span));
                match moved {
                    Ok(lv) => {
                        self.scope.insert(&p.name, Entity::Object(lv));
                    }
                    Err(e) => self.report(e),
                }
                continue;
            }
            self.scope.insert(&p.name, Entity::Object(lv));
        }
    }

    /// A parameter that the body assigns is a variable.
    fn entry_value(&mut self, p: &EntryParam, v: RValue) -> LValue {
        if self.storage_of(p.id) == value::StorageClass::Var
            && let Some(t) = v.ty.ir()
        {
            let id = self.ir(&v);
            let var = self.b.var(p.name.to_string(), t);
            self.b.set(var, id);
            return LValue {
                ty: v.ty.clone(),
                storage: Storage::Var(var),
                is_const: false,
                decl: Some(p.id),
            };
        }
        LValue { ty: v.ty.clone(), storage: Storage::Value(v), is_const: false, decl: Some(p.id) }
    }

    /// The value of a thread position as a scalar or vector.
    fn attribute(&mut self, what: Builtin, lanes: u8, s: Scalar) -> LowerResult<RValue> {
        let mut parts = Vec::new();
        for axis in 0..lanes {
            let id = self.b.builtin(what, axis);
            let id = self.b.convert(id, s);
            parts.push(id);
        }
        Ok(match parts.as_slice() {
            [one] => RValue::ir(Ty::Scalar(s), *one),
            many => RValue::ir(Ty::Vector(s, lanes), self.b.compose(many)),
        })
    }

    /// Parameters of a whole `kernel` function, bound by their attributes.
    fn kernel_params(&mut self, f: &'a FnDecl) -> LowerResult<()> {
        if let Some(ret) = &f.ret
            && self.resolve_type(ret)?.ty != Ty::Void
        {
            return fail(ErrorKind::Type, ret.span, "a kernel returns `void`");
        }
        // Buffers are numbered by `[[buffer(n)]]`; those without follow in order.
        let mut order: Vec<(u64, usize)> = Vec::new();
        let mut next = 0;
        for (i, p) in f.params.iter().enumerate() {
            let given = p.attrs.iter().find(|a| &*a.name == "buffer").and_then(|a| a.arg);
            let number = given.unwrap_or(next);
            let is_buffer = p.ty.quals.space != Some(SpaceSyntax::Threadgroup);
            if is_buffer && p.attrs.iter().all(|a| attribute_builtin(&a.name).is_none()) {
                next = number + 1;
            }
            order.push((number, i));
        }
        order.sort();
        let shared = f.params.iter().filter(|p| p.ty.quals.space == Some(SpaceSyntax::Threadgroup));
        let bytes = THREADGROUP_ARGUMENTS / (shared.count() as u64).max(1) / 16 * 16;
        for (number, i) in order {
            let p = &f.params[i];
            let lv = self.kernel_param(p, number as u32, bytes)?;
            self.declare(&p.name, lv, p.span)?;
        }
        Ok(())
    }

    /// Whether the parameter exists: `[[function_constant(name)]]` makes it depend on a constant.
    fn has_param(&mut self, p: &'a ParamDecl) -> LowerResult<bool> {
        let Some(attr) = p.attrs.iter().find(|a| &*a.name == "function_constant") else { return Ok(true) };
        let var = attr.text.as_ref().and_then(|name| self.globals.vars.get(name)).map(|(v, _)| *v);
        let root = self.root.clone();
        let value = match var {
            Some(v) => self.global_constant(v, root, Vec::new(), attr.span)?,
            None => {
                let text = "`function_constant` of a parameter takes the name of a global `bool`";
                return fail(ErrorKind::Name, attr.span, text);
            }
        };
        match value.storage {
            Storage::Value(v) if v.ty == Ty::BOOL => Ok(v.as_bool().unwrap_or(true)),
            _ => {
                let text = "`function_constant` of a parameter takes the name of a global `bool`";
                fail(ErrorKind::Type, attr.span, text)
            }
        }
    }

    /// A parameter of a kernel, the buffer `index` if it is one. A threadgroup argument is assumed to have
    /// `threadgroup` bytes.
    fn kernel_param(&mut self, p: &'a ParamDecl, index: u32, threadgroup: u64) -> LowerResult<LValue> {
        let r = self.resolve_type(&p.ty)?;
        let exists = self.has_param(p)?;
        if let Some(what) = p.attrs.iter().find_map(|a| attribute_builtin(&a.name)) {
            let (Some(s), n) = (r.ty.scalar(), r.ty.lanes()) else {
                return fail(
                    ErrorKind::Type,
                    p.span,
                    "a thread position is an unsigned integer or a vector of them",
                );
            };
            if !s.is_int() || (n > 1 && !what.has_axes()) {
                return fail(
                    ErrorKind::Type,
                    p.span,
                    "a thread position is an unsigned integer or a vector of them",
                );
            }
            let v = self.attribute(what, n, s)?;
            let ty = v.ty.clone();
            return self.make_local(&p.name, p.id, &ty, r.is_const, Some(v), p.span);
        }
        let unknown = p
            .attrs
            .iter()
            .find(|a| !matches!(&*a.name, "buffer" | "threadgroup" | "maybe_unused" | "function_constant"));
        if let Some(a) = unknown {
            let mut d = Diagnostic::error(ErrorKind::Name, a.span, format!("unknown attribute `{}`", a.name));
            if let Some(n) =
                did_you_mean(&a.name, crate::front::attributes::ATTRIBUTES.iter().map(|(n, _, _)| *n))
            {
                d = d.help(format!("did you mean `{n}`?"));
            }
            return Err(Fail::Diag(Box::new(d)));
        }
        let (pointee, space, is_const, is_ref) = match &r.ty {
            Ty::Pointer(q) => (q.pointee.clone(), q.space, q.is_const, false),
            Ty::Array(t, _) if !r.is_ref => ((**t).clone(), r.space, r.is_const, false),
            t if r.is_ref => (t.clone(), r.space, r.is_const, true),
            t => {
                let name = self.type_name(t);
                let text =
                    format!("parameter `{}` of type `{name}` needs an attribute, or to be a pointer", p.name);
                return fail(ErrorKind::Type, p.span, text);
            }
        };
        let Some(space) = space.or(p.ty.quals.space.map(space_of)) else {
            return fail(ErrorKind::Type, p.span, format!("pointer `{}` needs an address space", p.name));
        };
        let storage = match space {
            Space::Threadgroup => {
                let given = p.attrs.iter().find(|a| &*a.name == "threadgroup").and_then(|a| a.arg);
                let known = || self.b.kernel().threadgroup_vars.iter().filter_map(|var| var.argument);
                let next = known().max().map_or(0, |last| last + 1);
                let index = given.and_then(|given| u32::try_from(given).ok()).unwrap_or(next);
                if known().any(|known| known == index) {
                    let text = format!("two parameters are the threadgroup argument {index}");
                    return fail(ErrorKind::Type, p.span, text);
                }
                // Metal aligns threadgroup memory to 16 bytes.
                let var = self.b.threadgroup_argument(&*p.name, index, threadgroup, 16);
                Storage::Mem { ptr: self.b.threadgroup_ptr(var), space }
            }
            Space::Device | Space::Constant => {
                let writable = space == Space::Device && !is_const;
                let access = match (&pointee, writable) {
                    (_, false) => Access::Read,
                    (Ty::Atomic(_), true) => Access::Atomic,
                    _ => Access::ReadWrite,
                };
                let elem = match &pointee {
                    Ty::Atomic(s) => Type::Scalar(*s),
                    t => t.ir().filter(|t| !t.is_ptr()).unwrap_or(Type::Scalar(Scalar::U8)),
                };
                let i = self.b.add_param(p.name.to_string(), ParamKind::Buffer { space, elem, access });
                self.b.set_param_index(i, index);
                // An absent parameter keeps its number, and nothing need be bound there.
                let ptr = if exists { self.b.param_ptr(i) } else { self.b.null(space) };
                Storage::Mem { ptr, space }
            }
            Space::Thread => {
                return fail(ErrorKind::Type, p.span, "a kernel parameter cannot be in thread memory");
            }
        };
        let Storage::Mem { ptr, space } = storage else { return Err(Fail::Reported) };
        if is_ref {
            let is_const = is_const || space == Space::Constant;
            return Ok(LValue { ty: pointee, storage: Storage::Mem { ptr, space }, is_const, decl: None });
        }
        let v = RValue::ir(Ty::pointer(pointee, Some(space), is_const || space == Space::Constant), ptr);
        let ty = v.ty.clone();
        self.make_local(&p.name, p.id, &ty, false, Some(v), p.span)
    }

    /// Checks a function on its own, with arguments of unknown value.
    fn check_function(&mut self, f: &'a FnDecl, body: &'a Block) {
        self.open_entry(&f.assigned, f.span);
        let mut ret = None;
        if let Some(t) = &f.ret {
            match self.resolve_type(t) {
                Ok(r) => {
                    if let Some(frame) = self.frames.last_mut() {
                        frame.ret_ref = r.is_ref;
                    }
                    ret = (!r.auto).then_some(r.ty);
                }
                Err(e) => return self.report(e),
            }
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.is_entry = false;
            frame.ret_ty = ret;
            frame.decl = Some(f);
            frame.name = f.name.clone();
        }
        let scope = Scope::new(Some(self.root.clone()));
        for p in &f.params {
            let r = match self.resolve_type(&p.ty) {
                Ok(r) => r,
                Err(e) => return self.report(e),
            };
            let ty = match &r.ty {
                Ty::Array(t, _) if !r.is_ref => Ty::pointer((**t).clone(), r.space, r.is_const),
                t => t.clone(),
            };
            let lv = match (r.auto, self.temporary(&ty, &p.name, p.span)) {
                (false, Ok(lv)) => LValue { decl: Some(p.id), ..lv },
                _ => LValue::value(RValue { ty: Ty::Error, val: ValueRepr::Void }),
            };
            scope.insert(&p.name, Entity::Object(lv));
        }
        self.scope = Scope::new(Some(scope));
        self.function_body(body);
    }
}

/// The position or size that an attribute names.
fn attribute_builtin(name: &str) -> Option<Builtin> {
    crate::front::attributes::ATTRIBUTES.iter().find(|(n, _, _)| *n == name).map(|(_, b, _)| *b)
}
