//! Training: transforms of modules, optimizers, the trainer, and failures.

use crate::alone;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hesper::transform::{Tree, tree};
use hesper::{Array, Dtype, placement, random};
use hesper_nn::optim::{Adam, Ema, LossScale, Optimizer, Schedule, Sgd, clip_grad_norm};
use hesper_nn::train::{Callback, Checkpoints, CsvMetrics, Evaluate, JsonMetrics, Report, Trainer};
use hesper_nn::*;

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("hesper-training-{}-{name}", std::process::id()))
}

#[derive(Module, Clone)]
struct Net {
    first: Linear,
    norm: BatchNorm,
    dropout: Dropout,
    second: Linear,
    scale: f32,
}

impl Net {
    fn new(hidden: usize) -> Result<Self> {
        Ok(Net {
            first: Linear::new(2, hidden)?,
            norm: BatchNorm::new(hidden)?,
            dropout: Dropout::new(0.25)?,
            second: Linear::new(hidden, 1)?,
            scale: 1.0,
        })
    }

    fn forward(&self, x: &Array) -> Result<Array> {
        let x = Activation::Relu.forward(&self.norm.forward(&self.first.forward(x)?)?)?;
        Ok(self.second.forward(&self.dropout.forward(&x)?)?.multiply(self.scale)?)
    }
}

fn loss_of(net: &Net, batch: &[Array]) -> Result<Array> {
    loss::mse(&net.forward(&batch[0])?, &batch[1].astype(Dtype::Float32)?, loss::Reduction::Mean)
}

/// A batch that depends on its number only.
fn batch(at: u64) -> Result<Vec<Array>> {
    let x = random::normal(&[16, 2], Dtype::Float32, 0.0, 1.0, Some(&random::key(at)?))?;
    let y = x.sum(hesper::axes(1).keepdims())?;
    Ok(vec![x, y])
}

fn trainer(hidden: usize) -> Trainer<Net> {
    random::seed(7);
    Trainer::new(Net::new(hidden).unwrap(), Optimizer::new(Adam::new(0.01)).unwrap(), loss_of).unwrap()
}

fn elements(module: &dyn Module) -> Vec<(String, Vec<f32>)> {
    let all = module.parameters().into_iter();
    all.map(|(name, array)| (name, array.astype(Dtype::Float32).unwrap().to_vec::<f32>().unwrap())).collect()
}

#[test]
fn a_module_is_a_tree_of_the_transforms() {
    let _alone = alone();
    let layer = Linear::new(3, 2).unwrap();
    let x = random::normal(&[4, 3], Dtype::Float32, 0.0, 1.0, None).unwrap();
    let f = |layer: &Linear| layer.forward(&x)?.square()?.sum(());
    let (value, gradient) = tree::value_and_grad(f)(&layer).unwrap();
    let compiled = tree::compile(f);
    assert_eq!(value.item::<f32>().unwrap(), compiled(&layer).unwrap().item::<f32>().unwrap());
    // A compiled function uses the parameters that it is called with.
    let mut doubled = layer.clone();
    doubled.map(|_, array| Ok(array.multiply(2.0)?)).unwrap();
    let four = compiled(&doubled).unwrap().item::<f32>().unwrap() / value.item::<f32>().unwrap();
    assert!((four - 4.0).abs() < 1e-5, "{four}");
    // Compare with the numerical derivative along the gradient.
    let moved = |by: f64| {
        let mut moved = layer.clone();
        let gradient = gradient.parameters();
        moved.map(|path, array| Ok(array.add(gradient[path].multiply(by)?)?)).unwrap();
        f(&moved).unwrap().item::<f32>().unwrap()
    };
    let squares: f32 = elements(&gradient).iter().flat_map(|(_, all)| all).map(|one| one * one).sum();
    let slope = (moved(1e-3) - moved(-1e-3)) / 2e-3;
    assert!((slope - squares).abs() / squares < 1e-2, "{slope} {squares}");
    // An ensemble: one more axis for every parameter.
    let stacked = layer.with_arrays(
        layer
            .arrays()
            .iter()
            .map(|one| hesper::stack(&[one.clone(), one.multiply(2.0).unwrap()], 0).unwrap())
            .collect(),
    );
    let values = tree::vmap(f, &[Some(0)], &[Some(0)])(&stacked.unwrap()).unwrap().to_vec::<f32>().unwrap();
    assert!((values[1] / values[0] - 4.0).abs() < 1e-4, "{values:?}");
}

