//! Structs: instantiation, specialisation, layout, members.

use super::scope::{Entity, Scope};
use super::types::{TArg, bind};
use super::*;
use crate::front::types::StructId;

/// A data member.
#[derive(Clone)]
pub(crate) struct Field<'a> {
    pub name: Name,
    pub ty: Ty,
    pub offset: u64,
    pub init: Option<&'a Init>,
    /// A base class or unnamed struct: its members are found through it.
    pub transparent: bool,
    pub span: Span,
}

/// An instantiated struct.
pub(crate) struct StructInfo<'a> {
    pub decl: &'a StructDecl,
    pub args: Vec<TArg>,
    pub scope: Rc<Scope<'a>>,
    pub fields: Rc<Vec<Field<'a>>>,
    pub size: u64,
    pub align: u64,
}

/// Most struct instantiations in one kernel.
const MAX_STRUCTS: usize = 2000;

impl<'a> Lower<'a> {
    pub(super) fn struct_name(&self, id: StructId) -> String {
        let info = &self.structs[id.0 as usize];
        if info.args.is_empty() {
            return info.decl.name.to_string();
        }
        let args: Vec<String> = info.args.iter().map(|a| self.targ_name(a)).collect();
        format!("{}<{}>", info.decl.name, args.join(", "))
    }

