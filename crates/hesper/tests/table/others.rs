//! Attention and what belongs to it, quantization, random numbers, kernels, functions with rules of their
//! own.

use hesper::fast::AttentionMask;
use hesper::transform::{self, CustomFunction};
use hesper::{Array, CustomKernel, Dtype, PackedArray, PackedFormat, QuantMode, Result, fast, random};

use super::{Case, bools, case, ints, many, numbers, positive, single, single_many, x};

fn attention(inputs: &[Array], mask: AttentionMask<'_>, sinks: Option<&Array>) -> Result<Array> {
    fast::scaled_dot_product_attention(&inputs[0], &inputs[1], &inputs[2], 0.4, mask, sinks)
}

fn attending() -> Vec<Case> {
    let qkv = [x(1, &[2, 4, 3, 8]), x(2, &[2, 2, 5, 8]), x(3, &[2, 2, 5, 4])];
    let with = |more: &[Array]| qkv.iter().chain(more).cloned().collect::<Vec<Array>>();
    let marks = bools(&[1, 0, 1, 1, 0]).broadcast_to(&[3, 5]).unwrap();
    vec![
        single("attention", &qkv, |x| attention(x, AttentionMask::None, None)),
        single("causal attention", &qkv, |x| attention(x, AttentionMask::Causal, None)),
        single("attention by marks", &qkv, move |x| attention(x, AttentionMask::Array(&marks), None)),
        single("attention with a mask", &with(&[x(4, &[3, 5])]), |x| {
            attention(x, AttentionMask::Array(&x[3]), None)
        }),
        single("attention with a mask of heads", &with(&[x(4, &[2, 4, 1, 5])]), |x| {
            attention(x, AttentionMask::Array(&x[3]), None)
        }),
        single("attention with sinks", &with(&[x(5, &[4])]), |x| {
            attention(x, AttentionMask::Causal, Some(&x[3]))
        }),
        single("attention with a mask and sinks", &with(&[x(6, &[3, 5]), x(7, &[4])]), |x| {
            attention(x, AttentionMask::Array(&x[3]), Some(&x[4]))
        }),
        case("attention of double precision", &with(&[x(8, &[3, 5]), x(9, &[4])]), |x| {
            attention(x, AttentionMask::Array(&x[3]), Some(&x[4]))
        }),
        single("rope", &[x(10, &[2, 2, 3, 8])], |x| fast::rope(&x[0], 8, false, Some(1e4), 1.0, 3, None)),
        single("rope of part, by pairs", &[x(11, &[2, 2, 3, 8])], |x| {
            fast::rope(&x[0], 4, true, Some(1e4), 0.5, 1, None)
        }),
        single("rope by periods", &[x(34, &[2, 2, 3, 8]), positive(35, &[4])], |x| {
            fast::rope(&x[0], 8, false, None, 0.5, 1, Some(&x[1]))
        }),
        single("rope by periods, by pairs", &[x(36, &[2, 2, 3, 8]), positive(37, &[2])], |x| {
            fast::rope(&x[0], 4, true, None, 0.5, Array::from_slice(&[3, 1]), Some(&x[1]))
        }),
        case(
            "rope by frequencies",
            &[numbers(12, &[1, 2, 3, 8], Dtype::Float32), ints(&[2]), x(13, &[4])],
            |x| fast::rope(&x[0], 8, true, None, 1.0, &x[1], Some(&x[2])),
        )
        .flat(),
        single("rms_norm of single precision", &[x(14, &[2, 8]), x(15, &[8])], |x| {
            fast::rms_norm(&x[0], Some(&x[1]), 1e-5)
        }),
        single("cross_entropy by given labels", &[x(16, &[3, 4]), ints(&[1, 3, 0])], |x| {
            fast::cross_entropy(&x[0], &x[1])
        })
        .flat(),
        single_many(
            "gated_delta",
            &[x(17, &[1, 2, 1, 4]), x(18, &[1, 2, 1, 4]), x(19, &[1, 2, 2, 3]), x(20, &[1, 2, 2])],
            |x| {
                let (answers, state) =
                    fast::gated_delta_update(&x[0], &x[1], &x[2], &x[3], &x[3], None, None)?;
                Ok(vec![answers, state])
            },
        ),
        single_many(
            "gated_delta with a state and a mask",
            &[
                x(21, &[2, 2, 1, 4]),
                x(22, &[2, 2, 2, 3]),
                x(23, &[2, 2, 2, 4]),
                x(24, &[2, 2, 2]),
                x(25, &[2, 2, 3, 4]),
            ],
            |x| {
                let mask = bools(&[1, 0, 1, 1]).reshape(&[2, 2])?;
                let (state, mask) = (Some(&x[4]), Some(&mask));
                let (answers, state) =
                    fast::gated_delta_update(&x[0], &x[0], &x[1], &x[2], &x[3], state, mask)?;
                Ok(vec![answers, state])
            },
        ),
    ]
}

