//! Scopes: what a name means at a point of the program.

use super::value::LValue;
use crate::front::ast::*;
use crate::front::lexer::Name;
use crate::front::types::{StructId, Ty};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// What a name stands for.
#[derive(Clone)]
pub(crate) enum Entity<'a> {
    /// A type, template arguments included.
    Type(Ty),
    /// An object or constant.
    Object(LValue),
    /// An alias, resolved where it was declared.
    Alias(&'a AliasDecl),
    /// A struct or struct template, instantiated on use.
    Struct(&'a StructDecl),
    /// A data member of the struct whose member function this is.
    Field,
    /// A static member.
    Static(StructId, usize),
}

/// One level of names.
pub(crate) struct Scope<'a> {
    pub parent: Option<Rc<Scope<'a>>>,
    names: RefCell<HashMap<Name, Entity<'a>>>,
    /// The struct whose members are visible from here.
    pub of_struct: Option<StructId>,
}

impl<'a> Scope<'a> {
    pub fn new(parent: Option<Rc<Scope<'a>>>) -> Rc<Scope<'a>> {
        Rc::new(Scope { parent, names: RefCell::default(), of_struct: None })
    }

    pub fn for_struct(parent: Rc<Scope<'a>>, id: StructId) -> Rc<Scope<'a>> {
        Rc::new(Scope { parent: Some(parent), names: RefCell::default(), of_struct: Some(id) })
    }

    pub fn insert(&self, name: &Name, e: Entity<'a>) -> Option<Entity<'a>> {
        self.names.borrow_mut().insert(name.clone(), e)
    }

    pub fn local(&self, name: &str) -> Option<Entity<'a>> {
        self.names.borrow().get(name).cloned()
    }

    /// The entity and the scope it was found in.
    pub fn lookup(self: &Rc<Self>, name: &str) -> Option<(Entity<'a>, Rc<Scope<'a>>)> {
        let mut at = Some(self.clone());
        while let Some(scope) = at {
            if let Some(e) = scope.local(name) {
                return Some((e, scope));
            }
            at = scope.parent.clone();
        }
        None
    }

    /// Every name visible from here, for suggestions.
    pub fn visible(self: &Rc<Self>) -> Vec<Name> {
        let mut out = Vec::new();
        let mut at = Some(self.clone());
        while let Some(scope) = at {
            out.extend(scope.names.borrow().keys().cloned());
            at = scope.parent.clone();
        }
        out
    }
}
