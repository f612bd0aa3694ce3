//! Declarations: functions, templates, enumerations, aliases, namespaces.

use super::*;

/// Specifiers before a declaration.
#[derive(Default)]
pub(super) struct Specs {
    pub is_kernel: bool,
    pub is_static: bool,
    pub constexpr: bool,
    pub quals: Quals,
}

impl Parser<'_> {
    /// One declaration at the top level; recovers after errors.
    pub(super) fn item(&mut self, out: &mut Vec<Item>) {
        let (at, depth, scopes) = (self.at, self.depth, self.names.scopes.len());
        if self.item_inner(out).is_err() {
            self.depth = depth;
            self.names.scopes.truncate(scopes.max(1));
            self.assigned.clear();
            if self.at == at {
                self.bump();
            }
            self.recover();
            self.eat("}");
            self.eat(";");
        }
    }

    fn item_inner(&mut self, out: &mut Vec<Item>) -> Parsed<()> {
        if self.eat(";") {
            return Ok(());
        }
        let Some(word) = self.token().ident().cloned() else {
            return self.function_or_var(None, out);
        };
        match &*word {
            "using" if self.peek(1).ident().is_some_and(|n| &**n == "namespace") => self.using_namespace(),
            "using" => {
                out.extend(self.using(None)?.map(Item::Alias));
                Ok(())
            }
            "typedef" if self.typedef_enum() => {
                out.push(Item::Enum(self.enum_decl()?));
                Ok(())
            }
            "typedef" if self.typedef_defines() => {
                out.push(Item::Struct(self.typedef_struct()?));
                Ok(())
            }
            "typedef" => {
                out.push(Item::Alias(self.typedef()?));
                Ok(())
            }
            "namespace" => self.namespace(out),
            "inline" if self.peek(1).ident().is_some_and(|n| &**n == "namespace") => {
                self.bump();
                self.namespace(out)
            }
            "template" => self.template(out),
            "struct" | "class" | "union" if self.defines_struct() => {
                let decl = self.struct_decl(None)?;
                self.expect(";")?;
                out.push(Item::Struct(decl));
                Ok(())
            }
            "enum" => {
                out.push(Item::Enum(self.enum_decl()?));
                Ok(())
            }
            "static_assert" => {
                let span = self.span();
                let (e, text) = self.static_assert()?;
                out.push(Item::StaticAssert(e, text, span));
                Ok(())
            }
            "extern" if matches!(self.peek(1).tok, Tok::Str(_)) => {
                self.bump();
                self.bump();
                Ok(())
            }
            _ => self.function_or_var(None, out),
        }
    }

    fn namespace(&mut self, out: &mut Vec<Item>) -> Parsed<()> {
        self.bump();
        self.enter()?;
        let before = self.namespace.len();
        while let Some(name) = self.token().ident().cloned() {
            self.bump();
            self.namespace.push(name);
            if !self.eat("::") {
                break;
            }
        }
        if self.eat("=") {
            let alias = self.namespace.pop();
            self.namespace.truncate(before);
            self.leave();
            let path = self.namespace_path()?;
            if let Some(alias) = alias {
                self.names.namespace_aliases.insert(alias, path.segments);
            }
            return self.expect(";");
        }
        self.names.namespaces.extend(self.namespace[before..].iter().cloned());
        let opened = self.expect("{");
        if opened.is_ok() {
            while !self.is("}") && !self.at_end() && !self.sink.is_full() {
                self.item(out);
            }
        }
        self.namespace.truncate(before);
        self.leave();
        opened?;
        self.expect("}")
    }

    /// `using namespace a::b;`
    pub(super) fn using_namespace(&mut self) -> Parsed<()> {
        self.bump();
        self.bump();
        self.namespace_path()?;
        self.expect(";")
    }

    /// The name of a namespace that is known.
    fn namespace_path(&mut self) -> Parsed<Path> {
        self.eat("::");
        let path = self.path(false)?;
        match path.segments.iter().find(|segment| !self.names.namespaces.contains(&segment.name)) {
            Some(segment) => {
                let d = unknown_namespace(segment, &self.names.namespaces);
                self.sink.push(d);
                Err(Failed)
            }
            None => Ok(path),
        }
    }

    fn template(&mut self, out: &mut Vec<Item>) -> Parsed<()> {
        self.bump();
        if !self.is("<") {
            return self.instantiation(out);
        }
        self.push_scope();
        let r = self.template_rest(out);
        self.pop_scope();
        // The templated name itself belongs to the enclosing scope.
        match out.last() {
            Some(Item::Function(f)) if r.is_ok() => {
                let name = f.name.clone();
                self.declare(&name, NameKind::FnTemplate);
            }
            Some(Item::Struct(s)) if r.is_ok() => {
                let name = s.name.clone();
                self.declare(&name, NameKind::TypeTemplate);
            }
            Some(Item::Alias(a)) if r.is_ok() => {
                let name = a.name.clone();
                self.declare(&name, NameKind::TypeTemplate);
            }
            Some(Item::Var(v, _)) if r.is_ok() => {
                let name = v.name.clone();
                self.declare(&name, NameKind::FnTemplate);
            }
            _ => {}
        }
        r
    }

    fn template_rest(&mut self, out: &mut Vec<Item>) -> Parsed<()> {
        let mut params = self.template_params()?;
        while self.is_word("template") && self.peek(1).is("<") {
            self.bump();
            params.extend(self.template_params()?);
        }
        if self.eat_word("requires") {
            self.sink.push(Diagnostic::error(
                ErrorKind::Unsupported,
                self.span(),
                "`requires` is not supported",
            ));
            return Err(Failed);
        }
        if (self.is_word("struct") || self.is_word("class") || self.is_word("union")) && self.defines_struct()
        {
            let decl = self.struct_decl(Some(params))?;
            self.expect(";")?;
            out.push(Item::Struct(decl));
            return Ok(());
        }
        if self.is_word("using") {
            out.extend(self.using(Some(params))?.map(Item::Alias));
            return Ok(());
        }
        self.function_or_var(Some(params), out)
    }

    /// `<typename T, int N = 4>`
    pub(super) fn template_params(&mut self) -> Parsed<Vec<TemplateParam>> {
        self.expect("<")?;
        let mut out = Vec::new();
        if self.eat_close_angle() {
            return Ok(out);
        }
        loop {
            let span = self.span();
            let is_type = (self.is_word("typename") || self.is_word("class"))
                && !(self.peek(1).ident().is_some() && self.peek(2).is("::"));
            let param = if is_type {
                self.bump();
                let pack = self.eat("...");
                let name = self.optional_name();
                self.declare(&name, NameKind::Type);
                let default = if self.eat("=") { Some(self.type_id()?) } else { None };
                TemplateParam { name, kind: TemplateParamKind::Type(default), pack, span }
            } else if self.is_word("template") {
                let text = "template template parameters are not supported";
                self.sink.push(Diagnostic::error(ErrorKind::Unsupported, span, text));
                return Err(Failed);
            } else {
                let ty = self.type_id()?;
                let pack = self.eat("...");
                let name = self.optional_name();
                self.declare(&name, NameKind::Value);
                let default = if self.eat("=") { Some(self.template_value()?) } else { None };
                TemplateParam { name, kind: TemplateParamKind::Value(ty, default), pack, span }
            };
            out.push(param);
            if self.eat(",") {
                continue;
            }
            if self.eat_close_angle() {
                return Ok(out);
            }
            return Err(self.expected("`,` or `>` in template parameters"));
        }
    }

    pub(super) fn optional_name(&mut self) -> Name {
        match self.token().ident().cloned() {
            Some(n) if !is_keyword(&n) => {
                self.bump();
                n
            }
            _ => "".into(),
        }
    }

    fn instantiation(&mut self, out: &mut Vec<Item>) -> Parsed<()> {
        let attrs = self.attributes();
        let host_name = attrs.iter().find(|a| &*a.name == "host_name").and_then(|a| a.text.clone());
        let mut specs = Specs::default();
        self.specifiers(&mut specs);
        if self.is_word("struct") || self.is_word("class") {
            self.recover();
            return Ok(());
        }
        self.type_head()?;
        let path = self.path(false)?;
        out.push(Item::Instantiation(Instantiation { path, host_name }));
        if self.is("(") {
            self.skip_parens();
        }
        self.expect(";")
    }

    pub(super) fn specifiers(&mut self, specs: &mut Specs) {
        loop {
            let attrs = self.attributes();
            specs.is_kernel |= attrs.iter().any(|a| &*a.name == "kernel");
            self.qualifiers(&mut specs.quals);
            let Some(word) = self.token().ident() else { return };
            match &**word {
                "kernel" | "__kernel" => specs.is_kernel = true,
                "static" => specs.is_static = true,
                "constexpr" => specs.constexpr = true,
                "inline" | "__inline__" | "__inline" | "extern" | "explicit" | "virtual" | "mutable"
                | "friend" => {}
                _ => return,
            }
            self.bump();
        }
    }

    /// The type in front of a name, with the specifiers around it: the type that all declared names share,
    /// and the type of the first name.
    pub(super) fn declared_type(&mut self, specs: &mut Specs) -> Parsed<(TypeSyntax, TypeSyntax)> {
        let mut shared = self.base_type()?;
        self.specifiers(specs);
        shared.quals.is_const |= specs.quals.is_const;
        shared.quals.space = shared.quals.space.or(specs.quals.space);
        let mut ty = shared.clone();
        self.wraps(&mut ty);
        self.specifiers(specs);
        Ok((shared, ty))
    }

    fn function_or_var(&mut self, template: Option<Vec<TemplateParam>>, out: &mut Vec<Item>) -> Parsed<()> {
        let mut specs = Specs::default();
        self.specifiers(&mut specs);
        let (shared, ty) = self.declared_type(&mut specs)?;
        if self.is_word("operator") {
            let f = self.operator_fn(template, ty, &specs)?;
            out.push(Item::Function(f));
            return Ok(());
        }
        let start = self.mark();
        let (name, span) = self.ident("the name of a function or constant")?;
        let mut spec_args = None;
        if self.is("<") && template.is_some() {
            spec_args = Some(self.template_args()?);
        }
        if self.is("::") {
            let text = "member functions are defined inside their struct here";
            self.sink.push(Diagnostic::error(ErrorKind::Unsupported, self.span(), text));
            return Err(Failed);
        }
        if self.is("(") {
            let kind = if template.is_some() { NameKind::FnTemplate } else { NameKind::Value };
            if self.names.lookup(&name) != Some(NameKind::FnTemplate) {
                self.declare(&name, kind);
            }
            let f = self.function_rest(template, spec_args, name, Some(ty), span, &specs)?;
            out.push(Item::Function(f));
            return Ok(());
        }
        self.reset(&start);
        let mut ty = ty;
        loop {
            ty.quals.is_const |= specs.constexpr;
            let v = self.declarator(ty, specs.constexpr, specs.is_static)?;
            out.push(Item::Var(v, template.clone()));
            if !self.eat(",") {
                break;
            }
            ty = shared.clone();
            self.wraps(&mut ty);
        }
        self.expect(";")
    }

    pub(super) fn function_rest(
        &mut self,
        template: Option<Vec<TemplateParam>>,
        spec_args: Option<Vec<TemplateArg>>,
        name: Name,
        ret: Option<TypeSyntax>,
        span: Span,
        specs: &Specs,
    ) -> Parsed<FnDecl> {
        self.push_scope();
        self.assigned.push(Assigned::default());
        let r = self.function_parts(ret);
        let assigned = self.assigned.pop().unwrap_or_default();
        self.pop_scope();
        let (params, ret, inits, body) = r?;
        Ok(FnDecl {
            template,
            spec_args,
            name,
            namespace: self.namespace.clone(),
            ret,
            params,
            body,
            inits,
            assigned,
            is_kernel: specs.is_kernel,
            is_static: specs.is_static,
            is_prelude: self.is_prelude,
            span,
        })
    }

    #[allow(clippy::type_complexity)]
    fn function_parts(
        &mut self,
        mut ret: Option<TypeSyntax>,
    ) -> Parsed<(Vec<ParamDecl>, Option<TypeSyntax>, Vec<(Name, Vec<Expr>, Span)>, Option<Block>)> {
        let params = self.params()?;
        loop {
            self.attributes_skipped();
            let Some(word) = self.token().ident() else { break };
            match &**word {
                "const" | "thread" | "device" | "constant" | "threadgroup" | "noexcept" | "override"
                | "volatile" => {
                    self.bump();
                }
                _ => break,
            }
        }
        if self.eat("->") {
            ret = Some(self.type_id()?);
        }
        let mut inits = Vec::new();
        if self.eat(":") {
            loop {
                let (name, span) = self.ident("the name of a member")?;
                let args = if self.is("{") { vec![self.init_list()?] } else { self.call_args()? };
                inits.push((name, args, span));
                if !self.eat(",") {
                    break;
                }
            }
        }
        if self.eat("=") {
            // `= default` and `= delete`
            self.bump();
            self.expect(";")?;
            return Ok((params, ret, inits, Some(Block::default())));
        }
        if self.eat(";") {
            return Ok((params, ret, inits, None));
        }
        let body = self.block_statements()?;
        Ok((params, ret, inits, Some(body)))
    }

    /// `(T a, device U* b [[buffer(0)]] = 0)`
    pub(super) fn params(&mut self) -> Parsed<Vec<ParamDecl>> {
        self.expect("(")?;
        let mut out = Vec::new();
        if self.eat(")") {
            return Ok(out);
        }
        if self.is_word("void") && self.peek(1).is(")") {
            self.bump();
            self.bump();
            return Ok(out);
        }
        loop {
            let start = self.span();
            if self.is("...") {
                let text = "variadic functions are not supported";
                self.sink.push(Diagnostic::error(ErrorKind::Unsupported, start, text));
                return Err(Failed);
            }
            let mut ty = self.type_head()?;
            if self.is("...") {
                let text = "parameter packs are not supported";
                self.sink.push(Diagnostic::error(ErrorKind::Unsupported, self.span(), text));
                return Err(Failed);
            }
            let mut attrs = self.attributes();
            let mut span = ty.span;
            let grouped = self.is("(");
            let mut name: Name = "".into();
            if grouped || self.token().ident().is_some_and(|n| !is_keyword(n)) {
                (name, span) = self.declared_name(&mut ty, "a parameter name")?;
            } else if self.is("[") && !self.peek(1).is("[") {
                ty.extents = self.extents()?;
            }
            attrs.extend(self.attributes());
            let default = if self.eat("=") { Some(self.argument()?) } else { None };
            self.declare(&name, NameKind::Value);
            let id = self.names.fresh();
            out.push(ParamDecl { id, name, ty, default, attrs, span });
            if self.eat(",") {
                continue;
            }
            if self.eat(")") {
                return Ok(out);
            }
            return Err(self.expected("`,` or `)` in a parameter list"));
        }
    }

    pub(super) fn operator_fn(
        &mut self,
        template: Option<Vec<TemplateParam>>,
        ret: TypeSyntax,
        specs: &Specs,
    ) -> Parsed<FnDecl> {
        let span = self.span();
        self.bump();
        let name: Name = if self.is("(") && self.peek(1).is(")") {
            self.bump();
            self.bump();
            "operator()".into()
        } else if self.is("[") && self.peek(1).is("]") {
            self.bump();
            self.bump();
            "operator[]".into()
        } else if let Tok::Punct(p) = self.token().tok {
            self.bump();
            format!("operator{p}").into()
        } else {
            return Err(self.expected("an operator"));
        };
        self.function_rest(template, None, name, Some(ret), span, specs)
    }

    /// `using A = B;`. `using ns::name;` is accepted and ignored.
    pub(super) fn using(&mut self, template: Option<Vec<TemplateParam>>) -> Parsed<Option<AliasDecl>> {
        self.bump();
        if !self.peek(1).is("=") {
            // Names of a namespace are found without the directive.
            self.eat_word("typename");
            let path = self.path(true)?;
            let first = &path.segments[0];
            let known = self.names.namespaces.contains(&first.name) || self.is_type_name(&first.name);
            if path.segments.len() > 1 && !known {
                let d = unknown_namespace(first, &self.names.namespaces);
                self.sink.push(d);
                return Err(Failed);
            }
            self.recover();
            return Ok(None);
        }
        let (name, span) = self.ident("the name of a type")?;
        self.expect("=")?;
        let ty = self.type_id()?;
        self.expect(";")?;
        let kind = if template.is_some() { NameKind::TypeTemplate } else { NameKind::Type };
        self.declare(&name, kind);
        Ok(Some(AliasDecl { template, name, ty, span }))
    }

    /// `typedef enum { ... } name;`
    fn typedef_enum(&self) -> bool {
        self.peek(1).ident().is_some_and(|n| &**n == "enum") && (self.peek(2).is("{") || self.peek(3).is("{"))
    }

    /// `typedef struct { ... } name;`
    pub(super) fn typedef_defines(&self) -> bool {
        let word = |i: usize, w: &str| self.peek(i).ident().is_some_and(|n| &**n == w);
        (word(1, "struct") || word(1, "union"))
            && (self.peek(2).is("{") || self.peek(3).is("{") || self.peek(2).is("["))
    }

    pub(super) fn typedef_struct(&mut self) -> Parsed<StructDecl> {
        self.bump();
        let mut s = self.struct_decl(None)?;
        let (name, span) = self.ident("the name of a type")?;
        self.expect(";")?;
        self.declare(&name, NameKind::Type);
        // The tag, if there is one, is almost always the same name.
        (s.name, s.span) = (name, span);
        Ok(s)
    }

    pub(super) fn typedef(&mut self) -> Parsed<AliasDecl> {
        self.bump();
        let mut ty = self.type_head()?;
        let (name, span) = self.ident("the name of a type")?;
        if self.is("[") {
            ty.extents = self.extents()?;
        }
        self.attributes_skipped();
        self.expect(";")?;
        self.declare(&name, NameKind::Type);
        Ok(AliasDecl { template: None, name, ty, span })
    }

    pub(super) fn enum_decl(&mut self) -> Parsed<EnumDecl> {
        let start = self.span();
        let typedef = self.eat_word("typedef");
        self.bump();
        let scoped = self.eat_word("class") || self.eat_word("struct");
        let name = self.optional_name();
        if !name.is_empty() {
            self.declare(&name, NameKind::Type);
        }
        let underlying = if self.eat(":") { Some(self.type_head()?) } else { None };
        self.expect("{")?;
        let mut items = Vec::new();
        while !self.is("}") {
            let (item, span) = self.ident("the name of an enumerator")?;
            let value = if self.eat("=") { Some(self.argument()?) } else { None };
            if !scoped {
                self.declare(&item, NameKind::Value);
            }
            items.push((item, value, span));
            if !self.eat(",") {
                break;
            }
        }
        self.expect("}")?;
        let mut name = name;
        if typedef {
            (name, _) = self.ident("the name of a type")?;
            self.declare(&name, NameKind::Type);
        }
        self.expect(";")?;
        Ok(EnumDecl { name, scoped, underlying, items, span: start })
    }
}
