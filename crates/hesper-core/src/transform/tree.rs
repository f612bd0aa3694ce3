//! Trees of arrays: nested structures as arguments and results of transformations.
//!
//! A [`Tree`] is an array, or a tuple, a list, a map or a struct of trees. The functions of this module are
//! those of [`transform`](super) for functions of one tree. They transform with respect to all of its arrays,
//! in a fixed order.
//!
//! ```
//! use hesper::{Array, Dtype, transform::tree, tree_struct};
//! struct Linear {
//!     weight: Array,
//!     bias: Option<Array>,
//! }
//! tree_struct!(Linear { weight, bias });
//!
//! let layer = Linear { weight: Array::ones(&[2], Dtype::Float32)?, bias: None };
//! let x = Array::from_slice(&[3.0f32, 4.0]);
//! let (loss, gradient) = tree::value_and_grad(|layer: &Linear| x.multiply(&layer.weight)?.sum(()))(&layer)?;
//! assert_eq!(loss.item::<f32>()?, 7.0);
//! assert_eq!(gradient.weight.to_vec::<f32>()?, [3.0, 4.0]);
//! assert!(gradient.bias.is_none());
//! # Ok::<(), hesper::Error>(())
//! ```

use std::collections::{BTreeMap, HashMap};

use super::{Cache, compile_enabled};
use crate::error::{Error, Result};
use crate::graph::Array;

/// A structure of arrays.
///
/// ```
/// use hesper::array;
/// use hesper::transform::Tree;
/// let pair = (array![1, 2], vec![array![3], array![4]]);
/// assert_eq!(pair.arrays().len(), 3);
/// let twice = pair.arrays().iter().map(|x| x.multiply(2)).collect::<hesper::Result<_>>()?;
/// let doubled = pair.with_arrays(twice)?;
/// assert_eq!(doubled.1[0].item::<i32>()?, 6);
/// let (mut all, mut key, mut trained) = (Vec::new(), Vec::new(), Vec::new());
/// pair.flatten(&mut all);
/// pair.structure(&mut key);
/// pair.trainable(&mut trained);
/// assert_eq!((all.len(), trained), (3, vec![true; 3]));
/// assert!(pair.rebuild(&mut all.into_iter().take(2)).is_err());
/// # Ok::<(), hesper::Error>(())
/// ```
pub trait Tree: Sized {
    /// Appends its arrays to a list, in the order of the tree.
    fn flatten(&self, into: &mut Vec<Array>);

    /// The same structure with other arrays, in the order of the tree.
    fn rebuild(&self, arrays: &mut dyn Iterator<Item = Array>) -> Result<Self>;

    /// Appends a key of its structure: lengths, names, missing parts. Trees of one type with equal keys have
    /// equal structure.
    fn structure(&self, into: &mut Vec<u8>);

    /// Appends for each of its arrays whether derivatives are taken with respect to it: [`value_and_grad`]
    /// and [`grad`] return zeros for the others. All of them by default.
    fn trainable(&self, into: &mut Vec<bool>) {
        into.resize(into.len() + self.arrays().len(), true);
    }

    /// Its arrays, in the order of the tree.
    fn arrays(&self) -> Vec<Array> {
        let mut arrays = Vec::new();
        self.flatten(&mut arrays);
        arrays
    }

    /// The same structure with other arrays. Fails if their number differs.
    fn with_arrays(&self, arrays: Vec<Array>) -> Result<Self> {
        let count = arrays.len();
        let mut rest = arrays.into_iter();
        let tree = self.rebuild(&mut rest)?;
        match rest.next() {
            None => Ok(tree),
            Some(_) => Err(Error::value("tree", format!("{count} arrays are more than the tree has"))),
        }
    }
}

impl Tree for Array {
    fn flatten(&self, into: &mut Vec<Array>) {
        into.push(self.clone());
    }

    fn rebuild(&self, arrays: &mut dyn Iterator<Item = Array>) -> Result<Self> {
        arrays.next().ok_or_else(|| Error::value("tree", "there are fewer arrays than the tree has"))
    }

    fn structure(&self, _: &mut Vec<u8>) {}
}

macro_rules! tuples {
    ($(($($name:ident $at:tt),*);)*) => {
        $(impl<$($name: Tree),*> Tree for ($($name,)*) {
            fn flatten(&self, _into: &mut Vec<Array>) {
                $(self.$at.flatten(_into);)*
            }

            fn rebuild(&self, _arrays: &mut dyn Iterator<Item = Array>) -> Result<Self> {
                Ok(($(self.$at.rebuild(_arrays)?,)*))
            }

            fn structure(&self, _into: &mut Vec<u8>) {
                $(self.$at.structure(_into);)*
            }

            fn trainable(&self, _into: &mut Vec<bool>) {
                $(self.$at.trainable(_into);)*
            }
        })*
    };
}

