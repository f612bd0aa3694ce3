//! The texts that the preludes share (the semantics of the language in C++), and the selection of the
//! functions that a kernel reaches.

use std::collections::HashSet;

/// Integers: wrapping, defined everywhere.
pub(crate) const INT: &str = include_str!("prelude/int.h");
/// The bits of f64.
pub(crate) const WIDE: &str = include_str!("prelude/wide.h");
/// Minima, rounding and parts of floats.
pub(crate) const FLOAT: &str = include_str!("prelude/float.h");
/// Floats to narrow integers; specialisations of a template that the device defines.
pub(crate) const CONVERT: &str = include_str!("prelude/convert.h");
/// Exponentials, logarithms, powers.
pub(crate) const MATH: &str = include_str!("prelude/math.h");
/// Circular functions.
pub(crate) const TRIG: &str = include_str!("prelude/trig.h");
/// The error function, its inverse and the gamma functions.
pub(crate) const SPECIAL: &str = include_str!("prelude/special.h");

/// A function of the prelude, or text that is always kept: types, macros, code in `#if`.
pub(crate) struct PreludeItem {
    pub text: &'static str,
    /// Functions that it defines; none if it is always kept.
    pub names: Vec<&'static str>,
    pub words: Vec<&'static str>,
}

/// The items that are always kept and those that `text` reaches, in order.
pub(crate) fn needed<'a>(items: impl Iterator<Item = &'a PreludeItem>, text: &str) -> String {
    let items: Vec<&PreludeItem> = items.collect();
    let mut reached: HashSet<&str> = words(text).collect();
    let mut kept: Vec<bool> = vec![false; items.len()];
    loop {
        let before = reached.len();
        for (item, kept) in items.iter().zip(&mut kept) {
            if !*kept && (item.names.is_empty() || item.names.iter().any(|name| reached.contains(name))) {
                *kept = true;
                reached.extend(&item.words);
            }
        }
        if reached.len() == before {
            break;
        }
    }
    items.iter().zip(kept).filter(|(_, kept)| *kept).map(|(item, _)| item.text).collect()
}

/// Splits a section into items; each ends with the line that closes its last brace.
pub(crate) fn split(text: &'static str) -> Vec<PreludeItem> {
    let mut items = Vec::new();
    let (mut start, mut end, mut depth, mut conditions) = (0, 0, 0i32, 0i32);
    let mut names: Option<Vec<&'static str>> = None;
    for line in text.split_inclusive('\n') {
        end += line.len();
        // A comment belongs to the item after it.
        if depth == 0 && line.starts_with("//") {
            continue;
        }
        if names.is_none() {
            conditions += i32::from(line.starts_with("#if")) - i32::from(line.starts_with("#endif"));
            names = Some(if conditions > 0 { Vec::new() } else { defined(line) });
        }
        let count = |of: char| line.matches(of).count() as i32;
        depth += count('{') - count('}');
        if depth == 0 && !line.trim_end().ends_with('\\') {
            let (text, names) = (&text[start..end], names.take().unwrap_or_default());
            items.push(PreludeItem { text, names, words: code_words(text).collect() });
            start = end;
        }
    }
    items
}

/// The functions that a line begins to define.
fn defined(line: &'static str) -> Vec<&'static str> {
    let head = line.split('{').next().unwrap_or_default();
    let begins = head.starts_with("HESPER_FN ") || head.starts_with("template ");
    let Some((_, head)) = head.split_once("HESPER_FN ").filter(|_| begins) else { return Vec::new() };
    // `NAME(` of the function, not of a macro in its type.
    let calls = head.match_indices('(').filter_map(|(at, _)| words(&head[..at]).last());
    calls.filter(|name| name.chars().any(char::is_lowercase)).collect()
}

/// The words of a text outside of its comments.
fn code_words(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| words(line.split("//").next().unwrap_or_default()))
}

pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{needed, split};

    #[test]
    fn a_name_in_a_comment_reaches_no_function() {
        let text = "// Used by twice and thrice.\nHESPER_FN int once(int x) {\n  return x;  // unlike twice\n}\n\
                    HESPER_FN int twice(int x) {\n  return once(x) + once(x);\n}\n";
        let items = split(text);
        let kept = needed(items.iter(), "x = once(x);");
        assert!(kept.contains("int once") && !kept.contains("int twice"), "{kept}");
        assert!(needed(items.iter(), "x = twice(x);").contains("int once"));
    }
}