#[test]
fn settings_modes_and_frozen_parameters_are_part_of_a_trace() {
    let _alone = alone();
    let net = Net::new(4).unwrap();
    let x = batch(0).unwrap().remove(0);
    let traces = std::cell::Cell::new(0);
    let f = tree::compile(|net: &Net| {
        traces.set(traces.get() + 1);
        Ok(net.forward(&x)?)
    });
    let eval = |net: &Net| f(net).unwrap().to_vec::<f32>().unwrap();
    let mut still = net.clone();
    still.train(false);
    let before = eval(&still);
    assert_eq!(before, eval(&still), "a second call");
    assert_eq!(traces.get(), 1);
    still.scale = 2.0;
    assert_eq!(before.iter().map(|one| one * 2.0).collect::<Vec<f32>>(), eval(&still));
    eval(&net);
    still.freeze(|path| path.starts_with("first"));
    eval(&still);
    assert_eq!(traces.get(), 4);
}

#[test]
fn gradients_are_those_of_trainable_parameters_only() {
    let _alone = alone();
    let mut net = Net::new(4).unwrap();
    net.freeze(|path| path.starts_with("first"));
    let all = batch(1).unwrap();
    let (_, gradient) = value_and_grad(|net: &Net| loss_of(net, &all))(&net).unwrap();
    for (path, numbers) in elements(&gradient) {
        let zero = numbers.iter().all(|one| *one == 0.0);
        assert_eq!(zero, path.starts_with("first") || path.contains("running"), "{path}: {numbers:?}");
    }
    // The running statistics of the module are updated, those of other copies are not.
    let norm = |net: &Net| net.parameters()["norm.running_mean"].to_vec::<f32>().unwrap();
    let copy = net.clone();
    value_and_grad(|net: &Net| loss_of(net, &all))(&net).unwrap();
    assert_ne!(norm(&net), norm(&copy));
    let mut optimizer = Optimizer::new(Sgd::new(0.1)).unwrap();
    let before = elements(&net.first);
    optimizer.update(&mut net, &gradient).unwrap();
    assert_eq!(before, elements(&net.first));
}

#[test]
fn a_lora_trains_its_small_matrices_and_merges() {
    let _alone = alone();
    let mut layer = Linear::new(8, 6).unwrap();
    let x = random::normal(&[5, 8], Dtype::Float32, 0.0, 1.0, None).unwrap();
    let before = layer.forward(&x).unwrap().to_vec::<f32>().unwrap();
    add_lora(&mut layer, 2, 3.0, |_| true).unwrap();
    assert_eq!(before, layer.forward(&x).unwrap().to_vec::<f32>().unwrap());
    let weight = layer.parameters()["weight"].to_vec::<f32>().unwrap();
    let mut optimizer = Optimizer::new(Adam::new(0.1)).unwrap();
    for _ in 0..3 {
        let step = value_and_grad(|layer: &Linear| Ok(layer.forward(&x)?.square()?.mean(())?));
        let (_, gradients) = step(&layer).unwrap();
        optimizer.update(&mut layer, &gradients).unwrap();
    }
    assert_eq!(weight, layer.parameters()["weight"].to_vec::<f32>().unwrap());
    let trained = layer.forward(&x).unwrap().to_vec::<f32>().unwrap();
    merge_lora(&mut layer).unwrap();
    assert_eq!(layer.parameters().into_keys().collect::<Vec<_>>(), ["bias", "weight"]);
    let merged = layer.forward(&x).unwrap().to_vec::<f32>().unwrap();
    for (a, b) in trained.iter().zip(&merged) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    assert_ne!(before, merged);
    assert!(add_lora(&mut layer, 7, 1.0, |_| true).unwrap_err().to_string().contains("between 1 and 6"));
}

