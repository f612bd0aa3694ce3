//! Convolutions against the definition.

use crate::common::{Rng, close, levels};
use half::bf16;
use hesper_compute::{ConvShape, Float, Par, Serial, conv};

fn reference<T: Float>(s: &ConvShape, x: &[T], w: &[T]) -> Vec<f32> {
    let o = s.output().unwrap();
    let (cg, ng) = (s.channels / s.groups, s.out_channels / s.groups);
    let mut out = vec![];
    for i in 0..s.batch * o[0] * o[1] * o[2] {
        let (n, place) = (i / (o[0] * o[1] * o[2]), [i / (o[1] * o[2]) % o[0], i / o[2] % o[1], i % o[2]]);
        for co in 0..s.out_channels {
            let mut sum = 0.0f64;
            for tap in 0..s.kernel.iter().product() {
                let k =
                    [tap / (s.kernel[1] * s.kernel[2]), tap / s.kernel[2] % s.kernel[1], tap % s.kernel[2]];
                let mut at = n;
                let mut inside = true;
                for d in 0..3 {
                    let k = if s.flip { s.kernel[d] - 1 - k[d] } else { k[d] };
                    let p = (place[d] * s.stride[d] + k * s.dilation[d]) as isize - s.padding_low[d];
                    let step = s.input_dilation[d] as isize;
                    inside &= p >= 0 && p % step == 0 && p / step < s.input[d] as isize;
                    at = at * s.input[d] + (p / step).max(0) as usize;
                }
                if inside {
                    for c in 0..cg {
                        let x = x[at * s.channels + co / ng * cg + c].to_f32();
                        sum += f64::from(x)
                            * f64::from(w[(co * s.kernel.iter().product::<usize>() + tap) * cg + c].to_f32());
                    }
                }
            }
            out.push(sum as f32);
        }
    }
    out
}

