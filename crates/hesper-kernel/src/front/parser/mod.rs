//! The parser: tokens to the syntax tree.
//!
//! Recursive descent with a little look-ahead. To tell types from expressions it keeps the names of types and
//! templates in scope, as C++ requires. It recovers at the boundaries of statements and declarations. Depth
//! and total work are bounded, so that no text makes it hang.

mod decl;
mod expr;
mod stmt;
mod structs;
mod types;

use super::ast::*;
use super::diag::{Diagnostic, ErrorKind, Sink, did_you_mean};
use super::lexer::{Name, Tok, Token};
use super::source::Span;
use super::types::is_builtin_type;
use std::collections::{HashMap, HashSet};

/// Deepest nesting of statements, expressions and types.
pub const MAX_DEPTH: usize = 200;
/// Greatest height of an expression tree (long chains of operators).
const MAX_HEIGHT: u32 = 1000;

/// An error was reported; the caller recovers or passes it on.
pub(super) struct Failed;
/// The result of every parsing step.
pub(super) type Parsed<T> = Result<T, Failed>;

/// What a name means to the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameKind {
    Type,
    TypeTemplate,
    FnTemplate,
    Value,
}

/// The parser over one run of tokens.
pub struct Parser<'a> {
    tokens: Vec<Token>,
    at: usize,
    sink: &'a mut Sink,
    names: Names,
    depth: usize,
    work: usize,
    namespace: Vec<Name>,
    /// Assigned names of the functions being parsed, innermost last.
    assigned: Vec<Assigned>,
    is_prelude: bool,
    /// `>` closes template arguments here and does not compare.
    no_greater: bool,
    /// Tokens split by [`Parser::eat_close_angle`], to be restored when the parser goes back.
    splits: Vec<(usize, Tok, Span)>,
}

/// A point to go back to.
struct Mark {
    at: usize,
    splits: usize,
    errors: usize,
}

/// Names in scope and the counter of declarations; carried from the header to the body.
#[derive(Clone, Debug)]
pub struct Names {
    scopes: Vec<HashMap<Name, NameKind>>,
    member_templates: HashSet<Name>,
    /// Those of the library and of the text.
    namespaces: HashSet<Name>,
    namespace_aliases: HashMap<Name, Vec<Segment>>,
    next_decl: u32,
}

impl Default for Names {
    fn default() -> Self {
        Names {
            scopes: vec![HashMap::new()],
            member_templates: HashSet::new(),
            namespaces: LIBRARY_NAMESPACES.map(Name::from).into(),
            namespace_aliases: HashMap::new(),
            next_decl: 0,
        }
    }
}

impl Names {
    /// Declares a type name, such as a template parameter of a custom kernel.
    pub fn add_type(&mut self, name: &str) {
        self.add(&name.into(), NameKind::Type);
    }

    /// The namespaces declared so far, those of the library among them.
    pub fn namespaces(&self) -> &HashSet<Name> {
        &self.namespaces
    }

    /// Declares a value, such as a parameter of a custom kernel.
    pub fn add_value(&mut self, name: &str) {
        self.add(&name.into(), NameKind::Value);
    }

    fn add(&mut self, name: &Name, kind: NameKind) {
        if let Some(top) = self.scopes.last_mut() {
            top.insert(name.clone(), kind);
        }
    }

    fn lookup(&self, name: &Name) -> Option<NameKind> {
        self.scopes.iter().rev().find_map(|s| s.get(name).copied())
    }

    /// A fresh declaration identity.
    pub fn fresh(&mut self) -> DeclId {
        self.next_decl += 1;
        DeclId(self.next_decl)
    }
}

/// The namespaces of the library: there is one implementation of each function.
pub(super) const LIBRARY_NAMESPACES: [&str; 4] = ["metal", "fast", "precise", "simd"];

/// The error of a name in front of `::` that is neither a type nor a namespace.
pub(super) fn unknown_namespace(segment: &Segment, known: &HashSet<Name>) -> Diagnostic {
    let text = format!("unknown namespace `{}`", segment.name);
    let d = Diagnostic::error(ErrorKind::Name, segment.span, text);
    match did_you_mean(&segment.name, known.iter().map(|name| &**name)) {
        Some(name) => d.help(format!("did you mean `{name}`?")),
        None => d,
    }
}

/// Functions of the library that take explicit template arguments.
const BUILTIN_FN_TEMPLATES: [&str; 8] = [
    "make_filled_simdgroup_matrix",
    "make_uniform",
    "select",
    "is_same_v",
    "is_integral_v",
    "is_floating_point_v",
    "is_signed_v",
    "is_unsigned_v",
];

impl<'a> Parser<'a> {
    /// A parser that starts from the given names.
    pub fn new(tokens: Vec<Token>, names: Names, is_prelude: bool, sink: &'a mut Sink) -> Self {
        Parser {
            tokens,
            at: 0,
            sink,
            names,
            depth: 0,
            work: 0,
            namespace: Vec::new(),
            assigned: Vec::new(),
            is_prelude,
            no_greater: false,
            splits: Vec::new(),
        }
    }

