//! Initialisation: variables, lists, constructors, global constants.

use super::call::Arg;
use super::scope::Scope;
use super::types::TArg;
use super::value::{ConstValue, ExprResult, LValue, RValue, Storage, StorageClass, ValueRepr};
use super::*;
use crate::front::types::StructId;
use crate::ir::{Scalar, Space};
use std::cell::RefCell;

/// Arrays and structs with more parts than this live in memory from the start.
const MAX_PARTS: u64 = 64;

impl<'a> Lower<'a> {
    /// IR variables for an object, part by part.
    fn var_storage(&mut self, ty: &Ty, name: &str, span: Span) -> LowerResult<Storage> {
        if let Some(t) = ty.ir() {
            if self.const_mode > 0 {
                let zero = self.zero(ty, span)?;
                return Ok(Storage::Cell(Rc::new(RefCell::new(zero))));
            }
            return Ok(Storage::Var(self.b.var(name, t)));
        }
        match ty {
            Ty::Struct(id) => {
                let fields = self.struct_info(*id).fields.clone();
                let parts = fields
                    .iter()
                    .map(|f| self.var_storage(&f.ty, &format!("{name}.{}", f.name), span))
                    .collect::<LowerResult<Vec<_>>>()?;
                Ok(Storage::Parts(Rc::new(parts)))
            }
            Ty::Array(t, n) if *n <= 4096 => {
                let parts = (0..*n)
                    .map(|i| self.var_storage(t, &format!("{name}[{i}]"), span))
                    .collect::<LowerResult<Vec<_>>>()?;
                Ok(Storage::Parts(Rc::new(parts)))
            }
            Ty::Error => Err(Fail::Reported),
            _ => fail(
                ErrorKind::Type,
                span,
                format!("a variable of type `{}` is not possible here", self.type_name(ty)),
            ),
        }
    }

    /// A nameless object.
    pub(super) fn temporary(&mut self, ty: &Ty, name: &str, span: Span) -> LowerResult<LValue> {
        if *ty == Ty::Void {
            return Ok(LValue::value(RValue::void()));
        }
        if matches!(ty, Ty::Null | Ty::Lambda(_)) {
            return fail(
                ErrorKind::Unsupported,
                span,
                format!("`{}` cannot be chosen at run time", self.type_name(ty)),
            );
        }
        let storage = if self.needs_memory(ty) {
            self.thread_memory(ty, name, span)?
        } else {
            self.var_storage(ty, name, span)?
        };
        Ok(LValue { ty: ty.clone(), storage, is_const: false, decl: None })
    }

    fn thread_memory(&mut self, ty: &Ty, name: &str, span: Span) -> LowerResult<Storage> {
        let size = self.size_of(ty, span)?;
        let used: u64 = self.b.kernel().thread_vars.iter().map(|v| v.size).sum();
        if used.saturating_add(size) > crate::ir::MAX_THREAD_BYTES {
            let text = format!("thread memory is limited to {} bytes", crate::ir::MAX_THREAD_BYTES);
            return fail(ErrorKind::Limit, span, text);
        }
        let align = self.align_of(ty);
        let var = self.b.thread_var(name, size, align);
        let ptr = self.b.thread_ptr(var);
        Ok(Storage::Mem { ptr, space: Space::Thread })
    }

    /// Memory for an object; pointers inside it, which memory cannot hold, stay in variables.
    fn memory_storage(&mut self, ty: &Ty, name: &str, span: Span) -> LowerResult<Storage> {
        if !self.holds_pointer(ty) {
            return self.thread_memory(ty, name, span);
        }
        let parts = match ty {
            Ty::Struct(_) => self.part_types(ty, 0),
            Ty::Array(t, n) if *n <= 4096 => vec![(**t).clone(); *n as usize],
            _ => return self.var_storage(ty, name, span),
        };
        let places =
            parts.iter().map(|t| self.memory_storage(t, name, span)).collect::<LowerResult<Vec<_>>>()?;
        Ok(Storage::Parts(Rc::new(places)))
    }

