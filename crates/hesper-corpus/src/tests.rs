//! The corpus checks itself: its files, its data and its references against second formulations.

use std::collections::HashSet;
use std::path::Path;

use crate::array::{Array, DType};
use crate::case::{Case, Expected, TemplateArg};
use crate::{bits, cases, image, invalid_cases, language, quant, run_cases};

/// The case of this name.
fn case(name: &str) -> Case {
    cases().into_iter().find(|c| c.name == name).expect("the corpus has this case")
}

fn floats(expected: &Expected) -> &[f64] {
    match expected {
        Expected::Floats(v) => v,
        Expected::Ints(_) => panic!("integers where floats were expected"),
    }
}

fn ints(expected: &Expected) -> &[i64] {
    match expected {
        Expected::Ints(v) => v,
        Expected::Floats(_) => panic!("floats where integers were expected"),
    }
}

/// The reference's answer written as an executor would return it.
fn ideal_outputs(c: &Case) -> Vec<Vec<u8>> {
    let encode = |(i, e): (usize, Expected)| match e {
        Expected::Floats(v) => Array::floats(c.outputs[i].dtype, &c.outputs[i].shape, &v).storage,
        Expected::Ints(v) => Array::ints(c.outputs[i].dtype, &c.outputs[i].shape, &v).storage,
    };
    c.expected().into_iter().enumerate().map(encode).collect()
}

#[test]
fn every_kernel_file_is_used_by_a_case() {
    let all = cases();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let mut kernels = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("// "), "{name} opens with what it does");
        if name.ends_with(".h.metal") {
            assert!(all.iter().any(|c| c.header == text), "{name} is no case's header");
        } else {
            assert!(all.iter().any(|c| c.source == text), "{name} is no case's source");
            kernels += 1;
        }
    }
    assert!(kernels >= 48, "only {kernels} kernels");
}

#[test]
fn names_of_cases_are_unique() {
    let mut seen = HashSet::new();
    let valid = cases().into_iter().map(|c| c.name);
    for name in valid.chain(invalid_cases().into_iter().map(|c| c.case.name)) {
        assert!(seen.insert(name), "{name} appears twice");
    }
}

#[test]
fn data_and_references_are_the_same_every_time() {
    for (a, b) in cases().iter().zip(&cases()) {
        assert!(a.inputs.iter().zip(&b.inputs).all(|(p, q)| p.array == q.array), "{}", a.name);
        // As text, because NaN equals itself there.
        assert_eq!(format!("{:?}", a.expected()), format!("{:?}", b.expected()), "{}", a.name);
    }
}

#[test]
fn references_give_one_number_for_each_element_of_each_output() {
    for c in cases() {
        let expected = c.expected();
        assert_eq!(expected.len(), c.outputs.len(), "{}", c.name);
        for (spec, e) in c.outputs.iter().zip(&expected) {
            let per = if spec.dtype == DType::Complex64 { 2 } else { 1 };
            match e {
                Expected::Floats(v) => {
                    assert!(spec.dtype.is_float(), "{}.{}", c.name, spec.name);
                    assert_eq!(v.len(), per * spec.len(), "{}.{}", c.name, spec.name);
                    let on_purpose = ["segmented_reduce_int64_offsets", "special_values"].contains(&c.name);
                    let fine = |x: &f64| x.is_finite() || on_purpose;
                    assert!(v.iter().all(fine), "{}.{} has numbers that are not finite", c.name, spec.name);
                }
                Expected::Ints(v) => {
                    assert!(!spec.dtype.is_float(), "{}.{}", c.name, spec.name);
                    assert_eq!(v.len(), spec.len(), "{}.{}", c.name, spec.name);
                }
            }
        }
    }
}

#[test]
fn cases_are_small_and_launchable() {
    for c in cases() {
        let threads: usize = c.grid.iter().product();
        assert!((1..=20_000).contains(&threads), "{} has {threads} threads", c.name);
        assert!((1..=1024).contains(&c.threadgroup.iter().product::<usize>()), "{}", c.name);
        let bytes: usize = c.inputs.iter().map(|i| i.array.storage.len()).sum();
        assert!(bytes <= 400_000, "{} reads {bytes} bytes", c.name);
    }
}

#[test]
fn texts_name_every_output_and_template_argument_they_are_given() {
    for c in cases() {
        for spec in &c.outputs {
            assert!(c.source.contains(spec.name), "{} does not name {}", c.name, spec.name);
        }
        for input in &c.inputs {
            assert!(c.source.contains(input.name), "{} does not name {}", c.name, input.name);
        }
    }
}

