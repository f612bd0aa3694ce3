//! Deduction of template arguments: matching written types against actual ones.

use super::scope::Scope;
use super::types::{TArg, space_of};
use super::*;
use crate::ir::Scalar;

impl<'a> Lower<'a> {
    /// Matches a pattern argument of a specialisation against an actual argument.
    pub(super) fn unify_arg(
        &mut self,
        pattern: &'a TemplateArg,
        actual: &TArg,
        params: &'a [TemplateParam],
        bound: &mut [Option<TArg>],
        scope: &Rc<Scope<'a>>,
    ) -> bool {
        match (pattern, actual) {
            (TemplateArg::Type(t), TArg::Type(ty)) => {
                if self.unify(t, ty, params, bound) {
                    return true;
                }
                // Not a pattern: a concrete type, which must be the same.
                !mentions(t, params) && self.in_scope(scope, |l| l.resolve_type(t)).is_ok_and(|r| r.ty == *ty)
            }
            (TemplateArg::Type(t), TArg::Value(..)) => match param_name(t) {
                Some(name) => bind_param(params, bound, name, actual.clone()),
                None => false,
            },
            (TemplateArg::Value(e), _) => {
                if let ExprKind::Name(p) = &e.kind
                    && p.segments.len() == 1
                    && params.iter().any(|q| q.name == p.segments[0].name)
                {
                    return bind_param(params, bound, &p.segments[0].name, actual.clone());
                }
                match (self.in_scope(scope, |l| l.template_arg(pattern)), actual) {
                    (Ok(TArg::Value(v, _)), TArg::Value(w, _)) => v == *w,
                    (Ok(TArg::Type(t)), TArg::Type(u)) => t == *u,
                    _ => false,
                }
            }
        }
    }

    /// Matches a written type against an actual one, binding template parameters. True when something could
    /// be matched; types without parameters in them are left to conversion.
    pub(super) fn unify(
        &mut self,
        pattern: &'a TypeSyntax,
        actual: &Ty,
        params: &'a [TemplateParam],
        bound: &mut [Option<TArg>],
    ) -> bool {
        if !mentions(pattern, params) {
            return false;
        }
        let mut ty = actual.clone();
        // Arrays: `T (&x)[N]`, or an array parameter that takes a pointer.
        for e in &pattern.extents {
            match &ty {
                Ty::Array(t, n) => {
                    if let Some(ExprKind::Name(p)) = e.as_ref().map(|e| &e.kind)
                        && p.segments.len() == 1
                    {
                        bind_param(params, bound, &p.segments[0].name, TArg::Value(*n as i64, Scalar::U64));
                    }
                    ty = (**t).clone();
                }
                Ty::Pointer(p) => ty = p.pointee.clone(),
                _ => return false,
            }
        }
        for w in pattern.wraps.iter().rev() {
            match w {
                Wrap::Reference => {}
                Wrap::Pointer(_) => match &ty {
                    Ty::Pointer(p) => {
                        let wanted = pattern.quals.space.map(space_of);
                        if pattern.wraps.len() == 1
                            && wanted.is_some()
                            && p.space.is_some()
                            && wanted != p.space
                        {
                            return false;
                        }
                        ty = p.pointee.clone();
                    }
                    Ty::Array(t, _) => ty = (**t).clone(),
                    _ => return false,
                },
            }
        }
        let TypeBase::Path(path) = &pattern.base else { return false };
        if path.segments.len() == 1 && path.segments[0].args.is_none() {
            return bind_param(params, bound, &path.segments[0].name, TArg::Type(ty));
        }
        let Some(args) = &path.last().args else { return false };
        let actual_args: Vec<TArg> = match (&*path.last().name, &ty) {
            ("vec" | "packed_vec", Ty::Vector(s, n) | Ty::Packed(s, n)) => {
                vec![TArg::Type(Ty::Scalar(*s)), TArg::Value(i64::from(*n), Scalar::I32)]
            }
            ("atomic" | "_atomic", Ty::Atomic(s)) => vec![TArg::Type(Ty::Scalar(*s))],
            ("array", Ty::Array(t, n)) => {
                vec![TArg::Type((**t).clone()), TArg::Value(*n as i64, Scalar::U64)]
            }
            ("simdgroup_matrix", Ty::Matrix(s)) => {
                let eight = TArg::Value(8, Scalar::I32);
                vec![TArg::Type(Ty::Scalar(*s)), eight.clone(), eight]
            }
            (name, Ty::Struct(id)) if *self.struct_info(*id).decl.name == *name => {
                self.struct_info(*id).args.clone()
            }
            _ => return false,
        };
        let scope = self.scope.clone();
        args.len() <= actual_args.len()
            && args.iter().zip(&actual_args).all(|(p, a)| self.unify_arg(p, a, params, bound, &scope))
    }
}

fn param_name(t: &TypeSyntax) -> Option<&Name> {
    match &t.base {
        TypeBase::Path(p) if p.segments.len() == 1 && t.wraps.is_empty() && t.extents.is_empty() => {
            Some(&p.segments[0].name)
        }
        _ => None,
    }
}

fn bind_param(params: &[TemplateParam], bound: &mut [Option<TArg>], name: &Name, arg: TArg) -> bool {
    let Some(i) = params.iter().position(|p| p.name == *name) else { return false };
    let kind_fits = matches!(
        (&params[i].kind, &arg),
        (TemplateParamKind::Type(_), TArg::Type(_)) | (TemplateParamKind::Value(..), TArg::Value(..))
    );
    if !kind_fits {
        return false;
    }
    match &bound[i] {
        Some(TArg::Value(v, _)) => matches!(&arg, TArg::Value(w, _) if v == w),
        Some(old) => *old == arg,
        None => {
            bound[i] = Some(arg);
            true
        }
    }
}

/// Whether a written type names one of the parameters.
fn mentions(t: &TypeSyntax, params: &[TemplateParam]) -> bool {
    fn expr(e: &Expr, params: &[TemplateParam]) -> bool {
        match &e.kind {
            ExprKind::Name(p) => path(p, params),
            ExprKind::Binary(_, a, b) => expr(a, params) || expr(b, params),
            ExprKind::Unary(_, a) => expr(a, params),
            ExprKind::SizeofType(t) => mentions(t, params),
            _ => false,
        }
    }
    fn path(p: &Path, params: &[TemplateParam]) -> bool {
        p.segments.iter().any(|s| {
            params.iter().any(|q| q.name == s.name)
                || s.args.iter().flatten().any(|a| match a {
                    TemplateArg::Type(t) => mentions(t, params),
                    TemplateArg::Value(e) => expr(e, params),
                })
        })
    }
    t.extents.iter().flatten().any(|e| expr(e, params))
        || match &t.base {
            TypeBase::Path(p) => path(p, params),
            TypeBase::Decltype(e) | TypeBase::MemberOf(e, _) => expr(e, params),
            TypeBase::Auto => false,
        }
}
