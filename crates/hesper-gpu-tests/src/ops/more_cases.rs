//! More cases: indexed updates, gathered and segmented products, quantization, random choices, Fourier
//! transforms, kernels in CUDA C++.

use hesper::cuda::CudaKernel;
use hesper::{Array, Dtype, Error, QuantMode, Split, fast, linalg, random};

use crate::cases::{Cases, data, indices, sized};

/// Adds all cases.
pub fn add(cases: &mut Cases) {
    updates(cases);
    slices(cases);
    products(cases);
    codes(cases);
    choices(cases);
    cuda_kernels(cases);
    networks(cases);
    crate::decoder_cases::add(cases);
}

fn updates(cases: &mut Cases) {
    let types = [
        Dtype::Float32,
        Dtype::Bfloat16,
        Dtype::Float16,
        Dtype::Float64,
        Dtype::Int32,
        Dtype::Uint8,
        Dtype::Int64,
        Dtype::Bool,
        Dtype::Complex64,
    ];
    for dtype in types {
        // Colliding updates: their order determines the bits, and must be that of the host.
        cases.add(format!("scatters {dtype}"), 0.0, move || {
            let x = data(&[20, 9, 8], dtype, 1);
            let rows = indices(&[31], 20, 3);
            let slices = data(&[31, 1, 9, 8], dtype, 2);
            let (i, j) = (indices(&[4, 6], 20, 5), indices(&[1, 6], 9, 7).subtract(9)?);
            let cells = data(&[4, 6, 1, 1, 8], dtype, 4);
            let both = [i, j];
            let rows = [rows];
            Ok(vec![
                x.scatter(&rows, &slices, &[0])?,
                x.scatter_add(&rows, &slices, &[0])?,
                x.scatter_prod(&rows, &slices, &[0])?,
                x.scatter_max(&rows, &slices, &[0])?,
                x.scatter_min(&rows, &slices, &[0])?,
                x.scatter(&both, &cells, &[0, 1])?,
                x.scatter_add(&both, &cells, &[0, 1])?,
                x.transpose(&[2, 1, 0])?.scatter_add(&both, &data(&[4, 6, 1, 1, 20], dtype, 6), &[0, 1])?,
            ])
        });
        cases.add(format!("put along an axis {dtype}"), 0.0, move || {
            let x = data(&[7, 30, 5], dtype, 1);
            let at = indices(&[7, 40, 5], 30, 2);
            let values = data(&[7, 40, 5], dtype, 3);
            Ok(vec![
                x.put_along_axis(&at, &values, Some(1))?,
                x.scatter_add_axis(&at, &values, 1)?,
                x.put_along_axis(&indices(&[50], 1050, 9), &data(&[50], dtype, 5), None)?,
            ])
        });
    }
    cases.add("many updates of one element", 0.0, || {
        let x = data(&[3], Dtype::Float32, 1);
        let at = indices(&[9001], 3, 2);
        let values = data(&[9001, 1], Dtype::Float32, 3);
        let table = data(&[5000, 16], Dtype::Bfloat16, 4);
        let tokens = indices(&[4, 1500], 700, 5);
        Ok(vec![
            x.scatter_add(&[at.clone()], &values, &[0])?,
            x.scatter(&[at], &values, &[0])?,
            table.scatter_add(&[tokens], &data(&[4, 1500, 1, 16], Dtype::Bfloat16, 6), &[0])?,
        ])
    });
    cases.add("updates of parts of rows", 0.0, || {
        let of = Dtype::Bfloat16;
        let (x, rows) = (data(&[20, 30], of, 1), [indices(&[31], 20, 3)]);
        // Updates of less than a row, aligned and not, and many updates of long rows.
        let (points, width) = sized((3000, 1000), (1100, 20));
        let (few, even, long) =
            (data(&[31, 1, 7], of, 2), data(&[31, 1, 8], of, 3), data(&[points, 1, width], of, 4));
        let (table, tokens) = (data(&[100, width], of, 5), [indices(&[points], 100, 6)]);
        Ok(vec![
            x.scatter_add(&rows, &few, &[0])?,
            x.scatter(&rows, &even, &[0])?,
            table.scatter_add(&tokens, &long, &[0])?,
            table.scatter(&tokens, &long, &[0])?,
            table.scatter_max(&tokens, &long, &[0])?,
        ])
    });
    for width in [1usize, 2, 3, 8, 33, 100, 515, 4096] {
        cases.add(format!("rows of {width} gathered"), 0.0, move || {
            let rows = indices(&[777], 50, 3).subtract(10)?;
            let wide = data(&[50, width + 3], Dtype::Float32, 4);
            Ok(vec![
                data(&[50, width], Dtype::Bfloat16, 1).take(&rows, Some(0))?,
                data(&[3, 50, width], Dtype::Float32, 2).take(&rows, Some(1))?,
                // Rows that are not adjacent.
                wide.slice_axis(1, 1, width as isize + 1, 1)?.take(&rows, Some(0))?,
                data(&[2, 50, width], Dtype::Int64, 5).transpose(&[1, 0, 2])?.take(&rows, Some(0))?,
            ])
        });
    }
    cases.add("rows of transposed arrays", 1e-5, || {
        // Many rows, which are gathered from a copy, and few; columns of updates.
        let turned = data(&[70, 90], Dtype::Float32, 31).transpose(&[1, 0])?;
        let (many, few) = (indices(&[200], 90, 32), indices(&[3], 90, 33));
        let updates = data(&[70, 1, 200], Dtype::Float32, 34).transpose(&[2, 1, 0])?;
        let mut all = vec![turned.take(&many, Some(0))?, turned.take(&few, Some(0))?];
        all.extend([
            turned.take(indices(&[40], 70, 35), Some(1))?,
            turned.slice_axis(0, 80, -91, -3)?.take(&few, Some(1))?,
        ]);
        all.push(turned.scatter_add(&[many.clone()], &updates, &[0])?);
        all.push(turned.scatter(&[many], &updates, &[0])?);
        Ok(all)
    });
    cases.add("gathers over several axes", 0.0, || {
        let x = data(&[6, 7, 8, 5], Dtype::Float32, 1);
        let (i, j) = (indices(&[3, 4], 6, 1), indices(&[4], 8, 2));
        let both = [i, j];
        Ok(vec![
            x.gather(&both, &[0, 2], &[1, 7, 1, 5])?,
            x.gather(&both, &[0, 2], &[2, 3, 4, 5])?,
            x.transpose(&[3, 1, 2, 0])?.gather(&both, &[3, 2], &[5, 7, 1, 1])?,
        ])
    });
    cases.add("slope of an embedding", 0.0, || {
        let table = data(&[300, 24], Dtype::Float32, 1);
        let tokens = indices(&[5, 90], 300, 2);
        let loss = move |x: &[Array]| -> Result<Array, Error> {
            x[0].take(tokens.clone(), Some(0))?.square()?.sum(())
        };
        hesper::transform::grad(loss, &[0])(&[table])
    });
}