#[test]
fn the_ideal_outputs_pass_and_damaged_ones_fail() {
    let all = cases();
    let clean = run_cases(&all, &mut |c: &Case| Ok(ideal_outputs(c)));
    assert!(clean.is_clean(), "{clean}");
    let damaged = run_cases(&all, &mut |c: &Case| {
        let mut outputs = ideal_outputs(c);
        // The top byte of the first element: its sign or its magnitude.
        let top = c.outputs[0].dtype.size().min(4) - 1;
        outputs[0][top] ^= 0x55;
        Ok(outputs)
    });
    assert!(damaged.passed.is_empty(), "unnoticed in {:?}", damaged.passed);
}

#[test]
fn outputs_left_at_their_initial_bytes_fail() {
    let untouched = |c: &Case| Ok((0..c.outputs.len()).map(|i| c.initial_output(i, 0xa5)).collect());
    let report = run_cases(&cases(), &mut { untouched });
    assert!(report.passed.is_empty(), "nothing ran, yet these passed: {:?}", report.passed);
}

#[test]
fn the_required_variety_is_there() {
    let all = cases();
    let used = |d: DType| all.iter().any(|c| c.inputs.iter().any(|i| i.array.dtype == d));
    for d in
        [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I64, DType::U32, DType::U8, DType::Complex64]
    {
        assert!(used(d), "{d:?} is no input of any case");
    }
    let written = |d: DType| all.iter().any(|c| c.outputs.iter().any(|o| o.dtype == d));
    for d in [DType::Bool, DType::U64, DType::I16, DType::U16, DType::Complex64, DType::BF16] {
        assert!(written(d), "{d:?} is no output of any case");
    }
    let partial = |c: &&Case| (0..3).any(|a| !c.grid[a].is_multiple_of(c.threadgroup[a].min(c.grid[a])));
    assert!(all.iter().filter(partial).count() >= 30);
    assert!(all.iter().any(|c| c.grid.iter().all(|n| *n > 1)));
    assert!(all.iter().any(|c| !c.ensure_row_contiguous));
    assert!(
        all.iter().any(|c| c.ensure_row_contiguous && c.inputs.iter().any(|i| !i.array.is_row_contiguous()))
    );
    assert!(all.iter().any(|c| c.template.iter().any(|(_, a)| matches!(a, TemplateArg::Bool(_)))));
}

#[test]
fn invalid_cases_point_into_their_text() {
    let all = invalid_cases();
    assert!(all.len() >= 30);
    for c in &all {
        let text = if c.part == crate::SourcePart::Body { c.case.source } else { c.case.header };
        if let Some((first, last)) = c.lines {
            assert!(1 <= first && first <= last, "{}", c.case.name);
            // One past the last line is the end of the text.
            assert!(
                last <= text.lines().count() + 1,
                "{}: line {last} of {}",
                c.case.name,
                text.lines().count()
            );
        } else {
            assert_eq!(c.phase, crate::Phase::Launch, "{} has a line", c.case.name);
        }
    }
}

#[test]
fn judging_an_invalid_case_looks_at_phase_line_and_message() {
    let c = invalid_cases().into_iter().find(|c| c.case.name == "misspelt_function").unwrap();
    let message = "unknown function `simd_summ`; did you mean `simd_sum`?";
    assert!(c.judge(crate::Phase::Compile, Some(3), message).is_ok());
    assert!(c.judge(crate::Phase::Launch, Some(3), message).is_err());
    assert!(c.judge(crate::Phase::Compile, Some(2), message).is_err());
    assert!(c.judge(crate::Phase::Compile, Some(3), "no").is_err());
}

