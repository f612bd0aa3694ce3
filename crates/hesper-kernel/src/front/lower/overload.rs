//! Overload resolution: which function takes the arguments at the least cost.

use super::call::Arg;
use super::convert::Rank;
use super::scope::Scope;
use super::types::{TArg, bind};
use super::value::{ExprResult, LValue, Storage};
use super::*;

/// A function that takes the arguments: how well it fits, and its template arguments.
type Candidate<'a> = ((Rank, u32, u32), &'a FnDecl, Vec<TArg>);

impl<'a> Lower<'a> {
    /// Chooses among overloads.
    pub(super) fn choose(
        &mut self,
        name: &str,
        list: &[&'a FnDecl],
        targs: Option<&'a [TemplateArg]>,
        args: &[Arg<'a>],
        scope: &Rc<Scope<'a>>,
        span: Span,
    ) -> LowerResult<(&'a FnDecl, Vec<TArg>)> {
        self.choose_ranked(name, list, targs, args, scope, span).map(|(f, t, _)| (f, t))
    }

    pub(super) fn choose_ranked(
        &mut self,
        name: &str,
        list: &[&'a FnDecl],
        targs: Option<&'a [TemplateArg]>,
        args: &[Arg<'a>],
        scope: &Rc<Scope<'a>>,
        span: Span,
    ) -> LowerResult<(&'a FnDecl, Vec<TArg>, Rank)> {
        if args.iter().any(|a| matches!(a, Arg::Value(x, _) if *x.ty() == Ty::Error)) {
            return Err(Fail::Reported);
        }
        let mut given = Vec::new();
        for t in targs.unwrap_or(&[]) {
            given.push(self.template_arg(t)?);
        }
        let mut best: Option<Candidate<'a>> = None;
        let mut reasons: Vec<(&'a FnDecl, String)> = Vec::new();
        for f in list.iter().copied() {
            if f.template.is_none() && targs.is_some() && f.spec_args.is_none() {
                reasons.push((f, "it is not a template".into()));
                continue;
            }
            // Specialisations are considered when their primary template has been chosen.
            if f.spec_args.is_some() || (f.template.as_ref().is_some_and(Vec::is_empty)) {
                continue;
            }
            match self.viable(f, &given, args, scope, span) {
                Ok((rank, bound)) => {
                    let preference = u32::from(f.template.is_some()) + 2 * u32::from(f.is_prelude);
                    let declared = u32::from(f.body.is_none());
                    let key = (rank, preference, declared);
                    if best.as_ref().is_none_or(|(b, _, _)| key <= *b && (key < *b || f.template.is_none())) {
                        best = Some((key, f, bound));
                    }
                }
                Err(reason) => reasons.push((f, reason)),
            }
        }
        if let Some(((rank, _, _), f, bound)) = best {
            let (f, bound) = self.specialise(f, bound, list, scope, span);
            return Ok((f, bound, rank));
        }
        let types: Vec<String> = args
            .iter()
            .map(|a| match a {
                Arg::Value(x, _) => self.type_name(x.ty()),
                Arg::List(_) => "{...}".into(),
            })
            .collect();
        let text = format!("no function `{name}` takes ({})", types.join(", "));
        let mut d = Diagnostic::error(ErrorKind::Call, span, text);
        for (f, reason) in reasons.into_iter().take(4) {
            if f.is_prelude {
                continue;
            }
            d = d.note(f.span, format!("this one does not fit: {reason}"));
        }
        Err(Fail::Diag(Box::new(d)))
    }

    /// An explicit specialisation of the chosen template, if one matches.
    fn specialise(
        &mut self,
        f: &'a FnDecl,
        bound: Vec<TArg>,
        list: &[&'a FnDecl],
        scope: &Rc<Scope<'a>>,
        span: Span,
    ) -> (&'a FnDecl, Vec<TArg>) {
        if f.template.is_none() {
            return (f, bound);
        }
        for s in list.iter().copied() {
            let (Some(params), true) = (&s.template, s.params.len() == f.params.len()) else { continue };
            if s.spec_args.is_none() && !params.is_empty() {
                continue;
            }
            match &s.spec_args {
                Some(patterns) => {
                    let mut inner: Vec<Option<TArg>> = vec![None; params.len()];
                    let fits = patterns.len() <= bound.len()
                        && patterns
                            .iter()
                            .zip(&bound)
                            .all(|(p, a)| self.unify_arg(p, a, params, &mut inner, scope));
                    if fits && let Ok(inner) = self.fill_template_args(params, inner, scope.clone(), span) {
                        return (s, inner);
                    }
                }
                None => {
                    // `template <> float f(float x)`: the parameters and the result say which one it is.
                    let outer = Scope::new(Some(scope.clone()));
                    if let Some(p) = &f.template {
                        bind(&outer, p, &bound);
                    }
                    let types = f.params.iter().map(|p| &p.ty).chain(&f.ret);
                    let own = s.params.iter().map(|p| &p.ty).chain(&s.ret);
                    let same = types.zip(own).all(|(a, b)| {
                        let x = self.in_scope(&outer, |l| l.resolve_type(a)).map(|r| r.ty);
                        let y = self.in_scope(scope, |l| l.resolve_type(b)).map(|r| r.ty);
                        matches!((x, y), (Ok(x), Ok(y)) if x == y)
                    });
                    if same {
                        return (s, Vec::new());
                    }
                }
            }
        }
        (f, bound)
    }

    /// Whether a function takes the arguments: the cost of the conversions, and its template arguments.
    fn viable(
        &mut self,
        f: &'a FnDecl,
        given: &[TArg],
        args: &[Arg<'a>],
        scope: &Rc<Scope<'a>>,
        span: Span,
    ) -> Result<(Rank, Vec<TArg>), String> {
        let required = f.params.iter().filter(|p| p.default.is_none()).count();
        if args.len() < required || args.len() > f.params.len() {
            return Err(format!("it takes {} argument(s)", f.params.len()));
        }
        let message = |e: Fail| match e {
            Fail::Diag(d) => d.message,
            Fail::Reported => "its types are wrong".to_string(),
        };
        let mut bound = Vec::new();
        let inner = Scope::new(Some(scope.clone()));
        if let Some(params) = &f.template {
            if given.len() > params.len() {
                return Err(format!("it takes {} template argument(s)", params.len()));
            }
            let mut partial: Vec<Option<TArg>> = given.iter().cloned().map(Some).collect();
            partial.resize(params.len(), None);
            let saved = std::mem::replace(&mut self.scope, scope.clone());
            for (p, a) in f.params.iter().zip(args) {
                if let Arg::Value(x, _) = a {
                    let mut ty = x.ty().decayed();
                    let takes_reference =
                        p.ty.wraps.iter().any(|w| matches!(w, Wrap::Reference)) || p.ty.outer.is_some();
                    if let (Ty::Array(t, _), false, true) = (&ty, takes_reference, p.ty.extents.is_empty()) {
                        let space = match x {
                            ExprResult::Object(LValue { storage: Storage::Mem { space, .. }, .. }) => *space,
                            _ => crate::ir::Space::Thread,
                        };
                        ty = Ty::pointer((**t).clone(), Some(space), false);
                    }
                    // An explicit argument wins; what it left open is deduced.
                    let mut trial = partial.clone();
                    if self.unify(&p.ty, &ty, params, &mut trial) {
                        partial = trial;
                    } else {
                        for (slot, new) in partial.iter_mut().zip(trial) {
                            if slot.is_none() {
                                *slot = new;
                            }
                        }
                    }
                }
            }
            self.scope = saved;
            bound = self.fill_template_args(params, partial, scope.clone(), span).map_err(message)?;
            bind(&inner, params, &bound);
        }
        let mut total = 0;
        for (p, a) in f.params.iter().zip(args) {
            let Arg::Value(x, _) = a else {
                total += 1;
                continue;
            };
            let r = self.in_scope(&inner, |l| l.resolve_type(&p.ty)).map_err(message)?;
            let want = if r.auto { x.ty().clone() } else { self.param_type(&r, &p.ty) };
            let Some(mut rank) = self.rank(x.ty(), &want) else {
                let (want, found) = (self.type_name(&want), self.type_name(x.ty()));
                return Err(format!("expected `{want}`, found `{found}`"));
            };
            if let (Ty::Array(..), Ty::Pointer(q), ExprResult::Object(lv)) = (x.ty(), &want, x) {
                let space = match &lv.storage {
                    Storage::Mem { space, .. } => *space,
                    Storage::Value(_) if lv.is_const && lv.decl.is_none() => crate::ir::Space::Constant,
                    _ => crate::ir::Space::Thread,
                };
                if q.space.is_some_and(|s| s != space) {
                    let (want, found) = (self.type_name(&want), self.type_name(x.ty()));
                    return Err(format!("expected `{want}`, found `{space} {found}`"));
                }
            }
            if r.is_ref {
                if let (ExprResult::Object(lv), Some(space)) = (x, r.space) {
                    let found = match &lv.storage {
                        Storage::Mem { space, .. } => Some(*space),
                        Storage::Value(_) => None,
                        _ => Some(crate::ir::Space::Thread),
                    };
                    if found.is_some_and(|f| f != space) {
                        return Err(format!("its parameter refers to the `{space}` address space"));
                    }
                }
                let mutable = !r.is_const;
                match x {
                    ExprResult::Object(lv) if mutable && rank == 0 && lv.is_const => rank += 2,
                    ExprResult::Value(_) if mutable => rank += 4,
                    _ => {}
                }
            }
            total += rank;
        }
        Ok((total, bound))
    }

    /// The type a parameter takes: arrays are pointers.
    pub(super) fn param_type(&self, r: &types::Resolved, t: &TypeSyntax) -> Ty {
        match &r.ty {
            Ty::Array(e, _) if !r.is_ref && !t.extents.is_empty() => {
                Ty::pointer((**e).clone(), r.space, r.is_const)
            }
            other => other.clone(),
        }
    }
}