fn shapes() -> Vec<ConvShape> {
    let one = [1; 3];
    let base = ConvShape {
        batch: 2,
        input: [1, 9, 8],
        channels: 5,
        kernel: [1, 3, 3],
        out_channels: 7,
        groups: 1,
        stride: one,
        padding_low: [0, 1, 1],
        padding_high: [0, 1, 1],
        dilation: one,
        input_dilation: one,
        flip: false,
    };
    vec![
        base,
        ConvShape { stride: [1, 2, 3], ..base },
        ConvShape { dilation: [1, 2, 2], padding_high: [0, 3, 0], ..base },
        ConvShape { input_dilation: [1, 2, 3], flip: true, ..base },
        ConvShape { channels: 6, out_channels: 9, groups: 3, ..base },
        ConvShape { channels: 20, out_channels: 20, groups: 20, ..base },
        ConvShape {
            batch: 1,
            input: [4, 5, 6],
            kernel: [2, 3, 1],
            padding_low: [1, 0, 0],
            padding_high: [0; 3],
            ..base
        },
        ConvShape { input: [1, 1, 50], kernel: [1, 1, 5], padding_low: [0; 3], padding_high: [0; 3], ..base },
        ConvShape { batch: 3, input: [1, 16, 16], channels: 33, out_channels: 34, ..base },
        // Rows of taps that cross both edges at once, and a K of several ranges that split them.
        ConvShape {
            input: [1, 6, 3],
            channels: 3,
            kernel: [1, 7, 7],
            padding_low: [0, 3, 3],
            padding_high: [0, 3, 3],
            ..base
        },
        ConvShape { input: [1, 5, 9], channels: 130, out_channels: 16, ..base },
        ConvShape {
            input: [1, 5, 9],
            channels: 130,
            out_channels: 16,
            dilation: [1, 1, 2],
            padding_low: [0, 1, 2],
            padding_high: [0, 1, 2],
            ..base
        },
        ConvShape {
            input: [1, 20, 21],
            channels: 3,
            kernel: [1, 5, 4],
            stride: [1, 2, 2],
            padding_low: [0, -1, 2],
            padding_high: [0, 2, -2],
            ..base
        },
        ConvShape { flip: true, ..base },
        // Rows of several patches and tiles, strides of every remainder, more output channels than a panel
        // has.
        ConvShape { batch: 1, input: [1, 3, 230], channels: 3, out_channels: 50, ..base },
        ConvShape { batch: 1, input: [1, 4, 301], channels: 2, stride: [1, 1, 2], kernel: [1, 2, 5], ..base },
        ConvShape {
            batch: 1,
            input: [2, 7, 61],
            channels: 18,
            out_channels: 33,
            kernel: [2, 3, 4],
            stride: [1, 2, 4],
            padding_low: [1, 1, 3],
            padding_high: [1, 0, 2],
            dilation: [1, 1, 3],
            ..base
        },
        ConvShape { input: [1, 40, 5], channels: 17, stride: [1, 1, 5], padding_low: [0, 1, 17], ..base },
        // Windows that cover only padding, on either side.
        ConvShape { padding_low: [0, 4, 9], padding_high: [0, 5, 12], ..base },
        ConvShape { flip: true, stride: [1, 2, 2], dilation: [1, 1, 2], ..base },
        ConvShape { channels: 40, out_channels: 80, groups: 2, input: [1, 6, 17], ..base },
        // Trailing axes of size one, as arrays of fewer axes give.
        ConvShape {
            input: [9, 8, 1],
            kernel: [3, 3, 1],
            padding_low: [1, 1, 0],
            padding_high: [1, 1, 0],
            stride: [2, 1, 5],
            dilation: [1, 1, 3],
            ..base
        },
        ConvShape {
            input: [50, 1, 1],
            kernel: [5, 1, 1],
            padding_low: [2, 0, 0],
            padding_high: [1, 0, 0],
            channels: 1,
            out_channels: 40,
            ..base
        },
        // Short rows, several of which make a tile.
        ConvShape { batch: 1, input: [1, 7, 4], channels: 3, out_channels: 20, ..base },
        ConvShape { batch: 1, input: [1, 6, 5], channels: 3, out_channels: 20, flip: true, ..base },
        ConvShape { batch: 1, input: [2, 5, 6], kernel: [2, 3, 3], out_channels: 33, ..base },
        ConvShape { input: [1, 7, 7], channels: 18, out_channels: 16, ..base },
        ConvShape { batch: 1, input: [1, 9, 13], stride: [1, 2, 2], out_channels: 40, ..base },
        // More weights than output positions.
        ConvShape { batch: 1, input: [1, 2, 5], channels: 64, out_channels: 512, ..base },
        // A 1x1 kernel: a product, with and without stride and padding.
        ConvShape { kernel: [1; 3], padding_low: [0; 3], padding_high: [0; 3], ..base },
        ConvShape {
            kernel: [1; 3],
            padding_low: [0; 3],
            padding_high: [0; 3],
            channels: 36,
            out_channels: 8,
            groups: 4,
            ..base
        },
        ConvShape {
            kernel: [1; 3],
            padding_low: [0; 3],
            padding_high: [0; 3],
            stride: [1, 2, 2],
            channels: 33,
            ..base
        },
        ConvShape { kernel: [1; 3], ..base },
        // Depthwise: whole vectors and a remainder, edges, strides, a flipped kernel.
        ConvShape {
            channels: 40,
            out_channels: 40,
            groups: 40,
            stride: [1, 2, 1],
            dilation: [1, 1, 2],
            ..base
        },
        ConvShape { channels: 9, out_channels: 9, groups: 9, flip: true, input_dilation: [1, 2, 1], ..base },
        ConvShape { channels: 64, out_channels: 64, groups: 64, input: [3, 5, 6], kernel: [2, 3, 3], ..base },
    ]
}

