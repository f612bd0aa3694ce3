//! The prelude: the language's semantics in Metal. A kernel gets the functions that it reaches.
//!
//! The shared functions come as C++ with `double`. Metal has none: their literals are rewritten to the bits
//! of an `f64` that is computed in integers, and polynomials, which they write with parameter packs, to
//! chains of `fma_of`.

use std::sync::OnceLock;

use crate::cpp::prelude::{
    CONVERT, FLOAT, INT, MATH, PreludeItem, SPECIAL, TRIG, WIDE, needed, split, words,
};
use crate::cpp::scalar::DEVICE_TEXTS;

const HEAD: &str = "\
#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
";
/// How functions of the prelude begin.
pub(super) const FUNCTION: &str = "#define HESPER_FN inline\n";

/// Items of one text.
struct Section {
    items: Vec<PreludeItem>,
    wanted: SectionUse,
}

/// When the functions of a section are available.
#[derive(Clone, Copy, PartialEq)]
enum SectionUse {
    Always,
    /// Functions of f32 reach f64.
    Wide,
    /// The kernel's text has one of these words, or one that begins so.
    Words(&'static [&'static str]),
    Bounds,
}

fn sections() -> &'static [Section] {
    static SECTIONS: OnceLock<Vec<Section>> = OnceLock::new();
    SECTIONS.get_or_init(|| {
        let device: String = DEVICE_TEXTS.concat().concat();
        let section = |text: String, wanted| Section {
            items: split(text.leak()).into_iter().map(named).collect(),
            wanted,
        };
        let mut ops = section(shared(&device), SectionUse::Always);
        // Kernels have no values of f64.
        ops.items.retain(|item| !item.names.iter().any(|name| item.text.contains(&format!("{name}(f64 "))));
        vec![
            section(include_str!("prelude/core.h").to_string(), SectionUse::Always),
            section(shared(INT), SectionUse::Always),
            section(include_str!("prelude/soft.h").to_string(), SectionUse::Wide),
            section(shared(WIDE), SectionUse::Wide),
            section(include_str!("prelude/float.h").to_string(), SectionUse::Always),
            section(shared(FLOAT), SectionUse::Always),
            section(include_str!("prelude/convert.h").to_string(), SectionUse::Always),
            section(shared(CONVERT), SectionUse::Always),
            section(shared(MATH), SectionUse::Always),
            section(shared(TRIG), SectionUse::Always),
            section(shared(SPECIAL), SectionUse::Always),
            ops,
            section(include_str!("prelude/simd.h").to_string(), SectionUse::Words(&["simd_lanes"])),
            section(include_str!("prelude/atomic.h").to_string(), SectionUse::Words(&["atomic_"])),
            section(include_str!("prelude/access.h").to_string(), SectionUse::Words(&["load_u", "store_u"])),
            section(include_str!("prelude/bounds.h").to_string(), SectionUse::Bounds),
        ]
    })
}

/// A structure is kept only if it is reached, as functions are.
fn named(mut item: PreludeItem) -> PreludeItem {
    let code = item.text.lines().find(|line| !line.starts_with("//")).unwrap_or_default();
    if let Some(name) = code.strip_prefix("struct ") {
        item.names.extend(words(name).next());
    }
    item
}

/// The whole text of a kernel.
pub(super) fn complete(body: &str, bounds: bool) -> String {
    format!("{HEAD}{FUNCTION}{}", behind_head(body, bounds))
}

/// A text behind the functions that it reaches.
pub(super) fn behind_head(body: &str, bounds: bool) -> String {
    let wanted = |wide: bool| {
        sections().iter().filter(move |section| match section.wanted {
            SectionUse::Always => true,
            SectionUse::Wide => wide,
            SectionUse::Words(starts) => {
                words(body).any(|word| starts.iter().any(|start| word.starts_with(start)))
            }
            SectionUse::Bounds => bounds,
        })
    };
    let of = |wide: bool| needed(wanted(wide).flat_map(|section| &section.items), body);
    let mut prelude = of(false);
    if words(&prelude).any(|word| word == "f64") {
        prelude = of(true);
    }
    format!("{prelude}{}", numbers(body, false))
}

/// A shared text in Metal.
fn shared(text: &str) -> String {
    numbers(&polynomials(text), true)
}

/// `poly(x, a, b, c)` as `fma_of(x, fma_of(x, c, b), a)`.
fn polynomials(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("poly(") {
        out.push_str(&rest[..at]);
        let arguments = &rest[at + "poly(".len()..];
        let (mut depth, mut start, mut parts, mut end) = (0, 0, Vec::new(), arguments.len());
        for (i, c) in arguments.char_indices() {
            match c {
                '(' => depth += 1,
                ')' if depth > 0 => depth -= 1,
                ',' | ')' if depth == 0 => {
                    parts.push(arguments[start..i].trim());
                    start = i + 1;
                    if c == ')' {
                        end = i + 1;
                        break;
                    }
                }
                _ => {}
            }
        }
        if let [x, coefficients @ .., last] = &parts[..] {
            let chain = |sum: String, c: &&str| format!("fma_of({x}, {sum}, {c})");
            out.push_str(&coefficients.iter().rev().fold((*last).to_string(), chain));
        }
        rest = &arguments[end..];
    }
    out + rest
}

/// Numbers in Metal's spelling: `ull` is `ul`, `ll` is `l`, and a double, if the text may have some, is its
/// bits.
fn numbers(text: &str, doubles: bool) -> String {
    let bytes = text.as_bytes();
    let is_word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        if !bytes[at].is_ascii_digit() {
            // Names and punctuation stay as they are.
            at += 1;
            while is_word(bytes[start]) && at < bytes.len() && is_word(bytes[at]) {
                at += 1;
            }
            while !text.is_char_boundary(at) {
                at += 1;
            }
            out.push_str(&text[start..at]);
            continue;
        }
        let hex = text[start..].starts_with("0x");
        while at < bytes.len() {
            let exponent = !hex && matches!(bytes[at - usize::from(at > start)], b'e' | b'E');
            let sign = exponent && matches!(bytes[at], b'+' | b'-');
            if !(is_word(bytes[at]) || bytes[at] == b'.' || sign) {
                break;
            }
            at += 1;
        }
        let number = &text[start..at];
        let double = number.parse::<f64>().ok().filter(|_| doubles && !hex && number.contains(['.', 'e']));
        match (double, number.ends_with("ll")) {
            (Some(x), _) => out.push_str(&format!("f64_of({:#018x}ul)", x.to_bits())),
            (None, true) => out.push_str(&number[..number.len() - 1]),
            (None, false) => out.push_str(number),
        }
    }
    out
}
