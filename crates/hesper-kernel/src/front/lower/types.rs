//! Resolution of written types: names, template arguments, pointers, arrays.

use super::scope::{Entity, Scope};
use super::value::{ConstValue, RValue};
use super::*;
use crate::front::diag::did_you_mean;
use crate::front::types::{SCALAR_NAMES, builtin_type, scalar_name};
use crate::ir::{Scalar, Space};

/// A template argument, resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TArg {
    Type(Ty),
    Value(i64, Scalar),
}

/// A resolved type with what belongs to the object and not to its type.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub ty: Ty,
    pub is_const: bool,
    pub is_ref: bool,
    pub space: Option<Space>,
    /// `auto`: the type comes from the initialiser.
    pub auto: bool,
    /// The first extent is missing: `T x[]`.
    pub unsized_array: bool,
}

pub(crate) fn space_of(s: SpaceSyntax) -> Space {
    match s {
        SpaceSyntax::Device => Space::Device,
        SpaceSyntax::Constant => Space::Constant,
        SpaceSyntax::Threadgroup => Space::Threadgroup,
        SpaceSyntax::Thread => Space::Thread,
    }
}

/// Longest array.
const MAX_ARRAY: i64 = 1 << 24;

impl<'a> Lower<'a> {
    /// Resolves a type in the current scope.
    pub(super) fn resolve_type(&mut self, t: &'a TypeSyntax) -> LowerResult<Resolved> {
        self.enter(t.span)?;
        let r = self.resolve_type_inner(t);
        self.leave();
        r
    }

    fn resolve_type_inner(&mut self, t: &'a TypeSyntax) -> LowerResult<Resolved> {
        let mut auto = false;
        let mut out = match &t.base {
            TypeBase::Auto => {
                auto = true;
                Resolved {
                    ty: Ty::Error,
                    is_const: false,
                    is_ref: false,
                    space: None,
                    auto,
                    unsized_array: false,
                }
            }
            TypeBase::Decltype(e) => {
                let ty = self.expr_type(e)?;
                Resolved { ty, is_const: false, is_ref: false, space: None, auto, unsized_array: false }
            }
            TypeBase::MemberOf(e, p) => {
                let ty = self.expr_type(e)?;
                let Ty::Struct(id) = ty else {
                    return fail(
                        ErrorKind::Type,
                        t.span,
                        format!("`{}` has no members", self.type_name(&ty)),
                    );
                };
                let scope = self.struct_info(id).scope.clone();
                self.in_scope(&scope, |l| l.resolve_path(p))?
            }
            TypeBase::Path(p) => self.resolve_path(p)?,
        };
        out.is_const |= t.quals.is_const;
        out.space = t.quals.space.map(space_of).or(out.space);
        for w in &t.wraps {
            match w {
                Wrap::Pointer(q) => {
                    if !auto {
                        out.ty = Ty::pointer(out.ty, out.space, out.is_const);
                    }
                    out.is_const = q.is_const;
                    out.space = q.space.map(space_of);
                }
                Wrap::Reference => out.is_ref = true,
            }
        }
        for (i, e) in t.extents.iter().enumerate().rev() {
            let n = match e {
                Some(e) => self.const_int(e)?,
                None if i == 0 => {
                    out.unsized_array = true;
                    0
                }
                None => {
                    return fail(
                        ErrorKind::Type,
                        t.span,
                        "only the first extent of an array may be left out",
                    );
                }
            };
            if !(0..=MAX_ARRAY).contains(&n) {
                let span = e.as_ref().map_or(t.span, |e| e.span);
                return fail(ErrorKind::Type, span, format!("an array cannot have {n} elements"));
            }
            if matches!(out.ty, Ty::Void) {
                return fail(ErrorKind::Type, t.span, "an array of `void`");
            }
            out.ty = Ty::Array(Rc::new(out.ty), n as u64);
            self.size_of(&out.ty, t.span)?;
        }
        match t.outer {
            Some(Wrap::Reference) => out.is_ref = true,
            Some(Wrap::Pointer(q)) => {
                out.ty = Ty::pointer(out.ty, out.space, out.is_const);
                (out.is_const, out.space) = (q.is_const, q.space.map(space_of));
            }
            None => {}
        }
        Ok(out)
    }

    fn plain(ty: Ty) -> Resolved {
        Resolved { ty, is_const: false, is_ref: false, space: None, auto: false, unsized_array: false }
    }

