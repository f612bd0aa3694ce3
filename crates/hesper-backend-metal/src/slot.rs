//! Slots of kernels: the functions of fused element-wise ops as part of a text.
//!
//! A text with a slot declares its kernels with `SLOT_BUFFERS` and their constants with `SLOT_FIELDS`, and
//! reads elements from `SLOT_SOURCE`. They are defined in `source.metal` for memory, and here for functions.
//! Both switch contraction off, so that both give the same bits.

use hesper_core::backend::SlotFunctions;
use hesper_core::{Error, Result};
use hesper_kernel::metal::emit_functions;

/// What a text with an empty slot gets.
const MEMORY: &str = text!("source.metal");

/// The text behind the prelude.
pub(crate) fn source(text: &str, slot: Option<&SlotFunctions>) -> Result<String> {
    let Some(slot) = slot else {
        return Ok(if text.contains("SLOT_BUFFERS") { MEMORY.into() } else { String::new() });
    };
    // The prelude of the functions has names of its own. The simulated Metal knows types by their last name.
    let functions =
        emit_functions(&[("one", &slot.one)]).map_err(|error| Error::Kernel(error.to_string()))?;
    let list = |of: &dyn Fn(usize) -> String| (0..slot.one.buffers()).map(of).collect::<String>();
    let (fields, names) =
        (list(&|at| format!("device const uchar* s{at}; ")), list(&|at| format!("s{at}, ")));
    let parameters = list(&|at| format!("device const uchar* s{at}, "));
    let (declared, address) = match slot.one.constants() {
        0 => (String::new(), "(constant uchar*)0"),
        count => (format!(" ulong slot[{count}];"), "(constant uchar*)&params.slot[0]"),
    };
    Ok(format!(
        "#pragma METAL fp contract(off)
#define bf16 fused_bf16
namespace fused {{
{functions}}}
#undef bf16
template <typename T> struct Source {{
  {fields}constant uchar* constants; int first;
  T at(int i) const {{
    T r;
    fused::one((thread uchar*)&r, uint3(uint(first + i), 0u, 0u), {names}constants);
    return r;
  }}
  Source from(int n) const {{ return Source{{{names}constants, first + n}}; }}
}};
#define SLOT_BUFFERS(T) {parameters}
#define SLOT_FIELDS{declared}
#define SLOT_SOURCE(T, params) Source<T>{{{names}{address}, 0}}
"
    ))
}
