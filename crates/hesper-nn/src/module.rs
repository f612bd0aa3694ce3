//! Trees of parameters.
//!
//! [`Module`] has two visitors, one that reads leaves and one that may replace them. `#[derive(Module)]` writes both from
//! the fields of a struct. Everything else is written in terms of them: [`ModuleExt`], and the functions that the derive
//! macro calls to make a module a [`Tree`] of the transforms and to print it.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Write as _};
use std::ops::Deref;
use std::path::Path as FilePath;
use std::sync::{Mutex, MutexGuard};

use hesper_core::{Category, Dtype, Operand, PackedArray, io, placement};

use crate::error::{Error, Result};
use crate::weight::Weight;

pub use hesper_core::transform::Tree;
pub use hesper_core::{Array, Error as ArrayError};
pub use hesper_derive::Module;

/// An array that training changes, unless it is frozen.
#[derive(Debug, Clone)]
pub struct Parameter {
    value: Array,
    frozen: bool,
}

impl Parameter {
    /// A parameter that training may change.
    pub fn new(value: Array) -> Self {
        Parameter { value, frozen: false }
    }

    /// The value.
    pub fn get(&self) -> &Array {
        &self.value
    }

    /// Replaces its value.
    pub fn set(&mut self, value: Array) {
        self.value = value;
    }

    /// Whether training leaves it unchanged.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Freezes or unfreezes it.
    pub fn set_frozen(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    /// Whether derivatives are taken with respect to it: it is not frozen, and holds floating-point numbers.
    pub fn is_trainable(&self) -> bool {
        !self.frozen && self.value.dtype().is(Category::Inexact)
    }
}

impl From<Array> for Parameter {
    fn from(value: Array) -> Self {
        Parameter::new(value)
    }
}

impl Deref for Parameter {
    type Target = Array;

    fn deref(&self) -> &Array {
        &self.value
    }
}

impl From<&Parameter> for Operand {
    fn from(parameter: &Parameter) -> Self {
        Operand::Array(parameter.value.clone())
    }
}

/// An array that `forward` may replace: running statistics, the key of a dropout. It is never trained.
///
/// A copy of a module has buffers of its own. [`value_and_grad`](crate::value_and_grad) runs a function on a copy and
/// then stores the copy's buffers in the module.
#[derive(Debug)]
pub struct Buffer {
    value: Mutex<Array>,
    saved: bool,
}

impl Buffer {
    /// A buffer that is saved with the parameters.
    pub fn new(value: Array) -> Self {
        Buffer { value: Mutex::new(value), saved: true }
    }

    /// A buffer that only checkpoints of a training hold.
    pub fn transient(value: Array) -> Self {
        Buffer { value: Mutex::new(value), saved: false }
    }

    fn lock(&self) -> MutexGuard<'_, Array> {
        self.value.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The value.
    pub fn get(&self) -> Array {
        self.lock().clone()
    }

    /// Replaces its value.
    pub fn set(&self, value: Array) {
        *self.lock() = value;
    }

