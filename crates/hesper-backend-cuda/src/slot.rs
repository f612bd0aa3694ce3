//! Slots of kernels: the functions of fused element-wise ops as part of a text.
//!
//! A text with a slot for what it reads declares its kernels with `SLOT_BUFFERS` and `SLOT_CONSTANTS`, and
//! reads elements from `SLOT_SOURCE`. One with a slot for what it stores has `SINK_BUFFERS`, which declare
//! the output too, `SINK_CONSTANTS` and `SLOT_SINK`. They are defined in `source.cuh` and `sink.cuh` for
//! memory, and here for functions. Functions have the options of fused kernels, so that both give the same
//! bits; contraction is off for the whole kernel then.

use hesper_backend_gpu::Slots;
use hesper_core::backend::SlotFunctions;
use hesper_kernel::cuda::{COMPILE_OPTIONS, Options, emit_functions};

/// What a text with empty slots gets.
const MEMORY_SOURCE: &str = include_str!("source.cuh");
const MEMORY_SINK: &str = include_str!("sink.cuh");

/// The text before and the text behind the prelude, and the lines of the specialisation.
pub(crate) fn parts(text: &str, slots: Slots<'_>) -> (String, String, String) {
    let mut behind = String::new();
    if text.contains("SLOT_BUFFERS") {
        behind += &slots.source.map_or(MEMORY_SOURCE.into(), source);
    }
    if text.contains("SINK_BUFFERS") {
        behind += &slots.epilogue.map_or(MEMORY_SINK.into(), sink);
    }
    if slots.are_empty() {
        return (String::new(), behind, String::new());
    }
    let options =
        COMPILE_OPTIONS.iter().fold(String::new(), |lines, option| format!("{lines}\noption {option}"));
    (functions(slots), behind, options)
}

/// The functions, whose prelude has names of its own.
fn functions(slots: Slots<'_>) -> String {
    let text = emit_functions(&slots.functions(), &Options { fast_half: true, ..Options::default() });
    format!("namespace fused {{\n{text}}}\n#undef to_bf16\n")
}

/// The pieces of text that name the buffers and constants of a slot.
struct Names {
    /// Fields for the buffers, their names as arguments, and their declarations as parameters.
    fields: String,
    arguments: String,
    parameters: String,
    /// The type of the constants, their declaration as a parameter, and their address.
    constants: String,
    declared: String,
    address: String,
}

impl Names {
    /// `letter` begins the names of the buffers; `constants` is the name of the parameter.
    fn new(slot: &SlotFunctions, letter: char, constants: &str) -> Names {
        let list = |of: &dyn Fn(usize) -> String| (0..slot.one.buffers()).map(of).collect::<String>();
        let (ty, declared, address) = match slot.one.constants() {
            0 => Default::default(),
            count => (
                format!("struct {constants}_constants {{ u64 words[{count}]; }};\n"),
                format!(" , const {constants}_constants {constants}"),
                format!("(const u8*)&{constants}"),
            ),
        };
        Names {
            fields: list(&|at| format!("const u8* {letter}{at}; ")),
            arguments: list(&|at| format!("{letter}{at}, ")),
            parameters: list(&|at| format!("const u8* __restrict__ {letter}{at}, ")),
            constants: ty,
            declared,
            address: if address.is_empty() { "(const u8*)0".into() } else { address },
        }
    }
}

fn source(slot: &SlotFunctions) -> String {
    let Names { fields, arguments, parameters, constants, declared, address } = Names::new(slot, 's', "slot");
    let word = match slot.word {
        Some(_) => format!("    fused::word((u8*)&r, (u64)(first + i), {arguments}constants);"),
        None => format!(
            "#pragma unroll
    for (int v = 0; v < 16 / sizeof(T); ++v) fused::one((u8*)&r.v[v], (u64)(first + i + v), {arguments}constants);"
        ),
    };
    format!(
        "{constants}template <class T> struct source {{
  {fields}const u8* constants; i64 first;
  __device__ __forceinline__ T operator[](i64 i) const {{
    T r;
    fused::one((u8*)&r, (u64)(first + i), {arguments}constants);
    return r;
  }}
  __device__ __forceinline__ pack<T> word(i64 i) const {{
    pack<T> r;
{word}
    return r;
  }}
  __device__ __forceinline__ source operator+(i64 n) const {{ return source{{{arguments}constants, first + n}}; }}
}};
#define SLOT_BUFFERS(T) {parameters}
#define SLOT_CONSTANTS{declared}
#define SLOT_SOURCE(T) source<T>{{{arguments}{address}, 0}}
"
    )
}

/// The bytes of an element that an epilogue gives.
fn result_size(slot: &SlotFunctions) -> u64 {
    slot.one.results().first().map_or(1, |value| slot.one.kernel().ty(*value).size())
}

fn sink(slot: &SlotFunctions) -> String {
    let Names { fields, arguments, parameters, constants, declared, address } =
        Names::new(slot, 'e', "sink_words");
    let size = result_size(slot);
    let word = match slot.word {
        Some(_) => format!(
            "    stored<{size} * (16 / sizeof(T))> r;
    fused::epilogue_word(r.bytes, (u64)(first + i), (const u8*)&x, {arguments}constants);
    *(stored<{size} * (16 / sizeof(T))>*)(out + (first + i) * {size}) = r;"
        ),
        None => "#pragma unroll
    for (int v = 0; v < 16 / sizeof(T); ++v) put(i + v, x.v[v]);"
            .to_string(),
    };
    format!(
        "{constants}template <int N> struct __align__(N < 16 ? N : 16) stored {{ u8 bytes[N]; }};
template <class T> struct sink {{
  u8* out; {fields}const u8* constants; i64 first;
  __device__ __forceinline__ void put(i64 i, T x) const {{
    stored<{size}> r;
    fused::epilogue_one(r.bytes, (u64)(first + i), (const u8*)&x, {arguments}constants);
    *(stored<{size}>*)(out + (first + i) * {size}) = r;
  }}
  __device__ __forceinline__ void word(i64 i, const pack<T>& x) const {{
{word}
  }}
  __device__ __forceinline__ sink operator+(i64 n) const {{ return sink{{out, {arguments}constants, first + n}}; }}
}};
#define SINK_BUFFERS(T) {parameters}u8* __restrict__ out
#define SINK_CONSTANTS{declared}
#define SLOT_SINK(T) sink<T>{{out, {arguments}{address}, 0}}
"
    )
}