    /// Resolves a qualified name to a type.
    pub(super) fn resolve_path(&mut self, p: &'a Path) -> LowerResult<Resolved> {
        let mut current: Option<Ty> = None;
        let last = p.segments.len() - 1;
        for (i, seg) in p.segments.iter().enumerate() {
            current = match current {
                Some(Ty::Struct(id)) => {
                    let scope = self.structs[id.0 as usize].scope.clone();
                    match self.member_type(&scope, seg)? {
                        Some(t) => Some(t),
                        None => {
                            let name = self.struct_name(id);
                            return fail(
                                ErrorKind::Name,
                                seg.span,
                                format!("`{name}` has no type `{}`", seg.name),
                            );
                        }
                    }
                }
                Some(Ty::Scalar(Scalar::U64)) if &*seg.name == "vote_t" => Some(Ty::Scalar(Scalar::U64)),
                Some(other) => {
                    let name = self.type_name(&other);
                    return fail(ErrorKind::Name, seg.span, format!("`{name}` has no members"));
                }
                None => {
                    let found = self.resolve_segment(seg)?;
                    match found {
                        Some(r) if i == last => return Ok(r),
                        Some(r) => Some(r.ty),
                        None if i < last && seg.args.is_none() => {
                            self.check_namespace(seg)?;
                            None
                        }
                        None => return self.unknown_type(seg),
                    }
                }
            };
        }
        match current {
            Some(ty) => Ok(Self::plain(ty)),
            None => self.unknown_type(p.last()),
        }
    }

    fn unknown_type<T>(&mut self, seg: &Segment) -> LowerResult<T> {
        if &*seg.name == "double" {
            return fail(
                ErrorKind::Unsupported,
                seg.span,
                "the kernel language has no `double`; use `float`",
            );
        }
        let mut d = Diagnostic::error(ErrorKind::Name, seg.span, format!("unknown type name `{}`", seg.name));
        let globals = self.globals.clone();
        let mut names: Vec<&str> = SCALAR_NAMES.iter().map(|(n, _)| *n).collect();
        names.extend(["float2", "float3", "float4", "half4", "uint2", "uint3", "uint4", "int4", "half2"]);
        names.extend(globals.structs.keys().map(|n| &**n));
        names.extend(globals.aliases.keys().map(|n| &**n));
        let visible = self.scope.visible();
        names.extend(visible.iter().map(|n| &**n).filter(|n| {
            matches!(self.scope.lookup(n), Some((Entity::Type(_) | Entity::Alias(_) | Entity::Struct(_), _)))
        }));
        if let Some(n) = did_you_mean(&seg.name, names) {
            d = d.help(format!("did you mean `{n}`?"));
        }
        Err(Fail::Diag(Box::new(d)))
    }

    /// A type declared inside a struct.
    fn member_type(&mut self, scope: &Rc<Scope<'a>>, seg: &'a Segment) -> LowerResult<Option<Ty>> {
        let Some(entity) = scope.local(&seg.name) else { return Ok(None) };
        Ok(match entity {
            Entity::Type(t) => Some(t),
            Entity::Alias(a) => Some(self.alias(a, seg, scope.clone())?.ty),
            Entity::Struct(s) => Some(self.struct_use(s, seg, scope.clone())?),
            _ => None,
        })
    }

    /// One unqualified name as a type; none if it is not one.
    pub(super) fn segment_type(&mut self, seg: &'a Segment) -> LowerResult<Option<Ty>> {
        Ok(self.resolve_segment(seg)?.map(|r| r.ty))
    }

    fn resolve_segment(&mut self, seg: &'a Segment) -> LowerResult<Option<Resolved>> {
        if let Some((entity, scope)) = self.scope.lookup(&seg.name) {
            return Ok(match entity {
                // Inside a struct template its own name may take other arguments.
                Entity::Type(Ty::Struct(id)) if seg.args.is_some() => {
                    let decl = self.structs[id.0 as usize].decl;
                    let root = self.root.clone();
                    let primary = self.global_struct(&decl.name);
                    Some(Self::plain(self.struct_use(primary.unwrap_or(decl), seg, root)?))
                }
                Entity::Type(t) => Some(Self::plain(t)),
                Entity::Alias(a) => Some(self.alias(a, seg, scope)?),
                Entity::Struct(s) => Some(Self::plain(self.struct_use(s, seg, scope)?)),
                _ => None,
            });
        }
        let root = self.root.clone();
        if let Some(a) = self.globals.aliases.get(&seg.name).copied() {
            return Ok(Some(self.alias(a, seg, root)?));
        }
        if let Some(s) = self.global_struct(&seg.name) {
            return Ok(Some(Self::plain(self.struct_use(s, seg, root)?)));
        }
        if let Some(t) = builtin_type(&seg.name) {
            return Ok(Some(Self::plain(t)));
        }
        if let Some(args) = &seg.args {
            return self.builtin_template(seg, args).map(|t| t.map(Self::plain));
        }
        Ok(None)
    }

