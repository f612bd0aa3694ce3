//! The preprocessor: directives and macros, tokens to tokens.
//!
//! Macro state lives as long as the [`Preprocessor`], so that macros of a header are defined in the body.
//! Expansion follows the usual hide-set rule, which ends recursion; the number of produced tokens is bounded
//! as well. `#include` is accepted and ignored (the library is built in), and so are pragmas, except hints to
//! unroll loops.

use super::diag::{Diagnostic, ErrorKind, Sink, did_you_mean};
use super::lexer::{Hide, IntSuffix, Name, Tok, Token, lex};
use super::source::{Expansion, FileId, Sources, Span};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// Most tokens that the texts of one kernel may expand to.
const MAX_TOKENS: usize = 1_000_000;
/// Most macro uses in one kernel.
const MAX_EXPANSIONS: usize = 100_000;
/// Deepest nesting of conditional directives, parentheses in `#if`, macro arguments.
const MAX_DEPTH: usize = 200;

#[derive(Clone, Debug)]
struct Macro {
    /// Parameter names; none for an object-like macro.
    params: Option<Vec<Name>>,
    variadic: bool,
    body: Vec<Token>,
    span: Option<Span>,
}

/// Macro definitions and limits, kept across the texts of one kernel.
pub struct Preprocessor<'s> {
    sources: &'s mut Sources,
    macros: HashMap<Name, Macro>,
    produced: usize,
    expansions: usize,
    stopped: bool,
}

struct Conditional {
    span: Span,
    /// This branch is compiled.
    active: bool,
    /// Some branch was compiled already.
    taken: bool,
    seen_else: bool,
}

const BUILTIN: [(&str, u64); 7] = [
    ("__METAL_VERSION__", 320),
    ("__METAL__", 1),
    ("__HESPER__", 1),
    ("__HAVE_BFLOAT__", 1),
    ("__HAVE_ATOMIC_ULONG__", 1),
    ("__METAL_MACOS__", 1),
    ("__cplusplus", 201_703),
];

impl<'s> Preprocessor<'s> {
    /// A preprocessor with the compiler's own macros.
    pub fn new(sources: &'s mut Sources) -> Self {
        let mut p =
            Preprocessor { sources, macros: HashMap::new(), produced: 0, expansions: 0, stopped: false };
        let at = Span { file: FileId(0), lo: 0, hi: 0, expansion: 0 };
        for (name, value) in BUILTIN {
            let tok = Tok::Int { value, suffix: IntSuffix { unsigned: false, long: false }, decimal: true };
            p.define_builtin(name, vec![plain(tok, at)]);
        }
        p.define_builtin("METAL_FUNC", vec![plain(Tok::Ident("inline".into()), at)]);
        p.define_builtin("METAL_CONST", vec![plain(Tok::Ident("constant".into()), at)]);
        for empty in ["METAL_ASM_VISIBLE", "__restrict", "__restrict__", "MLX_MTL_PRAGMA_UNROLL"] {
            p.define_builtin(empty, Vec::new());
        }
        p
    }

    fn define_builtin(&mut self, name: &str, body: Vec<Token>) {
        self.macros.insert(name.into(), Macro { params: None, variadic: false, body, span: None });
    }

    /// Preprocesses one text; the result ends with [`Tok::End`].
    pub fn run(&mut self, file: FileId, sink: &mut Sink) -> Vec<Token> {
        let text = self.sources.file(file).text.clone();
        let tokens = lex(file, &text, sink);
        let end = tokens.last().cloned();
        let mut out = Vec::new();
        let mut pending: Vec<Token> = Vec::new();
        let mut stack: Vec<Conditional> = Vec::new();
        let mut unroll = false;
        let mut i = 0;
        while i < tokens.len() && tokens[i].tok != Tok::End {
            let is_directive = tokens[i].starts_line && tokens[i].is("#");
            let line_end = (i + 1..tokens.len())
                .find(|&j| tokens[j].starts_line || tokens[j].tok == Tok::End)
                .unwrap_or(tokens.len());
            if is_directive {
                // A macro call may not span a directive: expand the pending tokens first.
                self.flush(&mut pending, &mut out, sink);
                let line = &tokens[i + 1..line_end];
                self.directive(&tokens[i], line, &mut stack, &mut unroll, sink);
            } else if stack.iter().all(|c| c.active) {
                let at = pending.len();
                pending.extend_from_slice(&tokens[i..line_end]);
                if std::mem::take(&mut unroll) {
                    pending[at].unroll = true;
                }
            }
            i = line_end;
        }
        self.flush(&mut pending, &mut out, sink);
        if let Some(open) = stack.last() {
            sink.push(Diagnostic::error(
                ErrorKind::Preprocessor,
                open.span,
                "conditional directive without `#endif`",
            ));
        }
        out.extend(end);
        out
    }

