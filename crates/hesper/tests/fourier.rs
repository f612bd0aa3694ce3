//! Fourier transforms, against golden cases and by their identities.

// A test that cannot go on should say so at once.

use crate::common;
use crate::common::{cases, numbers};
use hesper::fft::{self, Istft, Norm, Stft};
use hesper::{Array, Dtype, Pad, Result};

fn norm(name: &str) -> Norm {
    match name {
        "ortho" => Norm::Ortho,
        "forward" => Norm::Forward,
        _ => Norm::Backward,
    }
}

fn run(case: &common::Case) -> Result<Array> {
    type One = fn(&Array, Option<usize>, isize, Norm) -> Result<Array>;
    type Two = fn(&Array, Option<[usize; 2]>, [isize; 2], Norm) -> Result<Array>;
    type Many = fn(&Array, Option<&[usize]>, Option<&[isize]>, Norm) -> Result<Array>;
    let parts: Vec<&str> = case.args.split(';').collect();
    let number = |at: usize| parts[at].parse::<usize>().ok();
    let input = case.inputs.first();
    let x = || input.expect("an input");
    let one = |f: One| f(x(), number(0), parts[1].parse().unwrap(), norm(parts[2]));
    let two = |f: Two| f(x(), None, [-2, -1], Norm::Backward);
    let many = |f: Many| {
        let (s, axes) = (numbers(parts[0], ','), numbers(parts[1], ','));
        let (s, axes) = ((!s.is_empty()).then_some(&s[..]), (!axes.is_empty()).then_some(&axes[..]));
        f(x(), s, axes, norm(parts[2]))
    };
    let axes = || numbers::<isize>(parts[0], ',');
    let shift = |f: fn(&Array, Option<&[isize]>) -> Result<Array>| {
        f(x(), (!axes().is_empty()).then_some(&axes()[..]))
    };
    match case.op.as_str() {
        "fft" => one(fft::fft),
        "ifft" => one(fft::ifft),
        "rfft" => one(fft::rfft),
        "irfft" => one(fft::irfft),
        "fft2" => two(fft::fft2),
        "ifft2" => two(fft::ifft2),
        "rfft2" => two(fft::rfft2),
        "irfft2" => two(fft::irfft2),
        "fftn" => many(fft::fftn),
        "ifftn" => many(fft::ifftn),
        "rfftn" => many(fft::rfftn),
        "irfftn" => many(fft::irfftn),
        "fftshift" => shift(fft::fftshift),
        "ifftshift" => shift(fft::ifftshift),
        "fftfreq" => fft::fftfreq(number(0).unwrap(), parts[1].parse().unwrap()),
        "rfftfreq" => fft::rfftfreq(number(0).unwrap(), parts[1].parse().unwrap()),
        "stft" => {
            let mode = match parts[4] {
                "edge" => Pad::Edge,
                "constant" => Pad::Constant(0.into()),
                _ => Pad::Reflect,
            };
            let options = Stft {
                n_fft: number(0).unwrap(),
                hop_length: number(1),
                win_length: number(2),
                window: case.inputs.get(1).cloned(),
                center: (parts[3] == "1").then_some(mode),
                norm: norm(parts[5]),
                onesided: number(6).map(|one| one == 1),
            };
            fft::stft(x(), &options)
        }
        "istft" => {
            let options = Istft {
                n_fft: number(0),
                hop_length: number(1),
                win_length: number(2),
                window: case.inputs.get(1).cloned(),
                center: parts[3] == "1",
                norm: norm(parts[4]),
                onesided: parts[5] != "0",
                length: number(6),
            };
            fft::istft(x(), &options)
        }
        other => panic!("no op {other}"),
    }
}

#[test]
fn transforms_agree_with_the_reference() {
    let mut count = 0;
    for case in cases(include_str!("golden/fft.txt")) {
        let result = run(&case).unwrap_or_else(|error| panic!("{error} for {}", case.line));
        case.check(&[result], 2e-6);
        count += 1;
    }
    assert!(count > 200, "{count} cases");
}