#[test]
fn a_checkpointed_layer_has_the_same_gradients() {
    let _alone = alone();
    let net = Net::new(4).unwrap();
    let all = batch(1).unwrap();
    let plain = value_and_grad(|net: &Net| loss_of(net, &all))(&net.clone()).unwrap();
    let again = value_and_grad(|net: &Net| checkpoint(net, &all, loss_of))(&net.clone()).unwrap();
    assert_eq!(plain.0.item::<f32>().unwrap(), again.0.item::<f32>().unwrap());
    for ((path, a), (_, b)) in elements(&plain.1).into_iter().zip(elements(&again.1)) {
        for (a, b) in a.iter().zip(&b) {
            assert!((a - b).abs() < 1e-5, "{path}: {a} {b}");
        }
    }
}

#[test]
fn groups_have_separate_rules_and_rates_can_be_set() {
    let _alone = alone();
    let mut net = Net::new(4).unwrap();
    let all = batch(2).unwrap();
    let mut optimizer = Optimizer::new(Sgd::new(0.5)).unwrap();
    optimizer = optimizer.with_group(|path, _| path.ends_with("bias"), Sgd::new(0.0)).unwrap();
    let (_, gradients) = value_and_grad(|net: &Net| loss_of(net, &all))(&net).unwrap();
    let before = net.parameters();
    optimizer.update(&mut net, &gradients).unwrap();
    for (path, new) in net.trainable_parameters() {
        let same = new.to_vec::<f32>().unwrap() == before[&path].to_vec::<f32>().unwrap();
        assert_eq!(same, path.ends_with("bias"), "{path}");
    }
    assert_eq!(optimizer.learning_rate().unwrap(), Some(0.5));
    optimizer.set_learning_rate(0.25).unwrap();
    assert_eq!(optimizer.learning_rate().unwrap(), Some(0.25));
    assert!(Optimizer::new(Adam { betas: [1.0, 0.9], ..Adam::new(0.1) }).is_err());
    assert!(Schedule::cosine(0.1, 0, 0.0).is_err());
    assert!(Schedule::join(vec![], &[]).is_err());
}

#[test]
fn clipping_scales_all_gradients_by_one_factor() {
    let _alone = alone();
    let net = Net::new(4).unwrap();
    let all = batch(2).unwrap();
    let (_, mut gradients) = value_and_grad(|net: &Net| loss_of(net, &all))(&net).unwrap();
    let norm = |module: &Net| {
        let all = module.trainable_parameters();
        let squares = all.values().flat_map(|one| one.to_vec::<f32>().unwrap()).map(|one| one * one);
        squares.sum::<f32>().sqrt()
    };
    let before = norm(&gradients);
    let reported = clip_grad_norm(&mut gradients, 0.01).unwrap().item::<f32>().unwrap();
    assert!((reported - before).abs() < 1e-5 * before, "{reported} {before}");
    assert!((norm(&gradients) - 0.01).abs() < 1e-5);
    assert!(clip_grad_norm(&mut gradients, -1.0).is_err());
    let mut average = Ema::new(&net, 0.9).unwrap();
    let mut other = net.clone();
    other.map(|_, array| Ok(array.add(1.0)?)).unwrap();
    average.update(&other).unwrap();
    let moved = average.module().parameters()["second.bias"].item::<f32>().unwrap();
    let start = net.parameters()["second.bias"].item::<f32>().unwrap();
    assert!((moved - start - 0.1).abs() < 1e-5, "{moved} {start}");
}

#[test]
fn a_compiled_step_equals_the_plain_step() {
    let _alone = alone();
    let mut compiled = trainer(8).with_clip(1.0);
    let mut plain = trainer(8).with_clip(1.0).without_compile();
    let buffers = |trainer: &Trainer<Net>| trainer.model().state();
    for at in 0..5 {
        let old = buffers(&compiled);
        let (a, b) = (compiled.step(&batch(at).unwrap()).unwrap(), plain.step(&batch(at).unwrap()).unwrap());
        assert!((a.loss - b.loss).abs() < 1e-5, "{a:?} {b:?}");
        assert!(a.metrics["grad_norm"] > 0.0);
        // Running statistics and the key of the dropout are updated.
        for (path, new) in buffers(&compiled) {
            let same = new.array_equal(&old[&path], false).unwrap().astype(Dtype::Uint8).unwrap();
            assert_eq!(same.item::<u8>().unwrap(), 0, "{path}");
        }
    }
    for ((path, a), (_, b)) in elements(compiled.model()).into_iter().zip(elements(plain.model())) {
        for (a, b) in a.iter().zip(&b) {
            assert!((a - b).abs() < 1e-4, "{path}: {a} {b}");
        }
    }
}