fn slices(cases: &mut Cases) {
    for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Uint8, Dtype::Complex64] {
        cases.add(format!("slices that start where arrays say {dtype}"), 0.0, move || {
            let x = data(&[9, 10, 11], dtype, 1);
            let starts = Array::from_slice(&[-3i32, 4]);
            let update = data(&[2, 10, 3], dtype, 2);
            Ok(vec![
                x.dynamic_slice(&starts, &[0, 2], &[2, 10, 3])?,
                x.transpose(&[2, 0, 1])?.dynamic_slice(&starts, &[1, 0], &[4, 5, 6])?,
                x.dynamic_slice_update(&update, &starts, &[0, 2])?,
                x.slice_update(&data(&[3, 10, 4], dtype, 3), &[8, 0, 9], &[2, 10, 1], &[-2, 1, -2])?,
                x.dynamic_slice(&Array::from_slice(&[200u32]), &[1], &[9, 4, 11])?,
            ])
        });
    }
}

fn products(cases: &mut Cases) {
    for dtype in [Dtype::Float32, Dtype::Bfloat16] {
        let close = if dtype == Dtype::Float32 { 1e-4 } else { 3e-2 };
        cases.add(format!("chosen products {dtype}"), close, move || {
            let (x, y) = (data(&[5, 6, 32], dtype, 1), data(&[4, 16, 32], dtype, 2));
            let (left, right) = (indices(&[3, 7], 5, 1), indices(&[3, 7], 4, 2));
            Ok(vec![
                x.gather_mm(&y.swapaxes(-1, -2)?, Some(&left), Some(&right))?,
                data(&[5, 1, 32], dtype, 3).gather_mm(
                    &y.swapaxes(-1, -2)?,
                    None,
                    Some(&indices(&[5], 4, 3)),
                )?,
            ])
        });
        cases.add(format!("products over segments {dtype}"), close, move || {
            let segments = Array::try_from_slice(&[0u32, 8, 8, 30, 30, 30, 5, 48], &[4, 2])?;
            Ok(vec![data(&[9, 48], dtype, 1).segmented_mm(&data(&[48, 17], dtype, 2), &segments)?])
        });
        cases.add(format!("products of masked blocks {dtype}"), close, move || {
            let mask = data(&[3, 2], Dtype::Bool, 3);
            Ok(vec![data(&[96, 64], dtype, 1).block_masked_mm(
                &data(&[64, 32], dtype, 2),
                32,
                None,
                Some(&mask),
                None,
            )?])
        });
    }
    for length in [1usize, 2, 16, 128, 256, 4096, 12 * 16, 20 * 4, 28 * 64] {
        cases.add(format!("hadamard {length}"), 1e-4, move || {
            let x = data(&[3, length], Dtype::Float32, 1);
            Ok(vec![x.hadamard_transform(None)?, x.astype(Dtype::Bfloat16)?.hadamard_transform(Some(0.5))?])
        });
    }
    cases.add("diagonals and factors", 1e-3, || {
        let x = data(&[6], Dtype::Float32, 1);
        let a = data(&[8, 8], Dtype::Float32, 2);
        let spd = a.matmul(&a.t()?)?.add(Array::eye(8, 8, 0, Dtype::Float32)?.multiply(4.0)?)?;
        Ok(vec![x.diag(0)?, x.diag(2)?, x.diag(-1)?, linalg::cholesky(&spd, false)?, linalg::inv(&spd)?])
    });
}

