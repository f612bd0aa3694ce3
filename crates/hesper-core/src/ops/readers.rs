//! The table of readers: which constructor makes an op of a file again.
//!
//! A reader stands next to its op and calls the constructor that the op's users call, so that whatever a file
//! says is checked as if a program had said it. Element-wise ops are found by their tables' names.

use super::{
    along_axis, append, attention, concat, conv, creation, custom, diagonal, einsum, elementwise, fft,
    gated_delta, gather, grouped, hadamard, linalg, logic, matmul, norm, packed, quant, random, reduce,
    reinterpret, rope, scan, scatter, slices, sort, view,
};
use crate::export::Reader;
use crate::export::Reader::{One, Several};

const READERS: &[(&str, Reader)] = &[
    ("addmm", One(matmul::read_addmm)),
    ("append", One(append::read)),
    ("as_complex", One(random::read_as_complex)),
    ("as_strided", One(reinterpret::read_as_strided)),
    ("astype", One(elementwise::read_astype)),
    ("attention", One(attention::read)),
    ("broadcast_to", One(view::read_broadcast_to)),
    ("categorical", One(random::read_categorical)),
    ("concatenate", One(concat::read)),
    ("contiguous", One(view::read_contiguous)),
    ("conv", One(conv::read)),
    ("count_elements", One(reduce::count::read)),
    ("cross_entropy", One(norm::read_cross_entropy)),
    ("custom_kernel", Several(custom::read)),
    ("decode_blocks", One(crate::io::read_decode)),
    ("dequantize", One(quant::convert::read_dequantize)),
    ("diag", One(diagonal::read_diag)),
    ("diagonal", One(diagonal::read_diagonal)),
    ("dynamic_slice", One(slices::read_dynamic)),
    ("dynamic_slice_update", One(slices::read_dynamic_update)),
    ("fft", One(fft::read)),
    ("full", One(creation::read_full)),
    ("gated_delta_update", Several(gated_delta::read)),
    ("gather", One(gather::read)),
    ("gather_mm", One(grouped::read_gathered)),
    ("gather_qmm", One(quant::gathered::read)),
    ("hadamard_transform", One(hadamard::read)),
    ("joined_axes", One(einsum::read)),
    ("layer_norm", One(norm::read_layer_norm)),
    ("logsumexp", One(norm::read_logsumexp)),
    ("matmul", One(matmul::read_matmul)),
    ("packed_matmul", One(packed::read_matmul)),
    ("permutation", One(random::read_permutation)),
    ("put_along_axis", One(along_axis::read_put)),
    ("quantize", Several(quant::convert::read_quantize)),
    ("quantized_matmul", One(quant::matmul::read)),
    ("random_bits", One(random::read_bits)),
    ("reduce", One(reduce::read)),
    ("reshape", One(view::read_reshape)),
    ("rms_norm", One(norm::read_rms_norm)),
    ("rope", One(rope::read)),
    ("scan", One(scan::read)),
    ("scatter", One(scatter::read)),
    ("searchsorted", One(sort::search::read_search)),
    ("segmented_mm", One(grouped::read_segmented)),
    ("slice", One(view::read_slice)),
    ("slice_update", One(slices::read_update)),
    ("softmax", One(norm::read_softmax)),
    ("sort", One(sort::read)),
    ("stop_gradient", One(crate::transform::source::read_stop_gradient)),
    ("symmetric_root", One(random::read_symmetric_root)),
    ("take_along_axis", One(along_axis::read_take)),
    ("to_fp8", One(quant::fp8::read_to_fp8)),
    ("transpose", One(view::read_transpose)),
    ("unique", One(sort::search::read_unique)),
    ("unpack", One(packed::read_unpack)),
    ("unpack_rows", One(packed::read_rows)),
    ("view", One(reinterpret::read_view)),
    ("where", One(logic::read_where)),
];

/// The reader of an op.
pub fn find(name: &str) -> Option<Reader> {
    if let Ok(at) = READERS.binary_search_by(|(other, _)| (*other).cmp(name)) {
        return Some(READERS[at].1);
    }
    let factor = linalg::READERS.iter().find(|(other, _)| *other == name).map(|(_, reader)| *reader);
    factor.or_else(|| elementwise::find_reader(name))
}

/// The names of all ops that a file can hold.
pub fn names() -> impl Iterator<Item = &'static str> {
    let own = READERS.iter().chain(&linalg::READERS).map(|(name, _)| *name);
    own.chain(elementwise::elementwise_names().map(|(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_for_one_op() {
        let mut names: Vec<&str> = names().collect();
        assert!(READERS.is_sorted_by_key(|(name, _)| *name));
        assert!(names.iter().all(|name| find(name).is_some()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
