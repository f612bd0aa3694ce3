//! The prelude: the language's semantics as CUDA C++. A kernel gets the functions that it reaches in the
//! sections that its ops need, which keeps compilation short.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::analysis::needs_lanes;
use crate::cpp::prelude::{
    self as cpp, CONVERT, FLOAT, INT, MATH, PreludeItem, SPECIAL, TRIG, WIDE, split, words,
};
use crate::cpp::scalar::{self, Template};
use crate::ir::{Kernel, Op, Scalar, atomic_op};

/// Sections in the order of the text. Each relies on those before it that every kernel gets and on those that
/// [`sections`] adds with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Section {
    Ptx,
    Core,
    Fast,
    Thread,
    Int,
    Float,
    Math,
    Trig,
    Special,
    Quick,
    Double,
    /// The functions that entries of the registry define.
    Ops,
    Simd,
    Atomic,
    Bounds,
}

impl Section {
    const COUNT: usize = Section::Bounds as usize + 1;

    fn sources(self) -> Vec<&'static str> {
        vec![match self {
            Section::Ops => return scalar::DEVICE_TEXTS.concat(),
            Section::Ptx => include_str!("prelude/ptx.cuh"),
            Section::Core => include_str!("prelude/core.cuh"),
            Section::Fast => include_str!("prelude/fast.cuh"),
            Section::Thread => include_str!("prelude/thread.cuh"),
            Section::Int => return vec![include_str!("prelude/bits.cuh"), INT],
            Section::Float => {
                let native = include_str!("prelude/float.cuh");
                return vec![WIDE, native, FLOAT, include_str!("prelude/convert.cuh"), CONVERT];
            }
            Section::Math => MATH,
            Section::Trig => TRIG,
            Section::Special => SPECIAL,
            Section::Quick => include_str!("prelude/quick.cuh"),
            Section::Double => include_str!("prelude/double.cuh"),
            Section::Simd => include_str!("prelude/simd.cuh"),
            Section::Atomic => include_str!("prelude/atomic.cuh"),
            Section::Bounds => include_str!("prelude/bounds.cuh"),
        }]
    }
}

/// The sections a kernel needs, in order.
pub(super) fn sections(kernel: &Kernel, bounds: bool, fast: bool) -> Vec<Section> {
    use Section::*;
    let mut wanted = vec![Ptx, Core, Thread, Int, Float];
    if fast {
        wanted.push(Fast);
    }
    if bounds {
        wanted.push(Bounds);
    }
    for op in kernel.blocks.iter().flat_map(|b| &b.insts).map(|i| &i.op) {
        if let Some(template) = template(kernel, op, fast) {
            let of_double = template.scalar == Scalar::F64;
            wanted.extend(defining(template.text).filter(|s| *s == Ops || (*s == Double) == of_double));
        }
        match op {
            atomic_op!() => wanted.push(Atomic),
            op if needs_lanes(op) => wanted.push(Simd),
            _ => {}
        }
    }
    if wanted.contains(&Ops) {
        wanted.extend(items(Ops).iter().flat_map(|item| defining(item.text)));
    }
    if wanted.contains(&Quick) {
        wanted.push(Special);
    }
    if wanted.contains(&Special) {
        wanted.push(Trig);
    }
    if wanted.contains(&Trig) {
        wanted.push(Math);
    }
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

/// The text of an op of the registry.
fn template(kernel: &Kernel, op: &Op, fast: bool) -> Option<Template> {
    let scalar_of = |v| kernel.ty(v).scalar();
    Some(match *op {
        Op::Unary(f, a) => scalar::unary(f, scalar_of(a)?, fast),
        Op::Binary(f, a, _) => scalar::binary(f, scalar_of(a)?, fast),
        Op::Ternary(f, a, ..) => scalar::ternary(f, scalar_of(a)?, fast),
        _ => return None,
    })
}

/// The optional sections that define functions named in a text.
fn defining(text: &str) -> impl Iterator<Item = Section> {
    use Section::*;
    static FUNCTIONS: OnceLock<HashMap<&'static str, Vec<Section>>> = OnceLock::new();
    let functions = FUNCTIONS.get_or_init(|| {
        let mut functions: HashMap<_, Vec<Section>> = HashMap::new();
        for section in [Math, Trig, Special, Quick, Double, Ops] {
            for name in items(section).iter().flat_map(|item| &item.names) {
                functions.entry(*name).or_default().push(section);
            }
        }
        functions
    });
    words(text).filter_map(|word| functions.get(word)).flatten().copied()
}

/// Whether a kernel with these sections has neither loops nor long functions.
pub(super) fn is_plain(kernel: &Kernel, sections: &[Section]) -> bool {
    let short = [Section::Ptx, Section::Core, Section::Fast, Section::Thread, Section::Int, Section::Float];
    let mut insts = kernel.blocks.iter().flat_map(|block| &block.insts);
    sections.iter().all(|section| short.contains(section)) && !insts.any(|i| matches!(i.op, Op::Loop { .. }))
}

/// The sections without the functions that `text` does not reach.
pub(super) fn needed(sections: &[Section], text: &str) -> String {
    cpp::needed(sections.iter().flat_map(|section| items(*section)), text)
}

fn items(section: Section) -> &'static [PreludeItem] {
    static ITEMS: [OnceLock<Vec<PreludeItem>>; Section::COUNT] = [const { OnceLock::new() }; Section::COUNT];
    ITEMS[section as usize].get_or_init(|| section.sources().into_iter().flat_map(split).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Section; Section::COUNT] = [
        Section::Ptx,
        Section::Core,
        Section::Fast,
        Section::Thread,
        Section::Int,
        Section::Float,
        Section::Math,
        Section::Trig,
        Section::Special,
        Section::Quick,
        Section::Double,
        Section::Ops,
        Section::Simd,
        Section::Atomic,
        Section::Bounds,
    ];

    #[test]
    fn the_items_of_a_section_are_the_whole_of_it() {
        for section in ALL {
            let whole: String = items(section).iter().map(|item| item.text).collect();
            assert_eq!(whole, section.sources().concat(), "{section:?}");
            for item in items(section).iter().filter(|item| !item.names.is_empty()) {
                assert_eq!(item.text.matches("HESPER_FN").count(), 1, "{}", item.text);
            }
        }
    }

    #[test]
    fn a_text_gets_the_functions_that_it_reaches_and_no_others() {
        let text = needed(&ALL, "x = round_of(y);");
        for name in ["round_of", "trunc_of", "copysign_of", "f32_of"] {
            assert!(text.contains(&format!(" {name}(")), "{name} is missing");
        }
        assert!(!text.contains(" frexp_mant(") && !text.contains(" sin_of("));
        assert!(text.contains("struct thread_place") && text.contains("#define HESPER_OP"));
    }
}
