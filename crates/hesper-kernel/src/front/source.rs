//! Source texts and positions in them.
//!
//! A compilation reads several texts (the built-in prelude, the user's header, the user's body). Each is a
//! [`SourceFile`] with a label; a [`Span`] names a byte range of one of them, and the macro expansion through
//! which that range came to be compiled. Positions are reported in the user's own text, never in generated
//! text.

use std::sync::Arc;

/// Index of a text in [`Sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u16);

/// A byte range of a text, with the macro expansion it came through (0: written there directly).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The text.
    pub file: FileId,
    /// First byte.
    pub lo: u32,
    /// One past the last byte.
    pub hi: u32,
    /// Index into [`Sources::expansions`], or 0.
    pub expansion: u32,
}

impl Span {
    /// The range from the start of `self` to the end of `other`, when both lie in one text and one expansion.
    pub fn to(self, other: Span) -> Span {
        if self.file == other.file && self.expansion == other.expansion && other.hi >= self.lo {
            Span { hi: other.hi, ..self }
        } else {
            self
        }
    }
}

/// One text with its label.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// The name of this text in diagnostics: `body`, `header`, a file name.
    pub label: Arc<str>,
    /// The text itself.
    pub text: Arc<str>,
    line_starts: Vec<u32>,
    marks: Vec<LineMark>,
}

/// A directive `#line`: from line `from` on, lines are reported as those of another text.
#[derive(Clone, Debug)]
struct LineMark {
    from: u32,
    number: u32,
    label: Arc<str>,
}

impl SourceFile {
    fn new(label: &str, text: &str) -> Self {
        let mut line_starts = vec![0];
        line_starts.extend(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i as u32 + 1));
        SourceFile { label: label.into(), text: text.into(), line_starts, marks: Vec::new() }
    }

    /// Line and column of a byte offset, both counted from 1; the column counts characters.
    pub fn line_column(&self, offset: u32) -> (u32, u32) {
        let line = self.line_starts.partition_point(|&s| s <= offset).max(1) - 1;
        let start = self.line_starts[line] as usize;
        let end = (offset as usize).min(self.text.len());
        let column =
            self.text.as_bytes()[start.min(end)..end].iter().filter(|b| (**b & 0xC0) != 0x80).count();
        (line as u32 + 1, column as u32 + 1)
    }

    /// The text that a line (from 1) belongs to and its number there, as `#line` says.
    pub fn reported(&self, line: u32) -> (Arc<str>, u32) {
        let after = self.marks.partition_point(|mark| mark.from <= line);
        match after.checked_sub(1).map(|at| &self.marks[at]) {
            Some(mark) => (mark.label.clone(), mark.number.saturating_add(line - mark.from)),
            None => (self.label.clone(), line),
        }
    }

    /// The text of a line (from 1), without its end.
    pub fn line_text(&self, line: u32) -> &str {
        let index = line.saturating_sub(1) as usize;
        let Some(&start) = self.line_starts.get(index) else { return "" };
        let end = self.line_starts.get(index + 1).map_or(self.text.len(), |&e| e as usize);
        self.text.get(start as usize..end).unwrap_or("").trim_end_matches(['\n', '\r'])
    }
}

/// One use of a macro.
#[derive(Clone, Debug)]
pub struct Expansion {
    /// The macro's name.
    pub name: Arc<str>,
    /// Where it was used.
    pub call: Span,
    /// Where it is defined; none for macros of the compiler.
    pub definition: Option<Span>,
}

/// All texts of one compilation and the macro expansions among them.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
    /// Macro uses; index 0 is unused.
    pub expansions: Vec<Expansion>,
}

impl Sources {
    /// Adds a text. Texts beyond 4 GiB or 65,535 files are cut off by the caller's size limit.
    pub fn add(&mut self, label: &str, text: &str) -> FileId {
        self.files.push(SourceFile::new(label, text));
        FileId((self.files.len() - 1) as u16)
    }

    /// The text with this id.
    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id.0 as usize]
    }

    /// Records a macro use and returns its index.
    pub fn add_expansion(&mut self, expansion: Expansion) -> u32 {
        if self.expansions.is_empty() {
            let dummy = Span { file: FileId(0), lo: 0, hi: 0, expansion: 0 };
            self.expansions.push(Expansion { name: "".into(), call: dummy, definition: None });
        }
        self.expansions.push(expansion);
        (self.expansions.len() - 1) as u32
    }

    /// Follows macro expansions outwards to the macro use in the user's text.
    pub fn user_span(&self, mut span: Span) -> Span {
        while span.expansion != 0 {
            span = self.expansions[span.expansion as usize].call;
        }
        span
    }

    /// Numbers the lines after a `#line` directive from `number`. Without a label they keep the label of the
    /// text that they belong to.
    pub(crate) fn mark_line(&mut self, directive: Span, number: u32, label: Option<&str>) {
        let Some(file) = self.files.get_mut(directive.file.0 as usize) else { return };
        let (line, _) = file.line_column(directive.lo);
        let label = label.map_or_else(|| file.reported(line).0, Into::into);
        file.marks.push(LineMark { from: line + 1, number, label });
    }

    /// The text, line and column (from 1) of the start of a span, as `#line` says.
    pub fn place(&self, span: Span) -> (Arc<str>, u32, u32) {
        let file = self.file(span.file);
        let (line, column) = file.line_column(span.lo);
        let (label, line) = file.reported(line);
        (label, line, column)
    }
}