tuples! {
    ();
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
}

fn number(value: usize, into: &mut Vec<u8>) {
    into.extend((value as u64).to_le_bytes());
}

impl<T: Tree> Tree for Vec<T> {
    fn flatten(&self, into: &mut Vec<Array>) {
        self.iter().for_each(|one| one.flatten(into));
    }

    fn rebuild(&self, arrays: &mut dyn Iterator<Item = Array>) -> Result<Self> {
        self.iter().map(|one| one.rebuild(arrays)).collect()
    }

    fn structure(&self, into: &mut Vec<u8>) {
        number(self.len(), into);
        self.iter().for_each(|one| one.structure(into));
    }

    fn trainable(&self, into: &mut Vec<bool>) {
        self.iter().for_each(|one| one.trainable(into));
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    fn flatten(&self, into: &mut Vec<Array>) {
        self.iter().for_each(|one| one.flatten(into));
    }

    fn rebuild(&self, arrays: &mut dyn Iterator<Item = Array>) -> Result<Self> {
        let list: Vec<T> = self.iter().map(|one| one.rebuild(arrays)).collect::<Result<_>>()?;
        list.try_into().map_err(|_| Error::value("tree", "the list has another length than the tree"))
    }

    fn structure(&self, into: &mut Vec<u8>) {
        self.iter().for_each(|one| one.structure(into));
    }

    fn trainable(&self, into: &mut Vec<bool>) {
        self.iter().for_each(|one| one.trainable(into));
    }
}

impl<T: Tree> Tree for Option<T> {
    fn flatten(&self, into: &mut Vec<Array>) {
        self.iter().for_each(|one| one.flatten(into));
    }

    fn rebuild(&self, arrays: &mut dyn Iterator<Item = Array>) -> Result<Self> {
        self.as_ref().map(|one| one.rebuild(arrays)).transpose()
    }

    fn structure(&self, into: &mut Vec<u8>) {
        into.push(u8::from(self.is_some()));
        self.iter().for_each(|one| one.structure(into));
    }

    fn trainable(&self, into: &mut Vec<bool>) {
        self.iter().for_each(|one| one.trainable(into));
    }
}

impl<T: Tree> Tree for Box<T> {
    fn flatten(&self, into: &mut Vec<Array>) {
        (**self).flatten(into);
    }

    fn rebuild(&self, arrays: &mut dyn Iterator<Item = Array>) -> Result<Self> {
        (**self).rebuild(arrays).map(Box::new)
    }

    fn structure(&self, into: &mut Vec<u8>) {
        (**self).structure(into);
    }

    fn trainable(&self, into: &mut Vec<bool>) {
        (**self).trainable(into);
    }
}

fn name(text: &str, into: &mut Vec<u8>) {
    number(text.len(), into);
    into.extend(text.as_bytes());
}

impl<T: Tree> Tree for BTreeMap<String, T> {
    fn flatten(&self, into: &mut Vec<Array>) {
        self.values().for_each(|one| one.flatten(into));
    }

    fn rebuild(&self, arrays: &mut dyn Iterator<Item = Array>) -> Result<Self> {
        self.iter().map(|(key, one)| Ok((key.clone(), one.rebuild(arrays)?))).collect()
    }

    fn structure(&self, into: &mut Vec<u8>) {
        number(self.len(), into);
        for (key, one) in self {
            name(key, into);
            one.structure(into);
        }
    }

    fn trainable(&self, into: &mut Vec<bool>) {
        self.values().for_each(|one| one.trainable(into));
    }
}

/// A map's entries in the order of their names.
fn sorted<T>(map: &HashMap<String, T>) -> Vec<(&String, &T)> {
    let mut entries: Vec<(&String, &T)> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    entries
}

impl<T: Tree> Tree for HashMap<String, T> {
    fn flatten(&self, into: &mut Vec<Array>) {
        sorted(self).iter().for_each(|(_, one)| one.flatten(into));
    }

    fn rebuild(&self, arrays: &mut dyn Iterator<Item = Array>) -> Result<Self> {
        sorted(self).into_iter().map(|(key, one)| Ok((key.clone(), one.rebuild(arrays)?))).collect()
    }

    fn structure(&self, into: &mut Vec<u8>) {
        number(self.len(), into);
        for (key, one) in sorted(self) {
            name(key, into);
            one.structure(into);
        }
    }