    fn flush(&mut self, pending: &mut Vec<Token>, out: &mut Vec<Token>, sink: &mut Sink) {
        let tokens = std::mem::take(pending);
        let expanded = self.expand(tokens, sink, 0);
        out.extend(skip_pragmas(expanded));
    }

    fn directive(
        &mut self,
        hash: &Token,
        line: &[Token],
        stack: &mut Vec<Conditional>,
        unroll: &mut bool,
        sink: &mut Sink,
    ) {
        let Some(first) = line.first() else { return };
        let span = hash.span.to(first.span);
        let error = |sink: &mut Sink, span, text: &str| {
            sink.push(Diagnostic::error(ErrorKind::Preprocessor, span, text))
        };
        let Some(name) = first.ident().cloned() else {
            if stack.iter().all(|c| c.active) {
                error(sink, span, "expected the name of a directive after `#`");
            }
            return;
        };
        let rest = &line[1..];
        let active = stack.iter().all(|c| c.active);
        match &*name {
            "if" | "ifdef" | "ifndef" => {
                if stack.len() >= MAX_DEPTH {
                    let text =
                        format!("conditional directives nest too deeply; the limit is {MAX_DEPTH} levels");
                    error(sink, span, &text);
                    return;
                }
                let on = active
                    && match &*name {
                        "if" => self.condition(span, rest, sink),
                        _ => match rest.first().and_then(Token::ident) {
                            Some(n) => self.macros.contains_key(n) == (&*name == "ifdef"),
                            None => {
                                error(sink, span, "expected a macro name");
                                false
                            }
                        },
                    };
                stack.push(Conditional { span, active: on, taken: on || !active, seen_else: false });
            }
            "elif" | "else" => {
                let outer = stack.len() < 2 || stack[..stack.len() - 1].iter().all(|c| c.active);
                let Some(top) = stack.last() else {
                    return error(sink, span, &format!("`#{name}` without `#if`"));
                };
                if top.seen_else {
                    return error(sink, span, &format!("`#{name}` after `#else`"));
                }
                let wanted = outer && !top.taken && (&*name == "else" || self.condition(span, rest, sink));
                if let Some(top) = stack.last_mut() {
                    top.active = wanted;
                    top.taken |= wanted;
                    top.seen_else = &*name == "else";
                }
            }
            "endif" => {
                if stack.pop().is_none() {
                    error(sink, span, "`#endif` without `#if`");
                }
            }
            _ if !active => {}
            "define" => self.define(span, rest, sink),
            "undef" => match rest.first().and_then(Token::ident) {
                Some(n) => {
                    self.macros.remove(n);
                }
                None => error(sink, span, "expected a macro name after `#undef`"),
            },
            "pragma" => *unroll |= rest.iter().any(|t| t.ident().is_some_and(|n| n.contains("unroll"))),
            "include" | "import" => {}
            "line" => {
                let parts: Vec<&Tok> = rest.iter().map(|token| &token.tok).collect();
                let (value, label) = match parts[..] {
                    [Tok::Int { value, .. }] => (*value, None),
                    [Tok::Int { value, .. }, Tok::Str(label)] => (*value, Some(&**label)),
                    _ => {
                        let text = "`#line` takes a number, and the name of a text in quotes";
                        return error(sink, span, text);
                    }
                };
                self.sources.mark_line(hash.span, u32::try_from(value).unwrap_or(u32::MAX), label);
            }
            "error" => error(sink, span, &format!("#error {}", spell(rest))),
            "warning" => {
                let text = format!("#warning {}", spell(rest));
                sink.push(Diagnostic::warning(ErrorKind::Preprocessor, span, text));
            }
            other => {
                let known = [
                    "define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "include", "pragma",
                ];
                let mut d =
                    Diagnostic::error(ErrorKind::Preprocessor, span, format!("unknown directive `#{other}`"));
                if let Some(n) = did_you_mean(other, known) {
                    d = d.help(format!("did you mean `#{n}`?"));
                }
                sink.push(d);
            }
        }
    }

