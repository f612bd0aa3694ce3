//! Teaches the demo language model another sentence by a LoRA: small matrices beside its frozen weights.
//!
//! The weights of the demo model are constructed: its attention copies the previous token, and steep gates
//! compare the copy with a table. Changes of the copied values (`q_proj`, `k_proj`, `v_proj`) close gates,
//! whose gradients are then zero. So the example adapts what the attention writes (`o_proj`) and the head, in
//! small steps.
//!
//! `cargo run --release -p hesper --features lm --example lora`

use std::error::Error;

use hesper::lm::{Model, demo};
use hesper::nn::optim::{Adam, Optimizer};
use hesper::nn::{ModuleExt, NoCache, add_lora, loss, merge_lora, value_and_grad};
use hesper::{Array, Dtype, random};

/// The tokens that the model takes to follow each token.
fn guesses(model: &Model, ids: &Array) -> Result<Vec<i32>, Box<dyn Error>> {
    let logits = model.forward(ids, &mut NoCache::default())?;
    Ok(logits.argmax(-1)?.astype(Dtype::Int32)?.to_vec::<i32>()?)
}

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    random::seed(3);
    let mut language_model = demo::model()?;
    let sentence = "The old poets said that a small model brings home the sheep, and it waits.";
    let tokens: Vec<i32> = language_model.prompt_tokens(sentence)?.iter().map(|id| *id as i32).collect();
    let (inputs, targets) = (&tokens[..tokens.len() - 1], &tokens[1..]);
    let ids = Array::try_from_slice(inputs, &[1, inputs.len()])?;
    let expected = Array::try_from_slice(targets, &[1, targets.len()])?;
    let right = |model: &Model| -> Result<usize, Box<dyn Error>> {
        Ok(guesses(model, &ids)?.iter().zip(targets).filter(|(a, b)| a == b).count())
    };

    let model = language_model.model_mut();
    let all = model.count();
    let before = right(model)?;
    add_lora(model, 24, 1.0, |path| path == "head" || path.ends_with("o_proj"))?;
    let trained: usize = model.trainable_parameters().values().map(Array::size).sum();
    println!("{trained} of {} parameters are trained", all + trained);

    let mut optimizer = Optimizer::new(Adam { bias_correction: true, ..Adam::new(0.002) })?;
    println!("{:>5} {:>8} {:>8}", "step", "loss", "right");
    for step in 0..=150 {
        let (value, gradients) = value_and_grad(|model: &Model| {
            let logits = model.forward(&ids, &mut NoCache::default())?;
            loss::cross_entropy(&logits, &expected)
        })(model)?;
        if step % 30 == 0 {
            println!("{step:>5} {:>8.4} {:>5}/{}", value.item::<f32>()?, right(model)?, targets.len());
        }
        optimizer.update(model, &gradients)?;
    }
    merge_lora(model)?;
    let after = right(model)?;
    println!("tokens of the sentence that are guessed right: {before} before, {after} after");
    assert!(before < targets.len() && after == targets.len());
    Ok(())
}
