//! Loops over disjoint pieces on all cores, and the choice of an element type.

use hesper_cpu::Cores;

/// Elements that make one task of a parallel loop: enough to outweigh its start, few enough to share.
pub(crate) const GRAIN: usize = 1 << 16;

/// Calls `f` with every piece of `len` elements and its number, on all cores.
#[inline]
pub(crate) fn par_chunks_mut<T: Send>(all: &mut [T], len: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    hesper_compute::pieces_mut(&Cores, all, len, &f);
}

/// Calls `f` with every one of some disjoint pieces and its number, on all cores.
#[cfg(feature = "linalg")]
pub(crate) fn par_pieces<P: Send>(pieces: Vec<P>, f: impl Fn(usize, P) + Sync) {
    if pieces.len() == 1 {
        return pieces.into_iter().for_each(|piece| f(0, piece));
    }
    let slots: Vec<_> = pieces.into_iter().map(|piece| std::sync::Mutex::new(Some(piece))).collect();
    hesper_cpu::Compute::global().run(slots.len(), &|task| {
        let piece = slots[task].lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(piece) = piece {
            f(task, piece);
        }
    });
}

/// Runs `body` with `T` as the Rust type of elements of a dtype; bools are bytes.
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            hesper_core::Dtype::Bool | hesper_core::Dtype::Uint8 => {
                type $T = u8;
                $body
            }
            hesper_core::Dtype::Uint16 => {
                type $T = u16;
                $body
            }
            hesper_core::Dtype::Uint32 => {
                type $T = u32;
                $body
            }
            hesper_core::Dtype::Uint64 => {
                type $T = u64;
                $body
            }
            hesper_core::Dtype::Int8 => {
                type $T = i8;
                $body
            }
            hesper_core::Dtype::Int16 => {
                type $T = i16;
                $body
            }
            hesper_core::Dtype::Int32 => {
                type $T = i32;
                $body
            }
            hesper_core::Dtype::Int64 => {
                type $T = i64;
                $body
            }
            hesper_core::Dtype::Float16 => {
                type $T = half::f16;
                $body
            }
            hesper_core::Dtype::Bfloat16 => {
                type $T = half::bf16;
                $body
            }
            hesper_core::Dtype::Float32 => {
                type $T = f32;
                $body
            }
            hesper_core::Dtype::Float64 => {
                type $T = f64;
                $body
            }
            hesper_core::Dtype::Complex64 => {
                type $T = [f32; 2];
                $body
            }
            hesper_core::Dtype::Complex128 => {
                type $T = [f64; 2];
                $body
            }
        }
    };
}
pub(crate) use with_element;