fn codes(cases: &mut Cases) {
    for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Float16] {
        for (bits, group) in [(4, 64), (8, 32), (2, 128), (3, 32), (5, 64), (6, 32)] {
            cases.add(format!("quantize to {bits} bits by {group} {dtype}"), 0.0, move || {
                let x = data(&[24, 256], dtype, 1);
                let (codes, scales, biases) = x.quantize(Some(group), Some(bits), QuantMode::Affine)?;
                Ok([Some(codes), Some(scales), biases].into_iter().flatten().collect())
            });
        }
        for mode in [QuantMode::Mxfp4, QuantMode::Mxfp8, QuantMode::Nvfp4] {
            cases.add(format!("quantize to {} {dtype}", mode.name()), 0.0, move || {
                let x = data(&[24, 256], dtype, 1);
                let (codes, scales, _) = x.quantize(None, None, mode)?;
                let all = codes.dequantize(&scales, None, None, None, mode, Some(dtype))?;
                Ok(vec![codes, scales, all])
            });
        }
    }
    cases.add("8-bit floats", 0.0, || {
        let x = data(&[999], Dtype::Float32, 1);
        let wide = hesper::concatenate(&[x.clone(), x.multiply(0.01)?, x.multiply(300.0)?], 0)?;
        let codes = wide.to_fp8()?;
        Ok(vec![codes.clone(), codes.from_fp8(Dtype::Float32)?])
    });
    for mode in [QuantMode::Affine, QuantMode::Mxfp4] {
        cases.add(format!("chosen quantized products {}", mode.name()), 1e-3, move || {
            let w = data(&[4, 64, 128], Dtype::Float32, 1);
            let (codes, scales, biases) = w.quantize(None, None, mode)?;
            let x = data(&[6, 2, 128], Dtype::Float32, 2);
            let right = indices(&[6], 4, 3);
            Ok(vec![x.gather_qmm(
                &codes,
                &scales,
                biases.as_ref(),
                None,
                Some(&right),
                true,
                None,
                None,
                mode,
            )?])
        });
    }
}

