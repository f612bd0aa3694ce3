//! Sampling on the device: one kernel chooses a token in each row of logits, so that logits stay there and
//! the next step begins before the host knows the token.
//!
//! The kernel keeps the candidates that the [`Sampler`](crate::Sampler) keeps and takes the same random
//! number. Sums are rounded differently: for the same logits both choose the same token but where the random
//! number lies within a rounding error of the border between two.

use std::sync::LazyLock;

use hesper_core::{Array, CustomKernel, Dtype, Error, Result, axes, select};

/// The token of a row that the host has to choose: its logits have a NaN, or no finite maximum.
pub const NOT_CHOSEN: u32 = u32::MAX;

/// Threads of a row: 32 SIMD groups, whose sums one SIMD group adds.
const THREADS: u64 = 1024;

/// How the device chooses the next token of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceChoice {
    pub(crate) temperature: f32,
    pub(crate) top_k: usize,
    pub(crate) top_p: f32,
    pub(crate) min_p: f32,
    /// A random number in `0.0..1.0`.
    pub(crate) uniform: f32,
}

impl DeviceChoice {
    /// The most likely token.
    pub const GREEDY: DeviceChoice =
        DeviceChoice { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, uniform: 0.0 };

    fn parameters(&self, tokens: usize) -> [f32; 5] {
        let top_k = if self.top_k < tokens { self.top_k as f32 } else { 0.0 };
        [self.temperature, top_k, self.top_p, self.min_p, self.uniform]
    }
}

/// Chooses a token in each row of logits, on their device: uint32 of shape (rows). Where the host has to
/// choose, it is [`NOT_CHOSEN`].
pub fn choose_tokens(logits: &Array, choices: &[DeviceChoice]) -> Result<Array> {
    if choices.iter().all(|choice| choice.temperature == 0.0) {
        return greedy_tokens(logits);
    }
    let &[rows, tokens] = logits.shape() else {
        let what = format!("takes logits of shape (rows, tokens), not {:?}", logits.shape());
        return Err(Error::shape("choose_tokens", what));
    };
    if rows != choices.len() {
        let what = format!("{} choices do not fit logits of {rows} rows", choices.len());
        return Err(Error::shape("choose_tokens", what));
    }
    let parameters: Vec<f32> = choices.iter().flat_map(|choice| choice.parameters(tokens)).collect();
    let parameters = Array::try_from_slice(&parameters, &[rows, 5])?;
    let mut chosen = kernel()?
        .call(&[logits.astype(Dtype::Float32)?, parameters])
        .grid([THREADS * rows as u64, 1, 1])
        .threadgroup([THREADS, 1, 1])
        .template_int("SIZE", tokens as i32)
        .output(&[rows], Dtype::Uint32)
        .run()?;
    Ok(chosen.remove(0))
}

fn greedy_tokens(logits: &Array) -> Result<Array> {
    let best = logits.argmax(axes(-1).keepdims())?.astype(Dtype::Uint32)?;
    let is_nan = logits.take_along_axis(&best, Some(-1))?.isnan()?;
    let nan = Array::full(best.shape(), i64::from(NOT_CHOSEN), Some(Dtype::Uint32))?;
    select(&is_nan, &nan, &best)?.reshape(&[-1])
}

