//! A small transformer learns a text character by character, and continues a prompt.
//!
//! `cargo run --release -p hesper --features nn --example characters`

use std::error::Error;

use hesper::fast::AttentionMask;
use hesper::nn::optim::{Adam, Optimizer, Schedule};
use hesper::nn::train::Trainer;
use hesper::nn::{self, Embedding, Linear, Module, TransformerConfig, TransformerEncoder, loss};
use hesper::{Array, Dtype, random};

const TEXT: &str = "A lazy array does nothing until its numbers are asked for. It remembers how it is made, and it waits. \
                    When the numbers are asked for, the work is planned as a whole. What is never asked for is never \
                    computed. ";
const CONTEXT: usize = 32;

#[derive(Module, Clone)]
struct CharacterModel {
    characters: Embedding,
    positions: Embedding,
    transformer: TransformerEncoder,
    output: Linear,
}

impl CharacterModel {
    fn new(vocabulary: usize, dims: usize) -> nn::Result<Self> {
        Ok(CharacterModel {
            characters: Embedding::new(vocabulary, dims)?,
            positions: Embedding::new(CONTEXT, dims)?,
            transformer: TransformerEncoder::new(2, &TransformerConfig::new(dims, 4))?,
            output: Linear::new(dims, vocabulary)?,
        })
    }

    /// Logits of the next character after each of (batch, length) characters.
    fn forward(&self, ids: &Array) -> nn::Result<Array> {
        let positions = Array::arange(ids.shape()[1] as i64, None)?;
        let x = self.characters.forward(ids)?.add(self.positions.forward(&positions)?)?;
        self.output.forward(&self.transformer.forward(&x, AttentionMask::Causal)?)
    }
}

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    random::seed(5);
    let mut alphabet: Vec<char> = TEXT.chars().collect();
    alphabet.sort_unstable();
    alphabet.dedup();
    let id = |one: char| alphabet.iter().position(|known| *known == one).unwrap_or(0) as i32;
    let ids: Vec<i32> = TEXT.chars().map(id).collect();

    // Windows of the text at random places, and the same one character later.
    let batch = |at: u64| -> nn::Result<Vec<Array>> {
        let last = (ids.len() - CONTEXT - 1) as i64;
        let starts =
            random::randint(0, last, &[16], Dtype::Int32, Some(&random::key(at)?))?.to_vec::<i32>()?;
        let windows = |shift: usize| {
            let rows = starts.iter().flat_map(|start| &ids[*start as usize + shift..][..CONTEXT]);
            Array::try_from_slice(&rows.copied().collect::<Vec<i32>>(), &[starts.len(), CONTEXT])
        };
        Ok(vec![windows(0)?, windows(1)?])
    };
    let model = CharacterModel::new(alphabet.len(), 32)?;
    println!("{model:?}");
    let schedule =
        Schedule::join(vec![Schedule::linear(0.0, 0.01, 20)?, Schedule::cosine(0.01, 130, 0.001)?], &[20])?;
    let loss =
        |model: &CharacterModel, batch: &[Array]| loss::cross_entropy(&model.forward(&batch[0])?, &batch[1]);
    let mut trainer = Trainer::new(model, Optimizer::new(Adam::new(schedule))?, loss)?.with_clip(1.0);
    println!("{:>5} {:>8} {:>10}", "step", "loss", "rate");
    let mut last = f64::NAN;
    let mut show = |trainer: &Trainer<CharacterModel>, report: &mut nn::train::Report| {
        if report.step.is_multiple_of(26) {
            let rate = trainer.optimizer().learning_rate()?.unwrap_or(0.0);
            println!("{:>5} {:>8.4} {rate:>10.5}", report.step, report.loss);
        }
        last = report.loss;
        Ok(nn::train::CONTINUE)
    };
    trainer.fit(130, batch, &mut [&mut show])?;
    assert!(last < 0.4, "{last}");

    let mut text: Vec<i32> = "When the num".chars().map(id).collect();
    for _ in 0..60 {
        let window = &text[text.len().saturating_sub(CONTEXT)..];
        let logits = trainer.model().forward(&Array::try_from_slice(window, &[1, window.len()])?)?;
        let best = logits.argmax(-1)?.astype(Dtype::Int32)?.to_vec::<i32>()?;
        text.extend(best.last());
    }
    let text: String = text.iter().map(|id| alphabet[*id as usize]).collect();
    println!("{text}");
    assert!(text.starts_with("When the numbers are asked for"), "{text}");
    Ok(())
}