    /// An object for a declared variable or parameter, in the cheapest storage that serves, initialised if
    /// there is an initial value.
    pub(super) fn make_local(
        &mut self,
        name: &Name,
        decl: DeclId,
        ty: &Ty,
        is_const: bool,
        init: Option<RValue>,
        span: Span,
    ) -> LowerResult<LValue> {
        let mut need = self.storage_of(decl);
        let composite = matches!(ty, Ty::Struct(_) | Ty::Array(..));
        let constant = is_const && init.as_ref().is_some_and(RValue::is_const);
        if matches!(ty, Ty::Lambda(_) | Ty::Null | Ty::Void | Ty::Error) {
            let v = init.unwrap_or_else(RValue::void);
            return Ok(LValue { ty: ty.clone(), storage: Storage::Value(v), is_const, decl: Some(decl) });
        }
        if need == StorageClass::Value
            && (self.is_assigned(name, ty) || (composite && !constant) || init.is_none())
        {
            need = StorageClass::Var;
        }
        let large = composite && self.leaf_count(ty) > MAX_PARTS && !self.holds_pointer(ty) && !constant;
        if self.needs_memory(ty) || large {
            need = StorageClass::Memory;
        }
        if self.const_mode > 0 {
            need = need.min(StorageClass::Var);
        }
        let storage = match need {
            StorageClass::Value => {
                let v = init.clone().unwrap_or_else(RValue::void);
                return Ok(LValue { ty: ty.clone(), storage: Storage::Value(v), is_const, decl: Some(decl) });
            }
            StorageClass::Var => self.var_storage(ty, name, span)?,
            StorageClass::Memory => self.memory_storage(ty, name, span)?,
        };
        let lv = LValue { ty: ty.clone(), storage, is_const, decl: Some(decl) };
        match init {
            Some(v) => self.store_init(&lv, &v, span)?,
            None => self.clear_aggregates(&lv.storage.clone(), ty, false, span)?,
        }
        Ok(lv)
    }