fn quantized() -> Vec<Case> {
    let affine = QuantMode::Affine;
    let w = numbers(1, &[4, 64], Dtype::Float32);
    let stack = numbers(2, &[3, 4, 64], Dtype::Float32);
    let parts = |w: &Array| {
        let (codes, scales, biases) = w.quantize(None, None, affine).unwrap();
        [codes, scales, biases.unwrap()]
    };
    let ([codes, scales, biases], [stacked, of_stack, behind]) = (parts(&w), parts(&stack));
    let packed = PackedArray::quantize(&w, PackedFormat::Q8_0).unwrap();
    let bytes = packed.bytes().clone();
    let rows = numbers(3, &[2, 64], Dtype::Float32);
    vec![
        many("quantize", &[w.clone()], move |x| {
            let (codes, scales, biases) = x[0].quantize(None, None, affine)?;
            Ok([codes, scales].into_iter().chain(biases).collect())
        })
        .flat(),
        many("quantize to floats", &[w.clone()], |x| {
            let (codes, scales, _) = x[0].quantize(None, None, QuantMode::Mxfp8)?;
            Ok(vec![codes.dequantize(&scales, None, None, None, QuantMode::Mxfp8, Some(Dtype::Float32))?])
        })
        .flat(),
        case("dequantize", &[codes.clone(), scales.clone(), biases.clone()], move |x| {
            x[0].dequantize(&x[1], Some(&x[2]), None, None, affine, None)
        })
        .flat(),
        {
            let codes = codes.clone();
            single("dequantize, of scales and biases", &[scales.clone(), biases.clone()], move |x| {
                codes.dequantize(&x[0], Some(&x[1]), None, None, affine, None)
            })
            .rough(1e-2, 2e-2)
        },
        {
            let codes = codes.clone();
            let inputs = [rows.clone(), scales.clone(), biases.clone()];
            single("quantized_matmul", &inputs, move |x| {
                x[0].quantized_matmul(&codes, &x[1], Some(&x[2]), true, None, None, affine)
            })
            .rough(1e-2, 2e-2)
        },
        case("quantized_matmul of given codes", &[rows.clone(), codes.clone(), scales, biases], move |x| {
            x[0].quantized_matmul(&x[1], &x[2], Some(&x[3]), true, None, None, affine)
        })
        .rough(1e-2, 1e-4)
        .flat(),
        {
            let stacked = stacked.clone();
            let inputs = [numbers(4, &[2, 1, 64], Dtype::Float32), of_stack.clone(), behind.clone()];
            single("gather_qmm", &inputs, move |x| {
                let list = ints(&[2, 0]);
                x[0].gather_qmm(&stacked, &x[1], Some(&x[2]), None, Some(&list), true, None, None, affine)
            })
            .rough(1e-2, 2e-2)
        },
        case(
            "gather_qmm of given matrices",
            &[numbers(5, &[2, 1, 64], Dtype::Float32), stacked, of_stack, behind, ints(&[-1, 0])],
            move |x| {
                let list = Some(&x[4]);
                x[0].gather_qmm(&x[1], &x[2], Some(&x[3]), None, list, true, None, None, affine)
            },
        )
        .rough(1e-2, 1e-4)
        .flat(),
        case("qqmm", &[rows.clone(), w], |x| x[0].qqmm(&x[1], None, None, None, QuantMode::Mxfp8))
            .rough(1e-2, 1e-4)
            .flat(),
        case("fp8", &[numbers(6, &[5], Dtype::Float32)], |x| x[0].to_fp8()?.from_fp8(Dtype::Float32)).flat(),
        single("packed_matmul", &[rows.clone()], move |x| packed.matmul(&x[0])).rough(1e-2, 2e-2),
        case("packed_matmul of given blocks", &[rows, bytes.clone()], |x| {
            PackedArray::new(&x[1], PackedFormat::Q8_0, &[4, 64])?.matmul(&x[0])
        })
        .rough(1e-2, 1e-4)
        .flat(),
        case("packed rows", &[bytes.clone(), ints(&[3, 0])], |x| {
            PackedArray::new(&x[0], PackedFormat::Q8_0, &[4, 64])?.rows(&x[1], Dtype::Float16)
        })
        .flat(),
        case("unpacked", &[bytes], |x| {
            PackedArray::new(&x[0], PackedFormat::Q8_0, &[4, 64])?.dequantize(Dtype::Float32)
        })
        .flat(),
    ]
}