    fn builtin_template(&mut self, seg: &'a Segment, args: &'a [TemplateArg]) -> LowerResult<Option<Ty>> {
        let name = &*seg.name;
        let wanted: std::ops::RangeInclusive<usize> = match name {
            "vec" | "packed_vec" | "array" => 2..=2,
            "atomic" | "_atomic" => 1..=1,
            "simdgroup_matrix" => 1..=3,
            _ => return Ok(None),
        };
        if !wanted.contains(&args.len()) {
            let text = format!("`{name}` takes {} template arguments, {} given", wanted.end(), args.len());
            return fail(ErrorKind::Template, seg.span, text);
        }
        let elem = match self.template_arg(&args[0])? {
            TArg::Type(t) => t,
            TArg::Value(..) => {
                return fail(ErrorKind::Template, seg.span, format!("`{name}` takes a type first"));
            }
        };
        let mut numbers = Vec::new();
        for a in &args[1..] {
            match self.template_arg(a)? {
                TArg::Value(v, _) => numbers.push(v),
                TArg::Type(_) => {
                    return fail(ErrorKind::Template, seg.span, format!("`{name}` takes a number here"));
                }
            }
        }
        let ty = match (name, &elem, numbers.as_slice()) {
            ("vec", Ty::Scalar(s), [1]) => Ty::Scalar(*s),
            ("vec", Ty::Scalar(s), [n @ 2..=4]) => Ty::Vector(*s, *n as u8),
            ("packed_vec", Ty::Scalar(s), [n @ 2..=4]) => Ty::Packed(*s, *n as u8),
            ("array", t, [n]) if (0..=MAX_ARRAY).contains(n) => {
                let ty = Ty::Array(Rc::new(t.clone()), *n as u64);
                self.size_of(&ty, seg.span)?;
                ty
            }
            ("atomic" | "_atomic", Ty::Scalar(s), _) => Ty::Atomic(*s),
            ("simdgroup_matrix", Ty::Scalar(s), n) if s.is_float() && n.iter().all(|n| *n == 8) => {
                Ty::Matrix(*s)
            }
            _ => {
                let elem = self.type_name(&elem);
                let list: Vec<String> = numbers.iter().map(i64::to_string).collect();
                let text = format!("there is no `{name}<{}>`", [vec![elem], list].concat().join(", "));
                return fail(ErrorKind::Type, seg.span, text);
            }
        };
        Ok(Some(ty))
    }

    fn alias(&mut self, a: &'a AliasDecl, seg: &'a Segment, scope: Rc<Scope<'a>>) -> LowerResult<Resolved> {
        self.enter(seg.span)?;
        let inner = match &a.template {
            None => Ok(Scope::new(Some(scope))),
            Some(params) => {
                let args = seg.args.as_deref().unwrap_or(&[]);
                self.template_args(params, args, scope.clone(), seg.span).map(|args| {
                    let inner = Scope::new(Some(scope));
                    bind(&inner, params, &args);
                    inner
                })
            }
        };
        let r = inner.and_then(|inner| {
            let saved = std::mem::replace(&mut self.scope, inner);
            let r = self.resolve_type(&a.ty);
            self.scope = saved;
            r
        });
        self.leave();
        r
    }

    /// One template argument in the current scope.
    pub(super) fn template_arg(&mut self, a: &'a TemplateArg) -> LowerResult<TArg> {
        match a {
            TemplateArg::Type(t) => {
                // A name may turn out to be a constant after all.
                if let (TypeBase::Path(p), true) = (&t.base, t.wraps.is_empty() && t.extents.is_empty())
                    && p.segments.len() == 1
                    && let Some((Entity::Object(lv), _)) = self.scope.lookup(&p.segments[0].name)
                    && let super::value::Storage::Value(v) = &lv.storage
                {
                    return targ_value(v, t.span);
                }
                Ok(TArg::Type(self.resolve_type(t)?.ty))
            }
            TemplateArg::Value(e) => {
                if let ExprKind::Name(p) = &e.kind
                    && self.names_type(p)
                {
                    return Ok(TArg::Type(self.resolve_path(p)?.ty));
                }
                let v = self.const_value(e)?;
                targ_value(&v, e.span)
            }
        }
    }