#[test]
fn philox_matches_its_published_vectors() {
    assert_eq!(bits::philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    assert_eq!(bits::philox([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
}

#[test]
fn crc32_of_the_check_string_is_the_known_one() {
    let digits: Vec<i64> = b"123456789".iter().map(|b| i64::from(*b)).collect();
    assert_eq!(language::crc32(&digits), 0xcbf4_3926);
}

#[test]
fn packing_is_undone_by_unpacking_at_every_width() {
    for width in [2, 3, 4, 6, 8] {
        let codes: Vec<u32> = (0..96).map(|i| i * 37 % (1 << width)).collect();
        assert_eq!(quant::unpack(&quant::pack(&codes, width), width), codes);
    }
}

#[test]
fn the_sampling_gradient_agrees_with_finite_differences() {
    let c = case("grid_sample_grad");
    let (x, grid, ct) = (c.f("x"), c.f("grid"), c.f("cotangent"));
    let loss =
        |x: &[f64], grid: &[f64]| image::sample(x, &c, grid).iter().zip(&ct).map(|(a, b)| a * b).sum::<f64>();
    let expected = c.expected();
    let step = 1e-6;
    for (input, gradient, at) in
        [(0, &expected[0], 5), (0, &expected[0], 1500), (1, &expected[1], 0), (1, &expected[1], 33)]
    {
        let moved = |d: f64| {
            let (mut x, mut grid) = (x.clone(), grid.clone());
            if input == 0 {
                x[at] += d
            } else {
                grid[at] += d
            }
            loss(&x, &grid)
        };
        let slope = (moved(step) - moved(-step)) / (2.0 * step);
        let analytic = floats(gradient)[at];
        assert!((slope - analytic).abs() < 1e-4, "element {at} of input {input}: {slope} and {analytic}");
    }
}

#[test]
fn the_cross_entropy_gradient_agrees_with_finite_differences() {
    let mut c = case("cross_entropy_float");
    let expected = c.expected();
    let up = c.f("upstream")[0];
    let values = c.f("x");
    // Steps that single precision can carry.
    for at in [3, 4, 200] {
        let mut moved = |d: f64| {
            let mut v = values.clone();
            v[at] += d;
            c.inputs[0].array = Array::floats(DType::F32, &[4, 500], &v);
            (c.f("x")[at], floats(&c.expected()[0])[0])
        };
        let ((a, low), (b, high)) = (moved(-1.0 / 64.0), moved(1.0 / 64.0));
        let slope = up * (high - low) / (b - a);
        let analytic = floats(&expected[1])[at];
        assert!((slope - analytic).abs() < 1e-3 * (1.0 + analytic.abs()), "{slope} and {analytic}");
    }
}

#[test]
fn the_wkv_sum_agrees_with_its_recurrence() {
    let c = case("wkv_float");
    let (k, v, w, u) = (c.f("k"), c.f("v"), c.f("w"), c.f("u"));
    let (l, n) = (c.arg("L"), c.arg("C"));
    let expected = c.expected();
    for channel in [0, 5, 36] {
        let (mut num, mut den) = (0.0, 0.0);
        for t in 0..l {
            let (kk, vv) = (k[t * n + channel], v[t * n + channel]);
            let bonus = (u[channel] + kk).exp();
            let y = (num + bonus * vv) / (den + bonus);
            assert!((y - floats(&expected[0])[t * n + channel]).abs() < 1e-9);
            let decay = (-w[channel].exp()).exp();
            (num, den) = (num * decay + kk.exp() * vv, den * decay + kk.exp());
        }
    }
}

#[test]
fn the_inverse_transform_undoes_the_forward_one() {
    let mut c = case("fft_inverse_16");
    let original = c.f("x");
    c.template[1].1 = TemplateArg::Bool(false);
    let spectrum = floats(&c.expected()[0]).to_vec();
    // Parseval: the transform keeps the energy up to its length.
    let energy = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>();
    assert!((energy(&spectrum) / 16.0 - energy(&original)).abs() < 1e-9);
    c.template[1].1 = TemplateArg::Bool(true);
    let shape = c.inputs[0].array.shape.clone();
    c.inputs[0].array = Array::floats(DType::Complex64, &shape, &spectrum);
    let back = floats(&c.expected()[0]).to_vec();
    assert!(back.iter().zip(&original).all(|(a, b)| (a - b).abs() < 1e-5));
}

#[test]
fn the_hadamard_matrix_is_its_own_inverse() {
    let mut c = case("hadamard_float");
    let original = c.f("x");
    let once = floats(&c.expected()[0]).to_vec();
    let shape = c.inputs[0].array.shape.clone();
    c.inputs[0].array = Array::floats(DType::F32, &shape, &once);
    let twice = floats(&c.expected()[0]).to_vec();
    assert!(twice.iter().zip(&original).all(|(a, b)| (a - b).abs() < 1e-5));
}

#[test]
fn histograms_and_compactions_count_every_element_once() {
    let bins: i64 = ints(&case("histogram_device").expected()[0]).iter().sum();
    assert_eq!(bins, 3001);
    let c = case("histogram_private");
    let positive = c.i("values").iter().filter(|v| **v >= 0).count() as i64;
    assert_eq!(ints(&c.expected()[0]).iter().sum::<i64>(), positive);
}

#[test]
fn attention_rows_are_convex_combinations_of_values() {
    let c = case("attention_gqa_full_half");
    let v = c.f("v");
    let (low, high) = v.iter().fold((f64::MAX, f64::MIN), |(l, h), x| (l.min(*x), h.max(*x)));
    assert!(floats(&c.expected()[0]).iter().all(|o| (low..=high).contains(o)));
}

#[test]
fn a_strided_view_reads_what_its_strides_say() {
    let a = Array::ints(DType::I32, &[2, 3], &[0, 1, 2, 3, 4, 5]);
    assert_eq!(a.clone().view(&[3, 2], &[1, 3], 0).to_ints(), [0, 3, 1, 4, 2, 5]);
    assert_eq!(a.clone().view(&[3], &[-1], 5).to_ints(), [5, 4, 3]);
    let broadcast = a.view(&[2, 2], &[0, 3], 1);
    assert_eq!(broadcast.to_ints(), [1, 4, 1, 4]);
    assert!(!broadcast.is_row_contiguous());
    assert!(broadcast.contiguous().is_row_contiguous());
}
