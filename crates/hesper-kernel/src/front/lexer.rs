//! The lexer: text to tokens, with spans.
//!
//! It never fails: characters that form no token are reported and skipped. Comments and line splices are
//! white space. Every token records whether it begins a line (for directives) and whether white space
//! precedes it (for macros).

use super::diag::{Diagnostic, ErrorKind, Sink};
use super::source::{FileId, Span};
use std::rc::Rc;
use std::sync::Arc;

/// An identifier's text.
pub type Name = Arc<str>;

/// The suffix of an integer literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntSuffix {
    /// `u`
    pub unsigned: bool,
    /// `l`
    pub long: bool,
}

/// The suffix of a floating-point literal; none means `float`, as the dialect has no double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatSuffix {
    /// None or `f`.
    Float,
    /// `h`
    Half,
    /// `bf`
    Bfloat,
}

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub enum Tok {
    /// An identifier or keyword.
    Ident(Name),
    /// An integer literal. A large decimal literal does not become unsigned without a suffix.
    Int {
        /// Its value.
        value: u64,
        /// Its suffix.
        suffix: IntSuffix,
        /// Written in base ten.
        decimal: bool,
    },
    /// A floating-point literal.
    Float(f64, FloatSuffix),
    /// A character literal.
    Char(u8),
    /// A string literal (attributes and `static_assert` only).
    Str(Name),
    /// Punctuation, longest match.
    Punct(&'static str),
    /// End of the text.
    End,
}

/// The macros through which a token has already been expanded, innermost first.
#[derive(Debug)]
pub struct Hide {
    /// The macro.
    pub name: Name,
    /// The rest.
    pub next: Option<Rc<Hide>>,
}

/// A token with its place.
#[derive(Clone, Debug)]
pub struct Token {
    /// What it is.
    pub tok: Tok,
    /// Where it is.
    pub span: Span,
    /// First on its line.
    pub starts_line: bool,
    /// White space before it.
    pub spaced: bool,
    /// `#pragma unroll` (or the like) precedes it.
    pub unroll: bool,
    /// Macros that may not expand it again.
    pub hide: Option<Rc<Hide>>,
}

impl Token {
    /// Whether this is the given punctuation.
    pub fn is(&self, p: &str) -> bool {
        matches!(&self.tok, Tok::Punct(q) if *q == p)
    }

    /// The identifier's text, if it is one.
    pub fn ident(&self) -> Option<&Name> {
        match &self.tok {
            Tok::Ident(n) => Some(n),
            _ => None,
        }
    }
}

const PUNCTUATION: [&str; 51] = [
    "...", "<<=", ">>=", "<=>", "->*", "::", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&",
    "||", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##", "{", "}", "(", ")", "[", "]", ";", ",", ".",
    "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "!", "~", "?", ":", "=", "#",
];

/// Splits a text into tokens; the last one is [`Tok::End`].
pub fn lex(file: FileId, text: &str, sink: &mut Sink) -> Vec<Token> {
    Lexer { file, text, bytes: text.as_bytes(), at: 0, sink }.run()
}

struct Lexer<'a> {
    file: FileId,
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    sink: &'a mut Sink,
}