    fn trainable(&self, into: &mut Vec<bool>) {
        sorted(self).iter().for_each(|(_, one)| one.trainable(into));
    }
}

/// Implements [`Tree`] for a struct: the arrays of the named fields, in that order. Fields after `keeps` are
/// not part of the tree and are cloned. Their `Debug` text is part of the structure, so a compiled function
/// is traced for each.
///
/// ```
/// use hesper::{Array, transform::tree, tree_struct};
/// struct Layer { weight: Array, layers: Vec<Layer>, scale: f64 }
/// tree_struct!(Layer { weight, layers } keeps { scale });
///
/// let leaf = Layer { weight: Array::from_slice(&[2.0f32]), layers: vec![], scale: 3.0 };
/// let layer = Layer { weight: Array::from_slice(&[1.0f32]), layers: vec![leaf], scale: 1.0 };
/// let f = |layer: &Layer| layer.weight.multiply(&layer.layers[0].weight)?.sum(());
/// let gradient = tree::grad(f)(&layer)?;
/// assert_eq!(gradient.layers[0].weight.to_vec::<f32>()?, [1.0]);
/// assert_eq!(gradient.layers[0].scale, 3.0);
/// # Ok::<(), hesper::Error>(())
/// ```
#[macro_export]
macro_rules! tree_struct {
    ($type:ty { $($field:ident),* $(,)? } $(keeps { $($kept:ident),* $(,)? })?) => {
        impl $crate::transform::tree::Tree for $type {
            fn flatten(&self, into: &mut Vec<$crate::Array>) {
                let _ = &into;
                $($crate::transform::tree::Tree::flatten(&self.$field, into);)*
            }

            fn rebuild(&self, arrays: &mut dyn Iterator<Item = $crate::Array>) -> $crate::Result<Self> {
                let _ = &arrays;
                Ok(Self {
                    $($field: $crate::transform::tree::Tree::rebuild(&self.$field, arrays)?,)*
                    $($($kept: self.$kept.clone(),)*)?
                })
            }

            fn structure(&self, into: &mut Vec<u8>) {
                $($crate::transform::tree::Tree::structure(&self.$field, into);)*
                $($(into.extend(format!("{:?};", self.$kept).into_bytes());)*)?
            }

            fn trainable(&self, into: &mut Vec<bool>) {
                let _ = &into;
                $($crate::transform::tree::Tree::trainable(&self.$field, into);)*
            }
        }
    };
}

/// Calls a function with a tree of `arrays`. Stores the result in `returned` and returns its arrays.
fn call<T: Tree, U: Tree>(
    f: impl FnOnce(&T) -> Result<U>,
    tree: &T,
    arrays: &[Array],
    returned: &mut Option<U>,
) -> Result<Vec<Array>> {
    let result = f(&tree.with_arrays(arrays.to_vec())?)?;
    let outputs = result.arrays();
    *returned = Some(result);
    Ok(outputs)
}

fn filled<U: Tree>(returned: Option<U>, arrays: Vec<Array>) -> Result<U> {
    returned.ok_or_else(|| Error::value("tree", "the function was not called"))?.with_arrays(arrays)
}

/// Computes all arrays of a tree, and waits for them; see [`eval`](crate::eval()).
///
/// ```
/// use hesper::array;
/// use hesper::transform::tree;
/// let state = (array![1.0, 2.0].exp()?, vec![array![3.0].sin()?]);
/// tree::eval(&state)?;
/// assert!(state.0.is_evaluated() && state.1[0].is_evaluated());
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn eval<T: Tree>(tree: &T) -> Result<()> {
    crate::eval(&tree.arrays())
}

/// One tree of several alike: each array is the stack of theirs along a new first axis, as `vmap` takes them.
///
/// ```
/// use hesper::array;
/// use hesper::transform::tree;
/// let lines = [(array![1.0], array![0.0]), (array![2.0], array![5.0])];
/// let all = tree::stack(&lines)?;
/// let at_three =
///     tree::vmap(|(a, b): &(hesper::Array, hesper::Array)| Ok(a * 3.0 + b), &[Some(0)], &[Some(0)]);
/// assert_eq!(at_three(&all)?.to_vec::<f32>()?, [3.0, 11.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn stack<T: Tree>(trees: &[T]) -> Result<T> {
    let Some(first) = trees.first() else { return Err(Error::value("stack", "no trees were given")) };
    let structure = |tree: &T| {
        let mut bytes = Vec::new();
        tree.structure(&mut bytes);
        bytes
    };
    let (known, arrays) = (structure(first), trees.iter().map(Tree::arrays).collect::<Vec<_>>());
    if let Some(at) = trees.iter().position(|tree| structure(tree) != known) {
        return Err(Error::value("stack", format!("tree {at} has another structure than the first one")));
    }
    let stacked = (0..arrays[0].len()).map(|at| {
        let all: Vec<Array> = arrays.iter().map(|arrays| arrays[at].clone()).collect();
        crate::stack(&all, 0)
    });
    first.with_arrays(stacked.collect::<Result<Vec<_>>>()?)
}