#[test]
fn accumulated_gradients_are_those_of_the_whole_batch() {
    let _alone = alone();
    // Without batch statistics and dropout, parts of a batch make no difference.
    let make = || {
        random::seed(3);
        let net = Sequential::new().with(Linear::new(2, 8).unwrap()).with(Activation::Tanh);
        let net = net.with(Linear::new(8, 1).unwrap());
        let loss = |net: &Sequential, batch: &[Array]| {
            loss::mse(&net.forward(&batch[0])?, &batch[1], loss::Reduction::Mean)
        };
        Trainer::new(net, Optimizer::new(Sgd::new(0.1)).unwrap(), loss).unwrap()
    };
    let (mut whole, mut parts) = (make(), make().with_accumulation(4).unwrap());
    for at in 0..3 {
        whole.step(&batch(at).unwrap()).unwrap();
        parts.step(&batch(at).unwrap()).unwrap();
    }
    for ((path, a), (_, b)) in elements(whole.model()).into_iter().zip(elements(parts.model())) {
        for (a, b) in a.iter().zip(&b) {
            assert!((a - b).abs() < 1e-5, "{path}: {a} {b}");
        }
    }
    let mut uneven = make().with_accumulation(3).unwrap();
    assert!(uneven.step(&batch(0).unwrap()).unwrap_err().to_string().contains("multiple of 3"));
    assert!(make().with_accumulation(0).is_err());
}