fn choices(cases: &mut Cases) {
    for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Int32, Dtype::Float64, Dtype::Uint8] {
        cases.add(format!("places in sorted rows {dtype}"), 0.0, move || {
            let row = data(&[301], dtype, 1).sort(None)?;
            let values = data(&[5, 77], dtype, 2);
            Ok(vec![row.searchsorted(&values, false)?, row.searchsorted(&values, true)?])
        });
    }
    cases.add("random choices", 1e-5, || {
        let key = random::key(11)?;
        let logits = data(&[40, 500], Dtype::Float32, 1);
        Ok(vec![
            random::categorical(&logits, -1, random::Draws::One, Some(&key))?,
            random::permutation(1000, Some(&key))?,
            random::permute(&logits, 0, Some(&key))?,
            random::gumbel(&[33], Dtype::Float32, Some(&key))?,
            random::randint(-5, 90, &[400], Dtype::Int32, Some(&key))?,
            random::bernoulli(0.3, Some(&[400]), Some(&key))?,
            random::truncated_normal(-1.0, 1.5, Some(&[100]), Dtype::Float32, Some(&key))?,
        ])
    });
    cases.add("cross entropy of odd targets", 1e-4, || {
        let x = data(&[5, 1000], Dtype::Bfloat16, 19);
        let targets = Array::from_slice(&[-1i64, 999, 1000, -1001, 3]);
        Ok(vec![fast::cross_entropy(&x, &targets)?])
    });
    cases.add("median, top, unique, roll", 1e-6, || {
        let x = data(&[40, 51], Dtype::Float32, 1);
        let different = indices(&[200], 23, 4).unique(30, None)?;
        Ok(vec![
            x.median(1)?,
            x.topk(7, Some(1))?.sort(Some(1))?,
            x.partition(5, Some(1))?.sort(Some(1))?,
            x.roll(&[3], 1)?,
            x.logcumsumexp(Some(1), false, true)?,
            different.values,
            different.counts,
        ])
    });
    cases.add("gated delta", 1e-3, || {
        let of = |shape: &[usize], seed: u64| data(shape, Dtype::Float32, seed).multiply(0.2);
        let (q, k, v) = (of(&[2, 9, 2, 48], 1)?, of(&[2, 9, 2, 48], 2)?, of(&[2, 9, 4, 24], 3)?);
        let (decay, rate) = (of(&[2, 9, 4], 4)?.sigmoid()?, of(&[2, 9, 4], 5)?.sigmoid()?);
        let marks = data(&[2, 9], Dtype::Bool, 6);
        let state = of(&[2, 4, 24, 48], 7)?;
        let (one, first) = fast::gated_delta_update(&q, &k, &v, &decay, &rate, None, None)?;
        let (two, second) = fast::gated_delta_update(&q, &k, &v, &decay, &rate, Some(&state), Some(&marks))?;
        Ok(vec![one, first, two, second])
    });
    for length in
        [1usize, 8, 16, 30, 32, 64, 100, 128, 256, 512, 1024, 97, 2048, 2310, 4096, 8192, 10000, 9009]
    {
        cases.add(format!("fft {length}"), 1e-4, move || {
            let z =
                data(&[3, length], Dtype::Complex64, 1).multiply(data(&[3, length], Dtype::Float32, 2))?;
            let x = data(&[3, length], Dtype::Float32, 3);
            Ok(vec![
                hesper::fft::fft(&z, None, -1, Default::default())?,
                hesper::fft::ifft(&z, None, -1, Default::default())?,
                hesper::fft::fft(&x, None, -1, Default::default())?,
                hesper::fft::rfft(&x, None, -1, Default::default())?,
                hesper::fft::irfft(&z, Some(length), -1, Default::default())?,
            ])
        });
    }
}