    /// The global struct, or primary template, of this name; a definition before a mere declaration.
    pub(super) fn global_struct(&self, name: &str) -> Option<&'a StructDecl> {
        let list = self.globals.structs.get(name)?;
        let primary = |s: &&&'a StructDecl| s.spec_args.is_none();
        list.iter().filter(primary).find(|s| !s.is_forward).or_else(|| list.iter().find(primary)).copied()
    }

    /// A use of a struct's name, with or without template arguments.
    pub(super) fn struct_use(
        &mut self,
        s: &'a StructDecl,
        seg: &'a Segment,
        scope: Rc<Scope<'a>>,
    ) -> LowerResult<Ty> {
        let Some(params) = &s.template else {
            if seg.args.is_some() {
                return fail(ErrorKind::Template, seg.span, format!("`{}` is not a template", s.name));
            }
            return Ok(Ty::Struct(self.instantiate_struct(s, Vec::new(), Vec::new(), scope, seg.span)?));
        };
        let given = seg.args.as_deref().unwrap_or(&[]);
        let args = self.template_args(params, given, scope.clone(), seg.span)?;
        self.struct_with_args(s, args, scope, seg.span)
    }

    /// The struct template with these arguments, specialisations considered.
    pub(super) fn struct_with_args(
        &mut self,
        s: &'a StructDecl,
        args: Vec<TArg>,
        scope: Rc<Scope<'a>>,
        span: Span,
    ) -> LowerResult<Ty> {
        let globals = self.globals.clone();
        let mut best: Option<(usize, &'a StructDecl, Vec<TArg>)> = None;
        for spec in globals.structs.get(&s.name).into_iter().flatten() {
            let (Some(patterns), Some(params)) = (&spec.spec_args, &spec.template) else { continue };
            if patterns.len() > args.len() {
                continue;
            }
            let mut bound: Vec<Option<TArg>> = vec![None; params.len()];
            // A pattern that allows no deduction (`enable_if_t<...>`) must resolve to the same argument once
            // the other parameters are known.
            let mut later = Vec::new();
            for (p, a) in patterns.iter().zip(&args) {
                let mut trial = bound.clone();
                if self.unify_arg(p, a, params, &mut trial, &scope) {
                    bound = trial;
                } else {
                    later.push((p, a));
                }
            }
            let Ok(bound) = self.fill_template_args(params, bound, scope.clone(), span) else { continue };
            if !later.is_empty() {
                let inner = Scope::new(Some(scope.clone()));
                bind(&inner, params, &bound);
                let same = |l: &mut Self, p: &'a TemplateArg, a: &TArg| match (l.template_arg(p), a) {
                    (Ok(TArg::Value(v, _)), TArg::Value(w, _)) => v == *w,
                    (Ok(t), a) => t == *a,
                    (Err(_), _) => false,
                };
                if !later.into_iter().all(|(p, a)| self.in_scope(&inner, |l| same(l, p, a))) {
                    continue;
                }
            }
            // The specialisation with the fewest parameters is the most special one.
            if best.as_ref().is_none_or(|(n, _, _)| params.len() < *n) {
                best = Some((params.len(), spec, bound));
            }
        }
        if best.is_none() && s.is_forward {
            let text = format!("`{}` is declared, but not defined for these arguments", s.name);
            return fail(ErrorKind::Type, span, text);
        }
        let (decl, bound) = match best {
            Some((_, decl, bound)) => (decl, bound),
            None => (s, args.clone()),
        };
        Ok(Ty::Struct(self.instantiate_struct(decl, bound, args, scope, span)?))
    }

    /// Instantiates a struct: `bound` for its own parameters, `args` as written by the user.
    pub(super) fn instantiate_struct(
        &mut self,
        s: &'a StructDecl,
        bound: Vec<TArg>,
        args: Vec<TArg>,
        scope: Rc<Scope<'a>>,
        span: Span,
    ) -> LowerResult<StructId> {
        // A struct declared in a function template differs with the function's arguments.
        let local = if Rc::ptr_eq(&scope, &self.root) { 0 } else { Rc::as_ptr(&scope) as *const u8 as usize };
        let key = (s as *const StructDecl as usize ^ local.rotate_left(17), args.clone());
        if let Some(id) = self.struct_index.get(&key) {
            return Ok(*id);
        }
        if self.structs.len() >= MAX_STRUCTS {
            return fail(ErrorKind::Limit, span, "too many struct instantiations");
        }
        self.enter(span)?;
        let id = StructId(self.structs.len() as u32);
        self.struct_index.insert(key, id);
        let outer = Scope::new(Some(scope));
        if let Some(params) = &s.template {
            bind(&outer, params, &bound);
        }
        let inner = Scope::for_struct(outer, id);
        self.structs.push(StructInfo {
            decl: s,
            args,
            scope: inner.clone(),
            fields: Rc::default(),
            size: 0,
            align: 1,
        });
        if !s.name.is_empty() {
            inner.insert(&s.name, Entity::Type(Ty::Struct(id)));
        }
        let r = self.struct_members(s, id, &inner);
        self.leave();
        r?;
        Ok(id)
    }

    fn struct_members(&mut self, s: &'a StructDecl, id: StructId, scope: &Rc<Scope<'a>>) -> LowerResult<()> {
        for inner in &s.structs {
            scope.insert(&inner.name, Entity::Struct(inner));
        }
        for a in &s.aliases {
            scope.insert(&a.name, Entity::Alias(a));
        }
        for (i, v) in s.fields.iter().enumerate().filter(|(_, v)| v.is_static) {
            scope.insert(&v.name, Entity::Static(id, i));
        }
        for (i, e) in s.enums.iter().enumerate() {
            let index = (id.0 + 1) * 1000 + i as u32;
            self.in_scope(scope, |l| l.enum_decl(index, e))?;
        }
        let mut fields = Vec::new();
        for b in &s.bases {
            let ty = self.in_scope(scope, |l| l.resolve_type(b))?.ty;
            let Ty::Struct(base) = ty else {
                return fail(ErrorKind::Type, b.span, "a base class must be a struct");
            };
            // The names of a base are visible inside.
            let inherited = self.structs[base.0 as usize].scope.clone();
            for name in inherited.visible_own() {
                if let (Some(e), None) = (inherited.local(&name), scope.local(&name))
                    && !matches!(e, Entity::Field)
                {
                    scope.insert(&name, e);
                }
            }
            let name: Name = format!("(base {})", self.struct_name(base)).into();
            fields.push(Field { name, ty, offset: 0, init: None, transparent: true, span: b.span });
        }
        for v in s.fields.iter().filter(|v| !v.is_static) {
            let r = self.in_scope(scope, |l| l.resolve_type(&v.ty))?;
            if r.auto || r.is_ref || r.unsized_array {
                return fail(
                    ErrorKind::Unsupported,
                    v.span,
                    format!("member `{}` needs a plain type", v.name),
                );
            }
            if r.ty == Ty::Void {
                return fail(ErrorKind::Type, v.span, format!("member `{}` has type `void`", v.name));
            }
            if r.ty == Ty::Struct(id) {
                return fail(ErrorKind::Type, v.span, format!("`{}` contains itself", s.name));
            }
            let transparent = v.name.starts_with('(');
            fields.push(Field {
                name: v.name.clone(),
                ty: r.ty,
                offset: 0,
                init: v.init.as_ref(),
                transparent,
                span: v.span,
            });
        }
        let (mut size, mut align) = (0u64, 1u64);
        for f in &mut fields {
            let Some((fsize, falign)) = self.layout(&f.ty) else {
                return fail(ErrorKind::Type, f.span, format!("member `{}` has no size", f.name));
            };
            f.offset = if s.is_union { 0 } else { size.next_multiple_of(falign) };
            size = size.max(f.offset.saturating_add(fsize));
            align = align.max(falign);
            if size > 1 << 30 {
                return fail(ErrorKind::Limit, f.span, "the struct exceeds 1 GiB");
            }
        }
        for f in &fields {
            scope.insert(&f.name, Entity::Field);
            if let (true, Ty::Struct(inner)) = (f.transparent, &f.ty) {
                for g in self.structs[inner.0 as usize].fields.iter() {
                    scope.insert(&g.name, Entity::Field);
                }
            }
        }
        let info = &mut self.structs[id.0 as usize];
        info.size = size.next_multiple_of(align).max(1);
        info.align = align;
        info.fields = Rc::new(fields);
        // Behind the layout: an assertion may ask for the size of the struct.
        s.asserts.iter().try_for_each(|(e, text, span)| {
            self.in_scope(scope, |l| l.static_assert(e, text.as_deref(), *span))
        })
    }

    pub(super) fn struct_info(&self, id: StructId) -> &StructInfo<'a> {
        &self.structs[id.0 as usize]
    }

    /// Whether objects of this type can only live in memory: unions, and structs that hold one.
    pub(super) fn needs_memory(&self, ty: &Ty) -> bool {
        match ty {
            Ty::Struct(id) => {
                let info = self.struct_info(*id);
                info.decl.is_union || info.fields.iter().any(|f| self.needs_memory(&f.ty))
            }
            Ty::Array(t, _) => self.needs_memory(t),
            Ty::Atomic(_) => true,
            _ => false,
        }
    }

    /// Number of scalars, vectors and pointers in an object, up to a bound.
    pub(super) fn leaf_count(&self, ty: &Ty) -> u64 {
        match ty {
            Ty::Struct(id) => {
                let fields = self.struct_info(*id).fields.clone();
                fields.iter().map(|f| self.leaf_count(&f.ty)).fold(0, u64::saturating_add)
            }
            Ty::Array(t, n) => self.leaf_count(t).saturating_mul(*n),
            _ => 1,
        }
    }

    /// Whether a pointer is stored in objects of this type.
    pub(super) fn holds_pointer(&self, ty: &Ty) -> bool {
        match ty {
            Ty::Struct(id) => {
                let fields = self.struct_info(*id).fields.clone();
                fields.iter().any(|f| self.holds_pointer(&f.ty))
            }
            Ty::Array(t, _) => self.holds_pointer(t),
            Ty::Pointer(_) | Ty::Lambda(_) => true,
            _ => false,
        }
    }

    /// Finds a data member, through base classes too: the chain of field numbers.
    pub(super) fn find_field(&self, id: StructId, name: &str) -> Option<Vec<usize>> {
        let fields = self.struct_info(id).fields.clone();
        if let Some(i) = fields.iter().position(|f| &*f.name == name) {
            return Some(vec![i]);
        }
        for (i, f) in fields.iter().enumerate().filter(|(_, f)| f.transparent) {
            if let Ty::Struct(inner) = f.ty
                && let Some(mut rest) = self.find_field(inner, name)
            {
                rest.insert(0, i);
                return Some(rest);
            }
        }
        None
    }

    /// Member functions of this name, with the struct they belong to (a base class, perhaps).
    pub(super) fn find_methods(&self, id: StructId, name: &str) -> Vec<(&'a FnDecl, Vec<usize>, StructId)> {
        let decl = self.struct_info(id).decl;
        let own: Vec<_> =
            decl.methods.iter().filter(|m| &*m.name == name).map(|m| (m, Vec::new(), id)).collect();
        if !own.is_empty() {
            return own;
        }
        let fields = self.struct_info(id).fields.clone();
        for (i, f) in fields.iter().enumerate().filter(|(_, f)| f.transparent) {
            if let Ty::Struct(inner) = f.ty {
                let mut found = self.find_methods(inner, name);
                if !found.is_empty() {
                    for (_, path, _) in &mut found {
                        path.insert(0, i);
                    }
                    return found;
                }
            }
        }
        Vec::new()
    }

    /// The value of a static member.
    pub(super) fn static_member(&mut self, id: StructId, index: usize, span: Span) -> LowerResult<LValue> {
        let info = self.struct_info(id);
        let (decl, scope, args) = (info.decl, info.scope.clone(), info.args.clone());
        let v = &decl.fields[index];
        self.global_constant(v, scope, args, span)
    }
}

impl<'a> Scope<'a> {
    fn visible_own(self: &Rc<Self>) -> Vec<Name> {
        let mut names = self.visible();
        names.retain(|n| self.local(n).is_some());
        names
    }
}
