//! Memory stays constant over many calls of compiled, differentiated and vectorized functions. `HESPER_CALLS` sets
//! their number; a million take minutes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use hesper::{Array, Result, fft, linalg, placement, transform};

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