impl Lexer<'_> {
    fn run(mut self) -> Vec<Token> {
        let mut out = Vec::new();
        let (mut starts_line, mut spaced) = (true, false);
        loop {
            let before = self.at;
            let newline = self.skip_space();
            starts_line |= newline;
            spaced |= self.at > before;
            let lo = self.at;
            let tok = if lo >= self.bytes.len() { Some(Tok::End) } else { self.token() };
            let Some(tok) = tok else { continue };
            let done = tok == Tok::End;
            let span = self.span(lo, self.at);
            out.push(Token { tok, span, starts_line, spaced, unroll: false, hide: None });
            if done {
                return out;
            }
            (starts_line, spaced) = (false, false);
        }
    }

    fn span(&self, lo: usize, hi: usize) -> Span {
        Span { file: self.file, lo: lo as u32, hi: hi as u32, expansion: 0 }
    }

    fn peek(&self, n: usize) -> u8 {
        self.bytes.get(self.at + n).copied().unwrap_or(0)
    }

    fn error(&mut self, lo: usize, message: impl Into<String>) {
        let span = self.span(lo, self.at.max(lo + 1));
        self.sink.push(Diagnostic::error(ErrorKind::Lexical, span, message));
    }

    /// Skips blanks, comments and line splices. True if a line ended.
    fn skip_space(&mut self) -> bool {
        let mut newline = false;
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'\n', _) => {
                    newline = true;
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r' | 0x0B | 0x0C, _) => self.at += 1,
                (b'\\', b'\n') => self.at += 2,
                (b'\\', b'\r') if self.peek(2) == b'\n' => self.at += 3,
                (b'/', b'/') => {
                    while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                        let splice = self.peek(0) == b'\\';
                        self.at += 1;
                        if splice && self.peek(0) == b'\n' {
                            self.at += 1;
                        }
                    }
                }
                (b'/', b'*') => {
                    let lo = self.at;
                    self.at += 2;
                    while self.at < self.bytes.len() && !(self.peek(0) == b'*' && self.peek(1) == b'/') {
                        self.at += 1;
                    }
                    if self.at >= self.bytes.len() {
                        let span = self.span(lo, lo + 2);
                        self.sink.push(Diagnostic::error(
                            ErrorKind::Lexical,
                            span,
                            "comment is never closed",
                        ));
                        return newline;
                    }
                    self.at += 2;
                }
                (0xEF, 0xBB) if self.at == 0 && self.peek(2) == 0xBF => self.at += 3,
                _ => return newline,
            }
        }
    }

    fn token(&mut self) -> Option<Tok> {
        let lo = self.at;
        let c = self.peek(0);
        if c.is_ascii_alphabetic() || c == b'_' || c == b'$' {
            while self.peek(0).is_ascii_alphanumeric() || matches!(self.peek(0), b'_' | b'$') {
                self.at += 1;
            }
            return Some(Tok::Ident(self.text[lo..self.at].into()));
        }
        if c.is_ascii_digit() || (c == b'.' && self.peek(1).is_ascii_digit()) {
            return Some(self.number());
        }
        if c == b'"' {
            return Some(self.string());
        }
        if c == b'\'' {
            return self.character();
        }
        for p in PUNCTUATION {
            if self.bytes[lo..].starts_with(p.as_bytes()) {
                self.at += p.len();
                return Some(Tok::Punct(p));
            }
        }
        let ch = self.text[lo..].chars().next().unwrap_or('\u{fffd}');
        self.at += ch.len_utf8();
        self.error(lo, format!("unexpected character `{}`", ch.escape_debug()));
        None
    }

    fn string(&mut self) -> Tok {
        let lo = self.at;
        self.at += 1;
        while !matches!(self.peek(0), b'"' | b'\n' | 0) {
            self.at += if self.peek(0) == b'\\' && self.peek(1) != 0 { 2 } else { 1 };
        }
        self.at = self.at.min(self.bytes.len());
        while !self.text.is_char_boundary(self.at) {
            self.at += 1;
        }
        let text: Name = self.text[lo + 1..self.at].into();
        if self.peek(0) == b'"' {
            self.at += 1;
        } else {
            self.error(lo, "string literal is never closed");
        }
        Tok::Str(text)
    }

    fn character(&mut self) -> Option<Tok> {
        let lo = self.at;
        self.at += 1;
        let value = match (self.peek(0), self.peek(1)) {
            (b'\\', e) => {
                self.at += 2;
                match e {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'0' => 0,
                    e => e,
                }
            }
            (c, _) => {
                self.at += 1;
                c
            }
        };
        if self.peek(0) == b'\'' && value.is_ascii() {
            self.at += 1;
            return Some(Tok::Char(value));
        }
        self.at = lo + 1;
        self.error(lo, "malformed character literal");
        None
    }

    fn number(&mut self) -> Tok {
        let lo = self.at;
        loop {
            let c = self.peek(0);
            let exponent_sign = matches!(c, b'+' | b'-') && self.at > lo && {
                let prefix = &self.bytes[lo..self.at];
                let hex = prefix.len() > 1 && matches!(prefix[1], b'x' | b'X');
                match self.bytes[self.at - 1] {
                    b'e' | b'E' => !hex,
                    b'p' | b'P' => hex,
                    _ => false,
                }
            };
            let separator = c == b'\'' && self.peek(1).is_ascii_alphanumeric();
            if c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_') || exponent_sign || separator {
                self.at += 1;
            } else {
                break;
            }
        }
        let text: String = self.text[lo..self.at].chars().filter(|c| *c != '\'').collect();
        match parse_number(&text) {
            Ok(t) => t,
            Err(message) => {
                self.error(lo, message);
                Tok::Int { value: 0, suffix: IntSuffix { unsigned: false, long: false }, decimal: true }
            }
        }
    }
}

