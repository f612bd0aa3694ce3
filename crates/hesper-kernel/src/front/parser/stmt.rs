//! Statements and variable declarations.

use super::*;

impl Parser<'_> {
    /// `{ ... }`
    pub(super) fn block(&mut self) -> Parsed<Block> {
        self.push_scope();
        let r = self.block_statements();
        self.pop_scope();
        r
    }

    pub(super) fn block_statements(&mut self) -> Parsed<Block> {
        let open = self.span();
        self.expect("{")?;
        let mut block = Block::default();
        while !self.is("}") {
            if self.at_end() {
                self.sink.push(
                    Diagnostic::error(
                        ErrorKind::Syntax,
                        self.span(),
                        "expected `}`, found the end of the text",
                    )
                    .note(open, "the block opened here is never closed"),
                );
                return Err(Failed);
            }
            if let Some(s) = self.statement_or_recover()? {
                block.stmts.push(s);
            }
        }
        self.bump();
        Ok(block)
    }

    /// A statement; after an error, skips to the next one. Fails only when nothing more can be read.
    pub(super) fn statement_or_recover(&mut self) -> Parsed<Option<Stmt>> {
        let (at, depth) = (self.at, self.depth);
        match self.statement() {
            Ok(s) => Ok(Some(s)),
            Err(Failed) => {
                self.depth = depth;
                if self.sink.is_full() {
                    return Err(Failed);
                }
                if self.at == at {
                    self.bump();
                }
                self.recover();
                Ok(None)
            }
        }
    }

    pub(super) fn statement(&mut self) -> Parsed<Stmt> {
        self.enter()?;
        let start = self.span();
        let r = self.statement_kind();
        self.leave();
        let kind = r?;
        Ok(Stmt { kind, span: start.to(self.last_span()) })
    }

    fn statement_kind(&mut self) -> Parsed<StmtKind> {
        let unroll = self.token().unroll;
        self.attributes_skipped();
        let unroll = unroll || self.token().unroll;
        if self.is("{") {
            return Ok(StmtKind::Block(self.block()?));
        }
        if self.eat(";") {
            return Ok(StmtKind::Empty);
        }
        let Some(word) = self.token().ident().cloned() else {
            return self.expression_statement();
        };
        match &*word {
            "if" => self.if_statement(),
            "for" => {
                self.push_scope();
                let r = self.for_statement(unroll);
                self.pop_scope();
                r
            }
            "while" => {
                self.bump();
                self.expect("(")?;
                let cond = self.condition()?;
                self.expect(")")?;
                Ok(StmtKind::While(Box::new(cond), Box::new(self.scoped_statement()?)))
            }
            "do" => {
                self.bump();
                let body = self.scoped_statement()?;
                if !self.eat_word("while") {
                    return Err(self.expected("`while` after the body of `do`"));
                }
                self.expect("(")?;
                let cond = self.expr()?;
                self.expect(")")?;
                self.expect(";")?;
                Ok(StmtKind::DoWhile(Box::new(body), cond))
            }
            "switch" => {
                self.bump();
                self.expect("(")?;
                let value = self.expr()?;
                self.expect(")")?;
                Ok(StmtKind::Switch(value, self.block()?))
            }
            "case" => {
                self.bump();
                let value = self.expr()?;
                self.expect(":")?;
                Ok(StmtKind::Case(value))
            }
            "default" => {
                self.bump();
                self.expect(":")?;
                Ok(StmtKind::Default)
            }
            "break" | "continue" => {
                self.bump();
                self.expect(";")?;
                Ok(if &*word == "break" { StmtKind::Break } else { StmtKind::Continue })
            }
            "return" => {
                self.bump();
                let value = if self.is(";") { None } else { Some(self.return_value()?) };
                self.expect(";")?;
                Ok(StmtKind::Return(value))
            }
            "using" if self.peek(1).ident().is_some_and(|n| &**n == "namespace") => {
                self.using_namespace()?;
                Ok(StmtKind::Empty)
            }
            "using" => match self.using(None)? {
                Some(alias) => Ok(StmtKind::Alias(alias)),
                None => Ok(StmtKind::Empty),
            },
            "typedef" if self.typedef_defines() => Ok(StmtKind::Struct(self.typedef_struct()?)),
            "typedef" => Ok(StmtKind::Alias(self.typedef()?)),
            "struct" | "class" | "union" if self.defines_struct() => self.local_struct(),
            "enum" => Ok(StmtKind::Enum(self.enum_decl()?)),
            "static_assert" => {
                let (e, text) = self.static_assert()?;
                Ok(StmtKind::StaticAssert(e, text))
            }
            "goto" | "try" | "throw" | "asm" => {
                let text = format!("`{word}` is not part of the kernel language");
                self.sink.push(Diagnostic::error(ErrorKind::Unsupported, self.span(), text));
                Err(Failed)
            }
            "template" => {
                self.sink.push(Diagnostic::error(
                    ErrorKind::Syntax,
                    self.span(),
                    "a template cannot be declared inside a function; move it to the header",
                ));
                Err(Failed)
            }
            _ if self.declaration_ahead() => {
                let vars = self.var_decls()?;
                self.expect(";")?;
                Ok(StmtKind::Vars(vars))
            }
            "else" => Err(self.error_here("`else` without `if`")),
            _ => self.expression_statement(),
        }
    }

    fn return_value(&mut self) -> Parsed<Expr> {
        if self.is("{") { self.init_list() } else { self.expr() }
    }

    fn local_struct(&mut self) -> Parsed<StmtKind> {
        let decl = self.struct_decl(None)?;
        // `struct { ... } x;` declares variables too; only the plain form is common in kernels.
        self.expect(";")?;
        Ok(StmtKind::Struct(decl))
    }

    fn expression_statement(&mut self) -> Parsed<StmtKind> {
        let e = self.expr()?;
        self.expect(";")?;
        Ok(StmtKind::Expr(e))
    }

    /// A statement with a scope of its own.
    fn scoped_statement(&mut self) -> Parsed<Stmt> {
        self.push_scope();
        let r = self.statement();
        self.pop_scope();
        r
    }

    fn if_statement(&mut self) -> Parsed<StmtKind> {
        self.bump();
        let constexpr = self.eat_word("constexpr");
        self.push_scope();
        let r = self.if_rest(constexpr);
        self.pop_scope();
        r
    }

    fn if_rest(&mut self, constexpr: bool) -> Parsed<StmtKind> {
        self.expect("(")?;
        let mut init = None;
        let mark = self.mark();
        let start = self.span();
        if self.declaration_ahead() {
            if let Ok(vars) = self.var_decls()
                && self.eat(";")
            {
                let span = start.to(self.last_span());
                init = Some(Box::new(Stmt { kind: StmtKind::Vars(vars), span }));
            }
            if init.is_none() {
                self.reset(&mark);
            }
        }
        let cond = self.condition()?;
        self.expect(")")?;
        let then = self.scoped_statement()?;
        let els = if self.eat_word("else") { Some(Box::new(self.scoped_statement()?)) } else { None };
        Ok(StmtKind::If { constexpr, init, cond: Box::new(cond), then: Box::new(then), els })
    }

    fn condition(&mut self) -> Parsed<Cond> {
        if self.declaration_ahead() {
            let mut vars = self.var_decls()?;
            if vars.len() == 1 {
                return Ok(Cond::Var(vars.remove(0)));
            }
            return Err(self.error_here("a condition declares one variable at most"));
        }
        Ok(Cond::Expr(self.expr()?))
    }

    fn for_statement(&mut self, unroll: bool) -> Parsed<StmtKind> {
        self.bump();
        self.expect("(")?;
        let start = self.span();
        let init = if self.eat(";") {
            None
        } else {
            let kind = if self.declaration_ahead() {
                StmtKind::Vars(self.var_decls()?)
            } else {
                StmtKind::Expr(self.expr()?)
            };
            if let (StmtKind::Vars(vars), true) = (&kind, self.is(":")) {
                let [v] = vars.as_slice() else {
                    return Err(self.error_here("a `for` over an array declares one variable"));
                };
                let v = v.clone();
                self.bump();
                let range = self.expr()?;
                self.expect(")")?;
                let body = Box::new(self.scoped_statement()?);
                return Ok(StmtKind::ForEach(v, range, body));
            }
            self.expect(";")?;
            Some(Box::new(Stmt { kind, span: start.to(self.last_span()) }))
        };
        let cond = if self.is(";") { None } else { Some(self.expr()?) };
        self.expect(";")?;
        let step = if self.is(")") { None } else { Some(self.expr()?) };
        self.expect(")")?;
        let body = Box::new(self.scoped_statement()?);
        Ok(StmtKind::For { init, cond, step, body, unroll })
    }

    /// Whether a variable declaration starts here.
    pub(super) fn declaration_ahead(&mut self) -> bool {
        let Some(word) = self.token().ident().cloned() else {
            return self.is("::") && self.peek(1).ident().is_some_and(|n| self.is_type_name(n));
        };
        match &*word {
            "const" | "constexpr" | "static" | "volatile" | "device" | "constant" | "threadgroup"
            | "thread" | "auto" | "typename" | "register" | "struct" | "class" | "enum" => return true,
            "unsigned" | "signed" => {}
            "decltype" => return self.decltype_declares(),
            _ if is_keyword(&word) && !is_builtin_type(&word) => return false,
            _ => {}
        }
        let mark = self.mark();
        let known = self.starts_type();
        let ok = self.base_type().is_ok() && {
            let mut wraps = 0;
            while self.is("*") || self.is("&") || self.is("&&") || self.is_word("const") {
                wraps += 1;
                self.bump();
            }
            let grouped = self.is("(") && (self.peek(1).is("&") || self.peek(1).is("*"));
            if grouped {
                known && self.peek(2).ident().is_some() && self.peek(3).is(")") && self.peek(4).is("[")
            } else {
                let named = self.token().ident().is_some_and(|n| !is_keyword(n));
                let next = self.peek(1);
                let follows = matches!(next.tok, Tok::Punct("=" | ";" | "," | "[" | "(" | "{" | ":" | ")"));
                // `a * b;` with an unknown `a` multiplies; `foo bar = 1;` misspells a type.
                named && (known || (follows && wraps == 0))
            }
        };
        self.reset(&mark);
        ok
    }

    /// Whether `decltype(...)` begins a declaration. Its operand is skipped: parsing it twice at each level
    /// would take exponential time.
    fn decltype_declares(&self) -> bool {
        let (mut at, mut depth) = (1, 0usize);
        loop {
            let next = self.peek(at);
            depth = match &next.tok {
                Tok::Punct("(") => depth + 1,
                Tok::Punct(")") => depth.saturating_sub(1),
                Tok::End => return false,
                _ => depth,
            };
            at += 1;
            if depth == 0 {
                break;
            }
        }
        while self.peek(at).is("*")
            || self.peek(at).is("&")
            || self.peek(at).ident().is_some_and(|name| &**name == "const")
        {
            at += 1;
        }
        self.peek(at).ident().is_some_and(|name| !is_keyword(name))
    }

    /// `static constexpr T a = 1, *b;` without the semicolon.
    pub(super) fn var_decls(&mut self) -> Parsed<Vec<VarDecl>> {
        let (mut constexpr, mut is_static) = (false, false);
        let mut quals = Quals::default();
        loop {
            self.qualifiers(&mut quals);
            if self.eat_word("constexpr") {
                constexpr = true;
            } else if self.eat_word("static") {
                is_static = true;
            } else if !(self.eat_word("inline") || self.eat_word("extern") || self.eat_word("mutable")) {
                break;
            }
        }
        let mut base = self.base_type()?;
        loop {
            if self.eat_word("constexpr") {
                constexpr = true;
            } else if self.eat_word("static") {
                is_static = true;
            } else {
                break;
            }
            self.qualifiers(&mut base.quals);
        }
        base.quals.is_const |= quals.is_const || constexpr;
        base.quals.space = base.quals.space.or(quals.space);
        let mut out = Vec::new();
        loop {
            out.push(self.declarator(base.clone(), constexpr, is_static)?);
            if !self.eat(",") {
                return Ok(out);
            }
        }
    }

    /// One declared name with its pointer signs, extents and initialiser.
    pub(super) fn declarator(
        &mut self,
        mut ty: TypeSyntax,
        constexpr: bool,
        is_static: bool,
    ) -> Parsed<VarDecl> {
        self.wraps(&mut ty);
        self.attributes_skipped();
        let (name, span) = self.declared_name(&mut ty, "a variable name")?;
        let attrs = self.attributes();
        let constant = attrs.iter().find(|a| &*a.name == "function_constant");
        let function_constant = constant.and_then(|a| a.arg);
        if let (Some(a), None) = (constant, function_constant) {
            let text = "`function_constant` takes the index of the constant, a number";
            self.sink.push(Diagnostic::error(ErrorKind::Syntax, a.span, text));
            return Err(Failed);
        }
        let id = self.names.fresh();
        // The name is in scope in its own initialiser.
        self.declare(&name, NameKind::Value);
        let init = if self.eat("=") {
            Some(Init::Assign(self.argument()?))
        } else if self.is("{") {
            Some(Init::Braces(self.init_list()?))
        } else if self.is("(") {
            Some(Init::Parens(self.call_args()?))
        } else {
            None
        };
        Ok(VarDecl { id, name, ty, init, constexpr, is_static, function_constant, span })
    }

    /// `name[N]`, or `(&name)[N]`.
    pub(super) fn declared_name(&mut self, ty: &mut TypeSyntax, what: &str) -> Parsed<(Name, Span)> {
        let grouped = self.is("(") && (self.peek(1).is("&") || self.peek(1).is("*"));
        if grouped {
            self.bump();
            ty.outer = Some(if self.is("&") { Wrap::Reference } else { Wrap::Pointer(Quals::default()) });
            self.bump();
            let mut ignored = Quals::default();
            self.qualifiers(&mut ignored);
        }
        let named = self.ident(what)?;
        if grouped {
            self.expect(")")?;
        }
        if self.is("[") && !self.peek(1).is("[") {
            ty.extents = self.extents()?;
        }
        Ok(named)
    }

    pub(super) fn static_assert(&mut self) -> Parsed<(Expr, Option<Name>)> {
        self.bump();
        self.expect("(")?;
        let e = self.argument()?;
        let mut text = None;
        if self.eat(",") {
            if let Tok::Str(s) = &self.token().tok {
                text = Some(s.clone());
            }
            while matches!(self.token().tok, Tok::Str(_)) {
                self.bump();
            }
        }
        self.expect(")")?;
        self.expect(";")?;
        Ok((e, text))
    }
}