fn drawn() -> Vec<Case> {
    let key = random::key(7).unwrap();
    let covariance = Array::from_slice(&[2.0f32, 0.5, 0.5, 1.0]).reshape(&[2, 2]).unwrap();
    vec![
        case("uniform", &[key.clone()], |x| random::uniform(0.0, 1.0, &[3], Dtype::Float32, Some(&x[0])))
            .flat(),
        case("normal", &[key.clone()], |x| random::normal(&[3], Dtype::Float32, 0.0, 1.0, Some(&x[0])))
            .flat(),
        case("complex normal", &[key.clone()], |x| {
            random::normal(&[3], Dtype::Complex64, 0.0, 1.0, Some(&x[0]))
        })
        .flat(),
        case("split", &[key.clone()], |x| random::split(&x[0], 3)).flat(),
        case("permutation", &[key.clone(), x(1, &[4, 2])], |x| random::permute(&x[1], 0, Some(&x[0]))).flat(),
        {
            let key = key.clone();
            case("permutation of rows", &[x(1, &[4, 2])], move |x| random::permute(&x[0], 0, Some(&key)))
        },
        case("categorical", &[key.clone(), numbers(2, &[2, 5], Dtype::Float32)], |x| {
            random::categorical(&x[1], -1, random::Draws::One, Some(&x[0]))
        })
        .flat(),
        {
            let key = key.clone();
            single("multivariate normal", &[numbers(3, &[2], Dtype::Float32), covariance], move |x| {
                let symmetric = x[1].add(x[1].t()?)?.multiply(0.5)?;
                random::multivariate_normal(&x[0], &symmetric, &[3], Dtype::Float32, Some(&key))
            })
        },
    ]
}

fn given() -> Vec<Case> {
    let source = "uint i = thread_position_in_grid.x; out[i] = T(inp[i]) * N; other[i] = inp[i] > 0;";
    let kernel = CustomKernel::new("scaled", &["inp"], &["out", "other"], source).unwrap();
    let rules = CustomFunction::new(|x| Ok(vec![x[0].sin()?, x[0].multiply(&x[1])?])).with_vjp(|x, c, _| {
        let first = c[0].multiply(x[0].cos()?)?.add(c[1].multiply(&x[1])?)?;
        Ok(vec![first, c[1].multiply(&x[0])?])
    });
    let plain = CustomFunction::new(|x| Ok(vec![x[0].exp()?, x[0].sum(())?]));
    let compiled = transform::compile(|x| Ok(vec![x[0].exp()?.add(1.0)?, x[0].sum(())?]));
    let again = transform::checkpoint(|x| Ok(vec![x[0].exp()?.sin()?]));
    vec![
        many("custom kernel", &[numbers(1, &[4], Dtype::Float32)], move |x| {
            let call = kernel.call(x).grid([4, 1, 1]).threadgroup([4, 1, 1]);
            let call = call.template_dtype("T", Dtype::Float32).template_int("N", 3);
            call.output(&[4], Dtype::Float32).output(&[4], Dtype::Bool).run()
        })
        .flat(),
        many("custom function", &[x(2, &[3]), x(3, &[3])], move |x| rules.call(x)),
        many("custom function without rules", &[x(4, &[3])], move |x| plain.call(x)),
        many("compiled function", &[x(5, &[3])], move |x| compiled(x)),
        many("checkpoint", &[x(6, &[3])], move |x| again(x)),
        many("depends", &[x(7, &[3])], |x| transform::depends(&[x[0].exp()?], &[x[0].sin()?])),
        many("arguments and constants", &[x(8, &[3])], |x| Ok(vec![x[0].clone(), ints(&[1, 2])])).flat(),
    ]
}

pub fn cases() -> Vec<Case> {
    [attending(), quantized(), drawn(), given()].into_iter().flatten().collect()
}
