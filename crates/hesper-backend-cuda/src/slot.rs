//! Slots of kernels: the functions of fused element-wise ops as part of a text.
//!
//! A text with a slot declares its kernels with `SLOT_BUFFERS` and `SLOT_CONSTANTS`, and reads elements from
//! `SLOT_SOURCE`. They are defined in `source.cuh` for memory, and here for functions. These have the options
//! of fused kernels, so that both give the same bits; contraction is off for the whole kernel then.

use std::fmt::Write as _;

use hesper_core::backend::SlotFunctions;
use hesper_kernel::cuda::{COMPILE_OPTIONS, Options, emit_functions};

/// What a text with an empty slot gets.
const MEMORY: &str = include_str!("source.cuh");

/// The text before and the text behind the prelude, and the lines of the specialisation.
pub(crate) fn parts(text: &str, slot: Option<&SlotFunctions>) -> (String, String, String) {
    match slot {
        None if text.contains("SLOT_BUFFERS") => (String::new(), MEMORY.into(), String::new()),
        None => Default::default(),
        Some(slot) => (functions(slot), source(slot), options()),
    }
}

fn options() -> String {
    COMPILE_OPTIONS.iter().fold(String::new(), |lines, option| format!("{lines}\noption {option}"))
}

/// The functions, whose prelude has names of its own.
fn functions(slot: &SlotFunctions) -> String {
    let named: Vec<_> = [("one", Some(&slot.one)), ("word", slot.word.as_ref())]
        .into_iter()
        .filter_map(|(name, function)| Some((name, function?)))
        .collect();
    let text = emit_functions(&named, &Options { fast_half: true, ..Options::default() });
    format!("namespace fused {{\n{text}}}\n#undef to_bf16\n")
}

fn source(slot: &SlotFunctions) -> String {
    let list = |of: &dyn Fn(usize) -> String| (0..slot.one.buffers()).map(of).collect::<String>();
    let (fields, names) = (list(&|at| format!("const u8* s{at}; ")), list(&|at| format!("s{at}, ")));
    let parameters = list(&|at| format!("const u8* __restrict__ s{at}, "));
    let mut text = String::new();
    let constants = slot.one.constants();
    if constants > 0 {
        let _ = writeln!(text, "struct slot_constants {{ u64 words[{constants}]; }};");
    }
    let word = match slot.word {
        Some(_) => format!("    fused::word((u8*)&r, (u64)(first + i), {names}constants);"),
        None => format!(
            "#pragma unroll
    for (int v = 0; v < 16 / sizeof(T); ++v) fused::one((u8*)&r.v[v], (u64)(first + i + v), {names}constants);"
        ),
    };
    let _ = writeln!(
        text,
        "template <class T> struct source {{
  {fields}const u8* constants; i64 first;
  __device__ __forceinline__ T operator[](i64 i) const {{
    T r;
    fused::one((u8*)&r, (u64)(first + i), {names}constants);
    return r;
  }}
  __device__ __forceinline__ pack<T> word(i64 i) const {{
    pack<T> r;
{word}
    return r;
  }}
  __device__ __forceinline__ source operator+(i64 n) const {{ return source{{{names}constants, first + n}}; }}
}};
#define SLOT_BUFFERS(T) {parameters}"
    );
    let (declared, address) = match constants {
        0 => ("", "(const u8*)0"),
        _ => (" , const slot_constants slot", "(const u8*)&slot"),
    };
    let _ = writeln!(text, "#define SLOT_CONSTANTS{declared}");
    let _ = writeln!(text, "#define SLOT_SOURCE(T) source<T>{{{names}{address}, 0}}");
    text
}