    fn define(&mut self, span: Span, line: &[Token], sink: &mut Sink) {
        let error = |sink: &mut Sink, span, text: &str| {
            sink.push(Diagnostic::error(ErrorKind::Preprocessor, span, text))
        };
        let Some(name) = line.first().and_then(Token::ident).cloned() else {
            return error(sink, span, "expected a macro name after `#define`");
        };
        let at = line[0].span;
        let (mut params, mut variadic, mut start) = (None, false, 1);
        if line.get(1).is_some_and(|t| t.is("(") && !t.spaced) {
            let mut names = Vec::new();
            let mut i = 2;
            loop {
                match line.get(i) {
                    Some(t) if t.is(")") && names.is_empty() => break,
                    Some(t) if t.is("...") => {
                        variadic = true;
                        names.push("__VA_ARGS__".into());
                    }
                    Some(Token { tok: Tok::Ident(n), .. }) if !variadic => names.push(n.clone()),
                    other => {
                        let at = other.map_or(at, |t| t.span);
                        return error(sink, at, "malformed parameter list of a macro");
                    }
                }
                i += 1;
                match line.get(i) {
                    Some(t) if t.is(")") => break,
                    Some(t) if t.is(",") => i += 1,
                    Some(t) if t.is("...") => {}
                    other => {
                        let at = other.map_or(at, |t| t.span);
                        return error(sink, at, "expected `,` or `)` in the parameter list of a macro");
                    }
                }
            }
            params = Some(names);
            start = i + 1;
        }
        let body = line.get(start..).unwrap_or(&[]).to_vec();
        self.macros.insert(name, Macro { params, variadic, body, span: Some(at) });
    }

    /// Expands a run of tokens completely.
    fn expand(&mut self, tokens: Vec<Token>, sink: &mut Sink, depth: usize) -> Vec<Token> {
        let mut input: VecDeque<Token> = tokens.into();
        let mut out = Vec::new();
        while let Some(token) = input.pop_front() {
            self.produced += 1;
            if self.stopped || self.produced > MAX_TOKENS {
                if !std::mem::replace(&mut self.stopped, true) {
                    let text = format!("macros expand to more than {MAX_TOKENS} tokens");
                    sink.push(Diagnostic::error(ErrorKind::Limit, token.span, text));
                }
                return out;
            }
            let Some(name) = token.ident() else {
                out.push(token);
                continue;
            };
            if &**name == "__LINE__" && !self.macros.contains_key(name) {
                let (_, line, _) = self.sources.place(self.sources.user_span(token.span));
                let suffix = IntSuffix { unsigned: false, long: false };
                let tok = Tok::Int { value: u64::from(line), suffix, decimal: true };
                out.push(Token { tok, ..token });
                continue;
            }
            let Some(found) = self.macros.get(name).filter(|_| !hidden(&token.hide, name)) else {
                out.push(token);
                continue;
            };
            let found = found.clone();
            let args = match &found.params {
                None => Vec::new(),
                Some(params) => {
                    if !input.front().is_some_and(|t| t.is("(")) {
                        out.push(token);
                        continue;
                    }
                    match self.arguments(&token, params, found.variadic, &mut input, sink) {
                        Some(args) => args,
                        None => continue,
                    }
                }
            };
            let mut replaced = self.substitute(&token, &found, args, sink, depth);
            if let Some(first) = replaced.first_mut() {
                (first.starts_line, first.spaced) = (token.starts_line, token.spaced);
                first.unroll |= token.unroll;
            }
            for t in replaced.into_iter().rev() {
                input.push_front(t);
            }
        }
        out
    }

