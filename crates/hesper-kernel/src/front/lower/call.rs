//! Calls: lookup of the function, binding of arguments, inlining.

use super::convert::Rank;
use super::scope::{Entity, Scope};
use super::types::{TArg, bind};
use super::value::{ExprResult, LValue, RValue, Storage};
use super::*;
use crate::front::diag::did_you_mean;
use crate::front::types::StructId;

/// An argument: evaluated, or a list that needs the parameter's type.
#[derive(Clone)]
pub(crate) enum Arg<'a> {
    Value(ExprResult, Span),
    List(&'a Expr),
}

impl<'a> Lower<'a> {
    /// Evaluates an argument. An object stays an object, since the parameter may be a reference.
    pub(super) fn argument(&mut self, e: &'a Expr) -> LowerResult<Arg<'a>> {
        if matches!(e.kind, ExprKind::InitList(_)) {
            return Ok(Arg::List(e));
        }
        Ok(Arg::Value(self.expr(e)?, e.span))
    }

    fn arguments(&mut self, args: &'a [Expr]) -> LowerResult<Vec<Arg<'a>>> {
        args.iter().map(|e| self.argument(e)).collect()
    }

    /// A call expression.
    pub(super) fn call(&mut self, f: &'a Expr, args: &'a [Expr], span: Span) -> LowerResult<ExprResult> {
        match &f.kind {
            ExprKind::Name(p) => self.call_name(p, args, span),
            ExprKind::Member { base, arrow, member } => {
                let base_ex = self.member_base(base, *arrow)?;
                match base_ex.ty().clone() {
                    Ty::Struct(id) => {
                        if self.find_methods(id, &member.name).is_empty()
                            && self.find_field(id, &member.name).is_some()
                        {
                            let field = self.member(base_ex, &member.name, member.span)?;
                            return self.call_object(field, args, span);
                        }
                        self.method_call(base_ex, id, &member.name, member.args.as_deref(), args, span)
                    }
                    Ty::Error => Err(Fail::Reported),
                    _ => {
                        let args = self.arguments(args)?;
                        self.builtin_method(base_ex, &member.name, args, member.span)
                    }
                }
            }
            ExprKind::TypeMember(t, seg) => match self.resolve_type(t)?.ty {
                Ty::Struct(id) => self.call_static(id, seg, args, span),
                t => fail(ErrorKind::Type, span, format!("`{}` has no members", self.type_name(&t))),
            },
            _ => {
                let callee = self.expr(f)?;
                self.call_object(callee, args, span)
            }
        }
    }

    /// Calls a lambda or an object with `operator()`.
    fn call_object(&mut self, callee: ExprResult, args: &'a [Expr], span: Span) -> LowerResult<ExprResult> {
        match callee.ty().clone() {
            Ty::Lambda(id) => {
                let args = self.arguments(args)?;
                self.call_lambda(id, args, span)
            }
            Ty::Struct(id) => self.method_call(callee, id, "operator()", None, args, span),
            Ty::Error => Err(Fail::Reported),
            t => fail(ErrorKind::Call, span, format!("`{}` cannot be called", self.type_name(&t))),
        }
    }

    fn call_name(&mut self, p: &'a Path, args: &'a [Expr], span: Span) -> LowerResult<ExprResult> {
        let seg = p.last();
        let n = p.segments.len();
        if n == 1 {
            match self.scope.lookup(&seg.name) {
                Some((Entity::Object(lv), _)) => return self.call_object(ExprResult::Object(lv), args, span),
                Some((Entity::Field, _)) => {
                    let x = self.name(p)?;
                    return self.call_object(x, args, span);
                }
                Some((Entity::Type(_) | Entity::Alias(_) | Entity::Struct(_), _)) => {
                    let ty = self.resolve_path(p)?.ty;
                    return Ok(ExprResult::Value(self.construct(&ty, args, false, span)?));
                }
                _ => {}
            }
            if let Some(r) = self.call_sibling(seg, args, span)? {
                return Ok(r);
            }
        } else {
            self.path_type(&p.segments[..n - 2])?;
            if &*p.segments[n - 2].name == "numeric_limits" {
                let targs = p.segments[n - 2].args.as_deref().unwrap_or(&[]);
                return Ok(ExprResult::Value(self.numeric_limit(targs, seg, span)?));
            }
            if let Some(Ty::Struct(id)) = self.path_type(&p.segments[..n - 1])? {
                return self.call_static(id, seg, args, span);
            }
        }
        let is_type = self.globals.structs.contains_key(&seg.name)
            || self.globals.aliases.contains_key(&seg.name)
            || crate::front::types::is_builtin_type(&seg.name);
        if is_type {
            let ty = self.resolve_path(p)?.ty;
            return Ok(ExprResult::Value(self.construct(&ty, args, false, span)?));
        }
        if &*seg.name == "is_function_constant_defined" {
            return self.is_constant_defined(args, span);
        }
        let args = self.arguments(args)?;
        self.call_function(p, args, span)
    }

    /// `is_function_constant_defined(name)`
    fn is_constant_defined(&mut self, args: &'a [Expr], span: Span) -> LowerResult<ExprResult> {
        let constant = match args {
            [Expr { kind: ExprKind::Name(p), .. }] => {
                self.globals.vars.get(&p.last().name).and_then(|(v, _)| v.function_constant)
            }
            _ => None,
        };
        let Some(index) = constant else {
            let text = "`is_function_constant_defined` takes the name of a function constant";
            return fail(ErrorKind::Call, span, text);
        };
        let defined = self.unit.constants.iter().any(|constant| constant.index == index);
        Ok(ExprResult::Value(RValue::bool(defined)))
    }

    /// A member function called by its bare name from another one.
    fn call_sibling(
        &mut self,
        seg: &'a Segment,
        args: &'a [Expr],
        span: Span,
    ) -> LowerResult<Option<ExprResult>> {
        let mut at = Some(self.scope.clone());
        while let Some(scope) = at {
            if let Some(id) = scope.of_struct
                && !self.find_methods(id, &seg.name).is_empty()
            {
                let this = self.frames.last().and_then(|f| f.this.clone());
                if let Some(lv) = this {
                    return self
                        .method_call(ExprResult::Object(lv), id, &seg.name, seg.args.as_deref(), args, span)
                        .map(Some);
                }
                return self.call_static(id, seg, args, span).map(Some);
            }
            at = scope.parent.clone();
        }
        Ok(None)
    }

    fn call_static(
        &mut self,
        id: StructId,
        seg: &'a Segment,
        args: &'a [Expr],
        span: Span,
    ) -> LowerResult<ExprResult> {
        let methods = self.find_methods(id, &seg.name);
        if methods.is_empty() {
            let text = format!("`{}` has no member function `{}`", self.struct_name(id), seg.name);
            return fail(ErrorKind::Name, seg.span, text);
        }
        let args = self.arguments(args)?;
        let decls: Vec<&'a FnDecl> = methods.iter().map(|(m, _, _)| *m).collect();
        let scope = self.struct_info(methods[0].2).scope.clone();
        let (f, targs) = self.choose(&seg.name, &decls, seg.args.as_deref(), &args, &scope, span)?;
        let this = if f.is_static { None } else { self.frames.last().and_then(|f| f.this.clone()) };
        self.inline(f, targs, scope, this, args, span)
    }

    /// `object.name(args)`
    pub(super) fn method_call(
        &mut self,
        base: ExprResult,
        id: StructId,
        name: &str,
        targs: Option<&'a [TemplateArg]>,
        args: &'a [Expr],
        span: Span,
    ) -> LowerResult<ExprResult> {
        let args = self.arguments(args)?;
        self.method_with(base, id, name, targs, args, span)
    }

    fn method_with(
        &mut self,
        base: ExprResult,
        id: StructId,
        name: &str,
        targs: Option<&'a [TemplateArg]>,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<ExprResult> {
        let methods = self.find_methods(id, name);
        let Some((_, path, owner)) = methods.first().cloned() else {
            let text = format!("`{}` has no member function `{name}`", self.struct_name(id));
            let mut d = Diagnostic::error(ErrorKind::Name, span, text);
            let decl = self.struct_info(id).decl;
            if let Some(n) = did_you_mean(name, decl.methods.iter().map(|m| &*m.name)) {
                d = d.help(format!("did you mean `{n}`?"));
            }
            return Err(Fail::Diag(Box::new(d)));
        };
        let decls: Vec<&'a FnDecl> = methods.iter().map(|(m, _, _)| *m).collect();
        let scope = self.struct_info(owner).scope.clone();
        let (f, bound) = self.choose(name, &decls, targs, &args, &scope, span)?;
        let object = path.into_iter().try_fold(base, |at, i| self.part(at, i, span))?;
        let this = match object {
            ExprResult::Object(lv) => lv,
            ExprResult::Value(v) => {
                // A temporary may be changed by its own member functions.
                let lv = self.temporary(&v.ty, "temporary", span)?;
                self.store_init(&lv, &v, span)?;
                lv
            }
        };
        self.inline(f, bound, scope, Some(this), args, span)
    }

    /// An overloaded operator, as a member or a free function; none if there is no such operator.
    pub(super) fn operator_call(
        &mut self,
        name: &str,
        args: Vec<ExprResult>,
        span: Span,
    ) -> LowerResult<Option<ExprResult>> {
        let mut rest: Vec<Arg<'a>> = args.iter().skip(1).map(|x| Arg::Value(x.clone(), span)).collect();
        if let Ty::Struct(id) = args[0].ty() {
            let id = *id;
            let methods = self.find_methods(id, name);
            let fitting = methods.iter().any(|(m, _, _)| m.params.len() == rest.len());
            if fitting {
                let scope = self.struct_info(id).scope.clone();
                let decls: Vec<&'a FnDecl> = methods.iter().map(|(m, _, _)| *m).collect();
                if self.choose(name, &decls, None, &rest, &scope, span).is_ok() {
                    return self.method_with(args[0].clone(), id, name, None, rest, span).map(Some);
                }
            }
        }
        let Some(list) = self.globals.functions.get(name).cloned() else { return Ok(None) };
        rest.insert(0, Arg::Value(args[0].clone(), span));
        let root = self.root.clone();
        match self.choose(name, &list, None, &rest, &root, span) {
            Ok((f, targs)) => self.inline(f, targs, root, None, rest, span).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The conversion operator of a struct that gives the type, or the nearest arithmetic one.
    pub(super) fn conversion_operator(
        &mut self,
        id: StructId,
        v: &RValue,
        to: &Ty,
        span: Span,
    ) -> LowerResult<Option<RValue>> {
        let mut best: Option<(Rank, &'a FnDecl, StructId)> = None;
        for (m, _, owner) in self.find_methods(id, "operator T") {
            let scope = self.struct_info(owner).scope.clone();
            let Some(ret) = &m.ret else { continue };
            if m.template.is_some() {
                continue;
            }
            let ty = self.in_scope(&scope, |l| l.resolve_type(ret))?.ty;
            if let Some(r) = self.rank(&ty, to)
                && best.is_none_or(|(b, _, _)| r < b)
            {
                best = Some((r, m, owner));
            }
        }
        let Some((_, m, owner)) = best else { return Ok(None) };
        let scope = self.struct_info(owner).scope.clone();
        let x = self.inline(m, Vec::new(), scope, Some(LValue::value(v.clone())), Vec::new(), span)?;
        self.rvalue_of(x, span).map(Some)
    }

    /// A free function, the user's or the library's.
    fn call_function(&mut self, p: &'a Path, args: Vec<Arg<'a>>, span: Span) -> LowerResult<ExprResult> {
        let seg = p.last();
        let owner = (p.segments.len() > 1).then(|| &p.segments[p.segments.len() - 2].name);
        let library = owner.is_some_and(|o| crate::front::parser::LIBRARY_NAMESPACES.contains(&&**o));
        let list = self.globals.functions.get(&seg.name).cloned().unwrap_or_default();
        let list: Vec<&'a FnDecl> = match owner {
            Some(o) if !library => list.into_iter().filter(|f| f.namespace.last() == Some(o)).collect(),
            Some(_) => {
                list.into_iter().filter(|f| f.is_prelude || f.namespace.contains(&"metal".into())).collect()
            }
            None => list,
        };
        let builtin = builtins::is_function(&seg.name) && (library || owner.is_none());
        let root = self.root.clone();
        if !list.is_empty() {
            match self.choose_ranked(&seg.name, &list, seg.args.as_deref(), &args, &root, span) {
                Ok((f, targs, rank)) => {
                    // A library function that takes the arguments as they are beats one that converts them.
                    let converts =
                        rank > 0 && !f.is_prelude && builtin && self.builtin_takes(&seg.name, &args);
                    let prelude = f.is_prelude && builtin && rank > 0;
                    if !converts && !prelude {
                        return self.inline(f, targs, root, None, args, span);
                    }
                }
                Err(e) if !builtin => return Err(e),
                Err(_) => {}
            }
        }
        if builtin {
            return self.builtin_call(p, args, span);
        }
        let mut d = Diagnostic::error(ErrorKind::Name, seg.span, format!("unknown function `{}`", seg.name));
        if let Some(owner) = owner.filter(|_| !library) {
            d.message = format!("namespace `{owner}` has no function `{}`", seg.name);
            if builtins::is_function(&seg.name) {
                d = d.help(format!("`{0}` of the library is `metal::{0}`", seg.name));
                return Err(Fail::Diag(Box::new(d)));
            }
        }
        let globals = self.globals.clone();
        let mut names: Vec<&str> = globals.functions.keys().map(|n| &**n).collect();
        for n in builtins::names() {
            names.push(n);
        }
        if let Some(n) = did_you_mean(&seg.name, names) {
            d = d.help(format!("did you mean `{n}`?"));
        }
        Err(Fail::Diag(Box::new(d)))
    }

    // ---- inlining ----

    /// Checks depth, size and recursion before a call is inlined.
    fn check_call(&mut self, f: &'a FnDecl, targs: &[TArg], args: &[Arg<'a>], span: Span) -> LowerResult<()> {
        self.inlined += 1;
        if self.inlined > MAX_INLINED {
            if std::mem::replace(&mut self.too_large, true) {
                return Err(Fail::Reported);
            }
            return fail(ErrorKind::Limit, span, format!("the kernel inlines more than {MAX_INLINED} calls"));
        }
        let bindings = self.bindings(f, targs);
        let same = |g: &Frame<'a>| g.decl.is_some_and(|d| std::ptr::eq(d, f)) && g.bindings == bindings;
        let recursive = self.frames.iter().position(same);
        let known = !args.is_empty()
            && args.iter().all(|a| match a {
                Arg::Value(ExprResult::Value(v), _) => v.is_const(),
                Arg::Value(ExprResult::Object(LValue { storage: Storage::Value(v), .. }), _) => v.is_const(),
                _ => false,
            });
        let template = f.template.is_some();
        match recursive {
            Some(first) if !known => {
                let cycle: Vec<String> =
                    self.frames[first..].iter().map(|g| format!("`{}`", g.name)).collect();
                let text = format!("recursion is not allowed: {} -> `{}`", cycle.join(" -> "), f.name);
                fail(ErrorKind::Limit, span, text)
            }
            _ if self.frames.len() >= MAX_CALLS => {
                let what = if template { "template recursion" } else { "compile-time recursion" };
                let again = self.frames.iter().any(|g| g.decl.is_some_and(|d| std::ptr::eq(d, f)));
                let text = if again {
                    format!("{what} of `{}` does not end", f.name)
                } else {
                    format!("calls nest too deeply; the limit is {MAX_CALLS}")
                };
                fail(ErrorKind::Limit, span, text)
            }
            _ => Ok(()),
        }
    }

    /// Template arguments as text: `T = float, N = 4`.
    fn bindings(&self, f: &'a FnDecl, targs: &[TArg]) -> String {
        let params = f.template.as_deref().unwrap_or(&[]);
        let pairs = params.iter().zip(targs);
        let list: Vec<String> = pairs.map(|(p, a)| format!("{} = {}", p.name, self.targ_name(a))).collect();
        list.join(", ")
    }

    fn open_frame(&mut self, f: &'a FnDecl, targs: &[TArg], this: Option<LValue>, span: Span) -> Frame<'a> {
        let bindings = self.bindings(f, targs);
        Frame { decl: Some(f), bindings, ..self.inlined_frame(f.name.clone(), &f.assigned, this, span) }
    }

    /// The frame of a call that is inlined here, without a declaration.
    fn inlined_frame(
        &self,
        name: Arc<str>,
        assigned: &'a Assigned,
        this: Option<LValue>,
        span: Span,
    ) -> Frame<'a> {
        Frame {
            decl: None,
            name,
            bindings: String::new(),
            call_span: span,
            assigned,
            this,
            ret_ty: None,
            ret_ref: false,
            ret_object: None,
            direct: None,
            flag: None,
            base_region: self.regions,
            base_loops: self.open_loops.len(),
            is_entry: false,
            inlined_at: Some(self.b.current_loc()),
        }
    }

    /// Inlines a call.
    pub(super) fn inline(
        &mut self,
        f: &'a FnDecl,
        targs: Vec<TArg>,
        scope: Rc<Scope<'a>>,
        this: Option<LValue>,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<ExprResult> {
        self.reached.insert(f as *const FnDecl as usize);
        self.check_call(f, &targs, &args, span)?;
        let f = self.definition(f);
        let Some(body) = &f.body else {
            let text = format!("`{}` is declared but never defined", f.name);
            return Err(Fail::Diag(Box::new(
                Diagnostic::error(ErrorKind::Name, span, text).note(f.span, "it is declared here"),
            )));
        };
        self.reached.insert(f as *const FnDecl as usize);
        self.enter(span)?;
        let saved = self.scope.clone();
        let frame = self.open_frame(f, &targs, this, span);
        let r = self.inline_body(f, body, targs, scope, frame, args);
        self.scope = saved;
        self.leave();
        self.at(span);
        r
    }

    /// The definition of a function that was declared first.
    fn definition(&self, f: &'a FnDecl) -> &'a FnDecl {
        if f.body.is_some() {
            return f;
        }
        let list = self.globals.functions.get(&f.name);
        let same = |g: &&&'a FnDecl| {
            g.body.is_some()
                && g.params.len() == f.params.len()
                && g.template.as_ref().map(Vec::len) == f.template.as_ref().map(Vec::len)
                && g.spec_args.is_none()
        };
        list.into_iter().flatten().find(same).copied().unwrap_or(f)
    }

    fn inline_body(
        &mut self,
        f: &'a FnDecl,
        body: &'a Block,
        targs: Vec<TArg>,
        scope: Rc<Scope<'a>>,
        mut frame: Frame<'a>,
        args: Vec<Arg<'a>>,
    ) -> LowerResult<ExprResult> {
        let outer = Scope::new(Some(scope));
        if let Some(params) = &f.template {
            bind(&outer, params, &targs);
        }
        let span = frame.call_span;
        if let Some(ret) = &f.ret {
            let r = self.in_scope(&outer, |l| l.resolve_type(ret))?;
            frame.ret_ty = if r.auto { None } else { Some(r.ty) };
            frame.ret_ref = r.is_ref;
        }
        let inner = Scope::new(Some(outer));
        self.bind_params(&f.params, &inner, &mut frame, args, span)?;
        self.run_body(frame, inner, body)
    }

    /// Lowers a body in a frame; gives what it returns.
    fn run_body(
        &mut self,
        frame: Frame<'a>,
        scope: Rc<Scope<'a>>,
        body: &'a Block,
    ) -> LowerResult<ExprResult> {
        let (name, span) = (frame.name.clone(), frame.call_span);
        let depth = self.frames.len();
        self.frames.push(frame);
        let saved = std::mem::replace(&mut self.scope, scope);
        let dead = std::mem::replace(&mut self.dead, false);
        self.function_body(body);
        let fell_off = !self.dead;
        self.dead = dead || self.b.is_terminated();
        self.scope = saved;
        self.frames.truncate(depth + 1);
        let Some(frame) = self.frames.pop() else { return Err(Fail::Reported) };
        if let Some(x) = frame.direct {
            return Ok(x);
        }
        if let Some(storage) = frame.ret_object {
            return Ok(ExprResult::Value(self.load(&storage, span)?));
        }
        match frame.ret_ty {
            None | Some(Ty::Void) => Ok(ExprResult::Value(RValue::void())),
            Some(ty) => {
                if fell_off && !self.sink.has_errors() {
                    self.warn(ErrorKind::Type, span, format!("`{name}` ends without returning a value"));
                }
                let v = self.zero(&ty, span)?;
                Ok(ExprResult::Value(v))
            }
        }
    }

    /// Binds arguments to the names of parameters.
    fn bind_params(
        &mut self,
        params: &'a [ParamDecl],
        scope: &Rc<Scope<'a>>,
        frame: &mut Frame<'a>,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<()> {
        let mut args = args.into_iter();
        for p in params {
            let r = self.in_scope(scope, |l| l.resolve_type(&p.ty))?;
            let arg = match (args.next(), &p.default) {
                (Some(a), _) => a,
                (None, Some(d)) => {
                    let x = self.in_scope(scope, |l| l.argument(d))?;
                    match x {
                        Arg::Value(x, _) => Arg::Value(x, span),
                        list => list,
                    }
                }
                (None, None) => {
                    return fail(ErrorKind::Call, span, format!("argument `{}` is missing", p.name));
                }
            };
            let lv = self.bind_param(p, &r, arg, frame)?;
            if !p.name.is_empty() {
                scope.insert(&p.name, Entity::Object(lv));
            }
        }
        Ok(())
    }

    fn bind_param(
        &mut self,
        p: &'a ParamDecl,
        r: &types::Resolved,
        arg: Arg<'a>,
        frame: &Frame<'a>,
    ) -> LowerResult<LValue> {
        let (x, span) = match arg {
            Arg::Value(x, span) => (x, span),
            Arg::List(e) => (ExprResult::Value(self.init_value(&r.ty, e)?), e.span),
        };
        if r.is_ref
            && let ExprResult::Object(lv) = &x
        {
            let fits = r.auto || lv.ty == r.ty || lv.ty.decayed() == r.ty.decayed();
            if fits {
                return Ok(LValue { is_const: lv.is_const || r.is_const, ..lv.clone() });
            }
            if !r.is_const {
                let (want, found) = (self.type_name(&r.ty), self.type_name(&lv.ty));
                let text = format!("expected a reference to `{want}`, found `{found}`");
                return Err(Fail::Diag(Box::new(
                    Diagnostic::error(ErrorKind::Type, span, text)
                        .note(p.span, "the parameter is declared here"),
                )));
            }
        }
        let ty = if r.auto { None } else { Some(self.param_type(r, &p.ty)) };
        let v = match (x, &ty) {
            // Structs and arrays by value are copied whole.
            (ExprResult::Object(lv), Some(t)) if lv.ty == *t => self.load(&lv, span)?,
            (x, Some(t)) => {
                let v = self.rvalue_of(x, span)?;
                self.convert(v, t, false, span)?
            }
            (x, None) => self.rvalue_of(x, span)?,
        };
        let assigned =
            writes(frame.assigned, &p.name, &v.ty) || self.storage_of(p.id) > value::StorageClass::Value;
        if !assigned && !self.needs_memory(&v.ty) {
            return Ok(LValue {
                ty: v.ty.clone(),
                storage: Storage::Value(v),
                is_const: r.is_const,
                decl: Some(p.id),
            });
        }
        let ty = v.ty.clone();
        // The caller's frame is still current: storage is decided here by the parameter itself.
        self.escalate_quietly(p.id);
        self.make_local(&p.name, p.id, &ty, r.is_const, Some(v), p.span)
    }

    /// An assigned parameter is a variable; this is known before the walk and needs no repetition.
    fn escalate_quietly(&mut self, id: DeclId) {
        let slot = self.storage.entry(id).or_insert(value::StorageClass::Var);
        *slot = (*slot).max(value::StorageClass::Var);
    }

    /// Inlines a constructor on the object `this`; gives the object's value.
    pub(super) fn inline_constructor(
        &mut self,
        id: StructId,
        f: &'a FnDecl,
        targs: Vec<TArg>,
        scope: Rc<Scope<'a>>,
        this: LValue,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<RValue> {
        self.check_call(f, &targs, &args, span)?;
        self.enter(span)?;
        let saved = self.scope.clone();
        let depth = self.frames.len();
        let mut frame = self.open_frame(f, &targs, Some(this.clone()), span);
        frame.ret_ty = Some(Ty::Void);
        let outer = Scope::new(Some(scope));
        if let Some(params) = &f.template {
            bind(&outer, params, &targs);
        }
        let inner = Scope::new(Some(outer));
        let r = self.bind_params(&f.params, &inner, &mut frame, args, span).and_then(|()| {
            self.frames.push(frame);
            self.scope = inner;
            self.member_inits(id, f)?;
            let this = self.frames.last().and_then(|f| f.this.clone()).unwrap_or(this);
            if let Some(body) = f.body.as_ref().filter(|b| !b.stmts.is_empty()) {
                let dead = std::mem::replace(&mut self.dead, false);
                self.function_body(body);
                self.dead = dead || self.b.is_terminated();
            }
            Ok(this)
        });
        self.frames.truncate(depth);
        self.scope = saved;
        self.leave();
        self.at(span);
        let this = r?;
        self.load(&this, span)
    }

    fn call_lambda(&mut self, id: u32, args: Vec<Arg<'a>>, span: Span) -> LowerResult<ExprResult> {
        let info = &self.lambdas[id as usize];
        let (lambda, scope, this) = (info.lambda, info.scope.clone(), info.this.clone());
        let assigned = info.assigned;
        if self.frames.len() >= MAX_CALLS {
            return fail(ErrorKind::Limit, span, format!("calls nest too deeply; the limit is {MAX_CALLS}"));
        }
        let required = lambda.params.iter().filter(|p| p.default.is_none()).count();
        if args.len() < required || args.len() > lambda.params.len() {
            let text = format!("the lambda takes {} argument(s), {} given", lambda.params.len(), args.len());
            return fail(ErrorKind::Call, span, text);
        }
        self.enter(span)?;
        let mut frame = self.inlined_frame("lambda".into(), assigned, this, span);
        let inner = Scope::new(Some(scope.clone()));
        let r = (|| {
            if let Some(ret) = &lambda.ret {
                let r = self.in_scope(&scope, |l| l.resolve_type(ret))?;
                frame.ret_ty = if r.auto { None } else { Some(r.ty) };
                frame.ret_ref = r.is_ref;
            }
            self.bind_params(&lambda.params, &inner, &mut frame, args, span)?;
            self.run_body(frame, inner, &lambda.body)
        })();
        self.leave();
        self.at(span);
        r
    }
}
