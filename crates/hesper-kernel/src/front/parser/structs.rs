//! Structs and unions: their heads, fields and member functions.

use super::decl::Specs;
use super::*;

impl Parser<'_> {
    /// Whether `struct` here defines or declares a type, and does not just name one.
    pub(super) fn defines_struct(&self) -> bool {
        if self.peek(1).ident().is_some_and(|n| matches!(&**n, "__attribute__" | "alignas")) {
            return true;
        }
        let mut i = 1;
        while i < 64 {
            let t = self.peek(i);
            match &t.tok {
                Tok::Punct("{" | ":" | ";") => return true,
                Tok::Punct("<") if i == 2 => return true,
                Tok::Ident(_) if i == 1 => {}
                Tok::Punct("[") if i == 1 => return true,
                _ => return false,
            }
            i += 1;
        }
        false
    }

    /// `struct S<..> : B { ... }` without the semicolon.
    pub(super) fn struct_decl(&mut self, template: Option<Vec<TemplateParam>>) -> Parsed<StructDecl> {
        self.enter()?;
        let r = self.struct_decl_inner(template);
        self.leave();
        r
    }

    fn struct_decl_inner(&mut self, template: Option<Vec<TemplateParam>>) -> Parsed<StructDecl> {
        let is_union = self.is_word("union");
        self.bump();
        self.attributes_skipped();
        let span = self.span();
        let name = self.optional_name();
        let spec_args = if self.is("<") { Some(self.template_args()?) } else { None };
        let kind = if template.is_some() { NameKind::TypeTemplate } else { NameKind::Type };
        if !name.is_empty() {
            self.declare(&name, kind);
        }
        let mut s = StructDecl {
            template,
            spec_args,
            name,
            namespace: self.namespace.clone(),
            bases: Vec::new(),
            fields: Vec::new(),
            methods: Vec::new(),
            aliases: Vec::new(),
            structs: Vec::new(),
            enums: Vec::new(),
            asserts: Vec::new(),
            is_union,
            is_forward: false,
            is_prelude: self.is_prelude,
            span,
        };
        if self.is(";") {
            s.is_forward = true;
            return Ok(s);
        }
        if self.eat(":") {
            loop {
                while ["public", "private", "protected", "virtual"].iter().any(|w| self.eat_word(w)) {}
                s.bases.push(self.type_head()?);
                if !self.eat(",") {
                    break;
                }
            }
        }
        self.expect("{")?;
        self.push_scope();
        let r = self.struct_members(&mut s);
        self.pop_scope();
        r?;
        self.expect("}")?;
        self.attributes_skipped();
        Ok(s)
    }

    fn struct_members(&mut self, s: &mut StructDecl) -> Parsed<()> {
        while !self.is("}") {
            if self.at_end() {
                return Err(self.expected("`}` at the end of the struct"));
            }
            let (at, depth) = (self.at, self.depth);
            if self.struct_member(s).is_err() {
                self.depth = depth;
                if self.sink.is_full() {
                    return Err(Failed);
                }
                if self.at == at {
                    self.bump();
                }
                self.recover();
            }
        }
        Ok(())
    }

    fn struct_member(&mut self, s: &mut StructDecl) -> Parsed<()> {
        if self.eat(";") {
            return Ok(());
        }
        for access in ["public", "private", "protected"] {
            if self.is_word(access) && self.peek(1).is(":") {
                self.bump();
                self.bump();
                return Ok(());
            }
        }
        if self.is_word("template") && self.peek(1).is("<") {
            self.bump();
            self.push_scope();
            let r = self.template_params().and_then(|p| self.struct_member_fn(s, Some(p)));
            self.pop_scope();
            return r;
        }
        if self.is_word("using") {
            s.aliases.extend(self.using(None)?);
            return Ok(());
        }
        if self.is_word("typedef") {
            s.aliases.push(self.typedef()?);
            return Ok(());
        }
        if self.is_word("enum") {
            s.enums.push(self.enum_decl()?);
            return Ok(());
        }
        if self.is_word("static_assert") {
            let span = self.span();
            let (e, text) = self.static_assert()?;
            s.asserts.push((e, text, span));
            return Ok(());
        }
        if (self.is_word("struct") || self.is_word("union") || self.is_word("class")) && self.defines_struct()
        {
            let mut inner = self.struct_decl(None)?;
            if self.is(";") && inner.name.is_empty() {
                self.expect(";")?;
                return self.anonymous_member(s, inner);
            }
            if inner.name.is_empty() {
                inner.name = format!("(unnamed {})", s.structs.len()).into();
            }
            let name = inner.name.clone();
            s.structs.push(inner);
            if self.eat(";") {
                return Ok(());
            }
            // `struct { ... } member;`
            let span = self.span();
            let path = Path { segments: vec![Segment { name, args: None, span }], span };
            let ty = super::expr::named_type(path, span);
            let v = self.declarator(ty, false, false)?;
            s.fields.push(v);
            return self.expect(";");
        }
        self.struct_member_fn(s, None)
    }

    /// An unnamed struct or union as a member: kept as one field whose members are found through it.
    fn anonymous_member(&mut self, s: &mut StructDecl, mut inner: StructDecl) -> Parsed<()> {
        let name: Name = format!("(unnamed {})", s.structs.len()).into();
        inner.name = name.clone();
        let span = inner.span;
        let path = Path { segments: vec![Segment { name: name.clone(), args: None, span }], span };
        let ty = super::expr::named_type(path, span);
        let id = self.names.fresh();
        s.structs.push(inner);
        let function_constant = None;
        s.fields.push(VarDecl {
            id,
            name,
            ty,
            init: None,
            constexpr: false,
            is_static: false,
            function_constant,
            span,
        });
        Ok(())
    }

    fn struct_member_fn(&mut self, s: &mut StructDecl, template: Option<Vec<TemplateParam>>) -> Parsed<()> {
        let mut specs = Specs::default();
        self.specifiers(&mut specs);
        if self.is("~") {
            let text = "destructors are not supported";
            self.sink.push(Diagnostic::error(ErrorKind::Unsupported, self.span(), text));
            return Err(Failed);
        }
        let span = self.span();
        if self.token().ident().is_some_and(|n| *n == s.name) && self.peek(1).is("(") {
            self.bump();
            let f = self.function_rest(template, None, s.name.clone(), None, span, &specs)?;
            s.methods.push(f);
            return Ok(());
        }
        if self.is_word("operator") && !matches!(self.peek(1).tok, Tok::Punct(_)) {
            self.bump();
            let ty = self.type_head()?;
            let f = self.function_rest(template, None, "operator T".into(), Some(ty), span, &specs)?;
            s.methods.push(f);
            return Ok(());
        }
        let (shared, mut ty) = self.declared_type(&mut specs)?;
        if self.is_word("operator") {
            let f = self.operator_fn(template, ty, &specs)?;
            s.methods.push(f);
            return Ok(());
        }
        let named = self.token().ident().is_some_and(|n| !is_keyword(n));
        if named && self.peek(1).is("(") {
            let (name, span) = self.ident("the name of a member")?;
            if template.is_some() {
                self.names.member_templates.insert(name.clone());
            }
            let f = self.function_rest(template, None, name, Some(ty), span, &specs)?;
            s.methods.push(f);
            return Ok(());
        }
        loop {
            ty.quals.is_const |= specs.constexpr;
            let v = self.declarator(ty, specs.constexpr, specs.is_static)?;
            if self.is(":") {
                let text = "bit-fields are not supported";
                self.sink.push(Diagnostic::error(ErrorKind::Unsupported, self.span(), text));
                return Err(Failed);
            }
            s.fields.push(v);
            if !self.eat(",") {
                break;
            }
            ty = shared.clone();
            self.wraps(&mut ty);
        }
        self.expect(";")
    }
}
