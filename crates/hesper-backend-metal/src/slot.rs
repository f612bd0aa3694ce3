//! Slots of kernels: the functions of fused element-wise ops as part of a text.
//!
//! A text with a slot for what it reads declares its kernels with `SLOT_BUFFERS` and their constants with
//! `SLOT_FIELDS`, and reads elements from `SLOT_SOURCE`. One with a slot for what it stores has
//! `SINK_BUFFERS`, which declare the output too, `SINK_FIELDS` and `SLOT_SINK`. They are defined in
//! `source.metal` and `sink.metal` for memory, and here for functions. Both switch contraction off, so that
//! both give the same bits.

use hesper_backend_gpu::Slots;
use hesper_core::backend::SlotFunctions;
use hesper_core::{Error, Result};
use hesper_kernel::metal::emit_functions;

/// What a text with empty slots gets.
const MEMORY_SOURCE: &str = text!("source.metal");
const MEMORY_SINK: &str = text!("sink.metal");

/// The text behind the prelude.
pub(crate) fn parts(text: &str, slots: Slots<'_>) -> Result<String> {
    let mut parts = String::new();
    if !slots.are_empty() {
        // The prelude of the functions has names of its own. The simulated Metal knows types by their last
        // name.
        let one = slots.functions().into_iter().filter(|(name, _)| name.ends_with("one"));
        let functions = emit_functions(&one.collect::<Vec<_>>());
        let functions = functions.map_err(|error| Error::Kernel(error.to_string()))?;
        parts = format!(
            "#pragma METAL fp contract(off)
#define bf16 fused_bf16
namespace fused {{
{functions}}}
#undef bf16
"
        );
    }
    if text.contains("SLOT_BUFFERS") {
        parts += &slots.source.map_or(MEMORY_SOURCE.into(), source);
    }
    if text.contains("SINK_BUFFERS") {
        parts += &slots.epilogue.map_or(MEMORY_SINK.into(), sink);
    }
    Ok(parts)
}

/// The pieces of text that name the buffers and constants of a slot.
struct Names {
    /// Fields for the buffers, their names as arguments, and their declarations as parameters.
    fields: String,
    arguments: String,
    parameters: String,
    /// The field of the constants, and their address.
    declared: String,
    address: String,
}

impl Names {
    /// `letter` begins the names of the buffers; `constants` is the name of the field.
    fn new(slot: &SlotFunctions, letter: char, constants: &str) -> Names {
        let list = |of: &dyn Fn(usize) -> String| (0..slot.one.buffers()).map(of).collect::<String>();
        let (declared, address) = match slot.one.constants() {
            0 => (String::new(), "(constant uchar*)0".to_string()),
            count => {
                (format!(" ulong {constants}[{count}];"), format!("(constant uchar*)&params.{constants}[0]"))
            }
        };
        Names {
            fields: list(&|at| format!("device const uchar* {letter}{at}; ")),
            arguments: list(&|at| format!("{letter}{at}, ")),
            parameters: list(&|at| format!("device const uchar* {letter}{at}, ")),
            declared,
            address,
        }
    }
}

fn source(slot: &SlotFunctions) -> String {
    let Names { fields, arguments, parameters, declared, address } = Names::new(slot, 's', "slot");
    format!(
        "template <typename T> struct Source {{
  {fields}constant uchar* constants; int first;
  T at(int i) const {{
    T r;
    fused::one((thread uchar*)&r, uint3(uint(first + i), 0u, 0u), {arguments}constants);
    return r;
  }}
  Source from(int n) const {{ return Source{{{arguments}constants, first + n}}; }}
}};
#define SLOT_BUFFERS(T) {parameters}
#define SLOT_FIELDS{declared}
#define SLOT_SOURCE(T, params) Source<T>{{{arguments}{address}, 0}}
"
    )
}

fn sink(slot: &SlotFunctions) -> String {
    let Names { fields, arguments, parameters, declared, address } = Names::new(slot, 'e', "sink");
    let word = match slot.one.results().first().map_or(1, |value| slot.one.kernel().ty(*value).size()) {
        1 => "uchar",
        2 => "ushort",
        4 => "uint",
        _ => "ulong",
    };
    format!(
        "template <typename T> struct Sink {{
  device {word}* out; {fields}constant uchar* constants; int first;
  void put(int i, T x) const {{
    {word} r;
    fused::epilogue_one((thread uchar*)&r, uint3(uint(first + i), 0u, 0u), (const thread uchar*)&x, {arguments}constants);
    out[first + i] = r;
  }}
  Sink from(int n) const {{ return Sink{{out, {arguments}constants, first + n}}; }}
}};
#define SINK_BUFFERS(T) {parameters}device {word}* out
#define SINK_FIELDS{declared}
#define SLOT_SINK(T, params) Sink<T>{{out, {arguments}{address}, 0}}
"
    )
}