/// CUDA C++ kernels run on no other device: the host computes the expected result.
fn cuda_kernels(cases: &mut Cases) {
    let on_host =
        || hesper::placement::current_stream().is_ok_and(|stream| stream.runtime().info().native_commands);
    cases.add("a CUDA kernel with template arguments", 1e-6, move || {
        let x = data(&[1000], Dtype::Float32, 1);
        if on_host() {
            return Ok(vec![x.multiply(3.0)?.add(2.0)?, x.greater(0.0)?.astype(Dtype::Int32)?]);
        }
        let body = "unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
                    if (i < N) { y[i] = (T)(x[i] * 3.0f) + (T)2; sign[i] = x[i] > 0 && ON; }";
        let kernel = CudaKernel::new("affine", &["x"], &["y", "sign"], body);
        let call = kernel.call(&[x]).template_int("N", 1000).template_dtype("T", Dtype::Float32);
        let call = call.template_bool("ON", true).grid([1000, 1, 1]).block([128, 1, 1]);
        call.output(&[1000], Dtype::Float32).output(&[1000], Dtype::Int32).run()
    });
    cases.add("a CUDA kernel that reads by strides", 0.0, move || {
        let x = data(&[40, 30], Dtype::Float32, 1).t()?;
        if on_host() {
            return Ok(vec![x.add(1.0)?]);
        }
        let body = "unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
                    if (i >= x_shape[0] * x_shape[1] || x_ndim != 2) return;
                    y[i] = x[(i / x_shape[1]) * x_strides[0] + (i % x_shape[1]) * x_strides[1]] + 1.0f;";
        let kernel = CudaKernel::new("strided", &["x"], &["y"], body).ensure_row_contiguous(false);
        kernel.call(&[x]).grid([1200, 1, 1]).block([256, 1, 1]).output(&[30, 40], Dtype::Float32).run()
    });
    cases.add(
        "a CUDA kernel with shared memory, a header and outputs that are filled before",
        0.0,
        move || {
            let x = indices(&[4096], 16, 1);
            if on_host() {
                let ones = Array::ones(&[4096, 1], Dtype::Int32)?;
                return Ok(vec![Array::zeros(&[16], Dtype::Int32)?.add(7)?.scatter_add(
                    &[x],
                    &ones,
                    &[0],
                )?]);
            }
            let header = "__device__ int bin(int x) { return x & 15; }";
            let body = "extern __shared__ int held[];
                    if (threadIdx.x < 16) held[threadIdx.x] = 0;
                    __syncthreads();
                    atomicAdd(&held[bin(x[blockIdx.x * blockDim.x + threadIdx.x])], 1);
                    __syncthreads();
                    if (threadIdx.x < 16) atomicAdd(&counts[threadIdx.x], held[threadIdx.x]);";
            let kernel = CudaKernel::new("bins", &["x"], &["counts"], body).header(header).shared_memory(64);
            let call = kernel.call(&[x]).grid([4096, 1, 1]).block([256, 1, 1]).init_value(7.0);
            call.output(&[16], Dtype::Int32).run()
        },
    );
}

fn networks(cases: &mut Cases) {
    cases.add("a step of a network with an embedding", 1e-4, || {
        let table = data(&[50, 16], Dtype::Float32, 1);
        let w = data(&[50, 16], Dtype::Float32, 2);
        let tokens = indices(&[4, 12], 50, 3);
        let targets = indices(&[4, 12], 50, 4);
        let loss = move |p: &[Array]| -> Result<Array, Error> {
            let x = p[0].take(tokens.clone(), Some(0))?;
            let logits = x.tanh()?.matmul(&p[1].t()?)?;
            fast::cross_entropy(&logits, &targets)?.mean(())
        };
        let mut gradients = hesper::transform::grad(loss, &[0, 1])(&[table, w])?;
        let halves = gradients.remove(1).split(Split::Sections(2), 0)?;
        gradients.extend(halves);
        Ok(gradients)
    });
}