    /// Reads the arguments of a function-like macro; the next token is its `(`.
    fn arguments(
        &mut self,
        token: &Token,
        params: &[Name],
        variadic: bool,
        input: &mut VecDeque<Token>,
        sink: &mut Sink,
    ) -> Option<Vec<Vec<Token>>> {
        input.pop_front();
        let mut args: Vec<Vec<Token>> = vec![Vec::new()];
        let mut depth = 0usize;
        let name = token.ident().map_or("", |n| n);
        loop {
            let Some(t) = input.pop_front() else {
                let text = format!("arguments of macro `{name}` are never closed");
                sink.push(Diagnostic::error(ErrorKind::Preprocessor, token.span, text));
                return None;
            };
            if t.is(")") && depth == 0 {
                break;
            }
            match &t.tok {
                Tok::Punct("(") => depth += 1,
                Tok::Punct(")") => depth -= 1,
                Tok::Punct(",") if depth == 0 && !(variadic && args.len() == params.len()) => {
                    args.push(Vec::new());
                    continue;
                }
                _ => {}
            }
            if let Some(last) = args.last_mut() {
                last.push(t);
            }
        }
        if params.is_empty() && args.len() == 1 && args[0].is_empty() {
            args.clear();
        }
        if variadic && args.len() + 1 == params.len() {
            args.push(Vec::new());
        }
        if args.len() != params.len() {
            let text = format!("macro `{name}` takes {} argument(s), {} given", params.len(), args.len());
            sink.push(Diagnostic::error(ErrorKind::Preprocessor, token.span, text));
            return None;
        }
        Some(args)
    }

    fn substitute(
        &mut self,
        token: &Token,
        found: &Macro,
        args: Vec<Vec<Token>>,
        sink: &mut Sink,
        depth: usize,
    ) -> Vec<Token> {
        let Some(name) = token.ident().cloned() else { return Vec::new() };
        self.expansions += 1;
        if self.expansions > MAX_EXPANSIONS || depth > MAX_DEPTH {
            if !std::mem::replace(&mut self.stopped, true) {
                sink.push(Diagnostic::error(
                    ErrorKind::Limit,
                    token.span,
                    "macros expand too deeply or too often",
                ));
            }
            return Vec::new();
        }
        let expansion = self.sources.add_expansion(Expansion {
            name: name.clone(),
            call: token.span,
            definition: found.span,
        });
        let hide = Some(Rc::new(Hide { name, next: token.hide.clone() }));
        let mark = |t: &Token| {
            // A built-in macro has no text: its tokens get the location of its use.
            let span = match found.span {
                Some(_) => Span { expansion, ..t.span },
                None => Span { expansion, ..token.span },
            };
            Token { span, hide: hide.clone(), ..t.clone() }
        };
        let params = found.params.clone().unwrap_or_default();
        let index = |t: &Token| t.ident().and_then(|n| params.iter().position(|p| p == n));
        let mut expanded: Vec<Option<Vec<Token>>> = vec![None; args.len()];
        let mut out: Vec<Token> = Vec::new();
        let body = &found.body;
        let mut left_empty = false;
        let mut i = 0;
        while i < body.len() {
            let t = &body[i];
            let pasted = i > 1 && body[i - 1].is("##");
            let pastes = body.get(i + 1).is_some_and(|n| n.is("##"));
            if t.is("#")
                && found.params.is_some()
                && let Some(k) = body.get(i + 1).and_then(index)
            {
                let text = spell(&args[k]);
                out.push(mark(&Token { tok: Tok::Str(text.as_str().into()), ..t.clone() }));
                i += 2;
                continue;
            }
            if t.is("##") && i > 0 && i + 1 < body.len() {
                i += 1;
                continue;
            }
            let piece: Vec<Token> = match index(t) {
                Some(k) if pasted || pastes => args[k].clone(),
                Some(k) => {
                    if expanded[k].is_none() {
                        expanded[k] = Some(self.expand(args[k].clone(), sink, depth + 1));
                    }
                    let hide_arg = |a: &Token| Token { hide: join(&a.hide, &hide), ..a.clone() };
                    expanded[k].iter().flatten().map(hide_arg).collect()
                }
                None => vec![mark(t)],
            };
            self.produced += piece.len();
            if self.produced > MAX_TOKENS {
                return out;
            }
            let empty = piece.is_empty();
            let mut piece = piece.into_iter();
            if pasted && empty && found.variadic && body[i - 2].is(",") {
                // `, ## __VA_ARGS__` without arguments drops the comma.
                out.pop();
            } else if pasted
                && !left_empty
                && !empty
                && !body[i - 2].is(",")
                && let (Some(left), Some(right)) = (out.pop(), piece.next())
            {
                out.push(self.paste(left, right, sink));
            }
            left_empty = empty && (!pasted || left_empty);
            out.extend(piece);
            i += 1;
        }
        out
    }

