//! Types, qualified names, template arguments and attributes.

use super::*;

impl Parser<'_> {
    /// Whether a type starts here.
    pub(super) fn starts_type(&self) -> bool {
        let Some(name) = self.token().ident() else {
            return self.is("::") && self.peek(1).ident().is_some_and(|n| self.is_type_name(n));
        };
        match &**name {
            "const" | "volatile" | "device" | "constant" | "threadgroup" | "thread" | "typename" | "auto"
            | "unsigned" | "signed" | "struct" | "class" | "enum" | "union" | "decltype" | "constexpr"
            | "static" | "inline" => true,
            _ if is_keyword(name) => is_builtin_type(name),
            _ if self.peek(1).is("::") => self.qualified_type_ahead(),
            _ => self.is_type_name(name),
        }
    }

    /// `metal::float4`, `ns::Struct<..>::type`: looks at the last name before the chain ends.
    fn qualified_type_ahead(&self) -> bool {
        let mut i = 0;
        loop {
            let Some(name) = self.peek(i).ident() else { return false };
            if self.peek(i + 1).is("::") {
                i += 2;
                continue;
            }
            return self.is_type_name(name);
        }
    }

    /// Qualifiers in any order; `volatile`, `typename` and others that have no effect here are skipped.
    pub(super) fn qualifiers(&mut self, quals: &mut Quals) {
        loop {
            self.attributes_skipped();
            let Some(name) = self.token().ident() else { return };
            match &**name {
                "const" => quals.is_const = true,
                "volatile" | "restrict" | "__restrict" | "typename" | "struct" | "class" | "register" => {}
                "enum" if self.peek(1).ident().is_some() => {}
                "device" => quals.space = Some(SpaceSyntax::Device),
                "constant" => quals.space = Some(SpaceSyntax::Constant),
                "threadgroup" => quals.space = Some(SpaceSyntax::Threadgroup),
                "thread" => quals.space = Some(SpaceSyntax::Thread),
                _ => return,
            }
            self.bump();
        }
    }

    /// A type up to, but without, the declared name: `const device T* const`.
    pub(super) fn type_head(&mut self) -> Parsed<TypeSyntax> {
        let start = self.span();
        let mut ty = self.base_type()?;
        self.wraps(&mut ty);
        ty.span = start.to(self.last_span());
        Ok(ty)
    }

    /// The part of a type that the declarators of one declaration share.
    pub(super) fn base_type(&mut self) -> Parsed<TypeSyntax> {
        self.enter()?;
        let r = self.base_type_inner();
        self.leave();
        r
    }

    fn base_type_inner(&mut self) -> Parsed<TypeSyntax> {
        let start = self.span();
        let mut quals = Quals::default();
        self.qualifiers(&mut quals);
        let base = if self.eat_word("auto") {
            TypeBase::Auto
        } else if self.eat_word("decltype") {
            self.expect("(")?;
            let e = self.expr()?;
            self.expect(")")?;
            if self.eat("::") {
                TypeBase::MemberOf(Box::new(e), self.path(true)?)
            } else {
                TypeBase::Decltype(Box::new(e))
            }
        } else {
            TypeBase::Path(self.type_path()?)
        };
        self.qualifiers(&mut quals);
        Ok(TypeSyntax {
            base,
            quals,
            wraps: Vec::new(),
            extents: Vec::new(),
            outer: None,
            span: start.to(self.last_span()),
        })
    }

    /// `*`, `&` and their qualifiers.
    pub(super) fn wraps(&mut self, ty: &mut TypeSyntax) {
        loop {
            if self.eat("*") {
                let mut quals = Quals::default();
                self.qualifiers(&mut quals);
                ty.wraps.push(Wrap::Pointer(quals));
            } else if self.eat("&") || self.eat("&&") {
                let mut ignored = Quals::default();
                self.qualifiers(&mut ignored);
                ty.wraps.push(Wrap::Reference);
            } else {
                return;
            }
        }
    }

    /// A whole type, with abstract array extents: `T*`, `float[4]`.
    pub(super) fn type_id(&mut self) -> Parsed<TypeSyntax> {
        let mut ty = self.type_head()?;
        if self.is("[") && !self.peek(1).is("[") {
            ty.extents = self.extents()?;
        }
        Ok(ty)
    }

    /// `[N][M]`
    pub(super) fn extents(&mut self) -> Parsed<Vec<Option<Expr>>> {
        let mut out = Vec::new();
        while self.is("[") && !self.peek(1).is("[") {
            self.bump();
            if out.len() >= 8 {
                return Err(self.error_here("an array has at most 8 dimensions"));
            }
            if self.eat("]") {
                out.push(None);
                continue;
            }
            out.push(Some(self.expr()?));
            self.expect("]")?;
        }
        Ok(out)
    }

    fn type_path(&mut self) -> Parsed<Path> {
        // `unsigned int`, `long long` and the like become one name.
        let start = self.span();
        let (mut unsigned, mut longs, mut short) = (false, 0, false);
        let mut base: Option<Name> = None;
        let mut any = false;
        while let Some(name) = self.token().ident() {
            match &**name {
                "unsigned" => unsigned = true,
                "signed" => {}
                "long" => longs += 1,
                "short" => short = true,
                "int" | "char" if base.is_none() => base = Some(name.clone()),
                _ => break,
            }
            any = true;
            self.bump();
        }
        if any {
            let signless = match (&base, short, longs) {
                (Some(b), _, _) if &**b == "char" => "char",
                (_, true, _) => "short",
                (_, _, 1..) => "long",
                _ => "int",
            };
            let name: Name = if unsigned { format!("u{signless}").into() } else { signless.into() };
            let span = start.to(self.last_span());
            return Ok(Path { segments: vec![Segment { name, args: None, span }], span });
        }
        self.eat("::");
        if self.token().ident().is_none_or(|n| is_keyword(n) && !is_builtin_type(n)) {
            return Err(self.expected("a type"));
        }
        self.path(true)
    }

    /// A qualified name. In a type, `<` after an unknown name is read as template arguments too.
    pub(super) fn path(&mut self, in_type: bool) -> Parsed<Path> {
        let start = self.span();
        let mut segments = Vec::new();
        loop {
            self.eat_word("template");
            let span = self.span();
            let Some(name) = self.token().ident().cloned() else { return Err(self.expected("a name")) };
            self.bump();
            let mut args = None;
            if self.is("<") {
                let known = self.is_template_name(&name)
                    || (!segments.is_empty() && self.names.member_templates.contains(&name))
                    || (in_type && self.names.lookup(&name).is_none());
                if known {
                    args = Some(self.template_args()?);
                }
            }
            match self.names.namespace_aliases.get(&name) {
                Some(of) if segments.is_empty() && self.is("::") => segments.extend(of.iter().cloned()),
                _ => segments.push(Segment { name, args, span }),
            }
            if self.is("::") && (self.peek(1).ident().is_some()) {
                self.bump();
                if segments.len() > 16 {
                    return Err(self.error_here("the name has too many parts"));
                }
                continue;
            }
            return Ok(Path { segments, span: start.to(self.last_span()) });
        }
    }

    /// `<a, b>`
    pub(super) fn template_args(&mut self) -> Parsed<Vec<TemplateArg>> {
        self.enter()?;
        let r = self.template_args_inner();
        self.leave();
        r
    }

    fn template_args_inner(&mut self) -> Parsed<Vec<TemplateArg>> {
        self.expect("<")?;
        let mut args = Vec::new();
        if self.eat_close_angle() {
            return Ok(args);
        }
        loop {
            args.push(self.template_arg()?);
            if self.eat(",") {
                continue;
            }
            if self.eat_close_angle() {
                return Ok(args);
            }
            return Err(self.expected("`,` or `>` in template arguments"));
        }
    }

    fn template_arg(&mut self) -> Parsed<TemplateArg> {
        if self.starts_type() {
            let mark = self.mark();
            if let Ok(ty) = self.type_id()
                && (self.is(",") || self.is(">") || self.is(">>") || self.is(">=") || self.is("..."))
            {
                self.eat("...");
                return Ok(TemplateArg::Type(ty));
            }
            // An expression that begins like a type: `T(1) + 2`, `N * 2`.
            self.reset(&mark);
        }
        Ok(TemplateArg::Value(self.template_value()?))
    }

    /// Attributes `[[...]]`, `__attribute__((...))`, `alignas(...)`.
    pub(super) fn attributes(&mut self) -> Vec<Attr> {
        let mut out = Vec::new();
        loop {
            if self.is("[") && self.peek(1).is("[") {
                self.bump();
                self.bump();
                let mut depth = 0usize;
                while !self.at_end() {
                    if depth == 0 && self.is("]") {
                        self.bump();
                        self.eat("]");
                        break;
                    }
                    if self.is("(") {
                        depth += 1;
                    } else if self.is(")") {
                        depth = depth.saturating_sub(1);
                    } else if depth == 0
                        && let Some(name) = self.token().ident().cloned()
                    {
                        let span = self.span();
                        let paren = self.peek(1).is("(");
                        let arg = match (&self.peek(2).tok, paren) {
                            (Tok::Int { value, .. }, true) => Some(*value),
                            _ => None,
                        };
                        let text = match (&self.peek(2).tok, paren) {
                            (Tok::Str(s), true) => Some(s.clone()),
                            _ => self.peek(2).ident().filter(|_| paren).cloned(),
                        };
                        out.push(Attr { name, arg, text, span });
                    }
                    self.bump();
                }
            } else if self.is_word("__attribute__") || self.is_word("alignas") || self.is_word("__attribute")
            {
                self.bump();
                if self.is("(") {
                    self.skip_parens();
                }
            } else {
                return out;
            }
        }
    }

    pub(super) fn attributes_skipped(&mut self) {
        let attr = (self.is("[") && self.peek(1).is("["))
            || self
                .token()
                .ident()
                .is_some_and(|n| matches!(&**n, "__attribute__" | "alignas" | "__attribute"));
        if attr {
            self.attributes();
        }
    }

    pub(super) fn skip_parens(&mut self) {
        let mut depth = 0usize;
        while !self.at_end() {
            if self.is("(") {
                depth += 1;
            } else if self.is(")") {
                depth -= 1;
                if depth == 0 {
                    self.bump();
                    return;
                }
            }
            self.bump();
        }
    }
}
