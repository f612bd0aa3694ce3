//! Operations along an axis, copies and convolutions, compared with the rate of a copy.

use hesper_compute::{
    Axis, ConvShape, Dim, Par, ReduceInput, Reduction, Scan, SumOrder, arg_extreme, conv, copy_strided,
    layer_norm, reduce, rms_norm, scan, softmax,
};

use crate::measure::{best, copy_rate, peak_flops};

/// Reduces an axis of contiguous elements.
fn along<R>(x: &[f32], axis: Axis, reduce: impl FnOnce(&ReduceInput<'_, f32>) -> R) -> R {
    let Axis { outer, len, inner } = axis;
    let dim = |len, stride: usize| Dim { len, stride: stride as isize };
    let kept = [dim(outer, len * inner), dim(inner, 1)];
    let (kept, order) =
        if inner == 1 { (&kept[..1], SumOrder::Rows) } else { (&kept[..], SumOrder::Columns) };
    reduce(&ReduceInput::new(x, 0, kept, &[dim(len, inner)], Some(order)).unwrap())
}

pub fn run(par: &dyn Par) {
    let rate = copy_rate(par, 64 << 20);
    let peak = peak_flops(par);
    println!("threads {}, copy {:.1} GB/s, f32 peak {:.1} GFLOP/s", par.threads(), rate / 1e9, peak / 1e9);
    let n = 4096;
    let x: Vec<f32> = (0..n * n).map(|i| ((i * 7919) % 10_007) as f32 / 5000.0 - 1.0).collect();
    // The result starts at a cache line, as arrays do.
    let mut y = vec![0.0f32; n * n + 16];
    let line = y.as_ptr().align_offset(64);
    let y = &mut y[line..line + n * n];
    let w = vec![1.0f32; n];
    let all = (n * n * 4) as f64;
    let show = |name: &str, bytes: f64, t: f64| {
        println!(
            "{name:24} {:8.3} ms {:6.1} GB/s {:5.2} of a copy",
            t * 1e3,
            bytes / t / 1e9,
            bytes / t / rate
        );
    };
    show("softmax", 2.0 * all, best(|| softmax(par, &x, n, y).unwrap()));
    show("layer_norm", 2.0 * all, best(|| layer_norm(par, &x, n, Some(&w), Some(&w), 1e-5, y).unwrap()));
    show("rms_norm", 2.0 * all, best(|| rms_norm(par, &x, n, Some(&w), 1e-5, y).unwrap()));
    for (name, axis) in [
        ("sum all", Axis::last(1, n * n)),
        ("sum axis 0", Axis { outer: 1, len: n, inner: n }),
        ("sum axis 1", Axis::last(n, n)),
    ] {
        let mut out = vec![0.0f32; axis.outer * axis.inner];
        show(name, all, best(|| along(&x, axis, |x| reduce(par, Reduction::Sum, x, &mut out)).unwrap()));
    }
    let mut out = vec![0.0f32; n];
    let dim = |stride| [Dim { len: n, stride }];
    for (name, stride, order) in [
        ("sum axis 0, transposed", n as isize, SumOrder::Columns),
        ("sum axis 1, transposed", 1, SumOrder::Rows),
    ] {
        let (kept, reduced) = (dim(stride), dim(n as isize + 1 - stride));
        let x = ReduceInput::new(&x, 0, &kept, &reduced, Some(order)).unwrap();
        show(name, all, best(|| reduce(par, Reduction::Sum, &x, &mut out).unwrap()));
    }
    let transposed = [dim(1), dim(n as isize)].concat();
    let transposed = ReduceInput::new(&x, 0, &[], &transposed, Some(SumOrder::Rows)).unwrap();
    show(
        "sum all, transposed",
        all,
        best(|| reduce(par, Reduction::Sum, &transposed, &mut out[..1]).unwrap()),
    );
    show(
        "max axis 1",
        all,
        best(|| along(&x, Axis::last(n, n), |x| reduce(par, Reduction::Max, x, &mut out)).unwrap()),
    );
    let mut at = vec![0u32; n];
    show(
        "argmax axis 1",
        all,
        best(|| along(&x, Axis::last(n, n), |x| arg_extreme(par, true, x, &mut at)).unwrap()),
    );
    show(
        "cumsum axis 1",
        2.0 * all,
        best(|| scan(par, Scan::Sum, &x, Axis::last(n, n), false, true, y).unwrap()),
    );
    show("copy into half of rows", all, {
        let (shape, src, dst) = ([n / 2, n], [n as isize, 1], [2 * n as isize, 1]);
        // SAFETY: every other row of the result's memory.
        best(|| unsafe { copy_strided(par, &shape, x.as_ptr(), &src, y.as_mut_ptr(), &dst).unwrap() })
    });
    show("transpose copy", 2.0 * all, {
        let (shape, src, dst) = ([n, n], [1, n as isize], [n as isize, 1]);
        // SAFETY: a transposed view of the whole vector.
        best(|| unsafe { copy_strided(par, &shape, x.as_ptr(), &src, y.as_mut_ptr(), &dst).unwrap() })
    });
    let one = [1; 3];
    let s = ConvShape {
        batch: 8,
        input: [1, 56, 56],
        channels: 64,
        kernel: [1, 3, 3],
        out_channels: 64,
        groups: 1,
        stride: one,
        padding_low: [0, 1, 1],
        padding_high: [0, 1, 1],
        dilation: one,
        input_dilation: one,
        flip: false,
    };
    let (cx, cw) = (vec![0.5f32; 8 * 56 * 56 * 64], vec![0.25f32; 64 * 9 * 64]);
    let mut cy = vec![0.0f32; 8 * 56 * 56 * 64];
    let t = best(|| conv(par, &s, &cx, &cw, &mut cy).unwrap());
    let flops = 2.0 * (8 * 56 * 56 * 64 * 9 * 64) as f64 / t;
    println!(
        "conv 8x56x56x64 3x3 64   {:8.3} ms {:6.1} GFLOP/s {:5.2} of f32 peak",
        t * 1e3,
        flops / 1e9,
        flops / peak
    );
}
