//! Trees of arrays: the order of their arrays, and transformations of functions of trees.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use hesper::transform::{Tree, tree};
use hesper::{Array, Result, tree_struct};

struct Layer {
    weight: Array,
    bias: Option<Array>,
    scale: f64,
}
tree_struct!(Layer { weight, bias } keeps { scale });

struct Model {
    layers: Vec<Layer>,
    others: HashMap<String, [Array; 2]>,
    last: Box<(Array,)>,
}
tree_struct!(Model { layers, others, last });

fn number(value: f32) -> Array {
    Array::from_slice(&[value])
}

fn model() -> Model {
    let layer =
        |value, bias: Option<f32>| Layer { weight: number(value), bias: bias.map(number), scale: 2.0 };
    let others = [("b", 5.0), ("a", 4.0)]
        .map(|(name, value)| (name.to_string(), [number(value), number(value + 0.5)]));
    Model {
        layers: vec![layer(1.0, Some(2.0)), layer(3.0, None)],
        others: others.into(),
        last: Box::new((number(7.0),)),
    }
}

fn values(tree: &impl Tree) -> Vec<f32> {
    tree.arrays().iter().map(|array| array.item::<f32>().unwrap()).collect()
}

fn total(model: &Model) -> Result<Array> {
    let mut sum = model.last.0.square()?;
    for layer in &model.layers {
        sum = sum.add(layer.weight.multiply(layer.scale)?)?;
        if let Some(bias) = &layer.bias {
            sum = sum.add(bias.square()?)?;
        }
    }
    sum.add(model.others["a"][0].multiply(&model.others["b"][1])?)?.sum(())
}

#[test]
fn arrays_have_a_fixed_order() {
    let model = model();
    assert_eq!(values(&model), [1.0, 2.0, 3.0, 4.0, 4.5, 5.0, 5.5, 7.0]);
    let doubled = model.arrays().iter().map(|array| array.multiply(2).unwrap()).collect();
    let other = model.with_arrays(doubled).unwrap();
    assert_eq!(values(&other), [2.0, 4.0, 6.0, 8.0, 9.0, 10.0, 11.0, 14.0]);
    assert!(other.layers[1].bias.is_none() && other.layers[0].scale == 2.0);
    assert_eq!(other.others["b"][0].item::<f32>().unwrap(), 10.0);
    for count in [7, 9] {
        assert!(model.with_arrays(vec![number(0.0); count]).is_err());
    }
}

#[test]
fn gradients_have_the_structure_of_the_argument() {
    let (value, slope) = tree::value_and_grad(total)(&model()).unwrap();
    assert_eq!(value.item::<f32>().unwrap(), 49.0 + 2.0 + 4.0 + 6.0 + 22.0);
    assert_eq!(values(&slope), [2.0, 4.0, 2.0, 5.5, 0.0, 0.0, 4.0, 14.0]);
    assert_eq!(values(&tree::grad(total)(&model()).unwrap()), values(&slope));
    // Further outputs are returned, too.
    let both = |x: &Vec<Array>| Ok((x[0].square()?.sum(())?, vec![x[0].negative()?]));
    let ((value, besides), slope) = tree::value_and_grad(both)(&vec![number(3.0)]).unwrap();
    assert_eq!(
        (value.item::<f32>().unwrap(), values(&besides), values(&slope)),
        (9.0, vec![-3.0], vec![6.0])
    );
}

#[test]
fn forward_and_reverse_mode_agree() {
    let f =
        |pair: &(Array, BTreeMap<String, Array>)| Ok([pair.0.multiply(&pair.1["x"])?, pair.1["x"].exp()?]);
    let pair = |a: f32, b: f32| (number(a), BTreeMap::from([("x".to_string(), number(b))]));
    let (outputs, tangents) = tree::jvp(f, &pair(2.0, 0.0), &pair(0.0, 1.0)).unwrap();
    assert_eq!((values(&outputs), values(&tangents)), (vec![0.0, 1.0], vec![2.0, 1.0]));
    let (_, cotangents) = tree::vjp(f, &pair(2.0, 0.0), &[number(1.0), number(1.0)]).unwrap();
    assert_eq!(values(&cotangents), [0.0, 3.0]);
    assert!(tree::vjp(f, &pair(2.0, 0.0), &[number(1.0), Array::from_slice(&[1.0f32, 2.0])]).is_err());
}

#[test]
fn vmap_takes_one_axis_for_all_arrays_or_one_for_each() {
    let rows = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
    let f = |pair: &(Array, Array)| pair.0.multiply(&pair.1)?.sum(());
    let both = tree::vmap(f, &[Some(0)], &[Some(0)])(&(rows.clone(), rows.clone())).unwrap();
    assert_eq!(both.to_vec::<f32>().unwrap(), [5.0, 25.0]);
    let one = tree::vmap(f, &[Some(1), None], &[Some(0)])(&(rows.clone(), number(1.0))).unwrap();
    assert_eq!(one.to_vec::<f32>().unwrap(), [4.0, 6.0]);
    assert!(tree::vmap(f, &[Some(0), None, None], &[Some(0)])(&(rows.clone(), rows)).is_err());
}

#[test]
fn compiled_functions_are_traced_once_for_each_structure() {
    let traces = AtomicUsize::new(0);
    let f = tree::compile(|model: &Model| {
        traces.fetch_add(1, Ordering::Relaxed);
        total(model)
    });
    for _ in 0..3 {
        assert_eq!(f(&model()).unwrap().item::<f32>().unwrap(), 83.0);
    }
    assert_eq!(traces.load(Ordering::Relaxed), 1);
    let mut other = model();
    other.layers[0].bias = None;
    assert_eq!(f(&other).unwrap().item::<f32>().unwrap(), 79.0);
    other.layers[0].scale = 3.0;
    assert_eq!(f(&other).unwrap().item::<f32>().unwrap(), 80.0);
    assert_eq!(traces.load(Ordering::Relaxed), 3);
}

#[test]
fn eval_of_a_tree_computes_every_array_and_reports_one_that_fails() {
    let (x, y) = (number(1.0).exp().unwrap(), number(2.0).sin().unwrap());
    tree::eval(&(x.clone(), vec![y.clone()])).unwrap();
    assert!(x.is_evaluated() && y.is_evaluated());
    let singular = hesper::linalg::inv(&Array::zeros(&[2, 2], hesper::Dtype::Float32).unwrap()).unwrap();
    let good = number(3.0).cos().unwrap();
    assert!(tree::eval(&(good.clone(), Some(singular))).is_err());
    assert_eq!(good.to_vec::<f32>().unwrap(), [3f32.cos()]);
}
