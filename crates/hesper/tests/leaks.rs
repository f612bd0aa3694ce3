//! Memory stays constant over many calls of compiled, differentiated and vectorized functions, and over many
//! kernels. `HESPER_CALLS` sets the number of calls; a million take minutes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use hesper::{Array, CustomKernel, Dtype, Result, fft, linalg, placement, transform};

/// Held by a test while it runs: memory is that of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn calls() -> usize {
    std::env::var("HESPER_CALLS").ok().and_then(|text| text.parse().ok()).unwrap_or(1000)
}

/// Bytes of the process that are in memory, where the system tells.
fn resident() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(text.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}

fn network(x: &[Array]) -> Result<Array> {
    let hidden = x[0].matmul(&x[1])?.tanh()?;
    hidden.cumprod(Some(-1), false, true)?.softmax(-1)?.square()?.sum(())
}

#[test]
fn memory_does_not_grow_with_the_number_of_calls() {
    let _alone = alone();
    let inputs = [
        Array::ones(&[4, 8], hesper::Dtype::Float32).unwrap(),
        Array::ones(&[8, 8], hesper::Dtype::Float32).unwrap().multiply(0.1).unwrap(),
    ];
    hesper::eval(&inputs).unwrap();
    let compiled = transform::compile(transform::grad(network, &[0, 1]));
    let plain = transform::grad(network, &[0, 1]);
    let rows = transform::vmap(
        |x| Ok(vec![fft::rfft(&x[0], None, -1, fft::Norm::Backward)?]),
        &[Some(0)],
        &[Some(0)],
    );
    let factors = |x: &[Array]| linalg::qr(&x[0]).map(|(q, r)| vec![q, r]);
    let mapped = transform::vmap(factors, &[Some(0)], &[Some(0)]);
    let matrices = inputs[1].reshape(&[2, 4, 8]).unwrap();
    let mut once = |number: usize| {
        let mut all = compiled(&inputs).unwrap();
        if number.is_multiple_of(4) {
            all.extend(plain(&inputs).unwrap());
            all.extend(rows(&inputs[..1]).unwrap());
            all.extend(mapped(&[matrices.clone()]).unwrap());
        }
        hesper::eval(&all).unwrap();
    };
    (0..100).for_each(&mut once);
    placement::cpu().synchronize().unwrap();
    let (before, active) = (resident(), placement::cpu().counters().active);
    (0..calls()).for_each(&mut once);
    placement::cpu().synchronize().unwrap();
    assert_eq!(placement::cpu().counters().active, active, "bytes that arrays hold");
    // The validation layer keeps a bounded number of names of freed objects.
    if let (Some(before), Some(after), None) = (before, resident(), placement::cpu().validation()) {
        let grown = after.saturating_sub(before);
        assert!(grown < 2 << 20, "{grown} bytes more after {} calls", calls());
    }
}

#[test]
fn many_calls_of_a_compiled_gradient_leave_nothing_behind() {
    let _alone = alone();
    let f = transform::compile(|x| transform::grad(|x| x[0].matmul(&x[0])?.tanh()?.sum(()), &[0])(x));
    let run = |count: usize| {
        let mut x = Array::ones(&[16, 16], Dtype::Float32).unwrap().multiply(0.05).unwrap();
        for _ in 0..count {
            x = f(&[x]).unwrap().remove(0).multiply(0.01).unwrap();
            x.eval().unwrap();
        }
    };
    run(200);
    let before = placement::cpu().counters().active;
    run(2000);
    assert!(placement::cpu().counters().active <= before + 4096);
}

#[test]
fn thousands_of_distinct_sources_leave_memory_bounded() {
    let _alone = alone();
    let x = Array::from_slice(&[1.0f32, 2.0]);
    let run = |from: usize, to: usize| {
        for k in from..to {
            let source = format!("uint i = thread_position_in_grid.x; out[i] = x[i] * {k}.0f + {k};");
            let kernel = CustomKernel::new("one_name", &["x"], &["out"], &source).unwrap();
            let call = kernel.call(std::slice::from_ref(&x)).grid([2, 1, 1]).threadgroup([2, 1, 1]);
            let out = call.output(&[2], Dtype::Float32).run().unwrap();
            assert_eq!(out[0].to_vec::<f32>().unwrap(), [2.0 * k as f32, 3.0 * k as f32]);
        }
    };
    run(0, 2000);
    let before = resident();
    run(2000, 8000);
    let counters = placement::cpu().counters().pipelines;
    assert!(counters.count <= 1024, "{counters:?}");
    if let (Some(before), Some(after)) = (before, resident()) {
        assert!(after < before + (48 << 20), "from {before} to {after} bytes");
    }
}