#[test]
fn a_transform_and_back_gives_the_rows_again() {
    let numbers: Vec<f32> = (0..300 * 211).map(|at| ((at * 31) % 97) as f32 / 10.0).collect();
    let x = Array::try_from_slice(&numbers, &[300, 211]).unwrap();
    for along in [0, 1] {
        let there = fft::rfft(&x, None, along, Norm::Ortho).unwrap();
        let back = fft::irfft(&there, Some(x.shape()[along as usize]), along, Norm::Ortho).unwrap();
        let back = back.to_vec::<f32>().unwrap();
        assert!(back.iter().zip(&numbers).all(|(a, b)| (a - b).abs() < 1e-4));
    }
}

#[test]
fn transforms_of_float64_are_computed_in_float64() {
    for n in [7usize, 64, 1000] {
        let numbers: Vec<f64> = (0..3 * n).map(|at| (at as f64 * 0.7).sin() + 1e-9).collect();
        let x = Array::try_from_slice(&numbers, &[3, n]).unwrap();
        let there = fft::rfft(&x, None, -1, Norm::Backward).unwrap();
        assert_eq!(there.dtype(), Dtype::Complex128);
        let sums: Vec<f64> = numbers.chunks(n).map(|row| row.iter().sum()).collect();
        let first = there.slice(&[0, 0], &[3, 1], &[1, 1]).unwrap().to_vec::<[f64; 2]>().unwrap();
        assert!(first.iter().zip(sums).all(|(found, sum)| (found[0] - sum).abs() < 1e-12 * n as f64));
        let back = fft::irfft(&there, Some(n), -1, Norm::Backward).unwrap().to_vec::<f64>().unwrap();
        assert!(back.iter().zip(&numbers).all(|(a, b)| (a - b).abs() < 1e-13));
        let whole = fft::fft(&x, None, 0, Norm::Ortho).unwrap();
        let again = fft::ifft(&whole, None, 0, Norm::Ortho).unwrap().to_vec::<[f64; 2]>().unwrap();
        assert!(again.iter().zip(&numbers).all(|(a, b)| (a[0] - b).abs() < 1e-13 && a[1].abs() < 1e-13));
    }
}

#[test]
fn a_long_row_has_its_waves_where_they_belong() {
    let (n, wave) = (1usize << 16, 12_345usize);
    let angle = |at: usize| std::f64::consts::TAU * (at * wave % n) as f64 / n as f64;
    let parts: Vec<f32> = (0..n).flat_map(|at| [angle(at).cos() as f32, angle(at).sin() as f32]).collect();
    let x = Array::try_from_slice(&parts, &[n, 2]).unwrap().view(Dtype::Complex64).unwrap();
    let x = x.reshape(&[1, n as isize]).unwrap();
    let spectrum = fft::fft(&x, None, -1, Norm::Forward).unwrap();
    for (at, size) in spectrum.abs().unwrap().to_vec::<f32>().unwrap().into_iter().enumerate() {
        assert!((size - f32::from(u8::from(at == wave))).abs() < 1e-5, "{at}: {size}");
    }
    // The transform of real numbers is the first half of theirs, and leads back, cut or filled up.
    let real: Vec<f32> = (0..2 * n - 77).map(|at| ((at * 31) % 97) as f32 / 10.0).collect();
    let real = Array::try_from_slice(&real, &[1, 2 * n - 77]).unwrap();
    let half = fft::rfft(&real, Some(2 * n), -1, Norm::Backward).unwrap();
    let whole = fft::fft(&real, Some(2 * n), -1, Norm::Backward).unwrap();
    let apart =
        half.subtract(whole.slice(&[0, 0], &[1, n as isize + 1], &[1, 1]).unwrap()).unwrap().abs().unwrap();
    assert!(apart.max(()).unwrap().item::<f32>().unwrap() < 1e-1);
    let back = fft::irfft(&half, Some(2 * n), -1, Norm::Backward).unwrap().to_vec::<f32>().unwrap();
    let real = real.to_vec::<f32>().unwrap();
    assert!(back.iter().zip(real.iter().chain(&[0.0; 77])).all(|(a, b)| (a - b).abs() < 1e-4));
}

