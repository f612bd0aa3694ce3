//! Expressions, by precedence climbing.

use super::*;

fn binary_level(p: &str) -> Option<(u8, BinOp)> {
    Some(match p {
        "||" => (1, BinOp::LogicalOr),
        "&&" => (2, BinOp::LogicalAnd),
        "|" => (3, BinOp::Or),
        "^" => (4, BinOp::Xor),
        "&" => (5, BinOp::And),
        "==" => (6, BinOp::Eq),
        "!=" => (6, BinOp::Ne),
        "<" => (7, BinOp::Lt),
        ">" => (7, BinOp::Gt),
        "<=" => (7, BinOp::Le),
        ">=" => (7, BinOp::Ge),
        "<<" => (8, BinOp::Shl),
        ">>" => (8, BinOp::Shr),
        "+" => (9, BinOp::Add),
        "-" => (9, BinOp::Sub),
        "*" => (10, BinOp::Mul),
        "/" => (10, BinOp::Div),
        "%" => (10, BinOp::Rem),
        _ => return None,
    })
}

fn assign_op(p: &str) -> Option<Option<BinOp>> {
    Some(match p {
        "=" => None,
        "+=" => Some(BinOp::Add),
        "-=" => Some(BinOp::Sub),
        "*=" => Some(BinOp::Mul),
        "/=" => Some(BinOp::Div),
        "%=" => Some(BinOp::Rem),
        "<<=" => Some(BinOp::Shl),
        ">>=" => Some(BinOp::Shr),
        "&=" => Some(BinOp::And),
        "|=" => Some(BinOp::Or),
        "^=" => Some(BinOp::Xor),
        _ => return None,
    })
}