    fn names_type(&self, p: &Path) -> bool {
        if p.segments.len() != 1 {
            return false;
        }
        let name = &p.segments[0].name;
        match self.scope.lookup(name) {
            Some((Entity::Type(_) | Entity::Alias(_) | Entity::Struct(_), _)) => true,
            Some(_) => false,
            None => {
                self.globals.structs.contains_key(name)
                    || self.globals.aliases.contains_key(name)
                    || builtin_type(name).is_some()
            }
        }
    }

    /// Arguments for template parameters, defaults filled in; all of them must be known.
    pub(super) fn template_args(
        &mut self,
        params: &'a [TemplateParam],
        args: &'a [TemplateArg],
        scope: Rc<Scope<'a>>,
        span: Span,
    ) -> LowerResult<Vec<TArg>> {
        let given = args.iter().map(|a| self.template_arg(a)).collect::<LowerResult<Vec<_>>>()?;
        self.fill_template_args(params, given.into_iter().map(Some).collect(), scope, span)
    }

    /// Fills defaults into partly known arguments and checks their kinds.
    pub(super) fn fill_template_args(
        &mut self,
        params: &'a [TemplateParam],
        mut given: Vec<Option<TArg>>,
        scope: Rc<Scope<'a>>,
        span: Span,
    ) -> LowerResult<Vec<TArg>> {
        if given.len() > params.len() {
            let text = format!("{} template arguments given, {} expected at most", given.len(), params.len());
            return fail(ErrorKind::Template, span, text);
        }
        given.resize(params.len(), None);
        let inner = Scope::new(Some(scope));
        let mut out = Vec::new();
        for (p, g) in params.iter().zip(given) {
            if p.pack {
                return fail(ErrorKind::Unsupported, p.span, "parameter packs are not supported");
            }
            let arg = match (&p.kind, g) {
                (TemplateParamKind::Type(_), Some(TArg::Type(t))) => TArg::Type(t),
                (TemplateParamKind::Value(ty, _), Some(TArg::Value(v, s))) => {
                    let to = self.in_scope(&inner, |l| l.resolve_type(ty))?.ty;
                    match to.scalar() {
                        Some(to) => match consts::convert(ConstValue::Int(v), s, to) {
                            ConstValue::Int(v) => TArg::Value(v, to),
                            ConstValue::Float(_) => {
                                return fail(
                                    ErrorKind::Template,
                                    span,
                                    "template arguments cannot be floats",
                                );
                            }
                        },
                        None => {
                            let name = self.type_name(&to);
                            let text = format!("a template argument of type `{name}` is not supported");
                            return fail(ErrorKind::Unsupported, p.span, text);
                        }
                    }
                }
                (TemplateParamKind::Type(Some(d)), None) => {
                    TArg::Type(self.in_scope(&inner, |l| l.resolve_type(d))?.ty)
                }
                (TemplateParamKind::Value(ty, Some(d)), None) => {
                    let to = self.in_scope(&inner, |l| l.resolve_type(ty))?.ty;
                    let v = self.in_scope(&inner, |l| l.const_value(d))?;
                    match (targ_value(&v, d.span)?, to.scalar()) {
                        (TArg::Value(v, _), Some(s)) => TArg::Value(consts::wrap(v, s), s),
                        (other, _) => other,
                    }
                }
                (TemplateParamKind::Type(_), Some(TArg::Value(..))) => {
                    return fail(
                        ErrorKind::Template,
                        span,
                        format!("template parameter `{}` takes a type", p.name),
                    );
                }
                (TemplateParamKind::Value(..), Some(TArg::Type(t))) => {
                    let found = self.type_name(&t);
                    let text =
                        format!("template parameter `{}` takes a value, found the type `{found}`", p.name);
                    return fail(ErrorKind::Template, span, text);
                }
                (_, None) => {
                    let text = format!("template argument for `{}` is missing and cannot be deduced", p.name);
                    return fail(ErrorKind::Template, span, text);
                }
            };
            bind(&inner, std::slice::from_ref(p), std::slice::from_ref(&arg));
            out.push(arg);
        }
        Ok(out)
    }