    /// Whether it is saved with the parameters.
    pub fn is_saved(&self) -> bool {
        self.saved
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Buffer { value: Mutex::new(self.get()), saved: self.saved }
    }
}

/// Whether a layer is trained or evaluated; set by [`ModuleExt::train`]. Layers start in training mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Training(bool);

impl Training {
    /// Whether the layer is trained.
    pub fn is_on(self) -> bool {
        self.0
    }
}

impl Default for Training {
    fn default() -> Self {
        Training(true)
    }
}

/// A leaf of a module.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Leaf<'a> {
    /// A parameter.
    Parameter(&'a Parameter),
    /// A buffer.
    Buffer(&'a Buffer),
    /// Packed blocks. They are not trained.
    Packed(&'a PackedArray),
    /// Whether a layer is trained.
    Training(bool),
    /// A setting: no array. A compiled function is traced for each value.
    Setting(&'a dyn Debug),
}

/// A mutable leaf of a module.
#[derive(Debug)]
#[non_exhaustive]
pub enum LeafMut<'a> {
    /// A parameter.
    Parameter(&'a mut Parameter),
    /// A buffer.
    Buffer(&'a mut Buffer),
    /// Packed blocks.
    Packed(&'a mut PackedArray),
    /// Whether a layer is trained.
    Training(&'a mut bool),
    /// The weight of a layer as a whole, before its own leaves: it may get another form.
    Weight(&'a mut Weight),
}

/// The path of a leaf, as `layers.0.weight`, while a visitor walks a module.
#[derive(Debug, Default)]
pub struct Path(String);

impl Path {
    /// Calls `f` with the path of a field, or of an element by its index.
    pub fn enter<R>(&mut self, field: impl fmt::Display, f: impl FnOnce(&mut Path) -> R) -> R {
        let length = self.0.len();
        let dot = if length == 0 { "" } else { "." };
        // Writing to a string does not fail.
        let _ = write!(self.0, "{dot}{field}");
        let result = f(self);
        self.0.truncate(length);
        result
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A tree of parameters.
///
/// `#[derive(Module)]` implements it for structs and enums whose fields are modules: layers, [`Parameter`]s,
/// [`Buffer`]s, [`Training`], plain settings like numbers, and options, lists, arrays, pairs and boxes of modules. It
/// also implements [`Tree`], so that a module is an argument of the transforms, and `Debug`, which prints shapes and
/// counts. The type must be `Clone`.
///
/// The path of a parameter is that of its field. Attributes change this: `#[module(name = "...")]`,
/// `#[module(flatten)]` (no name of its own; the default for tuples of one field), `#[module(skip)]` (a field of any type
/// that is not part of the module), `#[module(cache)]` (a field derived from others: reset to its default when they may
/// change). `#[module(crate = path)]` on the type names this crate where it has another name.
///
/// ```
/// use hesper_nn::{Linear, Module, ModuleExt};
///
/// #[derive(Module, Clone)]
/// struct Net {
///     hidden: Vec<Linear>,
///     output: Linear,
/// }
///
/// let net = Net { hidden: vec![Linear::new(2, 8)?], output: Linear::new(8, 1)? };
/// let paths: Vec<String> = net.parameters().into_keys().collect();
/// assert_eq!(paths, ["hidden.0.bias", "hidden.0.weight", "output.bias", "output.weight"]);
/// assert_eq!(net.count(), 33);
/// assert!(format!("{net:#?}").contains("hidden.0.weight: float32 [8, 2]"));
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a module",
    label = "not a module",
    note = "use `Parameter` or `Buffer` for arrays, derive `Module`, or write `#[module(skip)]` above the field"
)]
pub trait Module {
    /// Calls `f` with the path of every leaf.
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&str, Leaf<'_>));

    /// Calls `f` with the path of every leaf that can be changed, until it fails.
    fn visit_mut(
        &mut self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>,
    ) -> Result<()>;
}

/// Implements [`Module`] for types with one leaf.
macro_rules! leaf {
    ($type:ty, $own:ident, $read:expr, $write:expr) => {
        impl Module for $type {
            fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&str, Leaf<'_>)) {
                let $own = self;
                f(path.as_str(), $read);
            }

            fn visit_mut(
                &mut self,
                path: &mut Path,
                f: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>,
            ) -> Result<()> {
                let $own = self;
                f(path.as_str(), $write)
            }
        }
    };
}

leaf!(Parameter, own, Leaf::Parameter(own), LeafMut::Parameter(own));
leaf!(Buffer, own, Leaf::Buffer(own), LeafMut::Buffer(own));
leaf!(PackedArray, own, Leaf::Packed(own), LeafMut::Packed(own));
leaf!(Training, own, Leaf::Training(own.0), LeafMut::Training(&mut own.0));

/// Implements [`Module`](crate::Module) for types that are settings: they hold no arrays, and their `Debug` text tells
/// them apart.
///
/// ```
/// #[derive(Debug, Clone, Copy)]
/// enum Pooling { Mean, Max }
/// hesper_nn::settings!(Pooling);
/// ```
#[macro_export]
macro_rules! settings {
    ($($type:ty),* $(,)?) => {
        $(impl $crate::Module for $type {
            fn visit(&self, path: &mut $crate::Path, f: &mut dyn FnMut(&str, $crate::Leaf<'_>)) {
                f(path.as_str(), $crate::Leaf::Setting(self));
            }

            fn visit_mut(
                &mut self,
                _: &mut $crate::Path,
                _: &mut dyn FnMut(&str, $crate::LeafMut<'_>) -> $crate::Result<()>,
            ) -> $crate::Result<()> {
                Ok(())
            }
        })*
    };
}

settings!(
    bool,
    u8,
    u16,
    u32,
    u64,
    usize,
    i8,
    i16,
    i32,
    i64,
    isize,
    f32,
    f64,
    char,
    String,
    &'static str,
    Dtype
);
settings!(hesper_core::Activations);

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&str, Leaf<'_>)) {
        (**self).visit(path, f);
    }

    fn visit_mut(
        &mut self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        (**self).visit_mut(path, f)
    }
}

impl<M: Module> Module for Option<M> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&str, Leaf<'_>)) {
        if let Some(module) = self {
            module.visit(path, f);
        }
    }

    fn visit_mut(
        &mut self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self.as_mut().map_or(Ok(()), |module| module.visit_mut(path, f))
    }
}

impl<M: Module> Module for [M] {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&str, Leaf<'_>)) {
        for (at, module) in self.iter().enumerate() {
            path.enter(at, |path| module.visit(path, f));
        }
    }

    fn visit_mut(
        &mut self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut all = self.iter_mut().enumerate();
        all.try_for_each(|(at, module)| path.enter(at, |path| module.visit_mut(path, f)))
    }
}

impl<M: Module> Module for Vec<M> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&str, Leaf<'_>)) {
        self[..].visit(path, f);
    }

    fn visit_mut(
        &mut self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self[..].visit_mut(path, f)
    }
}

impl<M: Module, const N: usize> Module for [M; N] {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&str, Leaf<'_>)) {
        self[..].visit(path, f);
    }

    fn visit_mut(
        &mut self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self[..].visit_mut(path, f)
    }
}

impl<A: Module, B: Module> Module for (A, B) {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&str, Leaf<'_>)) {
        path.enter(0, |path| self.0.visit(path, f));
        path.enter(1, |path| self.1.visit(path, f));
    }

