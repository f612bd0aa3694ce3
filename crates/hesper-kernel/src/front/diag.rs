//! Diagnostics: what is wrong, where in the user's text, and what would fix it.
//!
//! A [`Diagnostic`] is a value; [`render`] turns it into the familiar text with the source line and a caret.
//! Compilation collects several of them in a [`Sink`], which bounds their number.

use super::source::{Sources, Span};
use std::fmt::Write as _;

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The kernel cannot be compiled.
    Error,
    /// Suspicious, but compiled.
    Warning,
}

/// The group an error belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Characters that are no token.
    Lexical,
    /// Preprocessor directives and macros.
    Preprocessor,
    /// Grammar.
    Syntax,
    /// An unknown or ambiguous name.
    Name,
    /// Types that do not fit.
    Type,
    /// A call that no function accepts.
    Call,
    /// Templates: deduction, arguments, instantiation.
    Template,
    /// A compile-time value that is missing or wrong, `static_assert`.
    Constant,
    /// Something of C++ that the dialect does not have.
    Unsupported,
    /// A bound of the compiler: depth, size, recursion.
    Limit,
}

impl ErrorKind {
    /// The word printed in brackets.
    pub fn label(self) -> &'static str {
        match self {
            ErrorKind::Lexical => "lexical",
            ErrorKind::Preprocessor => "preprocessor",
            ErrorKind::Syntax => "syntax",
            ErrorKind::Name => "name",
            ErrorKind::Type => "type",
            ErrorKind::Call => "call",
            ErrorKind::Template => "template",
            ErrorKind::Constant => "constant",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Limit => "limit",
        }
    }
}

/// An error or a warning with its place and its notes.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The group of the error.
    pub kind: ErrorKind,
    /// One sentence.
    pub message: String,
    /// Where.
    pub span: Span,
    /// Further lines, each with an optional place.
    pub notes: Vec<(Option<Span>, String)>,
}

impl Diagnostic {
    /// An error.
    pub fn error(kind: ErrorKind, span: Span, message: impl Into<String>) -> Self {
        Diagnostic { severity: Severity::Error, kind, message: message.into(), span, notes: Vec::new() }
    }

    /// A warning.
    pub fn warning(kind: ErrorKind, span: Span, message: impl Into<String>) -> Self {
        Diagnostic { severity: Severity::Warning, ..Self::error(kind, span, message) }
    }

    /// Adds a note without a place.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.notes.push((None, text.into()));
        self
    }

    /// Adds a note with a place.
    pub fn note(mut self, span: Span, text: impl Into<String>) -> Self {
        self.notes.push((Some(span), text.into()));
        self
    }
}

/// The most errors that one compilation reports.
const MAX_ERRORS: usize = 20;

/// Collects diagnostics; drops repeats and everything past a bound.
#[derive(Default, Debug)]
pub struct Sink {
    list: Vec<Diagnostic>,
    errors: usize,
}

impl Sink {
    /// Takes a diagnostic, unless the same one is already there.
    pub fn push(&mut self, d: Diagnostic) {
        let full = self.errors >= MAX_ERRORS || self.list.len() >= 4 * MAX_ERRORS;
        if full || self.list.iter().any(|o| o.span == d.span && o.message == d.message) {
            return;
        }
        self.errors += usize::from(d.severity == Severity::Error);
        self.list.push(d);
    }

    /// Whether an error was seen.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether no further errors are taken.
    pub fn is_full(&self) -> bool {
        self.errors >= MAX_ERRORS
    }

    /// The number of diagnostics so far.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether nothing was reported.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets everything after the first `n` diagnostics.
    pub fn truncate(&mut self, n: usize) {
        self.list.truncate(n);
        self.errors = self.list.iter().filter(|d| d.severity == Severity::Error).count();
    }

    /// What was collected.
    pub fn into_vec(self) -> Vec<Diagnostic> {
        self.list
    }
}