#[test]
fn other_axes_are_transformed_like_the_last() {
    for (shape, along) in
        [(vec![64, 24], 0), (vec![3, 32, 5, 9], 1), (vec![2, 8, 16, 3], 2), (vec![128, 1, 8], 0)]
    {
        let count = 2 * shape.iter().product::<usize>();
        let parts: Vec<f32> = (0..count).map(|at| ((at * 37) % 101) as f32 / 50.0 - 1.0).collect();
        let flat = Array::try_from_slice(&parts, &[count / 2, 2]).unwrap().view(Dtype::Complex64).unwrap();
        let lengths: Vec<isize> = shape.iter().map(|length| *length as isize).collect();
        let whole = flat.reshape(&lengths).unwrap();
        let zeros: Vec<isize> = vec![0; shape.len()];
        // As it is, and a part of it: without the last of every axis but the one that is transformed.
        let stop: Vec<isize> = lengths
            .iter()
            .enumerate()
            .map(|(axis, length)| if axis == along || *length == 1 { *length } else { length - 1 })
            .collect();
        let part = whole.slice(&zeros, &stop, &vec![1; shape.len()]).unwrap();
        for x in [whole, part] {
            let moved = x.moveaxis(along as isize, -1).unwrap();
            let rows = Array::try_from_slice(
                &moved.view(Dtype::Float32).unwrap().to_vec::<f32>().unwrap(),
                &[moved.size(), 2],
            );
            let rows = rows.unwrap().view(Dtype::Complex64).unwrap();
            let rows = rows.reshape(&moved.shape().iter().map(|n| *n as isize).collect::<Vec<_>>()).unwrap();
            for inverse in [false, true] {
                let run = if inverse { fft::ifft } else { fft::fft };
                let got = run(&x, None, along as isize, Norm::Backward).unwrap();
                let want = run(&rows, None, -1, Norm::Backward).unwrap();
                let apart = got.moveaxis(along as isize, -1).unwrap().subtract(want).unwrap();
                let most = apart.abs().unwrap().max(()).unwrap().item::<f32>().unwrap();
                assert!(most < 1e-5, "{shape:?} along {along}: {most}");
            }
        }
    }
}

#[test]
fn planes_are_transformed_and_back() {
    let numbers: Vec<f32> = (0..2 * 64 * 128).map(|at| ((at * 31) % 97) as f32 / 10.0).collect();
    let x = Array::try_from_slice(&numbers, &[2, 64, 128]).unwrap();
    let there = fft::rfft2(&x, None, [-2, -1], Norm::Backward).unwrap();
    let whole = fft::fft2(&x, None, [-2, -1], Norm::Backward).unwrap();
    let first = whole.slice(&[0, 0, 0], &[2, 64, 65], &[1, 1, 1]).unwrap();
    let apart = there.subtract(first).unwrap().abs().unwrap();
    assert!(apart.max(()).unwrap().item::<f32>().unwrap() < 2e-2);
    let back = fft::irfft2(&there, None, [-2, -1], Norm::Backward).unwrap().to_vec::<f32>().unwrap();
    assert!(back.iter().zip(&numbers).all(|(a, b)| (a - b).abs() < 1e-4));
    let back = fft::ifft2(&whole, None, [-2, -1], Norm::Backward).unwrap();
    let back = back.real().unwrap().to_vec::<f32>().unwrap();
    assert!(back.iter().zip(&numbers).all(|(a, b)| (a - b).abs() < 1e-4));
}

#[test]
fn what_has_no_transform_is_an_error() {
    let x = Array::from_slice(&[1.0f32, 2.0, 3.0]);
    let none = Norm::Backward;
    assert!(fft::fft(&x, Some(0), 0, none).is_err() && fft::fft(&x, None, 1, none).is_err());
    assert!(fft::irfft(&x, Some(0), 0, none).is_err() && fft::fft2(&x, None, [-2, -1], none).is_err());
    assert!(fft::fftn(&x, Some(&[2]), None, none).is_err());
    assert!(fft::fftn(&x, None, Some(&[0, 0]), none).is_err());
    assert!(fft::fftn(&x, Some(&[2, 2]), Some(&[0]), none).is_err());
    assert!(fft::fft(&Array::scalar(1.0, Dtype::Float32).unwrap(), None, 0, none).is_err());
    assert!(fft::fftfreq(0, 1.0).is_err() && fft::rfftfreq(3, 0.0).is_err());
    let short = Stft { n_fft: 8, center: None, ..Stft::default() };
    assert!(fft::stft(&x, &short).is_err() && fft::istft(&x, &Istft::default()).is_err());
    assert!(fft::stft(&x, &Stft { n_fft: 2, hop_length: Some(0), ..Stft::default() }).is_err());
}
