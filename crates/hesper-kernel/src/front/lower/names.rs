//! Names in expressions: objects, constants, enumerators, static members, and what stands in front of `::`.

use super::scope::Entity;
use super::value::ExprResult;
use super::*;
use crate::front::diag::did_you_mean;

impl<'a> Lower<'a> {
    /// A name used as an expression.
    pub(super) fn name(&mut self, p: &'a Path) -> LowerResult<ExprResult> {
        if let Some(x) = self.find_name(p)? {
            return Ok(x);
        }
        let seg = p.last();
        if self.globals.functions.contains_key(&seg.name) || builtins::is_function(&seg.name) {
            let text = format!("`{}` is a function; it can only be called here", seg.name);
            return fail(ErrorKind::Type, p.span, text);
        }
        self.unknown_name(seg)
    }

    fn unknown_name<T>(&mut self, seg: &Segment) -> LowerResult<T> {
        let mut d = Diagnostic::error(ErrorKind::Name, seg.span, format!("unknown name `{}`", seg.name));
        let visible = self.scope.visible();
        let globals = self.globals.clone();
        let names = visible
            .iter()
            .map(|n| &**n)
            .filter(|n| !n.contains(':'))
            .chain(globals.vars.keys().map(|n| &**n))
            .chain(builtins::CONSTANTS.iter().map(|(n, _)| *n))
            .chain(crate::front::attributes::ATTRIBUTES.iter().map(|(n, _, _)| *n));
        if let Some(n) = did_you_mean(&seg.name, names) {
            d = d.help(format!("did you mean `{n}`?"));
        }
        Err(Fail::Diag(Box::new(d)))
    }

    /// The object or constant of a name; none if there is none.
    pub(super) fn find_name(&mut self, p: &'a Path) -> LowerResult<Option<ExprResult>> {
        let seg = p.last();
        if p.segments.len() == 1 {
            if let Some((entity, _)) = self.scope.lookup(&seg.name) {
                return self.entity_value(entity, seg).map(Some);
            }
        } else if let Some(found) = self.qualified_value(p)? {
            return Ok(Some(found));
        }
        let root = self.root.clone();
        if let Some((v, template)) = self.globals.vars.get(&seg.name).copied() {
            let (scope, args) = match template {
                None => (root, Vec::new()),
                Some(params) => {
                    let given = seg.args.as_deref().unwrap_or(&[]);
                    let args = self.template_args(params, given, root.clone(), seg.span)?;
                    let scope = Scope::new(Some(root));
                    types::bind(&scope, params, &args);
                    (scope, args)
                }
            };
            return Ok(Some(ExprResult::Object(self.global_constant(v, scope, args, p.span)?)));
        }
        if let Some((_, v)) = builtins::CONSTANTS.iter().find(|(n, _)| **n == *seg.name) {
            return Ok(Some(ExprResult::Value(v.value())));
        }
        Ok(None)
    }

    fn entity_value(&mut self, entity: Entity<'a>, seg: &'a Segment) -> LowerResult<ExprResult> {
        match entity {
            Entity::Object(lv) => {
                if lv.ty == Ty::Error {
                    return Err(Fail::Reported);
                }
                Ok(ExprResult::Object(lv))
            }
            Entity::Field => match self.frames.last().and_then(|f| f.this.clone()) {
                Some(this) => self.member(ExprResult::Object(this), &seg.name, seg.span),
                None => {
                    fail(ErrorKind::Name, seg.span, format!("member `{}` used without an object", seg.name))
                }
            },
            Entity::Static(id, i) => Ok(ExprResult::Object(self.static_member(id, i, seg.span)?)),
            Entity::Type(_) | Entity::Alias(_) | Entity::Struct(_) => fail(
                ErrorKind::Name,
                seg.span,
                format!("expected an expression, found the type `{}`", seg.name),
            ),
        }
    }

    /// `Enum::item`, `Struct<T>::member`, `ns::Struct::member`.
    fn qualified_value(&mut self, p: &'a Path) -> LowerResult<Option<ExprResult>> {
        let n = p.segments.len();
        let (owner, seg) = (&p.segments[n - 2], &p.segments[n - 1]);
        self.path_type(&p.segments[..n - 2])?;
        let key = format!("{}::{}", owner.name, seg.name);
        if let Some((Entity::Object(lv), _)) = self.scope.lookup(&key) {
            return Ok(Some(ExprResult::Object(lv)));
        }
        if let Some(v) = builtins::flag(&owner.name, &seg.name) {
            return Ok(Some(ExprResult::Value(v)));
        }
        let Some(Ty::Struct(id)) = self.path_type(&p.segments[..n - 1])? else { return Ok(None) };
        self.struct_value(id, seg).map(Some)
    }

    /// `S::name`: a static member or enumerator of a struct.
    pub(super) fn struct_value(
        &mut self,
        id: crate::front::types::StructId,
        seg: &'a Segment,
    ) -> LowerResult<ExprResult> {
        let scope = self.struct_info(id).scope.clone();
        match scope.local(&seg.name) {
            Some(Entity::Static(sid, i)) => Ok(ExprResult::Object(self.static_member(sid, i, seg.span)?)),
            Some(Entity::Object(lv)) => Ok(ExprResult::Object(lv)),
            Some(Entity::Field) if self.frames.last().is_some_and(|f| f.this.is_some()) => {
                self.in_scope(&scope, |l| l.entity_value(Entity::Field, seg))
            }
            _ => {
                let text = format!("`{}` has no static member `{}`", self.struct_name(id), seg.name);
                fail(ErrorKind::Name, seg.span, text)
            }
        }
    }

    /// Checks that a name in front of `::` that is no type is a namespace.
    pub(super) fn check_namespace(&self, seg: &Segment) -> LowerResult<()> {
        if seg.args.is_none() && self.unit.namespaces.contains(&seg.name) {
            return Ok(());
        }
        let d = crate::front::parser::unknown_namespace(seg, &self.unit.namespaces);
        Err(Fail::Diag(Box::new(d)))
    }

    /// The type that the first parts of a qualified name stand for; none for namespaces.
    pub(super) fn path_type(&mut self, segments: &'a [Segment]) -> LowerResult<Option<Ty>> {
        let mut current: Option<Ty> = None;
        for seg in segments {
            current = match current {
                None => {
                    let found = self.segment_type(seg)?;
                    if found.is_none() && seg.args.is_some() {
                        return fail(ErrorKind::Name, seg.span, format!("unknown template `{}`", seg.name));
                    }
                    if found.is_none() {
                        self.check_namespace(seg)?;
                    }
                    found
                }
                Some(Ty::Struct(id)) => {
                    let scope = self.struct_info(id).scope.clone();
                    self.in_scope(&scope, |l| l.segment_type(seg))?
                }
                Some(other) => Some(other),
            };
        }
        Ok(current)
    }

    // ---- operators ----
}