/// [`vjp`](super::vjp) of trees: the outputs of a function, and the product of cotangents with its Jacobian.
///
/// ```
/// use hesper::{Array, transform::tree};
/// let pair = (Array::from_slice(&[2.0f32]), [Array::from_slice(&[5.0f32])]);
/// let one = Array::from_slice(&[1.0f32]);
/// let (y, g) = tree::vjp(|(a, [b]): &(Array, [Array; 1])| a.multiply(b), &pair, &one)?;
/// assert_eq!(y.to_vec::<f32>()?, [10.0]);
/// assert_eq!((g.0.to_vec::<f32>()?, g.1[0].to_vec::<f32>()?), (vec![5.0], vec![2.0]));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn vjp<T: Tree, U: Tree>(f: impl FnOnce(&T) -> Result<U>, primals: &T, cotangents: &U) -> Result<(U, T)> {
    let mut returned = None;
    let (outputs, found) = super::vjp(
        |arrays| call(f, primals, arrays, &mut returned),
        &primals.arrays(),
        &cotangents.arrays(),
    )?;
    Ok((filled(returned, outputs)?, primals.with_arrays(found)?))
}

/// [`jvp`](super::jvp) of trees: the outputs of a function, and the product of its Jacobian with tangents.
///
/// ```
/// use hesper::{Array, array};
/// use hesper::transform::tree;
/// let (x, t) = ((array![2.0], array![5.0]), (array![1.0], array![0.0]));
/// let (y, slope) = tree::jvp(|(a, b): &(Array, Array)| a.multiply(b), &x, &t)?;
/// assert_eq!((y.item::<f32>()?, slope.item::<f32>()?), (10.0, 5.0));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn jvp<T: Tree, U: Tree>(f: impl FnOnce(&T) -> Result<U>, primals: &T, tangents: &T) -> Result<(U, U)> {
    let mut returned = None;
    let (outputs, found) =
        super::jvp(|arrays| call(f, primals, arrays, &mut returned), &primals.arrays(), &tangents.arrays())?;
    let tangents = match &returned {
        Some(returned) => returned.with_arrays(found)?,
        None => return Err(Error::value("tree", "the function was not called")),
    };
    Ok((filled(returned, outputs)?, tangents))
}

/// The places of the trainable arrays.
///
/// ```
/// use hesper::array;
/// use hesper::transform::tree;
/// assert_eq!(tree::chosen(&(array![1.0], array![2.0])), [0, 1]);
/// ```
pub fn chosen<T: Tree>(tree: &T) -> Vec<usize> {
    let mut trainable = Vec::new();
    tree.trainable(&mut trainable);
    trainable.iter().enumerate().filter(|(_, trainable)| **trainable).map(|(at, _)| at).collect()
}

/// A tree of gradients from those of the arrays at the places `chosen`. The others are zeros, which take no
/// memory.
///
/// ```
/// use hesper::array;
/// use hesper::transform::tree;
/// let pair = (array![1.0], array![2.0, 3.0]);
/// let arrays = [pair.0.clone(), pair.1.clone()];
/// let all = tree::gradients(&pair, &arrays, &[0], vec![array![9.0]])?;
/// assert_eq!((all.0.to_vec::<f32>()?, all.1.to_vec::<f32>()?), (vec![9.0], vec![0.0, 0.0]));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn gradients<T: Tree>(tree: &T, arrays: &[Array], chosen: &[usize], found: Vec<Array>) -> Result<T> {
    let mut all: Vec<Option<Array>> = vec![None; arrays.len()];
    for (at, gradient) in chosen.iter().zip(found) {
        all[*at] = Some(gradient);
    }
    let zeros = |array: &Array| Array::integer(0, array.dtype())?.broadcast_to(array.shape());
    let all = all.into_iter().zip(arrays).map(|(one, array)| one.map_or_else(|| zeros(array), Ok));
    tree.with_arrays(all.collect::<Result<_>>()?)
}