    fn paste(&mut self, left: Token, right: Token, sink: &mut Sink) -> Token {
        let text = format!("{}{}", spell_one(&left.tok), spell_one(&right.tok));
        let mut probe = Sink::default();
        let tokens = lex(left.span.file, &text, &mut probe);
        if tokens.len() != 2 || !probe.is_empty() {
            let text = format!("`##` gives `{text}`, which is not one token");
            sink.push(Diagnostic::error(ErrorKind::Preprocessor, left.span, text));
            return left;
        }
        Token { tok: tokens[0].tok.clone(), ..left }
    }

    /// Evaluates the expression of `#if`.
    fn condition(&mut self, span: Span, line: &[Token], sink: &mut Sink) -> bool {
        let mut resolved = Vec::new();
        let mut i = 0;
        while i < line.len() {
            if line[i].ident().is_some_and(|n| &**n == "defined") {
                let paren = line.get(i + 1).is_some_and(|t| t.is("("));
                let at = i + 1 + usize::from(paren);
                let on = line.get(at).and_then(Token::ident).is_some_and(|n| self.macros.contains_key(n));
                let suffix = IntSuffix { unsigned: false, long: false };
                resolved.push(plain(Tok::Int { value: u64::from(on), suffix, decimal: true }, line[i].span));
                i = at + 1 + usize::from(paren);
            } else {
                resolved.push(line[i].clone());
                i += 1;
            }
        }
        let tokens = self.expand(resolved, sink, 0);
        let mut e = Conditions { tokens: &tokens, at: 0, depth: 0 };
        match e.ternary() {
            Ok(v) if e.at == tokens.len() => v != 0,
            Ok(_) => {
                let at = tokens[e.at].span;
                sink.push(Diagnostic::error(
                    ErrorKind::Preprocessor,
                    at,
                    "unexpected token in the condition of `#if`",
                ));
                false
            }
            Err(text) => {
                let at = tokens.get(e.at).map_or(span, |t| t.span);
                sink.push(Diagnostic::error(ErrorKind::Preprocessor, at, text));
                false
            }
        }
    }
}

fn plain(tok: Tok, span: Span) -> Token {
    Token { tok, span, starts_line: false, spaced: true, unroll: false, hide: None }
}

fn hidden(hide: &Option<Rc<Hide>>, name: &Name) -> bool {
    let mut at = hide;
    while let Some(h) = at {
        if h.name == *name {
            return true;
        }
        at = &h.next;
    }
    false
}

/// The hide set of an argument's token inside an expansion: its own plus the macro's.
fn join(own: &Option<Rc<Hide>>, hide: &Option<Rc<Hide>>) -> Option<Rc<Hide>> {
    match (own, hide) {
        (None, _) => hide.clone(),
        (Some(h), Some(new)) if !hidden(own, &new.name) => {
            Some(Rc::new(Hide { name: new.name.clone(), next: Some(h.clone()) }))
        }
        _ => own.clone(),
    }
}