    /// Parses declarations up to the end; returns them with the names now in scope.
    pub fn parse_items(mut self) -> (Vec<Item>, Names) {
        let mut items = Vec::new();
        while !self.at_end() && !self.sink.is_full() {
            if self.is("}") {
                self.error_here("unmatched `}`");
                self.bump();
                continue;
            }
            self.item(&mut items);
        }
        self.names.scopes.truncate(1);
        (items, self.names)
    }

    /// Parses the body of a custom kernel: statements up to the end.
    pub fn parse_body(mut self) -> (Block, Assigned, Names) {
        self.assigned.push(Assigned::default());
        self.push_scope();
        let mut block = Block::default();
        while !self.at_end() && !self.sink.is_full() {
            if self.is("}") {
                self.error_here("unmatched `}`");
                self.bump();
                continue;
            }
            if let Ok(Some(s)) = self.statement_or_recover() {
                block.stmts.push(s);
            }
        }
        let assigned = self.assigned.pop().unwrap_or_default();
        (block, assigned, self.names)
    }

    // ---- tokens ----

    fn token(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn peek(&self, n: usize) -> &Token {
        &self.tokens[(self.at + n).min(self.tokens.len() - 1)]
    }

    fn at_end(&self) -> bool {
        self.token().tok == Tok::End
    }

    fn span(&self) -> Span {
        self.token().span
    }

    fn last_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1).min(self.tokens.len() - 1)].span
    }

    fn bump(&mut self) {
        self.work += 1;
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
    }

    /// Whether the work limit is reached, which takes pathological input.
    fn exhausted(&self) -> bool {
        self.work > 100_000 + 64 * self.tokens.len()
    }

    fn is(&self, p: &str) -> bool {
        self.token().is(p)
    }

    fn is_word(&self, w: &str) -> bool {
        self.token().ident().is_some_and(|n| &**n == w)
    }

    fn eat(&mut self, p: &str) -> bool {
        let hit = self.is(p);
        if hit {
            self.bump();
        }
        hit
    }

    fn eat_word(&mut self, w: &str) -> bool {
        let hit = self.is_word(w);
        if hit {
            self.bump();
        }
        hit
    }

    /// Takes a `>`, splitting `>>`, `>=` and `>>=`.
    fn eat_close_angle(&mut self) -> bool {
        let rest = match &self.token().tok {
            Tok::Punct(">") => {
                self.bump();
                return true;
            }
            Tok::Punct(">>") => ">",
            Tok::Punct(">=") => "=",
            Tok::Punct(">>=") => ">=",
            _ => return false,
        };
        let at = self.at.min(self.tokens.len() - 1);
        let t = &mut self.tokens[at];
        self.splits.push((at, t.tok.clone(), t.span));
        t.tok = Tok::Punct(rest);
        t.span.lo = (t.span.lo + 1).min(t.span.hi);
        self.work += 1;
        true
    }

    fn mark(&self) -> Mark {
        Mark { at: self.at, splits: self.splits.len(), errors: self.sink.len() }
    }

    /// Goes back to a mark, and drops the errors reported since.
    fn reset(&mut self, mark: &Mark) {
        self.at = mark.at;
        while self.splits.len() > mark.splits {
            if let Some((at, tok, span)) = self.splits.pop() {
                self.tokens[at].tok = tok;
                self.tokens[at].span = span;
            }
        }
        self.sink.truncate(mark.errors);
    }

    fn describe(&self) -> String {
        match &self.token().tok {
            Tok::Ident(n) => format!("`{n}`"),
            Tok::Int { value, .. } => format!("`{value}`"),
            Tok::Float(v, _) => format!("`{v:?}`"),
            Tok::Char(_) => "a character".into(),
            Tok::Str(_) => "a string".into(),
            Tok::Punct(p) => format!("`{p}`"),
            Tok::End => "the end of the text".into(),
        }
    }

    fn error_here(&mut self, message: impl Into<String>) -> Failed {
        let span = self.span();
        self.error_at(span, message)
    }

    fn error_at(&mut self, span: Span, message: impl Into<String>) -> Failed {
        self.sink.push(Diagnostic::error(ErrorKind::Syntax, span, message));
        Failed
    }

    fn expected(&mut self, what: &str) -> Failed {
        let found = self.describe();
        self.error_here(format!("expected {what}, found {found}"))
    }

    fn expect(&mut self, p: &str) -> Parsed<()> {
        if self.eat(p) {
            return Ok(());
        }
        // Report a missing `;` at the token that it should follow.
        if p == ";" && self.token().starts_line && self.at > 0 {
            let mut span = self.last_span();
            span.lo = span.hi.saturating_sub(1).max(span.lo);
            let found = self.describe();
            return Err(self.error_at(span, format!("expected `;` after this, found {found}")));
        }
        Err(self.expected(&format!("`{p}`")))
    }

    fn ident(&mut self, what: &str) -> Parsed<(Name, Span)> {
        match self.token().ident().cloned() {
            Some(n) if !is_keyword(&n) => {
                let span = self.span();
                self.bump();
                Ok((n, span))
            }
            Some(n) => Err(self.error_here(format!("expected {what}, found the keyword `{n}`"))),
            None => Err(self.expected(what)),
        }
    }

    fn enter(&mut self) -> Parsed<()> {
        if self.depth >= MAX_DEPTH {
            let span = self.span();
            let text = format!("the text nests too deeply; the limit is {MAX_DEPTH} levels");
            self.sink.push(Diagnostic::error(ErrorKind::Limit, span, text));
            self.at = self.tokens.len() - 1;
            return Err(Failed);
        }
        if self.exhausted() {
            let span = self.span();
            let text = "the text takes too long to parse; split it into simpler statements";
            self.sink.push(Diagnostic::error(ErrorKind::Limit, span, text));
            self.at = self.tokens.len() - 1;
            return Err(Failed);
        }
        self.depth += 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    // ---- names ----

    fn push_scope(&mut self) {
        self.names.scopes.push(HashMap::new());
    }

    fn pop_scope(&mut self) {
        if self.names.scopes.len() > 1 {
            self.names.scopes.pop();
        }
    }

    fn declare(&mut self, name: &Name, kind: NameKind) {
        self.names.add(name, kind);
    }

    fn is_type_name(&self, name: &Name) -> bool {
        match self.names.lookup(name) {
            Some(kind) => matches!(kind, NameKind::Type | NameKind::TypeTemplate),
            None => is_builtin_type(name),
        }
    }

    fn is_template_name(&self, name: &Name) -> bool {
        match self.names.lookup(name) {
            Some(kind) => matches!(kind, NameKind::TypeTemplate | NameKind::FnTemplate),
            None => super::types::is_builtin_template(name) || BUILTIN_FN_TEMPLATES.contains(&&**name),
        }
    }

    /// Records that the variable at the root of `e` is written or its address taken.
    fn note_assigned(&mut self, e: &Expr) {
        let mut at = e;
        let mut part = false;
        loop {
            match &at.kind {
                ExprKind::Name(p) if p.segments.len() == 1 => {
                    if let Some(top) = self.assigned.last_mut() {
                        let set = if part { &mut top.parts } else { &mut top.whole };
                        set.insert(p.segments[0].name.clone());
                    }
                    return;
                }
                ExprKind::Member { base, .. } | ExprKind::Index(base, _) => {
                    part = true;
                    at = base;
                }
                ExprKind::Unary(UnOp::PreInc | UnOp::PreDec, inner) => at = inner,
                ExprKind::Ternary(_, a, b) => {
                    self.note_assigned(a);
                    at = b;
                }
                _ => return,
            }
        }
    }

    /// Skips to a likely boundary: past `;`, or to `}`. Balanced braces on the way are skipped whole.
    fn recover(&mut self) {
        let mut braces = 0usize;
        while !self.at_end() {
            if self.is("{") {
                braces += 1;
            } else if self.is("}") {
                if braces == 0 {
                    return;
                }
                braces -= 1;
                if braces == 0 {
                    self.bump();
                    self.eat(";");
                    return;
                }
            } else if self.is(";") && braces == 0 {
                self.bump();
                return;
            }
            self.bump();
        }
    }
}

/// Words that cannot name a variable.
pub fn is_keyword(name: &str) -> bool {
    matches!(
        name,
        "if" | "else"
            | "for"
            | "while"
            | "do"
            | "switch"
            | "case"
            | "default"
            | "break"
            | "continue"
            | "return"
            | "goto"
            | "struct"
            | "class"
            | "union"
            | "enum"
            | "typedef"
            | "using"
            | "template"
            | "typename"
            | "namespace"
            | "const"
            | "constexpr"
            | "static"
            | "inline"
            | "volatile"
            | "device"
            | "constant"
            | "threadgroup"
            | "thread"
            | "kernel"
            | "sizeof"
            | "alignof"
            | "static_cast"
            | "reinterpret_cast"
            | "const_cast"
            | "dynamic_cast"
            | "true"
            | "false"
            | "this"
            | "nullptr"
            | "auto"
            | "void"
            | "bool"
            | "int"
            | "float"
            | "double"
            | "short"
            | "long"
            | "unsigned"
            | "signed"
            | "operator"
            | "static_assert"
            | "decltype"
            | "new"
            | "delete"
            | "throw"
            | "try"
            | "catch"
            | "public"
            | "private"
            | "protected"
            | "virtual"
            | "friend"
            | "explicit"
    )
}