    /// Runs `f` with another current scope.
    pub(super) fn in_scope<T>(&mut self, scope: &Rc<Scope<'a>>, f: impl FnOnce(&mut Self) -> T) -> T {
        let saved = std::mem::replace(&mut self.scope, scope.clone());
        let r = f(self);
        self.scope = saved;
        r
    }

    // ---- layout ----

    /// Size and alignment in memory.
    pub(super) fn layout(&self, ty: &Ty) -> Option<(u64, u64)> {
        Some(match ty {
            Ty::Scalar(s) | Ty::Enum(_, s) | Ty::Atomic(s) => (s.size(), s.size()),
            Ty::Vector(s, 2) => (s.size() * 2, s.size() * 2),
            Ty::Vector(s, _) => (s.size() * 4, s.size() * 4),
            Ty::Packed(s, n) => (s.size() * u64::from(*n), s.size()),
            Ty::Array(t, n) => {
                let (size, align) = self.layout(t)?;
                (size.checked_mul(*n)?, align)
            }
            Ty::Struct(id) => {
                let info = &self.structs[id.0 as usize];
                (info.size, info.align)
            }
            Ty::Pointer(_) | Ty::Null => (8, 8),
            Ty::Lambda(_) => (1, 1),
            Ty::Matrix(s) => (s.size() * 2, s.size() * 2),
            Ty::Void | Ty::Error => return None,
        })
    }

    pub(super) fn size_of(&self, ty: &Ty, span: Span) -> LowerResult<u64> {
        match self.layout(ty) {
            Some((size, _)) if size <= 1 << 40 => Ok(size),
            _ => fail(ErrorKind::Type, span, format!("`{}` has no size", self.type_name(ty))),
        }
    }

    pub(super) fn align_of(&self, ty: &Ty) -> u32 {
        self.layout(ty).map_or(1, |(_, a)| a as u32)
    }

    // ---- names ----

    /// A type as the user would write it.
    pub(super) fn type_name(&self, ty: &Ty) -> String {
        match ty {
            Ty::Void => "void".into(),
            Ty::Scalar(s) => scalar_name(*s).into(),
            Ty::Vector(s, n) => format!("{}{n}", scalar_name(*s)),
            Ty::Packed(s, n) => format!("packed_{}{n}", scalar_name(*s)),
            Ty::Pointer(p) => {
                let space = p.space.map_or(String::new(), |s| format!("{s} "));
                let constness = if p.is_const { "const " } else { "" };
                format!("{space}{constness}{}*", self.type_name(&p.pointee))
            }
            Ty::Array(..) => {
                let (mut at, mut extents) = (ty, String::new());
                while let Ty::Array(t, n) = at {
                    extents.push_str(&format!("[{n}]"));
                    at = t;
                }
                format!("{}{extents}", self.type_name(at))
            }
            Ty::Struct(id) => self.struct_name(*id),
            Ty::Enum(_, s) => format!("enum of {}", scalar_name(*s)),
            Ty::Atomic(s) => format!("atomic<{}>", scalar_name(*s)),
            Ty::Matrix(s) => format!("simdgroup_matrix<{}, 8, 8>", scalar_name(*s)),
            Ty::Lambda(_) => "lambda".into(),
            Ty::Null => "nullptr_t".into(),
            Ty::Error => "<error>".into(),
        }
    }

    pub(super) fn targ_name(&self, a: &TArg) -> String {
        match a {
            TArg::Type(t) => self.type_name(t),
            TArg::Value(v, Scalar::Bool) => (*v != 0).to_string(),
            TArg::Value(v, Scalar::U64) => (*v as u64).to_string(),
            TArg::Value(v, _) => v.to_string(),
        }
    }
}

fn targ_value(v: &RValue, span: Span) -> LowerResult<TArg> {
    match (v.as_int(), v.ty.scalar()) {
        (Some(i), Some(s)) => Ok(TArg::Value(i, s)),
        _ => fail(ErrorKind::Template, span, "a template argument must be a type or an integer constant"),
    }
}

/// Enters template arguments into a scope under the names of their parameters.
pub(crate) fn bind<'a>(scope: &Rc<Scope<'a>>, params: &[TemplateParam], args: &[TArg]) {
    for (p, a) in params.iter().zip(args) {
        if p.name.is_empty() {
            continue;
        }
        let entity = match a {
            TArg::Type(t) => Entity::Type(t.clone()),
            TArg::Value(v, s) => {
                let mut lv = LValue::value(RValue::int(*s, *v));
                lv.is_const = true;
                Entity::Object(lv)
            }
        };
        scope.insert(&p.name, entity);
    }
}
