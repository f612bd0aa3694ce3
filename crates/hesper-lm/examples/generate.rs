//! Generates text from a Rust program, piece by piece as it is sampled.
//!
//! `cargo run --release -p hesper-lm --example generate`, or with the folder or GGUF file of a model as
//! argument.

use std::error::Error;
use std::io::Write as _;

use hesper as _;
use hesper_lm::{GenerateOptions, Generation, LanguageModel, LoadOptions, demo};

fn main() -> Result<(), Box<dyn Error>> {
    run(std::env::args().nth(1))
}

/// Generates with the model at a path, or with the demo model.
pub fn run(path: Option<String>) -> Result<(), Box<dyn Error>> {
    let language = match path {
        Some(path) => LanguageModel::load(path, &LoadOptions::default())?,
        None => demo::model()?,
    };
    let text = "A language model";
    let prompt = language.prompt_tokens(text)?;
    let options = GenerateOptions { max_tokens: 12, ..Default::default() };
    let cache = options.cache.create(language.model().config())?;
    let mut generation = Generation::new(&language, &prompt, cache, &options)?;
    print!("{text}");
    for piece in &mut generation {
        print!("{}", piece?.text);
        std::io::stdout().flush()?;
    }
    let stats = generation.stats();
    println!("\n{:.0} tokens/s", stats.speed());
    Ok(())
}
