//! Convolutions of many shapes, in milliseconds and GFLOP/s.

use hesper_compute::{ConvShape, Par, conv};

use crate::measure::{best, peak_flops};

/// Two-dimensional unless the input is one row: batch, input, channels, kernel, output channels, stride,
/// padding, groups.
struct Case(&'static str, usize, [usize; 2], usize, [usize; 2], usize, usize, usize, usize);

const CASES: [Case; 18] = [
    Case("3x3 56 64", 8, [56, 56], 64, [3, 3], 64, 1, 1, 1),
    Case("3x3 56 64 batch 1", 1, [56, 56], 64, [3, 3], 64, 1, 1, 1),
    Case("3x3 28 128", 8, [28, 28], 128, [3, 3], 128, 1, 1, 1),
    Case("3x3 14 256", 8, [14, 14], 256, [3, 3], 256, 1, 1, 1),
    Case("3x3 14 256 batch 1", 1, [14, 14], 256, [3, 3], 256, 1, 1, 1),
    Case("3x3 7 512", 8, [7, 7], 512, [3, 3], 512, 1, 1, 1),
    Case("3x3 7 512 batch 1", 1, [7, 7], 512, [3, 3], 512, 1, 1, 1),
    Case("1x1 56 64 to 256", 8, [56, 56], 64, [1, 1], 256, 1, 0, 1),
    Case("1x1 14 1024 to 256", 1, [14, 14], 1024, [1, 1], 256, 1, 0, 1),
    Case("1x1 step 2 56 256", 8, [56, 56], 256, [1, 1], 128, 2, 0, 1),
    Case("3x3 step 2 56 128", 8, [56, 56], 128, [3, 3], 128, 2, 1, 1),
    Case("7x7 step 2 224 3", 8, [224, 224], 3, [7, 7], 64, 2, 3, 1),
    Case("16x16 step 16 224 3", 8, [224, 224], 3, [16, 16], 768, 16, 0, 1),
    Case("depthwise 56 128", 8, [56, 56], 128, [3, 3], 128, 1, 1, 128),
    Case("depthwise 14 512", 1, [14, 14], 512, [3, 3], 512, 1, 1, 512),
    Case("3x3 28 1 to 32", 64, [28, 28], 1, [3, 3], 32, 1, 1, 1),
    Case("1-D 3 1500 384", 1, [1, 1500], 384, [1, 3], 384, 1, 1, 1),
    Case("1-D 16 16000 1", 4, [1, 16000], 1, [1, 16], 64, 1, 0, 1),
];

pub fn run(par: &dyn Par, filter: &str) {
    let peak = peak_flops(par);
    println!("threads {}, f32 peak {:.1} GFLOP/s, simd {:?}", par.threads(), peak / 1e9, par.simd());
    for Case(name, batch, [h, w], channels, [kh, kw], outs, step, pad, groups) in CASES {
        if !name.contains(filter) {
            continue;
        }
        let high = if h == 1 { 0 } else { pad as isize };
        let shape = ConvShape {
            batch,
            input: [1, h, w],
            channels,
            kernel: [1, kh, kw],
            out_channels: outs,
            groups,
            stride: [1, if h == 1 { 1 } else { step }, step],
            padding_low: [0, high, pad as isize],
            padding_high: [0, high, pad as isize],
            dilation: [1; 3],
            input_dilation: [1; 3],
            flip: false,
        };
        let places = shape.output().unwrap().iter().product::<usize>() * batch;
        let taps = kh * kw * channels / groups;
        let fill =
            |n: usize| -> Vec<f32> { (0..n).map(|i| ((i * 7919) % 1024) as f32 / 512.0 - 1.0).collect() };
        let (x, weights, mut out) = (fill(batch * h * w * channels), fill(outs * taps), fill(places * outs));
        let t = best(|| conv(par, &shape, &x, &weights, &mut out).unwrap());
        let rate = 2.0 * (places * outs * taps) as f64 / t;
        println!("{name:22} {:9.3} ms {:7.1} GFLOP/s {:5.2} of peak", t * 1e3, rate / 1e9, rate / peak);
    }
}