/// Removes `_Pragma("...")`, keeping unrolling hints.
fn skip_pragmas(tokens: Vec<Token>) -> Vec<Token> {
    let is_pragma = |t: &Token| t.ident().is_some_and(|n| &**n == "_Pragma" || &**n == "__pragma");
    if !tokens.iter().any(is_pragma) {
        return tokens;
    }
    let mut out: Vec<Token> = Vec::with_capacity(tokens.len());
    let mut unroll = false;
    let mut i = 0;
    while i < tokens.len() {
        if is_pragma(&tokens[i]) && tokens.get(i + 1).is_some_and(|t| t.is("(")) {
            while i < tokens.len() && !tokens[i].is(")") {
                unroll |= matches!(&tokens[i].tok, Tok::Str(s) if s.contains("unroll"));
                i += 1;
            }
            i += 1;
            continue;
        }
        let mut t = tokens[i].clone();
        t.unroll |= std::mem::take(&mut unroll);
        out.push(t);
        i += 1;
    }
    out
}

fn spell_one(tok: &Tok) -> String {
    match tok {
        Tok::Ident(n) => n.to_string(),
        Tok::Int { value, suffix, .. } => {
            let u = if suffix.unsigned { "u" } else { "" };
            let l = if suffix.long { "l" } else { "" };
            format!("{value}{u}{l}")
        }
        Tok::Float(v, _) => format!("{v:?}"),
        Tok::Char(c) => format!("'{}'", *c as char),
        Tok::Str(s) => format!("\"{s}\""),
        Tok::Punct(p) => (*p).to_string(),
        Tok::End => String::new(),
    }
}

/// The text of tokens, as `#` makes it.
fn spell(tokens: &[Token]) -> String {
    let mut out = String::new();
    for t in tokens.iter().take(1000) {
        if t.spaced && !out.is_empty() {
            out.push(' ');
        }
        out.push_str(&spell_one(&t.tok));
    }
    out
}

/// Evaluator of `#if` expressions.
struct Conditions<'t> {
    tokens: &'t [Token],
    at: usize,
    depth: usize,
}

