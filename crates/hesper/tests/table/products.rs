//! Products: matrices, convolutions, Fourier transforms.

use hesper::{Conv, ConvolveMode, einsum, fft};

use super::{Case, bools, case, complex, ints, single, x};

pub fn cases() -> Vec<Case> {
    vec![
        case("matmul", &[x(1, &[2, 3, 4]), x(2, &[4, 2])], |x| x[0].matmul(&x[1])),
        case("matmul of batches", &[x(3, &[3, 4]), x(4, &[2, 4, 2])], |x| x[0].matmul(&x[1])),
        case("matmul of vectors", &[x(5, &[4]), x(6, &[4])], |x| x[0].matmul(&x[1])),
        case("addmm", &[x(7, &[2]), x(8, &[3, 4]), x(9, &[4, 2])], |x| x[0].addmm(&x[1], &x[2], 0.5, 2.0)),
        single("complex matmul", &[complex(10, &[2, 3]), complex(11, &[3, 2])], |x| x[0].matmul(&x[1])),
        case("einsum", &[x(12, &[2, 3]), x(13, &[3, 4])], |x| einsum("ij,jk->ki", &[&x[0], &x[1]])),
        case("einsum of a diagonal", &[x(14, &[3, 3, 2])], |x| einsum("iij->ij", &[&x[0]])),
        case("gather_mm", &[x(15, &[3, 2, 4]), x(16, &[2, 4, 3])], |x| {
            x[0].gather_mm(&x[1], Some(&ints(&[2, 0, 2])), Some(&ints(&[1, 1, 0])))
        }),
        case("segmented_mm", &[x(17, &[2, 5]), x(18, &[5, 3])], |x| {
            x[0].segmented_mm(&x[1], &ints(&[0, 2, 1, 5]).reshape(&[2, 2])?)
        }),
        case("outer", &[x(19, &[2]), x(20, &[3])], |x| x[0].outer(&x[1])),
        single("hadamard", &[x(21, &[2, 8])], |x| x[0].hadamard_transform(None)),
        single("hadamard of 12", &[x(22, &[12])], |x| x[0].hadamard_transform(Some(0.5))),
        single("hadamard of 20", &[x(23, &[20])], |x| x[0].hadamard_transform(Some(0.5))),
        single("conv1d", &[x(24, &[2, 7, 4]), x(25, &[6, 3, 2])], |x| x[0].conv1d(&x[1], 2, 1, 1, 2)),
        single("conv2d", &[x(26, &[1, 5, 6, 2]), x(27, &[3, 2, 3, 2])], |x| {
            x[0].conv2d(&x[1], [1, 2], [1, 0], [2, 1], 1)
        }),
        single("conv_transpose1d", &[x(28, &[1, 4, 2]), x(29, &[3, 3, 2])], |x| {
            x[0].conv_transpose1d(&x[1], 2, 1, 1, 1, 1)
        }),
        single("conv_general", &[x(30, &[1, 6, 2]), x(31, &[2, 3, 2])], |x| {
            let conv = Conv {
                stride: vec![2],
                padding: vec![(2, 1)],
                kernel_dilation: vec![2],
                input_dilation: vec![3],
                groups: 1,
                flip: true,
            };
            x[0].conv_general(&x[1], &conv)
        }),
        single("fft", &[complex(32, &[2, 5])], |x| fft::fft(&x[0], None, -1, fft::Norm::Backward)),
        single("fft of more", &[complex(33, &[2, 5])], |x| fft::fft(&x[0], Some(7), 0, fft::Norm::Ortho)),
        single("ifft of less", &[complex(34, &[2, 5])], |x| {
            fft::ifft(&x[0], Some(3), 1, fft::Norm::Backward)
        }),
        single("rfft", &[x(35, &[2, 6])], |x| fft::rfft(&x[0], None, -1, fft::Norm::Backward)),
        single("irfft", &[complex(36, &[2, 4])], |x| fft::irfft(&x[0], Some(6), -1, fft::Norm::Backward)),
        single("irfft of an odd length", &[complex(37, &[2, 4])], |x| {
            fft::irfft(&x[0], Some(7), -1, fft::Norm::Backward)
        }),
        case("einsum of joined axes", &[x(38, &[3, 3, 2])], |x| einsum("iij->j", &[&x[0]])),
        case("block_masked_mm", &[x(39, &[64, 32]), x(40, &[32, 32])], |x| {
            let mask = bools(&[1, 0]).reshape(&[2, 1])?;
            x[0].block_masked_mm(&x[1], 32, Some(&mask), None, None)
        })
        .rough(1e-5, 1e-4),
        case(
            "gather_mm by given indices",
            &[x(41, &[3, 2, 4]), x(42, &[2, 4, 3]), ints(&[2, -1]), ints(&[1, 0])],
            |x| x[0].gather_mm(&x[1], Some(&x[2]), Some(&x[3])),
        )
        .flat(),
        single("conv2d in groups", &[x(43, &[2, 4, 4, 4]), x(44, &[6, 2, 2, 2])], |x| {
            x[0].conv2d(&x[1], [2, 1], [1, 1], [1, 2], 2)
        }),
        single("conv3d", &[x(45, &[1, 3, 3, 3, 2]), x(46, &[2, 2, 2, 2, 2])], |x| {
            x[0].conv3d(&x[1], [1, 1, 2], [1, 0, 1], [1, 1, 1], 1)
        }),
        single("conv_transpose2d in groups", &[x(47, &[1, 3, 3, 4]), x(48, &[4, 2, 2, 2])], |x| {
            x[0].conv_transpose2d(&x[1], [2, 1], [1, 0], [1, 2], [1, 0], 2)
        }),
        single("convolve", &[x(49, &[6]), x(50, &[3])], |x| x[0].convolve(&x[1], ConvolveMode::Same)),
        case("vecdot", &[x(51, &[2, 3]), x(52, &[2, 3])], |x| x[0].vecdot(&x[1], -1)),
        case("kron", &[x(53, &[2, 2]), x(54, &[2, 3])], |x| x[0].kron(&x[1])),
        case("tensordot", &[x(55, &[2, 3]), x(56, &[3, 4])], |x| x[0].tensordot(&x[1], &[1], &[0])),
    ]
}