/// [`value_and_grad`](super::value_and_grad) of trees: a function that returns the outputs of `f` and the
/// gradient of their first array, a scalar, with respect to the trainable arrays of the argument.
///
/// ```
/// use hesper::{Array, array};
/// use hesper::transform::tree;
/// let f = tree::value_and_grad(|(a, b): &(Array, Array)| a.multiply(b)?.sum(()));
/// let (value, slope) = f(&(array![2.0], array![5.0]))?;
/// assert_eq!((value.item::<f32>()?, slope.0.item::<f32>()?, slope.1.item::<f32>()?), (10.0, 5.0, 2.0));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn value_and_grad<T: Tree, U: Tree, F: Fn(&T) -> Result<U>>(f: F) -> impl Fn(&T) -> Result<(U, T)> {
    move |tree| {
        let (arrays, mut returned) = (tree.arrays(), None);
        let chosen = chosen(tree);
        let (outputs, found) =
            super::gradient(|arrays: &[Array]| call(&f, tree, arrays, &mut returned), &arrays, &chosen)?;
        Ok((filled(returned, outputs)?, gradients(tree, &arrays, &chosen, found)?))
    }
}

/// [`grad`](super::grad) of trees: a function that returns the gradient of the value of `f`.
///
/// ```
/// use std::collections::BTreeMap;
/// use hesper::{Array, transform::tree};
/// let tree: BTreeMap<String, Array> = [("x".to_string(), Array::from_slice(&[3.0f32]))].into();
/// let gradient = tree::grad(|tree: &BTreeMap<String, Array>| tree["x"].square()?.sum(()))(&tree)?;
/// assert_eq!(gradient["x"].to_vec::<f32>()?, [6.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn grad<T: Tree, F: Fn(&T) -> Result<Array>>(f: F) -> impl Fn(&T) -> Result<T> {
    let both = value_and_grad(f);
    move |tree| Ok(both(tree)?.1)
}

/// [`vmap`](super::vmap) of trees. `inputs` are the batch axes of the arrays, `outputs` those of the results:
/// one for all, or one for each in the order of the tree.
///
/// ```
/// use hesper::{Array, transform::tree};
/// let rows = vec![Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?];
/// let sums = tree::vmap(|x: &Vec<Array>| x[0].sum(()), &[Some(0)], &[Some(0)]);
/// assert_eq!(sums(&rows)?.to_vec::<f32>()?, [3.0, 7.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn vmap<T: Tree, U: Tree, F: Fn(&T) -> Result<U>>(
    f: F,
    inputs: &[Option<isize>],
    outputs: &[Option<isize>],
) -> impl Fn(&T) -> Result<U> + use<T, U, F> {
    let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
    move |tree| {
        let (arrays, mut returned) = (tree.arrays(), None);
        let axes = super::spread(&inputs, arrays.len())?;
        let found = super::vmap_with(
            |arrays: &[Array]| call(&f, tree, arrays, &mut returned),
            &arrays,
            &axes,
            |count| super::spread(&outputs, count),
        )?;
        filled(returned, found)
    }
}

/// [`compile`](super::compile) of trees. The function is also traced for each structure.
///
/// ```
/// use hesper::{Array, transform::tree};
/// let f = tree::compile(|x: &(Array, Option<Array>)| match &x.1 {
///     Some(y) => x.0.add(y),
///     None => x.0.negative(),
/// });
/// let x = Array::from_slice(&[1.0f32]);
/// assert_eq!(f(&(x.clone(), None))?.to_vec::<f32>()?, [-1.0]);
/// assert_eq!(f(&(x.clone(), Some(x)))?.to_vec::<f32>()?, [2.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn compile<T: Tree, U: Tree, F: Fn(&T) -> Result<U>>(f: F) -> impl Fn(&T) -> Result<U> {
    let cache = Cache::<U>::default();
    move |tree| {
        if !compile_enabled() {
            return f(tree);
        }
        let mut structure = Vec::new();
        tree.structure(&mut structure);
        let trace = |arrays: &[Array]| {
            let result = f(&tree.with_arrays(arrays.to_vec())?)?;
            let outputs = result.arrays();
            // Keep only the structure of the result, not its arrays.
            let nothing = |one: &Array| Array::integer(0, one.dtype())?.broadcast_to(one.shape());
            let kept = result.with_arrays(outputs.iter().map(nothing).collect::<Result<_>>()?)?;
            Ok::<_, Error>((outputs, kept))
        };
        let (outputs, kept) = cache.call(&structure, &tree.arrays(), trace)?;
        kept.with_arrays(outputs)
    }
}