/// One diagnostic as text: message, place, source line with a caret, notes, macro expansions.
pub fn render(sources: &Sources, d: &Diagnostic) -> String {
    let mut out = String::new();
    let word = match d.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let _ = writeln!(out, "{word}[{}]: {}", d.kind.label(), d.message);
    excerpt(&mut out, sources, sources.user_span(d.span));
    let mut span = d.span;
    for _ in 0..8 {
        if span.expansion == 0 {
            break;
        }
        let e = &sources.expansions[span.expansion as usize];
        match e.definition {
            Some(_) => {
                let _ = writeln!(out, "note: in the expansion of macro `{}`", e.name);
                excerpt(&mut out, sources, Span { expansion: 0, ..span });
            }
            None => {
                let _ = writeln!(out, "note: in the expansion of the built-in macro `{}`", e.name);
            }
        }
        span = e.call;
    }
    for (place, text) in &d.notes {
        match place {
            Some(span) => {
                let _ = writeln!(out, "note: {text}");
                excerpt(&mut out, sources, sources.user_span(*span));
            }
            None => {
                let _ = writeln!(out, "help: {text}");
            }
        }
    }
    out
}

/// Longest part of a source line that is printed.
const MAX_LINE: usize = 160;

fn excerpt(out: &mut String, sources: &Sources, span: Span) {
    let file = sources.file(span.file);
    let (line, column) = file.line_column(span.lo);
    let (label, number) = file.reported(line);
    let width = number.to_string().len();
    let _ = writeln!(out, "{:width$}--> {label}:{number}:{column}", "");
    let chars: Vec<char> =
        file.line_text(line).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let start = (column as usize - 1).min(chars.len());
    let from = if start > MAX_LINE - 40 { start - 40 } else { 0 };
    let shown: String = chars[from..chars.len().min(from + MAX_LINE)].iter().collect();
    let (end_line, end_column) = file.line_column(span.hi.max(span.lo));
    let end = if end_line == line { end_column as usize - 1 } else { chars.len() };
    let marks = end.max(start + 1).min(from + MAX_LINE) - start;
    let _ = writeln!(out, "{:width$} |", "");
    let _ = writeln!(out, "{number} | {}", shown.trim_end());
    let _ = writeln!(out, "{:width$} | {}{}", "", " ".repeat(start - from), "^".repeat(marks.max(1)));
}

/// The candidate nearest to `name` in edit distance, if it is near enough to be a misspelling.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = match name.chars().count() {
        0..=2 => 1,
        3..=5 => 2,
        _ => 3,
    };
    let mut best: Option<(usize, &str)> = None;
    for c in candidates {
        if c == name || c.len().abs_diff(name.len()) > limit {
            continue;
        }
        let d = distance(name, c);
        if d <= limit && d < name.len() && best.is_none_or(|(b, t)| (d, c) < (b, t)) {
            best = Some((d, c));
        }
    }
    best.map(|(_, c)| c)
}

/// Edit distance with transpositions of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut d = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                d = d.min(before[j - 2] + 1);
            }
            row.push(d);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::source::FileId;

    #[test]
    fn a_misspelt_name_finds_its_nearest_neighbour() {
        assert_eq!(did_you_mean("flaot", ["half", "float", "float2"]), Some("float"));
        assert_eq!(did_you_mean("simd_smu", ["simd_sum", "simd_max"]), Some("simd_sum"));
        assert_eq!(did_you_mean("x", ["length", "dot"]), None);
    }

    #[test]
    fn a_rendered_error_shows_the_line_and_underlines_the_span() {
        let mut sources = Sources::default();
        let file = sources.add("body", "int a;\nflaot b = 1;\n");
        let span = Span { file: FileId(file.0), lo: 7, hi: 12, expansion: 0 };
        let d = Diagnostic::error(ErrorKind::Name, span, "unknown type name `flaot`")
            .help("did you mean `float`?");
        let expected = "error[name]: unknown type name `flaot`\n --> body:2:1\n  |\n2 | flaot b = 1;\n  | ^^^^^\n\
                        help: did you mean `float`?\n";
        assert_eq!(render(&sources, &d), expected);
    }
}