/// Reads a number without digit separators.
fn parse_number(text: &str) -> Result<Tok, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'x', ..] => (&lower[2..], 16),
        [b'0', b'b', ..] => (&lower[2..], 2),
        [b'0', b'0'..=b'9', ..] if !lower.contains(['.', 'e', 'f', 'h']) => (&lower[1..], 8),
        _ => (&lower[..], 10),
    };
    let float = digits.contains('.')
        || (radix == 10 && digits.contains('e'))
        || (radix == 16 && digits.contains('p'));
    let bad = || format!("malformed number `{text}`");
    if float || (radix == 10 && digits.ends_with(['f', 'h'])) {
        let (body, suffix) = if let (Some(b), true) = (digits.strip_suffix("bf"), radix == 10) {
            (b, FloatSuffix::Bfloat)
        } else if let Some(b) = digits.strip_suffix('f').filter(|_| radix == 10 || digits.contains('p')) {
            (b, FloatSuffix::Float)
        } else if let Some(b) = digits.strip_suffix('h') {
            (b, FloatSuffix::Half)
        } else {
            (digits, FloatSuffix::Float)
        };
        if radix == 16 {
            return hex_float(body).map(|v| Tok::Float(v, suffix)).ok_or_else(bad);
        }
        if radix != 10 || body.contains('_') {
            return Err(bad());
        }
        let value = match suffix {
            FloatSuffix::Float => f64::from(body.parse::<f32>().map_err(|_| bad())?),
            _ => body.parse::<f64>().map_err(|_| bad())?,
        };
        return Ok(Tok::Float(value, suffix));
    }
    let body = digits.trim_end_matches(['u', 'l', 'z']);
    let suffix = match &digits[body.len()..] {
        "" => IntSuffix { unsigned: false, long: false },
        "u" => IntSuffix { unsigned: true, long: false },
        "l" | "ll" => IntSuffix { unsigned: false, long: true },
        "ul" | "lu" | "ull" | "llu" | "z" | "uz" | "zu" => IntSuffix { unsigned: true, long: true },
        other => return Err(format!("unknown suffix `{other}` on integer literal")),
    };
    if body.is_empty() || !body.chars().all(|c| c.is_digit(radix)) {
        return Err(bad());
    }
    let value = u64::from_str_radix(body, radix)
        .map_err(|_| format!("integer literal `{text}` does not fit into 64 bits"))?;
    Ok(Tok::Int { value, suffix, decimal: radix == 10 })
}

/// `1.8p3` without its `0x`.
fn hex_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() || mantissa.len() > 32 {
        return None;
    }
    let mut value = 0f64;
    for c in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(c.to_digit(16)?);
    }
    let exponent: i32 = exponent.parse().ok()?;
    Some(value * 2f64.powi(exponent.clamp(-4000, 4000) - 4 * fraction.len() as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> (Vec<Tok>, usize) {
        let mut sink = Sink::default();
        let toks = lex(FileId(0), text, &mut sink).into_iter().map(|t| t.tok).collect();
        (toks, sink.len())
    }

    #[test]
    fn numbers_carry_their_value_and_suffix() {
        let int = |value, unsigned, long, decimal| Tok::Int {
            value,
            suffix: IntSuffix { unsigned, long },
            decimal,
        };
        let (t, errors) = kinds("1'000 0xFFu 0b101 1ul 1.5f .5h 2e3 0x1p-2 3.f 1.0bf 017");
        assert_eq!(errors, 0);
        assert_eq!(t[0], int(1000, false, false, true));
        assert_eq!(t[1], int(255, true, false, false));
        assert_eq!(t[2], int(5, false, false, false));
        assert_eq!(t[3], int(1, true, true, true));
        assert_eq!(t[4], Tok::Float(1.5, FloatSuffix::Float));
        assert_eq!(t[5], Tok::Float(0.5, FloatSuffix::Half));
        assert_eq!(t[6], Tok::Float(2000.0, FloatSuffix::Float));
        assert_eq!(t[7], Tok::Float(0.25, FloatSuffix::Float));
        assert_eq!(t[8], Tok::Float(3.0, FloatSuffix::Float));
        assert_eq!(t[9], Tok::Float(1.0, FloatSuffix::Bfloat));
        assert_eq!(t[10], int(15, false, false, false));
    }

    #[test]
    fn malformed_text_is_reported_and_skipped() {
        for text in ["@", "\"abc", "/* never", "0x", "12abc", "99999999999999999999", "'ab'", "\u{e9}"] {
            let (t, errors) = kinds(text);
            assert!(errors > 0, "{text}");
            assert_eq!(t.last(), Some(&Tok::End));
        }
    }
}