#[test]
fn resumed_training_gives_the_same_bits() {
    let _alone = alone();
    let path = file("resume");
    let mut whole = trainer(8);
    whole.fit(9, batch, &mut []).unwrap();
    let mut first = trainer(8);
    first.fit(4, batch, &mut [&mut Checkpoints::every(2, &path)]).unwrap();
    random::seed(1234);
    let mut second =
        Trainer::new(Net::new(8).unwrap(), Optimizer::new(Adam::new(0.01)).unwrap(), loss_of).unwrap();
    second.resume(&path).unwrap();
    assert_eq!(second.steps(), 4);
    second.fit(9, batch, &mut []).unwrap();
    assert_eq!(elements(whole.model()), elements(second.model()));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_checkpoint_that_does_not_fit_is_refused_and_changes_nothing() {
    let _alone = alone();
    let path = file("refused");
    let mut small = trainer(4);
    small.fit(2, batch, &mut []).unwrap();
    small.save(&path).unwrap();
    let mut large = trainer(8);
    let before = elements(large.model());
    let error = large.resume(&path).unwrap_err().to_string();
    assert!(error.contains("first.bias") && error.contains("[4]") && error.contains("[8]"), "{error}");
    // Another optimizer has another state.
    let mut other =
        Trainer::new(Net::new(4).unwrap(), Optimizer::new(Sgd::new(0.1)).unwrap(), loss_of).unwrap();
    assert!(other.resume(&path).unwrap_err().to_string().contains("state.first.bias.m"));
    assert_eq!(other.steps(), 0);
    // A file of parameters is not a checkpoint.
    small.model().save(&path).unwrap();
    assert!(small.resume(&path).unwrap_err().to_string().contains("load_file"));
    small.save(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for length in [0, 4, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        assert!(small.resume(&path).is_err(), "{length} of {} bytes", bytes.len());
    }
    assert_eq!(before, elements(large.model()));
    assert!(large.resume(file("missing")).is_err());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn steps_with_gradients_that_are_not_finite_are_skipped() {
    let _alone = alone();
    let scale = LossScale::new(1024.0, 3).unwrap();
    let mut trainer = trainer(8).with_precision(Dtype::Float16, Some(scale));
    let bad = |at: u64| -> Result<Vec<Array>> {
        let mut all = batch(at)?;
        if at == 2 {
            all[0] = all[0].multiply(f64::NAN)?;
        }
        Ok(all)
    };
    let mut reports: Vec<Report> = Vec::new();
    let mut keep = |_: &Trainer<Net>, report: &mut Report| {
        reports.push(report.clone());
        Ok(hesper_nn::train::CONTINUE)
    };
    let before = |trainer: &Trainer<Net>| elements(trainer.model());
    trainer.fit(2, bad, &mut [&mut keep]).unwrap();
    let weights = before(&trainer);
    trainer.fit(3, bad, &mut [&mut keep]).unwrap();
    let parameters = |all: Vec<(String, Vec<f32>)>| {
        all.into_iter().filter(|(path, _)| !path.contains("running")).collect::<Vec<_>>()
    };
    assert_eq!(parameters(weights), parameters(before(&trainer)));
    trainer.fit(6, bad, &mut [&mut keep]).unwrap();
    let updated: Vec<bool> = reports.iter().map(|report| report.updated).collect();
    assert_eq!(updated, [true, true, false, true, true, true]);
    let scales: Vec<f64> = reports.iter().map(|report| report.metrics["loss_scale"]).collect();
    assert_eq!(scales, [1024.0, 1024.0, 512.0, 512.0, 512.0, 1024.0]);
    assert_eq!((trainer.steps(), trainer.optimizer().step().unwrap()), (6, 5));
    assert!(LossScale::new(0.0, 1).is_err());
}

#[test]
fn a_loss_that_fails_or_panics_leaves_the_model_as_it_was() {
    let _alone = alone();
    let (fails, panics) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let (own_fails, own_panics) = (fails.clone(), panics.clone());
    random::seed(1);
    let mut trainer =
        Trainer::new(Net::new(4).unwrap(), Optimizer::new(Adam::new(0.01)).unwrap(), move |net, all| {
            let value = loss_of(net, all)?;
            assert!(!own_panics.load(Ordering::Relaxed), "the user's own mistake");
            if own_fails.load(Ordering::Relaxed) {
                net.forward(&all[1])?;
            }
            Ok(value)
        })
        .unwrap();
    let before = elements(trainer.model());
    assert!(trainer.step(&batch(0).unwrap()).is_err());
    fails.store(false, Ordering::Relaxed);
    panics.store(true, Ordering::Relaxed);
    assert!(trainer.step(&batch(0).unwrap()).unwrap_err().to_string().contains("mistake"));
    assert_eq!(before, elements(trainer.model()));
    assert_eq!(trainer.steps(), 0);
    panics.store(false, Ordering::Relaxed);
    trainer.step(&batch(0).unwrap()).unwrap();
    assert_ne!(before, elements(trainer.model()));
    // The error for a loss that is not a scalar names its shape.
    let mut vector = Trainer::new(
        Linear::new(2, 1).unwrap(),
        Optimizer::new(Sgd::new(0.1)).unwrap(),
        |layer: &Linear, all| layer.forward(&all[0]),
    )
    .unwrap();
    assert!(vector.step(&batch(0).unwrap()).unwrap_err().to_string().contains("[16, 1]"));
}

#[derive(Module, Clone)]
struct Wide {
    weight: Parameter,
}

/// A model whose parameters need far more memory than its activations.
fn wide_trainer(rows: usize) -> Trainer<Wide> {
    let weight = Array::ones(&[rows, 1024], Dtype::Float32).unwrap();
    weight.eval().unwrap();
    let mut trainer = Trainer::new(
        Wide { weight: weight.into() },
        Optimizer::new(Adam::new(0.01)).unwrap(),
        |model: &Wide, all: &[Array]| Ok(all[0].matmul(&model.weight)?.square()?.mean(())?),
    )
    .unwrap();
    let input = Array::ones(&[1, rows], Dtype::Float32).unwrap();
    trainer.step(&[input]).unwrap();
    trainer
}

#[test]
fn a_step_overwrites_parameters_and_state() {
    let _alone = alone();
    let rows = 2048;
    let mut trainer = wide_trainer(rows);
    let input = Array::ones(&[1, rows], Dtype::Float32).unwrap();
    input.eval().unwrap();
    let cpu = placement::cpu();
    let parameter = rows * 1024 * 4;
    let before = cpu.counters().active;
    cpu.reset_peak();
    for _ in 0..3 {
        trainer.step(&[input.clone()]).unwrap();
    }
    let peak = cpu.counters().peak - before;
    // The gradient is the only other array of the size of the parameter.
    assert!(peak < parameter + parameter / 2, "{peak} bytes beside the model, a parameter has {parameter}");
    assert!(cpu.counters().active <= before + 4096);
}

#[test]
fn a_step_that_runs_out_of_memory_is_retried() {
    let _alone = alone();
    let rows = 512;
    let (mut lacking, mut whole) = (wide_trainer(rows), wide_trainer(rows));
    let input = Array::ones(&[1, rows], Dtype::Float32).unwrap();
    input.eval().unwrap();
    let cpu = placement::cpu();
    cpu.clear_cache();
    let limit = cpu.set_memory_limit(cpu.counters().active + 4096);
    let failed = lacking.step(&[input.clone()]);
    cpu.set_memory_limit(limit);
    assert!(failed.is_err());
    lacking.step(&[input.clone()]).unwrap();
    whole.step(&[input.clone()]).unwrap();
    whole.step(&[input]).unwrap();
    assert_eq!(elements(lacking.model()), elements(whole.model()));
}

#[test]
fn metrics_are_written_and_callbacks_can_stop() {
    let _alone = alone();
    let (csv, json) = (file("metrics.csv"), file("metrics.json"));
    let mut trainer = trainer(4);
    let check = batch(100).unwrap();
    let mut evaluate =
        Evaluate::every(2, |net: &Net| Ok(vec![("test", f64::from(loss_of(net, &check)?.item::<f32>()?))]));
    let mut stop = |_: &Trainer<Net>, report: &mut Report| {
        Ok(if report.step == 5 { std::ops::ControlFlow::Break(()) } else { hesper_nn::train::CONTINUE })
    };
    let mut table = CsvMetrics::new(&csv).unwrap();
    let mut lines = JsonMetrics::new(&json).unwrap();
    let callbacks: &mut [&mut dyn Callback<Net>] = &mut [&mut evaluate, &mut table, &mut lines, &mut stop];
    trainer.fit(100, batch, callbacks).unwrap();
    assert_eq!(trainer.steps(), 5);
    let text = std::fs::read_to_string(&csv).unwrap();
    let mut rows = text.lines();
    assert_eq!(rows.next().unwrap(), "step,loss,seconds");
    assert_eq!(rows.count(), 5);
    for (at, line) in std::fs::read_to_string(&json).unwrap().lines().enumerate() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["step"], at as u64 + 1);
        assert_eq!(value["test"].is_number(), at % 2 == 1, "{line}");
    }
    assert!(CsvMetrics::new("/nowhere/metrics.csv").unwrap_err().to_string().contains("/nowhere"));
    std::fs::remove_file(csv).unwrap();
    std::fs::remove_file(json).unwrap();
}

#[test]
fn errors_of_layers_keep_their_type_through_a_transform() {
    let _alone = alone();
    use std::error::Error as _;
    let layer = Linear::new(2, 1).unwrap();
    let missing = || Error::Missing { path: "head.weight".into() };
    let error = value_and_grad(|_: &Linear| Err::<Array, _>(missing()))(&layer).unwrap_err();
    assert!(matches!(&error, Error::Missing { path } if path == "head.weight"), "{error}");
    // A transform of arrays reports it as the cause.
    let failing = tree::compile(|_: &Linear| Err::<Array, hesper::Error>(missing().into()));
    let error = failing(&layer).unwrap_err();
    assert_eq!(error.source().map(ToString::to_string), Some(missing().to_string()));
    assert!(matches!(&error, hesper::Error::User(cause) if cause.is::<Error>()), "{error:?}");
    assert!(matches!(Error::from(error), Error::Missing { .. }));

    let error = CsvMetrics::new("/nowhere/metrics.csv").unwrap_err();
    let cause = error.source().and_then(|cause| cause.downcast_ref::<Arc<std::io::Error>>());
    assert_eq!(cause.map(|cause| cause.kind()), Some(std::io::ErrorKind::NotFound), "{error:?}");
}