fn kernel() -> Result<&'static CustomKernel> {
    static KERNEL: LazyLock<Result<CustomKernel>> = LazyLock::new(|| {
        let text = include_str!("device_sampling.metal");
        let (functions, body) = text.split_once("// BODY\n").unwrap_or(("", text));
        let header = format!("constant uint NOT_CHOSEN = {NOT_CHOSEN}u;\n{functions}");
        let (inputs, outputs) = (["logits", "choices"], ["tokens"]);
        CustomKernel::with_options("choose_tokens", &inputs, &outputs, body, &header, true, false)
    });
    KERNEL.as_ref().map_err(Clone::clone)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::{Sampler, Sampling};

    const ROWS: usize = 24;

    /// Logits of rows; `step` rounds them, so that many are equal.
    fn logits(tokens: usize, step: f32) -> Vec<f32> {
        let number = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let spread = |at: usize| number(at) as f32 / (1u64 << 24) as f32 * 16.0 - 8.0;
        // Zeros of both signs have the same weight, and an order.
        let sign = |at: usize| if at.is_multiple_of(3) { -0.0 } else { 0.0 };
        (0..ROWS * tokens).map(|at| (spread(at) / step).round() * step + sign(at)).collect()
    }

    fn by_device(logits: &[f32], choices: &[DeviceChoice]) -> Vec<u32> {
        let shape = [choices.len(), logits.len() / choices.len()];
        let array = Array::try_from_slice(logits, &shape).unwrap();
        choose_tokens(&array, choices).unwrap().to_vec::<u32>().unwrap()
    }

    #[test]
    fn the_device_chooses_the_tokens_of_the_host() {
        let filters = [
            (0, 1.0, 0.0),
            (1, 1.0, 0.0),
            (7, 1.0, 0.0),
            (0, 0.9, 0.0),
            (0, 0.3, 0.0),
            (0, 0.0, 0.0),
            (40, 0.95, 0.05),
            (0, 1.0, 0.5),
            (1 << 20, 1.0, 1.0),
        ];
        let (mut drawn, mut different) = (0, 0);
        for tokens in [1, 33, 1000, 2500] {
            for (temperature, step) in [(0.7f32, 1e-6f32), (1.0, 0.25), (3.0, 1.0), (0.0, 1.0)] {
                let logits = logits(tokens, step);
                for (top_k, top_p, min_p) in filters {
                    let sampling =
                        |seed| Sampling { temperature, top_k, top_p, min_p, seed, ..Sampling::default() };
                    let samplers: Vec<Sampler> =
                        (0..ROWS as u64).map(|seed| Sampler::new(&sampling(seed)).unwrap()).collect();
                    let choices: Vec<DeviceChoice> =
                        samplers.iter().map(|sampler| sampler.device_choice(0).unwrap()).collect();
                    let host = samplers.into_iter().zip(logits.chunks(tokens));
                    let host: Vec<u32> = host.map(|(mut one, row)| one.choose(row, &[]).unwrap()).collect();
                    let device = by_device(&logits, &choices);
                    drawn += ROWS;
                    different += host.iter().zip(&device).filter(|(host, device)| host != device).count();
                }
            }
        }
        assert!(different <= 1, "{different} of {drawn} tokens differ");
    }

    #[test]
    fn greedy_rows_beside_others_take_the_first_of_the_most_likely_tokens() {
        let mut row = vec![0.0; 3000];
        (row[2100], row[2999]) = (3.0, 3.0);
        let logits = [row.clone(), row].concat();
        let cold = DeviceChoice { temperature: 0.01, uniform: 0.9, ..DeviceChoice::GREEDY };
        assert_eq!(by_device(&logits, &[DeviceChoice::GREEDY, cold]), [2100, 2999]);
    }

    #[test]
    fn rows_without_probabilities_are_left_to_the_host() {
        let warm = DeviceChoice { temperature: 1.0, ..DeviceChoice::GREEDY };
        let rows = [[1.0, f32::NAN], [f32::NEG_INFINITY; 2], [1.0, f32::INFINITY], [f32::NEG_INFINITY, 2.0]];
        assert_eq!(by_device(&rows.concat(), &[warm; 4]), [NOT_CHOSEN, NOT_CHOSEN, NOT_CHOSEN, 1]);
        let mixed = [DeviceChoice::GREEDY, DeviceChoice::GREEDY, DeviceChoice::GREEDY, warm];
        assert_eq!(by_device(&rows.concat(), &mixed), [NOT_CHOSEN, 0, 1, 1]);
    }

    #[test]
    fn the_end_of_the_unit_interval_gives_a_token() {
        let top = DeviceChoice { temperature: 1.0, uniform: 1.0f32.next_down(), ..DeviceChoice::GREEDY };
        assert_eq!(by_device(&[0.0; 1500], &[top]), [1499]);
        assert_eq!(by_device(&[0.0; 1500], &[DeviceChoice { uniform: 0.0, ..top }]), [0]);
    }
}