    fn visit_mut(
        &mut self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        path.enter(0, |path| self.0.visit_mut(path, f))?;
        path.enter(1, |path| self.1.visit_mut(path, f))
    }
}

/// Calls `f` with every leaf.
fn read(module: &(impl Module + ?Sized), f: &mut dyn FnMut(&str, Leaf<'_>)) {
    module.visit(&mut Path::default(), f);
}

/// Calls `f` with every leaf that can be changed.
fn write(
    module: &mut (impl Module + ?Sized),
    f: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>,
) -> Result<()> {
    module.visit_mut(&mut Path::default(), f)
}

/// Methods of every module.
pub trait ModuleExt: Module {
    /// The parameters and the buffers that are saved, by path. Packed blocks are not among them.
    fn parameters(&self) -> BTreeMap<String, Array> {
        let mut all = BTreeMap::new();
        read(self, &mut |path, leaf| match leaf {
            Leaf::Parameter(parameter) => drop(all.insert(path.to_string(), parameter.get().clone())),
            Leaf::Buffer(buffer) if buffer.is_saved() => drop(all.insert(path.to_string(), buffer.get())),
            _ => {}
        });
        all
    }

    /// The parameters that training may change, by path.
    fn trainable_parameters(&self) -> BTreeMap<String, Array> {
        let mut all = BTreeMap::new();
        read(self, &mut |path, leaf| {
            if let Leaf::Parameter(parameter) = leaf
                && parameter.is_trainable()
            {
                all.insert(path.to_string(), parameter.get().clone());
            }
        });
        all
    }

    /// The buffers in the order of the module.
    fn buffers(&self) -> Vec<Array> {
        let mut all = Vec::new();
        read(self, &mut |_, leaf| {
            if let Leaf::Buffer(buffer) = leaf {
                all.push(buffer.get());
            }
        });
        all
    }

    /// Replaces the buffers, in the order of the module.
    fn set_buffers(&self, buffers: &[Array]) {
        let mut rest = buffers.iter();
        read(self, &mut |_, leaf| {
            if let (Leaf::Buffer(buffer), Some(value)) = (leaf, rest.next().filter(|_| is_buffer(leaf))) {
                buffer.set(value.clone());
            }
        });
    }

    /// Everything that changes in training, by path: parameters and all buffers.
    fn state(&self) -> BTreeMap<String, Array> {
        let mut all = self.parameters();
        read(self, &mut |path, leaf| {
            if let Leaf::Buffer(buffer) = leaf {
                all.insert(path.to_string(), buffer.get());
            }
        });
        all
    }

    /// The number of stored elements.
    fn count(&self) -> usize {
        let mut count = 0;
        read(self, &mut |_, leaf| {
            count += match leaf {
                Leaf::Parameter(parameter) => parameter.size(),
                Leaf::Buffer(buffer) if buffer.is_saved() => buffer.get().size(),
                Leaf::Packed(packed) => packed.shape().iter().product(),
                _ => 0,
            };
        });
        count
    }

    /// The number of stored bytes.
    fn nbytes(&self) -> usize {
        let mut bytes = 0;
        read(self, &mut |_, leaf| {
            bytes += match leaf {
                Leaf::Parameter(parameter) => parameter.nbytes(),
                Leaf::Buffer(buffer) if buffer.is_saved() => buffer.get().nbytes(),
                Leaf::Packed(packed) => packed.bytes().nbytes(),
                _ => 0,
            };
        });
        bytes
    }

    /// Freezes the parameters whose path `which` accepts: training does not change them.
    fn freeze(&mut self, which: impl Fn(&str) -> bool) {
        set_frozen(self, &which, true);
    }

    /// Unfreezes the parameters whose path `which` accepts.
    fn unfreeze(&mut self, which: impl Fn(&str) -> bool) {
        set_frozen(self, &which, false);
    }

    /// Switches layers like dropout and batch norm between training and evaluation.
    fn train(&mut self, on: bool) {
        // The visitor fails only if the callback does.
        let _ = write(self, &mut |_, leaf| {
            if let LeafMut::Training(training) = leaf {
                *training = on;
            }
            Ok(())
        });
    }

    /// Replaces every parameter by the result of `f`. An error leaves the module unchanged.
    fn map(&mut self, mut f: impl FnMut(&str, &Array) -> Result<Array>) -> Result<()> {
        let mut made = Vec::new();
        let mut failed = None;
        read(self, &mut |path, leaf| {
            if let Leaf::Parameter(parameter) = leaf
                && failed.is_none()
            {
                match f(path, parameter) {
                    Ok(value) => made.push(value),
                    Err(error) => failed = Some(error),
                }
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let mut rest = made.into_iter();
        write(self, &mut |_, leaf| {
            if let LeafMut::Parameter(parameter) = leaf
                && let Some(value) = rest.next()
            {
                parameter.set(value);
            }
            Ok(())
        })
    }

    /// Converts floating-point parameters to a dtype. Buffers keep theirs.
    fn to_dtype(&mut self, dtype: Dtype) -> Result<()> {
        self.map(|_, array| match array.dtype().is(Category::Inexact) {
            true => Ok(array.astype(dtype)?),
            false => Ok(array.clone()),
        })
    }

    /// Copies the parameters to a device.
    fn to_device(&mut self, device: placement::Device) -> Result<()> {
        placement::with_device(device, || {
            // An op moves its input to the device of the current stream.
            self.map(|_, array| {
                Ok(hesper_core::concatenate(&[array.reshape(&[-1])?], 0)?.reshape(&lengths(array))?)
            })
        })?
    }

    /// Loads parameters and buffers by path. `strict`: `given` must hold all that are saved, and nothing else; otherwise
    /// those that match are loaded. Shapes must be equal. An error leaves the module unchanged.
    fn load(&mut self, given: &BTreeMap<String, Array>, strict: bool) -> Result<()> {
        let own = self.state();
        let missing = self.parameters().into_keys().find(|path| !given.contains_key(path));
        if let Some(path) = missing.filter(|_| strict) {
            return Err(Error::Missing { path });
        }
        for (path, new) in given {
            match own.get(path) {
                None if strict => return Err(Error::Unknown { path: path.clone() }),
                Some(old) if old.shape() != new.shape() => {
                    let (given, expected) = (new.shape().to_vec(), old.shape().to_vec());
                    return Err(Error::Shape { path: path.clone(), given, expected });
                }
                _ => {}
            }
        }
        write(self, &mut |path, leaf| {
            match (leaf, given.get(path)) {
                (LeafMut::Parameter(parameter), Some(value)) => parameter.set(value.clone()),
                (LeafMut::Buffer(buffer), Some(value)) => buffer.set(value.clone()),
                _ => {}
            }
            Ok(())
        })
    }

    /// Saves the parameters by path as a safetensors file, which cannot hold packed blocks.
    fn save(&self, path: impl AsRef<FilePath>) -> Result<()> {
        let mut packed = None;
        read(self, &mut |path, leaf| {
            if matches!(leaf, Leaf::Packed(_)) {
                packed.get_or_insert_with(|| path.to_string());
            }
        });
        if let Some(path) = packed {
            let what = format!("cannot save {path:?}: safetensors files do not hold packed blocks");
            return Err(Error::InvalidArgument(what));
        }
        Ok(io::save_safetensors(path, &self.parameters(), &[])?)
    }

    /// Loads parameters lazily from a file; see [`ModuleExt::load`].
    fn load_file(&mut self, path: impl AsRef<FilePath>, strict: bool) -> Result<()> {
        let given = io::load(path)?.into_arrays().into_iter().collect();
        self.load(&given, strict)
    }
}

impl<M: Module + ?Sized> ModuleExt for M {}

fn is_buffer(leaf: Leaf<'_>) -> bool {
    matches!(leaf, Leaf::Buffer(_))
}

/// The shape as a list for `reshape`.
pub(crate) fn lengths(array: &Array) -> Vec<isize> {
    array.shape().iter().map(|length| *length as isize).collect()
}

fn set_frozen(module: &mut (impl Module + ?Sized), which: &dyn Fn(&str) -> bool, frozen: bool) {
    // The visitor fails only if the callback does.
    let _ = write(module, &mut |path, leaf| {
        if let LeafMut::Parameter(parameter) = leaf
            && which(path)
        {
            parameter.frozen = frozen;
        }
        Ok(())
    });
}

/// [`Tree::flatten`] of a module: parameters, buffers and the bytes of packed blocks.
#[doc(hidden)]
pub fn flatten(module: &dyn Module, into: &mut Vec<Array>) {
    read(module, &mut |_, leaf| match leaf {
        Leaf::Parameter(parameter) => into.push(parameter.get().clone()),
        Leaf::Buffer(buffer) => into.push(buffer.get()),
        Leaf::Packed(packed) => into.push(packed.bytes().clone()),
        Leaf::Training(_) | Leaf::Setting(_) => {}
    });
}

/// Replaces the arrays of a module, in the order of [`flatten`].
#[doc(hidden)]
pub fn replace(module: &mut dyn Module, arrays: &mut dyn Iterator<Item = Array>) -> Result<(), ArrayError> {
    let mut next = || arrays.next().ok_or_else(|| too_few_arrays());
    Ok(write(module, &mut |_, leaf| {
        match leaf {
            LeafMut::Parameter(parameter) => parameter.set(next()?),
            LeafMut::Buffer(buffer) => buffer.set(next()?),
            LeafMut::Packed(packed) => *packed = PackedArray::new(&next()?, packed.format(), packed.shape())?,
            LeafMut::Training(_) | LeafMut::Weight(_) => {}
        }
        Ok(())
    })?)
}

fn too_few_arrays() -> Error {
    Error::InvalidArgument("there are fewer arrays than the module has".into())
}

/// [`Tree::structure`] of a module: paths, kinds, settings, and what is frozen.
#[doc(hidden)]
pub fn structure(module: &dyn Module, into: &mut Vec<u8>) {
    read(module, &mut |path, leaf| {
        into.extend(path.as_bytes());
        into.push(0);
        match leaf {
            Leaf::Parameter(parameter) => into.push(1 + u8::from(parameter.is_trainable())),
            Leaf::Buffer(_) => into.push(3),
            Leaf::Packed(packed) => {
                into.extend(format!("\u{4}{:?}{:?}\n", packed.format(), packed.shape()).bytes())
            }
            Leaf::Training(on) => into.push(5 + u8::from(on)),
            Leaf::Setting(setting) => into.extend(format!("\u{7}{setting:?}\n").bytes()),
        }
    });
}

/// [`Tree::trainable`] of a module.
#[doc(hidden)]
pub fn trainable(module: &dyn Module, into: &mut Vec<bool>) {
    read(module, &mut |_, leaf| match leaf {
        Leaf::Parameter(parameter) => into.push(parameter.is_trainable()),
        Leaf::Buffer(_) | Leaf::Packed(_) => into.push(false),
        Leaf::Training(_) | Leaf::Setting(_) => {}
    });
}

/// `Debug` of a module: its name and number of parameters; with `{:#?}` also a line for each leaf.
#[doc(hidden)]
pub fn describe(module: &dyn Module, name: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(out, "{name} ({} parameters", grouped(module.count()))?;
    let trainable: usize = module.trainable_parameters().values().map(Array::size).sum();
    if trainable != module.count() {
        write!(out, ", {} trainable", grouped(trainable))?;
    }
    out.write_str(")")?;
    if !out.alternate() {
        return Ok(());
    }
    let mut lines = String::new();
    read(module, &mut |path, leaf| {
        // Writing to a string does not fail.
        let _ = match leaf {
            Leaf::Parameter(parameter) => {
                let frozen = if parameter.is_trainable() { "" } else { ", frozen" };
                write!(lines, "\n  {path}: {} {:?}{frozen}", parameter.dtype(), parameter.shape())
            }
            Leaf::Buffer(buffer) => {
                let value = buffer.get();
                write!(lines, "\n  {path}: {} {:?}, buffer", value.dtype(), value.shape())
            }
            Leaf::Packed(packed) => {
                write!(lines, "\n  {path}: {} {:?}", packed.format().name(), packed.shape())
            }
            Leaf::Training(on) => write!(lines, "\n  {path} = {on}"),
            Leaf::Setting(setting) => write!(lines, "\n  {path} = {setting:?}"),
        };
    });
    out.write_str(&lines)
}

/// A number with its digits in groups of three.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