fn check<T: Float>(tol: f32) {
    let mut rng = Rng::new(6);
    for s in shapes() {
        let x: Vec<T> = rng.floats(s.batch * s.input.iter().product::<usize>() * s.channels);
        let w: Vec<T> =
            rng.floats(s.out_channels * s.kernel.iter().product::<usize>() * s.channels / s.groups);
        let want = reference(&s, &x, &w);
        // The tolerance grows with the length of a sum.
        let length = s.kernel.iter().product::<usize>() * s.channels / s.groups;
        let tol = tol * (length as f32 / 45.0).sqrt().max(1.0);
        for (one, three) in levels() {
            let mut runs = vec![];
            for par in [&one as &dyn Par, &three] {
                let mut out = vec![T::from_f32(f32::NAN); want.len()];
                conv(par, &s, &x, &w, &mut out).unwrap();
                for (g, w) in out.iter().zip(&want) {
                    close(g.to_f32(), *w, tol, (s, one.1));
                }
                runs.push(out.iter().map(|v| v.to_f32().to_bits()).collect::<Vec<_>>());
            }
            assert_eq!(runs[0], runs[1], "threads differ");
        }
    }
}

#[test]
fn f32_convolutions_match_the_definition() {
    check::<f32>(1e-5);
}

#[test]
fn bf16_convolutions_match_the_definition() {
    check::<bf16>(2e-2);
}

#[test]
fn the_position_of_axes_of_size_one_changes_no_bit() {
    let flat = ConvShape { batch: 1, channels: 130, ..shapes()[0] };
    let rotated = |of: [usize; 3]| [of[1], of[2], of[0]];
    let padding = |of: [isize; 3]| [of[1], of[2], of[0]];
    let last = ConvShape {
        input: rotated(flat.input),
        kernel: rotated(flat.kernel),
        padding_low: padding(flat.padding_low),
        padding_high: padding(flat.padding_high),
        ..flat
    };
    let mut rng = Rng::new(10);
    let x: Vec<f32> = rng.floats(72 * 130);
    let w: Vec<f32> = rng.floats(7 * 9 * 130);
    for (one, _) in levels() {
        let mut out = [vec![0.0; 72 * 7], vec![1.0; 72 * 7]];
        conv(&one, &flat, &x, &w, &mut out[0]).unwrap();
        conv(&one, &last, &x, &w, &mut out[1]).unwrap();
        assert_eq!(out[0], out[1], "{:?}", one.1);
    }
}

#[test]
fn a_nan_input_affects_only_the_windows_that_read_it() {
    let s = ConvShape { batch: 1, input: [1, 9, 40], ..shapes()[0] };
    let mut rng = Rng::new(9);
    let mut x: Vec<f32> = rng.floats(9 * 40 * s.channels);
    let w: Vec<f32> = rng.floats(s.out_channels * 9 * s.channels);
    // The end of a row, next to the start of another in memory.
    x[(3 * 40 + 39) * s.channels + 2] = f32::NAN;
    for (one, _) in levels() {
        let mut out = vec![0.0; 9 * 40 * s.out_channels];
        conv(&one, &s, &x, &w, &mut out).unwrap();
        for (i, place) in out.chunks(s.out_channels).enumerate() {
            let sees = (i / 40).abs_diff(3) <= 1 && i % 40 >= 38;
            assert_eq!(place.iter().all(|v| v.is_nan()), sees, "place {i} at {:?}", one.1);
            assert_eq!(place.iter().any(|v| v.is_nan()), sees, "place {i} at {:?}", one.1);
        }
    }
}

#[test]
fn empty_batches_and_channels_are_accepted() {
    let none = ConvShape { batch: 0, ..shapes()[0] };
    conv::<f32>(&Serial, &none, &[], &[0.5; 7 * 9 * 5], &mut []).unwrap();
    let no_channels = ConvShape { batch: 1, channels: 0, ..shapes()[0] };
    let mut out = vec![f32::NAN; 9 * 8 * 7];
    conv::<f32>(&Serial, &no_channels, &[], &[], &mut out).unwrap();
    assert!(out.iter().all(|x| *x == 0.0));
}

#[test]
fn a_kernel_larger_than_the_padded_input_is_refused() {
    let s = ConvShape { kernel: [1, 30, 3], ..shapes()[0] };
    assert!(s.output().is_err());
    let s = ConvShape { stride: [1, 0, 1], ..shapes()[0] };
    assert!(conv::<f32>(&Serial, &s, &[], &[], &mut []).is_err());
    let s = ConvShape { groups: 2, ..shapes()[0] };
    assert!(conv::<f32>(&Serial, &s, &[], &[], &mut []).is_err());
}
