//! Trees of parameters.
//!
//! [`Module`] has two visitors: one reads leaves, the other may replace them. `#[derive(Module)]` generates
//! both from the fields of a struct. Everything else is built on them: [`ModuleExt`], and the functions that
//! the derive macro calls to implement [`Tree`] and `Debug`.

mod ext;
mod tree;
pub(crate) mod weight;

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Write as _};
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard};

use hesper_core::{Category, Dtype, Operand, PackedArray};

use crate::error::Result;
use weight::Weight;

pub use ext::{LoadReport, ModuleExt};
pub use hesper_core::transform::Tree;
pub use hesper_core::{Array, Error as ArrayError};
pub use hesper_derive::Module;
#[doc(hidden)]
pub use tree::{describe, flatten, replace, structure, trainable};

/// An array that training changes, unless it is frozen.
///
/// ```
/// use hesper::array;
/// use hesper_nn::Parameter;
/// let mut w = Parameter::new(array![1.0, 2.0]);
/// assert_eq!((w.get().size(), w.sum(())?.item::<f32>()?), (2, 3.0)); // has the methods of arrays
/// w.set(array![5.0]);
/// w.set_frozen(true);
/// assert!(w.is_frozen() && !w.is_trainable());
/// # Ok::<(), hesper_nn::Error>(())
/// ```
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
/// A copy of a module has buffers of its own. [`value_and_grad`](crate::value_and_grad) runs a function on a
/// copy and then stores the copy's buffers in the module.
///
/// ```
/// use hesper::array;
/// use hesper_nn::Buffer;
/// let mean = Buffer::new(array![0.0]);
/// mean.set(array![2.0]); // from `forward`, which has no mutable access
/// assert_eq!(mean.get().item::<f32>()?, 2.0);
/// assert!(mean.is_saved() && !Buffer::transient(array![0.0]).is_saved());
/// # Ok::<(), hesper_nn::Error>(())
/// ```
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

    /// A buffer that is not saved with the parameters, only in checkpoints of a
    /// [`Trainer`](crate::train::Trainer).
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
///
/// ```
/// use hesper_nn::Training;
/// assert!(Training::default().is_on());
/// ```
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
    /// A setting, which holds no array. A compiled function is traced again for each value.
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
    /// A whole weight, visited before its own leaves, so that the visitor can replace it by another kind.
    Weight(&'a mut Weight),
}

/// The path of a leaf, such as `layers.0.weight`, while a visitor walks a module.
///
/// ```
/// use hesper_nn::Path;
/// let mut path = Path::default();
/// let name = path.enter("layers", |path| path.enter(3, |path| path.as_str().to_string()));
/// assert_eq!((name.as_str(), path.as_str()), ("layers.3", ""));
/// ```
#[derive(Debug, Default)]
pub struct Path(String);

impl Path {
    /// Calls `f` with the path of a field, or of an element by its index.
    pub fn enter<R>(&mut self, field: impl fmt::Display, f: impl FnOnce(&mut Path) -> R) -> R {
        let length = self.0.len();
        let dot = if length == 0 { "" } else { "." };
        // Writing to a string cannot fail.
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
/// `#[derive(Module)]` implements it for structs and enums whose fields are modules: layers,
/// [`Parameter`]s, [`Buffer`]s, [`Training`], plain settings like numbers, and options, lists, arrays,
/// tuples, boxes and maps by name ([`BTreeMap`]) of modules. It also implements [`Tree`], so that the
/// transforms take modules as arguments, and `Debug`, which prints shapes and counts. The type must be
/// `Clone`; its type parameters are modules, unless only skipped fields have them.
///
/// The path of a parameter is that of its field. Attributes change this: `#[module(name = "...")]`,
/// `#[module(flatten)]` (no name of its own; the default for tuples of one field), `#[module(skip)]` (a field
/// of any type that is not part of the module), `#[module(cache)]` (a field derived from others: reset to its
/// default when they may change). `#[module(crate = path)]` on the type gives the path of this crate if it
/// was renamed.
///
/// ```
/// # use hesper as _;
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
    note = "use `Parameter` or `Buffer` for arrays, `BTreeMap` for maps, `settings!` for enums without arrays, derive \
            `Module`, or write `#[module(skip)]` above the field"
)]
pub trait Module {
    /// Calls `f` with the path of every leaf.
    ///
    /// ```
    /// use hesper_nn::{Leaf, Linear, Module, Path};
    /// let mut paths = Vec::new();
    /// Linear::new(4, 2)?.visit(&mut Path::default(), &mut |path, leaf| {
    ///     if matches!(leaf, Leaf::Parameter(_)) {
    ///         paths.push(path.to_string());
    ///     }
    /// });
    /// assert_eq!(paths, ["weight", "bias"]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&str, Leaf<'_>));

    /// Calls `f` with the path of every leaf that can be changed, until it fails.
    ///
    /// ```
    /// use hesper_nn::{LeafMut, Linear, Module, Path};
    /// let mut layer = Linear::new(4, 2)?;
    /// layer.visit_mut(&mut Path::default(), &mut |_, leaf| {
    ///     if let LeafMut::Parameter(parameter) = leaf {
    ///         let zeros = parameter.zeros_like()?;
    ///         parameter.set(zeros);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
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

/// Implements [`Module`](crate::Module) for types that are settings: they hold no arrays, and different
/// values have different `Debug` texts.
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

/// The path of an element of a tuple is its number.
macro_rules! tuples {
    ($(($($name:ident $at:tt),*);)*) => {
        $(impl<$($name: Module),*> Module for ($($name,)*) {
            fn visit(&self, _path: &mut Path, _f: &mut dyn FnMut(&str, Leaf<'_>)) {
                $(_path.enter($at, |path| self.$at.visit(path, _f));)*
            }

            fn visit_mut(
                &mut self,
                _path: &mut Path,
                _f: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>,
            ) -> Result<()> {
                $(_path.enter($at, |path| self.$at.visit_mut(path, _f))?;)*
                Ok(())
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

/// The path of an entry of a map is its name.
impl<M: Module> Module for BTreeMap<String, M> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&str, Leaf<'_>)) {
        for (name, module) in self {
            path.enter(name, |path| module.visit(path, f));
        }
    }

    fn visit_mut(
        &mut self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut all = self.iter_mut();
        all.try_for_each(|(name, module)| path.enter(name, |path| module.visit_mut(path, f)))
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