    /// Vectors and structs are written part by part but read whole, so their unwritten parts start as zero.
    /// Scalars and arrays of them stay uninitialised, so that checked mode reports reads before a write.
    fn clear_aggregates(
        &mut self,
        storage: &Storage,
        ty: &Ty,
        in_struct: bool,
        span: Span,
    ) -> LowerResult<()> {
        match storage {
            Storage::Var(_) if in_struct || !matches!(ty, Ty::Scalar(_) | Ty::Pointer(_) | Ty::Enum(..)) => {
                let zero = self.zero(ty, span)?;
                let lv = LValue { ty: ty.clone(), storage: storage.clone(), is_const: false, decl: None };
                self.store_init(&lv, &zero, span)
            }
            Storage::Parts(parts) => {
                let inside = in_struct || matches!(ty, Ty::Struct(_));
                let types = self.part_types(ty, parts.len());
                for (p, t) in parts.iter().zip(types) {
                    self.clear_aggregates(p, &t, inside, span)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The value of an initialiser for an object of this type.
    pub(super) fn init_value(&mut self, ty: &Ty, e: &'a Expr) -> LowerResult<RValue> {
        if let ExprKind::InitList(items) = &e.kind {
            return self.init_list(ty, items, e.span);
        }
        let x = self.expr(e)?;
        if let (Ty::Array(..) | Ty::Struct(_), ExprResult::Object(lv)) = (ty, &x)
            && lv.ty == *ty
        {
            return self.load(lv, e.span);
        }
        if *x.ty() == *ty
            && let ExprResult::Value(v) = x
        {
            return Ok(v);
        }
        let v = self.rvalue_of(x, e.span)?;
        self.convert(v, ty, false, e.span)
    }

    /// `{a, b, c}` for an object of this type.
    fn init_list(&mut self, ty: &Ty, items: &'a [(Option<Name>, Expr)], span: Span) -> LowerResult<RValue> {
        self.enter(span)?;
        let r = self.init_list_inner(ty, items, span);
        self.leave();
        r
    }

    fn init_list_inner(
        &mut self,
        ty: &Ty,
        items: &'a [(Option<Name>, Expr)],
        span: Span,
    ) -> LowerResult<RValue> {
        match ty {
            Ty::Array(t, n) => {
                if items.len() as u64 > *n && !t.is_vector() && !matches!(**t, Ty::Array(..) | Ty::Struct(_))
                {
                    let text = format!("{} initialisers for `{}`", items.len(), self.type_name(ty));
                    return fail(ErrorKind::Type, span, text);
                }
                let mut at = 0;
                let mut parts = Vec::new();
                while at < items.len() && (parts.len() as u64) < *n {
                    parts.push(self.list_item(t, items, &mut at)?);
                }
                if at < items.len() {
                    let text = format!("too many initialisers for `{}`", self.type_name(ty));
                    return fail(ErrorKind::Type, items[at].1.span, text);
                }
                if (parts.len() as u64) < *n {
                    if self.leaf_count(ty) > 65_536 {
                        return fail(
                            ErrorKind::Limit,
                            span,
                            "the array is too large to be initialised by a list",
                        );
                    }
                    let zero = self.default_value(t, span)?;
                    parts.resize(*n as usize, zero);
                }
                Ok(RValue::parts(ty.clone(), parts))
            }
            Ty::Struct(id) => self.struct_from_list(*id, items, span),
            Ty::Vector(..) | Ty::Packed(..) => {
                let mut args = Vec::new();
                for (_, e) in items {
                    args.push(self.rvalue(e)?);
                }
                self.vector_of(ty, args, span)
            }
            _ => match items {
                [] => self.zero(ty, span),
                [(_, e)] => self.init_value(ty, e),
                _ => fail(
                    ErrorKind::Type,
                    span,
                    format!("{} initialisers for `{}`", items.len(), self.type_name(ty)),
                ),
            },
        }
    }

    /// One element of an array from a list; inner braces may be left out.
    fn list_item(
        &mut self,
        t: &Ty,
        items: &'a [(Option<Name>, Expr)],
        at: &mut usize,
    ) -> LowerResult<RValue> {
        let e = &items[*at].1;
        let nested = matches!(e.kind, ExprKind::InitList(_));
        if let (Ty::Array(inner, n), false) = (t, nested) {
            let mut parts = Vec::new();
            while *at < items.len() && (parts.len() as u64) < *n {
                parts.push(self.list_item(inner, items, at)?);
            }
            let zero = self.default_value(inner, e.span)?;
            parts.resize(*n as usize, zero);
            return Ok(RValue::parts(t.clone(), parts));
        }
        *at += 1;
        self.init_value(t, e)
    }

    fn struct_from_list(
        &mut self,
        id: StructId,
        items: &'a [(Option<Name>, Expr)],
        span: Span,
    ) -> LowerResult<RValue> {
        let decl = self.struct_info(id).decl;
        let has_ctor = decl.methods.iter().any(|m| m.ret.is_none() && m.name == decl.name);
        if has_ctor {
            if let [(_, e)] = items {
                // `S{s}` copies.
                if !matches!(e.kind, ExprKind::InitList(_)) {
                    let x = self.expr(e)?;
                    if *x.ty() == Ty::Struct(id) {
                        return match x {
                            ExprResult::Object(lv) => self.load(&lv, span),
                            ExprResult::Value(v) => Ok(v),
                        };
                    }
                    return self.construct_struct(id, vec![x], span);
                }
            }
            let args = items.iter().map(|(_, e)| self.argument(e)).collect::<LowerResult<Vec<_>>>()?;
            return self.construct_with(id, args, span);
        }
        let fields = self.struct_info(id).fields.clone();
        let mut parts: Vec<Option<RValue>> = vec![None; fields.len()];
        let mut next = 0;
        let mut at = 0;
        while at < items.len() {
            let (field, e) = &items[at];
            if let Some(name) = field {
                match fields.iter().position(|f| f.name == *name) {
                    Some(i) => next = i,
                    None => {
                        let text = format!("`{}` has no member `{name}`", self.struct_name(id));
                        return fail(ErrorKind::Name, e.span, text);
                    }
                }
            }
            let Some(f) = fields.get(next) else {
                let text = format!("too many initialisers for `{}`", self.struct_name(id));
                return fail(ErrorKind::Type, e.span, text);
            };
            parts[next] = Some(self.list_item(&f.ty, items, &mut at)?);
            next += 1;
        }
        let mut out = Vec::new();
        for (p, f) in parts.into_iter().zip(fields.iter()) {
            out.push(match p {
                Some(v) => v,
                None => self.field_default(id, f, span)?,
            });
        }
        Ok(RValue::parts(Ty::Struct(id), out))
    }

    /// The default of a member: its initialiser, or zero.
    fn field_default(&mut self, id: StructId, f: &structs::Field<'a>, span: Span) -> LowerResult<RValue> {
        match f.init {
            None => self.default_value(&f.ty, span),
            Some(init) => {
                let scope = self.struct_info(id).scope.clone();
                self.in_scope(&scope, |l| l.init_of(&f.ty, init, f.span))
            }
        }
    }

    /// The value of an object without initialiser, where one is needed.
    pub(super) fn default_value(&mut self, ty: &Ty, span: Span) -> LowerResult<RValue> {
        if let Ty::Struct(id) = ty {
            let decl = self.struct_info(*id).decl;
            if decl.methods.iter().any(|m| m.ret.is_none() && m.name == decl.name) {
                return self.construct_with(*id, Vec::new(), span);
            }
            let fields = self.struct_info(*id).fields.clone();
            let parts =
                fields.iter().map(|f| self.field_default(*id, f, span)).collect::<LowerResult<Vec<_>>>()?;
            return Ok(RValue::parts(ty.clone(), parts));
        }
        self.zero(ty, span)
    }

    /// The value of `= e`, `(a, b)` or `{a, b}`.
    pub(super) fn init_of(&mut self, ty: &Ty, init: &'a Init, span: Span) -> LowerResult<RValue> {
        match init {
            Init::Assign(e) | Init::Braces(e) => self.init_value(ty, e),
            Init::Parens(args) => self.construct(ty, args, false, span),
        }
    }

    /// `T(a, b)` or `T{a, b}`
    pub(super) fn construct(
        &mut self,
        ty: &Ty,
        args: &'a [Expr],
        braces: bool,
        span: Span,
    ) -> LowerResult<RValue> {
        if let [e @ Expr { kind: ExprKind::InitList(_), .. }] = args {
            return self.init_value(ty, e);
        }
        match ty {
            Ty::Struct(id) => {
                let args = args.iter().map(|e| self.argument(e)).collect::<LowerResult<Vec<_>>>()?;
                if let [Arg::Value(x, _)] = args.as_slice()
                    && x.ty() == ty
                {
                    return match x.clone() {
                        ExprResult::Object(lv) => self.load(&lv, span),
                        ExprResult::Value(v) => Ok(v),
                    };
                }
                self.construct_with(*id, args, span)
            }
            Ty::Vector(..) | Ty::Packed(..) => {
                let args = args.iter().map(|e| self.rvalue(e)).collect::<LowerResult<Vec<_>>>()?;
                self.at(span);
                self.vector_of(ty, args, span)
            }
            Ty::Array(t, n) if braces => {
                let mut parts = Vec::new();
                for e in args {
                    parts.push(self.init_value(t, e)?);
                }
                if parts.len() as u64 > *n || self.leaf_count(ty) > 65_536 {
                    return fail(
                        ErrorKind::Type,
                        span,
                        format!("wrong number of values for `{}`", self.type_name(ty)),
                    );
                }
                let zero = self.default_value(t, span)?;
                parts.resize(*n as usize, zero);
                Ok(RValue::parts(ty.clone(), parts))
            }
            Ty::Matrix(s) => {
                let s = *s;
                match args {
                    [] => self.zero(ty, span),
                    [e] => {
                        let v = self.rvalue(e)?;
                        if v.ty == *ty {
                            return Ok(v);
                        }
                        let v = self.convert(v, &Ty::Scalar(s), true, span)?;
                        Ok(self.diagonal_matrix(s, &v))
                    }
                    _ => fail(ErrorKind::Call, span, "a SIMD-group matrix takes one value"),
                }
            }
            _ => match args {
                [] => self.zero(ty, span),
                [e] => {
                    let v = self.rvalue(e)?;
                    self.at(span);
                    self.convert(v, ty, true, span)
                }
                _ => {
                    let text = format!("`{}` takes one value, {} given", self.type_name(ty), args.len());
                    fail(ErrorKind::Call, span, text)
                }
            },
        }
    }

    /// A vector from scalars and vectors.
    pub(super) fn vector_of(&mut self, ty: &Ty, args: Vec<RValue>, span: Span) -> LowerResult<RValue> {
        let (Some(s), n) = (ty.scalar(), ty.lanes()) else { return Err(Fail::Reported) };
        if args.is_empty() {
            return self.zero(ty, span);
        }
        if let [one] = args.as_slice() {
            if one.ty.is_vector() && one.ty.lanes() == n {
                return Ok(self.convert_scalar(one.clone(), s));
            }
            if !one.ty.is_vector() {
                return self.convert(one.clone(), &Ty::Vector(s, n), true, span);
            }
        }
        let mut parts = Vec::new();
        for a in &args {
            if !a.ty.is_arithmetic() {
                let text =
                    format!("`{}` cannot be a component of `{}`", self.type_name(&a.ty), self.type_name(ty));
                return fail(ErrorKind::Type, span, text);
            }
            let a = self.convert_scalar(a.clone(), s);
            for i in 0..a.ty.lanes() {
                parts.push(self.component(&a, i));
            }
        }
        if parts.len() != usize::from(n) {
            let text = format!("`{}` takes {n} components, {} given", self.type_name(ty), parts.len());
            return fail(ErrorKind::Call, span, text);
        }
        Ok(self.compose(s, &parts))
    }

    /// Constructs a struct from evaluated arguments.
    pub(super) fn construct_struct(
        &mut self,
        id: StructId,
        args: Vec<ExprResult>,
        span: Span,
    ) -> LowerResult<RValue> {
        let args = args.into_iter().map(|x| Arg::Value(x, span)).collect();
        self.construct_with(id, args, span)
    }

    pub(super) fn construct_with(
        &mut self,
        id: StructId,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<RValue> {
        let info = self.struct_info(id);
        let (decl, scope) = (info.decl, info.scope.clone());
        let fields = info.fields.clone();
        let ctors: Vec<&'a FnDecl> =
            decl.methods.iter().filter(|m| m.ret.is_none() && m.name == decl.name).collect();
        if ctors.is_empty() {
            // An aggregate: members in order.
            if args.len() > fields.len() {
                let text =
                    format!("`{}` has {} members, {} values given", decl.name, fields.len(), args.len());
                return fail(ErrorKind::Call, span, text);
            }
            let mut parts = Vec::new();
            let mut args = args.into_iter();
            for f in fields.iter() {
                parts.push(match args.next() {
                    Some(Arg::Value(x, s)) => {
                        let v = match x {
                            ExprResult::Object(lv) if lv.ty == f.ty => self.load(&lv, s)?,
                            x => self.rvalue_of(x, s)?,
                        };
                        self.convert(v, &f.ty, false, s)?
                    }
                    Some(Arg::List(e)) => self.init_value(&f.ty, e)?,
                    None => self.field_default(id, f, span)?,
                });
            }
            return Ok(RValue::parts(Ty::Struct(id), parts));
        }
        if args.is_empty() && ctors.iter().all(|c| c.params.iter().any(|p| p.default.is_none())) {
            let text = format!("`{}` has no constructor without arguments", decl.name);
            return fail(ErrorKind::Call, span, text);
        }
        let name: Name = format!("{} constructor", decl.name).into();
        let (f, targs) = self.choose(&name, &ctors, None, &args, &scope, span)?;
        self.run_constructor(id, f, targs, args, span)
    }

    fn run_constructor(
        &mut self,
        id: StructId,
        f: &'a FnDecl,
        targs: Vec<TArg>,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<RValue> {
        let info = self.struct_info(id);
        let (scope, fields) = (info.scope.clone(), info.fields.clone());
        let ty = Ty::Struct(id);
        let simple = f.body.as_ref().is_none_or(|b| b.stmts.is_empty());
        let this = if simple {
            let zero: Vec<Storage> = fields.iter().map(|_| Storage::Value(RValue::void())).collect();
            LValue { ty: ty.clone(), storage: Storage::Parts(Rc::new(zero)), is_const: false, decl: None }
        } else {
            self.temporary(&ty, &f.name, span)?
        };
        self.inline_constructor(id, f, targs, scope, this, args, span)
    }

    /// Member initialisers, in the order of the members. The frame of the constructor is open.
    pub(super) fn member_inits(&mut self, id: StructId, f: &'a FnDecl) -> LowerResult<()> {
        let fields = self.struct_info(id).fields.clone();
        for (name, _, span) in &f.inits {
            let base = fields.iter().any(|g| g.transparent && g.name.contains(&**name));
            if !base && !fields.iter().any(|g| g.name == *name) {
                let text = format!("`{}` has no member `{name}`", self.struct_name(id));
                return fail(ErrorKind::Name, *span, text);
            }
        }
        for (i, field) in fields.iter().enumerate() {
            let given = f
                .inits
                .iter()
                .find(|(n, _, _)| *n == field.name || (field.transparent && field.name.contains(&**n)));
            let value = match given {
                Some((_, args, span)) => self.construct_member(&field.ty, args, *span)?,
                None if field.init.is_some() => self.field_default(id, field, field.span)?,
                None if matches!(field.ty, Ty::Struct(_)) => self.default_value(&field.ty, field.span)?,
                None => {
                    // Left uninitialised, unless it must be a value.
                    let this = self.frames.last().and_then(|f| f.this.clone());
                    match this.map(|t| t.storage) {
                        Some(Storage::Parts(_)) => self.zero(&field.ty, field.span)?,
                        _ => continue,
                    }
                }
            };
            self.set_member(i, value, field.span)?;
        }
        Ok(())
    }

    fn construct_member(&mut self, ty: &Ty, args: &'a [Expr], span: Span) -> LowerResult<RValue> {
        match (ty, args) {
            (Ty::Struct(_) | Ty::Vector(..), _) => self.construct(ty, args, false, span),
            (_, [e]) => {
                // `a(b)` converts as an assignment would, narrowing included.
                if matches!(e.kind, ExprKind::InitList(_)) {
                    return self.init_value(ty, e);
                }
                let x = self.expr(e)?;
                if let (Ty::Array(..), ExprResult::Object(lv)) = (ty, &x)
                    && lv.ty == *ty
                {
                    return self.load(lv, span);
                }
                let v = self.rvalue_of(x, e.span)?;
                self.convert(v, ty, false, span)
            }
            _ => self.construct(ty, args, false, span),
        }
    }

    fn set_member(&mut self, i: usize, value: RValue, span: Span) -> LowerResult<()> {
        let Some(this) = self.frames.last().and_then(|f| f.this.clone()) else { return Err(Fail::Reported) };
        if let Storage::Parts(parts) = &this.storage
            && matches!(parts[i], Storage::Value(_))
        {
            let mut parts = (**parts).clone();
            parts[i] = Storage::Value(value);
            let storage = Storage::Parts(Rc::new(parts));
            if let Some(frame) = self.frames.last_mut() {
                frame.this = Some(LValue { storage, ..this });
            }
            return Ok(());
        }
        let ExprResult::Object(part) = self.part(ExprResult::Object(this), i, span)? else {
            return Err(Fail::Reported);
        };
        self.store_init(&part, &value, span)
    }

    /// The value of a global or static constant, computed on first use.
    pub(super) fn global_constant(
        &mut self,
        v: &'a VarDecl,
        scope: Rc<Scope<'a>>,
        args: Vec<TArg>,
        span: Span,
    ) -> LowerResult<LValue> {
        let address = v as *const VarDecl as usize;
        let key = (address, args);
        if let Some(lv) = self.global_values.get(&key) {
            return Ok(lv.clone());
        }
        if !self.evaluating.insert(address) {
            return fail(ErrorKind::Constant, span, format!("the value of `{}` depends on itself", v.name));
        }
        self.const_mode += 1;
        let r = self.in_scope(&scope, |l| l.global_value(v));
        self.const_mode -= 1;
        self.evaluating.remove(&address);
        let lv = r?;
        self.global_values.insert(key, lv.clone());
        Ok(lv)
    }

    fn global_value(&mut self, v: &'a VarDecl) -> LowerResult<LValue> {
        let mut t = self.resolve_type(&v.ty)?;
        if let Some(index) = v.function_constant {
            return self.function_constant(v, &t.ty, index);
        }
        let Some(init) = &v.init else {
            let text = format!("global `{}` has no initial value; only constants may be global", v.name);
            return fail(ErrorKind::Constant, v.span, text);
        };
        if t.space == Some(Space::Threadgroup) || t.space == Some(Space::Device) {
            let text = "only constants may be declared outside of functions";
            return fail(ErrorKind::Unsupported, v.span, text);
        }
        if t.unsized_array {
            t.ty = self.sized_by(&t.ty, init, v.span)?;
        }
        let value = if t.auto {
            match init {
                Init::Assign(e) => self.rvalue(e)?,
                _ => return fail(ErrorKind::Type, v.span, "`auto` needs `= value`"),
            }
        } else {
            self.init_of(&t.ty, init, v.span)?
        };
        if !value.is_const() {
            let text = format!("the value of the global `{}` must be known at compile time", v.name);
            return fail(ErrorKind::Constant, v.span, text);
        }
        Ok(LValue { ty: value.ty.clone(), storage: Storage::Value(value), is_const: true, decl: None })
    }

    /// The value of a function constant. A constant without a value is recorded, and the walk continues with
    /// 1, so that the rest of the kernel is checked.
    fn function_constant(&mut self, v: &'a VarDecl, ty: &Ty, index: u64) -> LowerResult<LValue> {
        if v.init.is_some() {
            let text = format!("the function constant `{}` gets its value from the pipeline", v.name);
            return fail(ErrorKind::Constant, v.span, text);
        }
        let Ty::Scalar(s) = *ty else {
            let text = format!("a function constant is a scalar, `{}` is a `{}`", v.name, self.type_name(ty));
            return fail(ErrorKind::Type, v.span, text);
        };
        let given = self.unit.constants.iter().find(|constant| constant.index == index);
        let value = match given {
            Some(given) if given.ty != s => {
                let scalar_name = crate::front::types::scalar_name;
                let (name, want, found) = (&v.name, scalar_name(s), scalar_name(given.ty));
                let text =
                    format!("the function constant `{name}` ({index}) is a `{want}`, its value a `{found}`");
                return fail(ErrorKind::Type, v.span, text);
            }
            Some(given) => consts::from_bits(given.bits, s),
            None => {
                self.unset_constants.insert((index, v.name.clone()));
                consts::convert(ConstValue::Int(1), Scalar::I32, s)
            }
        };
        let value = RValue { ty: ty.clone(), val: ValueRepr::Const(Rc::new([value])) };
        Ok(LValue { ty: ty.clone(), storage: Storage::Value(value), is_const: true, decl: None })
    }

    /// `T x[] = {...}`: the extent is the number of initialisers.
    pub(super) fn sized_by(&mut self, ty: &Ty, init: &'a Init, span: Span) -> LowerResult<Ty> {
        let (Ty::Array(t, _), Init::Assign(e) | Init::Braces(e)) = (ty, init) else {
            return fail(ErrorKind::Type, span, "the extent of this array is unknown");
        };
        let ExprKind::InitList(items) = &e.kind else {
            return fail(ErrorKind::Type, span, "the extent of this array is unknown");
        };
        let flat = items.iter().all(|(_, e)| !matches!(e.kind, ExprKind::InitList(_)));
        let per = if flat { self.leaf_count(t).max(1) } else { 1 };
        let n = match **t {
            Ty::Array(..) => (items.len() as u64).div_ceil(per),
            _ => items.len() as u64,
        };
        Ok(Ty::Array(t.clone(), n))
    }

    /// `threadgroup T x[N];`
    pub(super) fn threadgroup_local(
        &mut self,
        name: &Name,
        decl: DeclId,
        ty: &Ty,
        span: Span,
    ) -> LowerResult<LValue> {
        if self.holds_pointer(ty) {
            return fail(ErrorKind::Unsupported, span, "threadgroup memory cannot hold pointers");
        }
        let size = self.size_of(ty, span)?;
        let align = self.align_of(ty);
        let var = match self.threadgroup_vars.get(&(decl, size)) {
            Some(v) => *v,
            None => {
                self.threadgroup_bytes = self.threadgroup_bytes.next_multiple_of(u64::from(align)) + size;
                if self.threadgroup_bytes > crate::front::attributes::MAX_THREADGROUP_MEMORY {
                    let text = format!(
                        "threadgroup memory grows to {} bytes, {} are available",
                        self.threadgroup_bytes,
                        crate::front::attributes::MAX_THREADGROUP_MEMORY
                    );
                    return fail(ErrorKind::Limit, span, text);
                }
                let v = self.b.threadgroup_var(&**name, size, align);
                self.threadgroup_vars.insert((decl, size), v);
                v
            }
        };
        let ptr = self.b.threadgroup_ptr(var);
        let storage = Storage::Mem { ptr, space: Space::Threadgroup };
        Ok(LValue { ty: ty.clone(), storage, is_const: false, decl: None })
    }

    /// A vector of 2 for the lane's part of a diagonal matrix.
    fn diagonal_matrix(&mut self, s: Scalar, v: &RValue) -> RValue {
        let (row, column) = self.matrix_position();
        let one = self.b.u32(1);
        let next = self.b.add(column, one);
        let zero = self.b.number(crate::ir::Type::Scalar(s), 0.0);
        let value = self.ir(v);
        let first = self.b.compare(crate::ir::CmpOp::Eq, row, column);
        let second = self.b.compare(crate::ir::CmpOp::Eq, row, next);
        let a = self.b.select(first, value, zero);
        let c = self.b.select(second, value, zero);
        let id = self.b.compose(&[a, c]);
        RValue::ir(Ty::Matrix(s), id)
    }
}
