//! Convolutions, compared with golden cases and a naive sum.

// A test that cannot go on should say so at once.

use crate::common::{cases, numbers};
use hesper::{Array, Conv, ConvolveMode, Dtype};

#[test]
fn convolutions_agree_with_the_reference() {
    let mut count = 0;
    for case in cases(include_str!("golden/conv.txt")) {
        let (x, w) = (&case.inputs[0], &case.inputs[1]);
        let parts: Vec<&str> = case.args.split(';').collect();
        let number = |at: usize| parts[at].parse::<usize>().unwrap();
        let result = match case.op.as_str() {
            "conv" => {
                let padding: Vec<isize> = numbers(parts[1], ',');
                let conv = Conv {
                    stride: numbers(parts[0], ','),
                    padding: padding.chunks(2).map(|pair| (pair[0], pair[1])).collect(),
                    kernel_dilation: numbers(parts[2], ','),
                    input_dilation: numbers(parts[3], ','),
                    groups: number(4),
                    flip: parts[5] == "1",
                };
                x.conv_general(w, &conv)
            }
            "convolve" => x.convolve(
                w,
                match parts[0] {
                    "full" => ConvolveMode::Full,
                    "same" => ConvolveMode::Same,
                    _ => ConvolveMode::Valid,
                },
            ),
            op => {
                let (s, p, d, o, g) =
                    (number(0), number(1) as isize, number(2), number(3) as isize, number(4));
                match op {
                    "transpose1" => x.conv_transpose1d(w, s, p, d, o, g),
                    "transpose2" => x.conv_transpose2d(w, [s; 2], [p; 2], [d; 2], [o; 2], g),
                    _ => x.conv_transpose3d(w, [s; 3], [p; 3], [d; 3], [o; 3], g),
                }
            }
        };
        let tolerance = match x.dtype() {
            Dtype::Float32 => 2e-6,
            Dtype::Float16 => 2e-3,
            _ => 1.6e-2,
        };
        case.check(&[result.unwrap_or_else(|error| panic!("{error} for {}", case.line))], tolerance);
        count += 1;
    }
    assert!(count > 80, "{count} cases");
}

fn numbers_of(shape: &[usize], seed: usize) -> (Vec<f32>, Array) {
    let size = shape.iter().product::<usize>();
    let list: Vec<f32> = (0..size).map(|at| ((at * 37 + seed * 11) % 29) as f32 / 8.0 - 1.5).collect();
    let array = Array::try_from_slice(&list, shape).unwrap();
    (list, array)
}

/// Large enough for several tiles and threads.
#[test]
fn tiles_agree_with_a_naive_sum() {
    for (groups, channels, outs) in [(1, 16, 24), (2, 16, 24), (16, 16, 16)] {
        let (n, h, w, k) = (2usize, 40usize, 37usize, 3usize);
        let own = channels / groups;
        let (x, input) = numbers_of(&[n, h, w, channels], 1);
        let (y, weight) = numbers_of(&[outs, k, k, own], 2);
        let result = input.conv2d(&weight, [2, 1], [1, 1], [1, 2], groups).unwrap();
        let (oh, ow) = (result.shape()[1], result.shape()[2]);
        assert_eq!((oh, ow), (20, 35));
        let found = result.to_vec::<f32>().unwrap();
        for (at, found) in found.iter().enumerate().step_by(7) {
            let (o, j, i, b) = (at % outs, at / outs % ow, at / outs / ow % oh, at / outs / ow / oh);
            let mut sum = 0.0f64;
            for (a, c) in (0..k).flat_map(|a| (0..k).map(move |c| (a, c))) {
                let (row, column) = ((i * 2 + a) as isize - 1, (j + 2 * c) as isize - 1);
                if row < 0 || row >= h as isize || column < 0 || column >= w as isize {
                    continue;
                }
                let (row, column) = (row as usize, column as usize);
                for channel in 0..own {
                    let first = o / (outs / groups) * own;
                    let from = x[((b * h + row) * w + column) * channels + first + channel];
                    sum += f64::from(from) * f64::from(y[((o * k + a) * k + c) * own + channel]);
                }
            }
            assert!(
                (f64::from(*found) - sum).abs() < 1e-3,
                "{found} and not {sum} at {at} of {groups} groups"
            );
        }
    }
}

#[test]
fn transposed_convolutions_crop_positions_not_elements() {
    let x = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0], &[1, 5, 1]).unwrap();
    let w = Array::try_from_slice(&[1.0f32, 10.0, 100.0], &[1, 3, 1]).unwrap();
    let cut = x.conv_transpose1d(&w, 2, 3, 1, 0, 1).unwrap();
    assert_eq!(cut.to_vec::<f32>().unwrap(), [20.0, 203.0, 30.0, 304.0, 40.0]);
}

#[test]
fn convolutions_that_do_not_fit_are_errors() {
    let (_, x) = numbers_of(&[1, 5, 4], 0);
    let (_, w) = numbers_of(&[2, 3, 4], 0);
    assert!(x.conv1d(&w, 0, 0, 1, 1).is_err() && x.conv1d(&w, 1, 0, 0, 1).is_err());
    assert!(x.conv1d(&w, 1, 0, 1, 2).is_err() && x.conv1d(&w, 1, 0, 1, 0).is_err());
    assert!(x.conv1d(&w, 1, 0, 3, 1).is_err() && x.conv1d(&w, 1, isize::MAX, 1, 1).is_err());
    assert!(x.conv2d(&w, [1; 2], [0; 2], [1; 2], 1).is_err());
    let whole = x.astype(Dtype::Int32).unwrap();
    assert!(whole.conv1d(&w.astype(Dtype::Int32).unwrap(), 1, 0, 1, 1).is_err());
    let wide = x.conv1d(&w.astype(Dtype::Float64).unwrap(), 1, 0, 1, 1).unwrap();
    assert_eq!((wide.dtype(), wide.shape()), (Dtype::Float64, &[1, 3, 2][..]));
    let error = x.conv1d(&x, 1, 0, 9, 1).unwrap_err().to_string();
    assert!(error.contains("[1, 5, 4]"), "{error}");
    assert!(x.convolve(&w, ConvolveMode::Full).is_err());
    let none = x.slice(&[0, 0, 0], &[0, 5, 4], &[1, 1, 1]).unwrap();
    assert_eq!(none.conv1d(&w, 1, 0, 1, 1).unwrap().shape(), [0, 3, 2]);
    assert!(none.conv1d(&w, 1, 0, 1, 1).unwrap().to_vec::<f32>().unwrap().is_empty());
}