impl Parser<'_> {
    /// Builds a node; its children were built before.
    fn node(&mut self, kind: ExprKind, span: Span) -> Parsed<Expr> {
        let below = match &kind {
            ExprKind::Unary(_, a) | ExprKind::Cast(_, _, a) | ExprKind::SizeofExpr(a) => a.height,
            ExprKind::Member { base, .. } => base.height,
            ExprKind::Binary(_, a, b)
            | ExprKind::Assign(_, a, b)
            | ExprKind::Comma(a, b)
            | ExprKind::Index(a, b) => a.height.max(b.height),
            ExprKind::Ternary(a, b, c) => a.height.max(b.height).max(c.height),
            ExprKind::Call(f, args) => args.iter().map(|a| a.height).max().unwrap_or(0).max(f.height),
            ExprKind::Construct { args, .. } => args.iter().map(|a| a.height).max().unwrap_or(0),
            ExprKind::InitList(items) => items.iter().map(|(_, e)| e.height).max().unwrap_or(0),
            _ => 0,
        };
        if below >= MAX_HEIGHT {
            let text = format!("the expression is too long; the limit is {MAX_HEIGHT} operators");
            self.sink.push(Diagnostic::error(ErrorKind::Limit, span, text));
            self.at = self.tokens.len() - 1;
            return Err(Failed);
        }
        Ok(Expr { kind, span, height: below + 1 })
    }

    /// A full expression, commas included.
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        let saved = std::mem::replace(&mut self.no_greater, false);
        let r = self.comma();
        self.no_greater = saved;
        r
    }

    fn comma(&mut self) -> Parsed<Expr> {
        let mut left = self.assignment()?;
        while self.eat(",") {
            let right = self.assignment()?;
            let span = left.span.to(right.span);
            left = self.node(ExprKind::Comma(Box::new(left), Box::new(right)), span)?;
        }
        Ok(left)
    }

    /// An expression without top-level commas.
    pub(super) fn assignment(&mut self) -> Parsed<Expr> {
        self.enter()?;
        let r = self.assignment_inner();
        self.leave();
        r
    }

    /// A function argument or initialiser: `>` compares again.
    pub(super) fn argument(&mut self) -> Parsed<Expr> {
        let saved = std::mem::replace(&mut self.no_greater, false);
        let r = if self.is("{") { self.init_list() } else { self.assignment() };
        self.no_greater = saved;
        r
    }

    /// A value among template arguments: `>` ends it.
    pub(super) fn template_value(&mut self) -> Parsed<Expr> {
        let saved = std::mem::replace(&mut self.no_greater, true);
        let r = self.assignment();
        self.no_greater = saved;
        r
    }

    fn assignment_inner(&mut self) -> Parsed<Expr> {
        let left = self.binary(0)?;
        if self.eat("?") {
            let saved = std::mem::replace(&mut self.no_greater, false);
            let a = self.comma();
            self.no_greater = saved;
            let a = a?;
            self.expect(":")?;
            let b = self.assignment()?;
            let span = left.span.to(b.span);
            return self.node(ExprKind::Ternary(Box::new(left), Box::new(a), Box::new(b)), span);
        }
        let Tok::Punct(p) = self.token().tok else { return Ok(left) };
        if self.no_greater && p.starts_with('>') {
            return Ok(left);
        }
        let Some(op) = assign_op(p) else { return Ok(left) };
        self.bump();
        self.note_assigned(&left);
        let right = if self.is("{") { self.init_list()? } else { self.assignment()? };
        let span = left.span.to(right.span);
        self.node(ExprKind::Assign(op, Box::new(left), Box::new(right)), span)
    }

    fn binary(&mut self, min: u8) -> Parsed<Expr> {
        let mut left = self.unary()?;
        loop {
            let Tok::Punct(p) = self.token().tok else { return Ok(left) };
            if self.no_greater && p.starts_with('>') {
                return Ok(left);
            }
            let Some((level, op)) = binary_level(p) else { return Ok(left) };
            if level <= min {
                return Ok(left);
            }
            self.bump();
            let right = self.binary(level)?;
            let span = left.span.to(right.span);
            left = self.node(ExprKind::Binary(op, Box::new(left), Box::new(right)), span)?;
        }
    }

    fn unary(&mut self) -> Parsed<Expr> {
        self.enter()?;
        let r = self.unary_inner();
        self.leave();
        r
    }

    fn unary_inner(&mut self) -> Parsed<Expr> {
        let start = self.span();
        let op = match self.token().tok {
            Tok::Punct("-") => Some(UnOp::Neg),
            Tok::Punct("+") => Some(UnOp::Plus),
            Tok::Punct("!") => Some(UnOp::Not),
            Tok::Punct("~") => Some(UnOp::BitNot),
            Tok::Punct("*") => Some(UnOp::Deref),
            Tok::Punct("&") => Some(UnOp::AddressOf),
            Tok::Punct("++") => Some(UnOp::PreInc),
            Tok::Punct("--") => Some(UnOp::PreDec),
            _ => None,
        };
        if let Some(op) = op {
            self.bump();
            let inner = self.unary()?;
            if matches!(op, UnOp::PreInc | UnOp::PreDec | UnOp::AddressOf) {
                self.note_assigned(&inner);
            }
            let span = start.to(inner.span);
            return self.node(ExprKind::Unary(op, Box::new(inner)), span);
        }
        if self.is("(") && self.cast_ahead() {
            self.bump();
            let ty = self.type_id()?;
            self.expect(")")?;
            let inner = if self.is("{") { self.init_list()? } else { self.unary()? };
            let span = start.to(inner.span);
            return self.node(ExprKind::Cast(CastKind::C, Box::new(ty), Box::new(inner)), span);
        }
        self.postfix()
    }

    /// Whether `(` opens a C cast.
    fn cast_ahead(&mut self) -> bool {
        let mark = self.mark();
        self.bump();
        let ok = self.starts_type() && self.type_id().is_ok() && self.is(")") && {
            self.bump();
            match &self.token().tok {
                Tok::Ident(n) => {
                    !is_keyword(n)
                        || is_builtin_type(n)
                        || matches!(
                            &**n,
                            "sizeof"
                                | "static_cast"
                                | "reinterpret_cast"
                                | "const_cast"
                                | "true"
                                | "false"
                                | "this"
                        )
                }
                Tok::Punct(p) => matches!(*p, "(" | "-" | "!" | "~" | "*" | "&" | "+" | "++" | "--" | "{"),
                Tok::End => false,
                _ => true,
            }
        };
        self.reset(&mark);
        ok
    }

    fn postfix(&mut self) -> Parsed<Expr> {
        let mut e = self.primary()?;
        loop {
            let start = e.span;
            if self.is("(") {
                let args = self.call_args()?;
                let span = start.to(self.last_span());
                e = self.node(ExprKind::Call(Box::new(e), args), span)?;
            } else if self.is("[") {
                self.bump();
                let index = self.expr()?;
                self.expect("]")?;
                let span = start.to(self.last_span());
                e = self.node(ExprKind::Index(Box::new(e), Box::new(index)), span)?;
            } else if self.is(".") || self.is("->") {
                let arrow = self.is("->");
                self.bump();
                let explicit = self.eat_word("template");
                let span = self.span();
                let Some(name) = self.token().ident().cloned() else {
                    return Err(self.expected("the name of a member"));
                };
                self.bump();
                let mut args = None;
                if self.is("<") && (explicit || self.names.member_templates.contains(&name)) {
                    args = Some(self.template_args()?);
                }
                let member = Segment { name, args, span };
                let whole = start.to(self.last_span());
                e = self.node(ExprKind::Member { base: Box::new(e), arrow, member }, whole)?;
            } else if self.is("++") || self.is("--") {
                let op = if self.is("++") { UnOp::PostInc } else { UnOp::PostDec };
                self.bump();
                self.note_assigned(&e);
                let span = start.to(self.last_span());
                e = self.node(ExprKind::Unary(op, Box::new(e)), span)?;
            } else {
                return Ok(e);
            }
        }
    }

    pub(super) fn call_args(&mut self) -> Parsed<Vec<Expr>> {
        self.expect("(")?;
        let mut args = Vec::new();
        if self.eat(")") {
            return Ok(args);
        }
        loop {
            args.push(self.argument()?);
            self.eat("...");
            if self.eat(",") {
                continue;
            }
            if self.eat(")") {
                return Ok(args);
            }
            return Err(self.expected("`,` or `)` in the arguments of a call"));
        }
    }

    /// `{a, .b = c}`
    pub(super) fn init_list(&mut self) -> Parsed<Expr> {
        self.enter()?;
        let r = self.init_list_inner();
        self.leave();
        r
    }

    fn init_list_inner(&mut self) -> Parsed<Expr> {
        let start = self.span();
        self.expect("{")?;
        let mut items = Vec::new();
        while !self.is("}") {
            let mut field = None;
            if self.is(".") && self.peek(1).ident().is_some() && self.peek(2).is("=") {
                self.bump();
                field = self.token().ident().cloned();
                self.bump();
                self.bump();
            }
            items.push((field, self.argument()?));
            if !self.eat(",") {
                break;
            }
        }
        self.expect("}")?;
        let span = start.to(self.last_span());
        self.node(ExprKind::InitList(items), span)
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let span = self.span();
        let simple = match &self.token().tok {
            Tok::Int { value, suffix, decimal } => {
                Some(ExprKind::Int { value: *value, suffix: *suffix, decimal: *decimal })
            }
            Tok::Float(v, s) => Some(ExprKind::Float(*v, *s)),
            Tok::Char(c) => Some(ExprKind::Char(*c)),
            Tok::Str(s) => Some(ExprKind::Str(s.clone())),
            _ => None,
        };
        if let Some(kind) = simple {
            self.bump();
            return self.node(kind, span);
        }
        if self.eat("(") {
            let mut e = self.expr()?;
            self.expect(")")?;
            e.span = span.to(self.last_span());
            return Ok(e);
        }
        if self.is("[") {
            return self.lambda();
        }
        if self.is("::") {
            self.bump();
        }
        let Some(name) = self.token().ident().cloned() else {
            return Err(self.expected("an expression"));
        };
        match &*name {
            "true" | "false" => {
                self.bump();
                self.node(ExprKind::Bool(&*name == "true"), span)
            }
            "nullptr" | "NULL" => {
                self.bump();
                self.node(ExprKind::NullPtr, span)
            }
            "this" => {
                self.bump();
                self.node(ExprKind::This, span)
            }
            "sizeof" | "alignof" => self.sizeof(&name, span),
            "static_cast" | "reinterpret_cast" | "const_cast" | "as_type" => {
                self.bump();
                let kind = match &*name {
                    "static_cast" => CastKind::Static,
                    "reinterpret_cast" => CastKind::Reinterpret,
                    "const_cast" => CastKind::Const,
                    _ => CastKind::Bits,
                };
                self.cast(kind, span)
            }
            "new" | "delete" | "throw" | "try" | "dynamic_cast" | "goto" | "asm" => {
                let text = format!("`{name}` is not part of the kernel language");
                self.sink.push(Diagnostic::error(ErrorKind::Unsupported, span, text));
                Err(Failed)
            }
            "decltype" => {
                self.bump();
                self.expect("(")?;
                let e = self.expr()?;
                self.expect(")")?;
                let mut ty = named_type(Path { segments: Vec::new(), span }, span);
                ty.base = TypeBase::Decltype(Box::new(e));
                if !self.eat("::") {
                    return self.construct_args(ty, span);
                }
                let at = self.span();
                let (name, _) = self.ident("the name of a member")?;
                let args = if self.is("<") && self.names.member_templates.contains(&name) {
                    Some(self.template_args()?)
                } else {
                    None
                };
                let member = Segment { name, args, span: at };
                let span = span.to(self.last_span());
                self.node(ExprKind::TypeMember(Box::new(ty), member), span)
            }
            "typename" | "unsigned" | "signed" => self.construct(span),
            _ if is_keyword(&name) && !is_builtin_type(&name) => Err(self.expected("an expression")),
            _ if is_keyword(&name) => self.construct(span),
            _ => {
                let path = self.path(false)?;
                let is_type = self.is_type_name(&path.last().name);
                if is_type && (self.is("(") || self.is("{")) {
                    let ty = named_type(path, span);
                    return self.construct_args(ty, span);
                }
                if is_type && path.segments.len() == 1 {
                    let found = self.describe();
                    let text = format!("expected an expression, found the type `{name}` followed by {found}");
                    return Err(self.error_at(span, text));
                }
                if path.segments.len() == 2 && &*path.segments[1].name == "as_type" && self.is("<") {
                    if !self.names.namespaces.contains(&path.segments[0].name) {
                        let d = unknown_namespace(&path.segments[0], &self.names.namespaces);
                        self.sink.push(d);
                        return Err(Failed);
                    }
                    return self.cast(CastKind::Bits, span);
                }
                let span = path.span;
                self.node(ExprKind::Name(path), span)
            }
        }
    }

    fn cast(&mut self, kind: CastKind, span: Span) -> Parsed<Expr> {
        self.expect("<")?;
        let ty = self.type_id()?;
        if !self.eat_close_angle() {
            return Err(self.expected("`>`"));
        }
        self.expect("(")?;
        let inner = self.expr()?;
        self.expect(")")?;
        let span = span.to(self.last_span());
        self.node(ExprKind::Cast(kind, Box::new(ty), Box::new(inner)), span)
    }

    fn sizeof(&mut self, word: &str, span: Span) -> Parsed<Expr> {
        self.bump();
        if self.is("(") {
            let mark = self.mark();
            self.bump();
            if self.starts_type()
                && let Ok(ty) = self.type_id()
                && self.eat(")")
            {
                let span = span.to(self.last_span());
                let kind = if word == "sizeof" {
                    ExprKind::SizeofType(Box::new(ty))
                } else {
                    ExprKind::AlignofType(Box::new(ty))
                };
                return self.node(kind, span);
            }
            self.reset(&mark);
        }
        let inner = self.unary()?;
        let span = span.to(inner.span);
        self.node(ExprKind::SizeofExpr(Box::new(inner)), span)
    }

    fn construct(&mut self, span: Span) -> Parsed<Expr> {
        let ty = self.base_type()?;
        self.construct_args(ty, span)
    }

    fn construct_args(&mut self, ty: TypeSyntax, span: Span) -> Parsed<Expr> {
        let braces = self.is("{");
        let args = if braces {
            match self.init_list()?.kind {
                ExprKind::InitList(items) if items.iter().all(|(f, _)| f.is_none()) => {
                    items.into_iter().map(|(_, e)| e).collect()
                }
                other => {
                    let span = span.to(self.last_span());
                    let list = self.node(other, span)?;
                    vec![list]
                }
            }
        } else if self.is("(") {
            self.call_args()?
        } else {
            return Err(self.expected("`(` after a type in an expression"));
        };
        let span = span.to(self.last_span());
        self.node(ExprKind::Construct { ty: Box::new(ty), args, braces }, span)
    }

    fn lambda(&mut self) -> Parsed<Expr> {
        let span = self.span();
        self.expect("[")?;
        let (mut by_value, mut all_by_value) = (Vec::new(), false);
        while !self.is("]") {
            if self.eat("=") {
                all_by_value = true;
            } else if self.eat("&") {
                if self.token().ident().is_some() {
                    self.bump();
                }
            } else if self.eat_word("this") || self.eat("*") {
            } else {
                let (name, _) = self.ident("a captured name")?;
                by_value.push(name);
            }
            if !self.eat(",") {
                break;
            }
        }
        self.expect("]")?;
        self.push_scope();
        self.assigned.push(Assigned::default());
        let r = self.lambda_rest();
        let assigned = self.assigned.pop().unwrap_or_default();
        self.pop_scope();
        // A variable that a lambda assigns by reference is assigned by the enclosing function.
        if let Some(top) = self.assigned.last_mut() {
            top.whole.extend(assigned.whole.iter().cloned());
            top.parts.extend(assigned.parts.iter().cloned());
        }
        let (params, ret, body) = r?;
        let lambda = Lambda { params, ret, by_value, all_by_value, body, assigned };
        let span = span.to(self.last_span());
        self.node(ExprKind::Lambda(Box::new(lambda)), span)
    }

    fn lambda_rest(&mut self) -> Parsed<(Vec<ParamDecl>, Option<TypeSyntax>, Block)> {
        let params = if self.is("(") { self.params()? } else { Vec::new() };
        while self.eat_word("mutable") || self.eat_word("constexpr") || self.eat_word("noexcept") {}
        self.attributes_skipped();
        let ret = if self.eat("->") { Some(self.type_id()?) } else { None };
        let body = self.block()?;
        Ok((params, ret, body))
    }
}

/// The unqualified type of a name.
pub(super) fn named_type(path: Path, span: Span) -> TypeSyntax {
    TypeSyntax {
        base: TypeBase::Path(path),
        quals: Quals::default(),
        wraps: Vec::new(),
        extents: Vec::new(),
        outer: None,
        span,
    }
}