impl Conditions<'_> {
    fn eat(&mut self, p: &str) -> bool {
        let hit = self.tokens.get(self.at).is_some_and(|t| t.is(p));
        self.at += usize::from(hit);
        hit
    }

    fn ternary(&mut self) -> Result<i64, &'static str> {
        let c = self.binary(0)?;
        if !self.eat("?") {
            return Ok(c);
        }
        let a = self.nested(Self::ternary)?;
        if !self.eat(":") {
            return Err("expected `:` in the condition of `#if`");
        }
        let b = self.nested(Self::ternary)?;
        Ok(if c != 0 { a } else { b })
    }

    fn nested(&mut self, f: fn(&mut Self) -> Result<i64, &'static str>) -> Result<i64, &'static str> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("the condition of `#if` nests too deeply");
        }
        let v = f(self);
        self.depth -= 1;
        v
    }

    fn binary(&mut self, min: u8) -> Result<i64, &'static str> {
        let mut left = self.unary()?;
        loop {
            let Some(Token { tok: Tok::Punct(op), .. }) = self.tokens.get(self.at) else { return Ok(left) };
            let level = match *op {
                "||" => 1,
                "&&" => 2,
                "|" => 3,
                "^" => 4,
                "&" => 5,
                "==" | "!=" => 6,
                "<" | ">" | "<=" | ">=" => 7,
                "<<" | ">>" => 8,
                "+" | "-" => 9,
                "*" | "/" | "%" => 10,
                _ => return Ok(left),
            };
            if level <= min {
                return Ok(left);
            }
            self.at += 1;
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err("the condition of `#if` nests too deeply");
            }
            let right = self.binary(level)?;
            self.depth -= 1;
            left = match *op {
                "||" => i64::from(left != 0 || right != 0),
                "&&" => i64::from(left != 0 && right != 0),
                "|" => left | right,
                "^" => left ^ right,
                "&" => left & right,
                "==" => i64::from(left == right),
                "!=" => i64::from(left != right),
                "<" => i64::from(left < right),
                ">" => i64::from(left > right),
                "<=" => i64::from(left <= right),
                ">=" => i64::from(left >= right),
                "<<" => left.wrapping_shl(right as u32),
                ">>" => left.wrapping_shr(right as u32),
                "+" => left.wrapping_add(right),
                "-" => left.wrapping_sub(right),
                "*" => left.wrapping_mul(right),
                "/" | "%" if right == 0 => return Err("division by zero in the condition of `#if`"),
                "/" => left.wrapping_div(right),
                _ => left.wrapping_rem(right),
            };
        }
    }

    fn unary(&mut self) -> Result<i64, &'static str> {
        if self.eat("!") {
            return Ok(i64::from(self.nested(Self::unary)? == 0));
        }
        if self.eat("-") {
            return Ok(self.nested(Self::unary)?.wrapping_neg());
        }
        if self.eat("+") {
            return self.nested(Self::unary);
        }
        if self.eat("~") {
            return Ok(!self.nested(Self::unary)?);
        }
        if self.eat("(") {
            let v = self.nested(Self::ternary)?;
            return if self.eat(")") { Ok(v) } else { Err("expected `)` in the condition of `#if`") };
        }
        let v = match self.tokens.get(self.at).map(|t| &t.tok) {
            Some(Tok::Int { value, .. }) => *value as i64,
            Some(Tok::Char(c)) => i64::from(*c),
            Some(Tok::Ident(n)) if &**n == "true" => 1,
            Some(Tok::Ident(n)) if n.starts_with("__has_") => {
                self.at += 1;
                if self.eat("(") {
                    while self.at < self.tokens.len() && !self.eat(")") {
                        self.at += 1;
                    }
                }
                return Ok(0);
            }
            Some(Tok::Ident(_)) => 0,
            Some(_) => return Err("expected a value in the condition of `#if`"),
            None => return Err("`#if` lacks a condition"),
        };
        self.at += 1;
        Ok(v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> (String, Vec<String>) {
        let mut sources = Sources::default();
        let file = sources.add("body", text);
        let mut sink = Sink::default();
        let tokens = Preprocessor::new(&mut sources).run(file, &mut sink);
        let words: Vec<String> = tokens.iter().map(|t| spell_one(&t.tok)).filter(|s| !s.is_empty()).collect();
        (words.join(" "), sink.into_vec().into_iter().map(|d| d.message).collect())
    }

    #[test]
    fn macros_expand_with_arguments_pasting_and_stringizing() {
        let text = "#define ADD(a, b) ((a) + (b))\n#define CAT(a, b) a##b\n#define S(x) #x\n\
                    ADD(1, f(2, 3)) CAT(ab, c1) S(a + b) CAT(x, 2)";
        let (out, errors) = run(text);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(out, "( ( 1 ) + ( f ( 2 , 3 ) ) ) abc1 \"a + b\" x2");
    }

    #[test]
    fn self_reference_ends_and_exponential_macros_are_refused() {
        assert_eq!(run("#define a a + b\n#define b a\na").0, "a + a");
        let mut text = String::from("#define m0 x x x x x x x x\n");
        for i in 1..12 {
            text.push_str(&format!("#define m{i} m{} m{} m{} m{}\n", i - 1, i - 1, i - 1, i - 1));
        }
        text.push_str("m11");
        let (_, errors) = run(&text);
        assert_eq!(errors.len(), 1, "{errors:?}");
    }

    #[test]
    fn conditionals_choose_one_branch() {
        let text = "#define V 3\n#if V > 2 && defined(V)\nyes\n#elif 1\nno\n#else\nno\n#endif\n#ifdef W\nno\n#else\nok\n#endif";
        assert_eq!(run(text), ("yes ok".into(), vec![]));
        assert_eq!(run("#if 1\nx").1.len(), 1);
        assert_eq!(run("#endif\n#else\n").1.len(), 2);
        assert_eq!(run("#if 1 / 0\n#endif").1.len(), 1);
    }
}
