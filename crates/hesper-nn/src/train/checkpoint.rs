//! Checkpoints: everything that is needed to resume training bit for bit.
//!
//! A checkpoint is a safetensors file with the parameters and buffers of the model (`model.`), the state of
//! the optimizer (`optimizer.`), of the loss scale (`loss_scale.`), the number of steps and the random key of
//! the process (`trainer.`).

use std::collections::BTreeMap;
use std::path::Path;

use hesper_core::{Array, eval, io, random};

use super::Trainer;
use crate::error::{Error, Result};
use crate::module::{Module, ModuleExt, Tree};

const PARTS: [&str; 4] = ["model", "optimizer", "loss_scale", "trainer"];

impl<M: Module + Tree + Clone + Send + Sync + 'static> Trainer<M> {
    /// Saves a checkpoint. Replaces an existing file once the new one is complete.
    ///
    /// ```
    /// # use hesper::{Array, Dtype};
    /// # use hesper_nn::optim::{Optimizer, Sgd};
    /// # use hesper_nn::train::Trainer;
    /// # use hesper_nn::{Linear, loss};
    /// # let path = std::env::temp_dir().join(format!("hesper-save-{}.safetensors", std::process::id()));
    /// # let loss = |model: &Linear, batch: &[Array]| {
    /// #     loss::mse(&model.forward(&batch[0])?, &batch[0], Default::default())
    /// # };
    /// # let trainer = || Trainer::new(Linear::new(2, 2)?, Optimizer::new(Sgd::new(0.1))?, loss);
    /// # let mut trained = trainer()?;
    /// # let batch = [Array::ones(&[4, 2], Dtype::Float32)?];
    /// trained.step(&batch)?;
    /// trained.save(&path)?;
    /// let mut resumed = trainer()?;
    /// resumed.resume(&path)?;
    /// assert_eq!(resumed.steps(), 1);
    /// assert_eq!(resumed.step(&batch)?.loss, trained.step(&batch)?.loss); // bit for bit
    /// # std::fs::remove_file(&path).ok();
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let state = &self.state;
        let scale = state.loss_scale.as_ref().map(|scale| scale.state()).unwrap_or_default();
        let own = BTreeMap::from([
            ("steps".to_string(), Array::try_from_slice(&[self.steps], &[])?),
            ("random_key".to_string(), random::state()?),
        ]);
        let parts = [state.model.state(), state.optimizer.state(), scale, own];
        let all: BTreeMap<String, Array> = PARTS
            .iter()
            .zip(parts)
            .flat_map(|(part, arrays)| {
                arrays.into_iter().map(move |(name, array)| (format!("{part}.{name}"), array))
            })
            .collect();
        Ok(io::save_safetensors(path, &all, &[])?)
    }

    /// Resumes from a checkpoint of a trainer with the same model and optimizer. An error names the entry
    /// that does not fit; the trainer is then unchanged.
    ///
    /// ```
    /// # use hesper::Array;
    /// # use hesper_nn::optim::{Optimizer, Sgd};
    /// # use hesper_nn::train::Trainer;
    /// # use hesper_nn::Linear;
    /// # let loss = |model: &Linear, batch: &[Array]| Ok(model.forward(&batch[0])?.sum(())?);
    /// # let mut trainer = Trainer::new(Linear::new(2, 2)?, Optimizer::new(Sgd::new(0.1))?, loss)?;
    /// let path = std::env::temp_dir().join("hesper-no-checkpoint.safetensors");
    /// if path.exists() {
    ///     trainer.resume(&path)?; // `fit` continues with the next step
    /// }
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn resume(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut parts: BTreeMap<&str, BTreeMap<String, Array>> = BTreeMap::new();
        for (name, array) in io::load(path)?.into_arrays() {
            let found =
                PARTS.iter().find_map(|part| Some((*part, name.strip_prefix(part)?.strip_prefix('.')?)));
            let Some((part, rest)) = found else {
                let what = format!(
                    "{name:?} is not an entry of a checkpoint; load files of parameters with load_file"
                );
                return Err(Error::File { path: path.display().to_string(), what });
            };
            parts.entry(part).or_default().insert(rest.to_string(), array);
        }
        let mut take = |part: &str| parts.remove(part).unwrap_or_default();
        let mut state = self.state.clone();
        let model = take("model");
        if let Some(path) = state.model.state().into_keys().find(|path| !model.contains_key(path)) {
            return Err(Error::Missing { path });
        }
        state.model.load(&model, true)?;
        state.optimizer.load_state(&state.model, &take("optimizer"))?;
        if let Some(scale) = &mut state.loss_scale {
            scale.load_state(&take("loss_scale"))?;
        }
        let own = take("trainer");
        let own =
            |name: &str| own.get(name).ok_or_else(|| Error::Missing { path: format!("trainer.{name}") });
        let (steps, key) = (own("steps")?.item::<u64>()?, own("random_key")?.to_vec::<u32>()?);
        let [high, low] = key[..] else {
            let what = format!("trainer.random_key has {} words instead of 2", key.len());
            return Err(Error::File { path: path.display().to_string(), what });
        };
        // Read everything now, so that a damaged file is found before the first step.
        eval(&state.arrays())?;
        random::seed(u64::from(high) << 32 | u64::from(low));
        (self.state, self.steps) = (state, steps);
        Ok(())
    }
}
