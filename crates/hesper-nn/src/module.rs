//! Trees of parameters.
//!
//! [`module!`](crate::module) implements [`Module`] from a list of fields: two visitors, one that reads leaves and one
//! that may replace them. [`ModuleExt`] is written in terms of both.

use std::collections::BTreeMap;
use std::path::Path;

use hesper_core::{Array, PackedArray, io};

use crate::error::{Error, Result};

/// An array that a module owns, and whether training may change it.
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
}

impl From<Array> for Parameter {
    fn from(value: Array) -> Self {
        Parameter::new(value)
    }
}

/// A leaf of a module.
#[derive(Debug, Clone, Copy)]
pub enum Leaf<'a> {
    /// A parameter.
    Parameter(&'a Parameter),
    /// Packed blocks. They are not trained.
    Packed(&'a PackedArray),
}

/// A mutable leaf of a module.
#[derive(Debug)]
pub enum LeafMut<'a> {
    /// A parameter.
    Parameter(&'a mut Parameter),
    /// Packed blocks.
    Packed(&'a mut PackedArray),
}

/// The path of a field of the module with path `prefix`.
pub fn join(prefix: &str, field: &str) -> String {
    if prefix.is_empty() { field.to_string() } else { format!("{prefix}.{field}") }
}

/// A tree of parameters.
pub trait Module {
    /// Calls `f` with the path of every leaf.
    fn visit<'a>(&'a self, prefix: &str, f: &mut dyn FnMut(String, Leaf<'a>));

    /// Calls `f` with the path of every leaf, until it fails.
    fn visit_mut(&mut self, prefix: &str, f: &mut dyn FnMut(String, LeafMut<'_>) -> Result<()>)
    -> Result<()>;
}

/// Implements [`Module`](crate::Module) for a struct from the list of its fields that are modules.
///
/// ```
/// use hesper_nn::{Linear, ModuleExt, RmsNorm, module};
/// struct Block {
///     norm: RmsNorm,
///     layers: Vec<Linear>,
/// }
/// module!(Block { norm, layers });
/// # use hesper::{Array, Dtype};
/// let ones = |shape: &[usize]| Array::ones(shape, Dtype::Float32);
/// let layer = Linear::new(ones(&[3, 2])?.into(), None)?;
/// let block = Block { norm: RmsNorm::new(ones(&[2])?, 1e-5), layers: vec![layer] };
/// let paths: Vec<String> = block.parameters().into_keys().collect();
/// assert_eq!(paths, ["layers.0.weight", "norm.weight"]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[macro_export]
macro_rules! module {
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl $crate::Module for $type {
            fn visit<'a>(&'a self, prefix: &str, f: &mut dyn FnMut(String, $crate::Leaf<'a>)) {
                $($crate::Module::visit(&self.$field, &$crate::join(prefix, stringify!($field)), f);)*
            }

            fn visit_mut(
                &mut self,
                prefix: &str,
                f: &mut dyn FnMut(String, $crate::LeafMut<'_>) -> $crate::Result<()>,
            ) -> $crate::Result<()> {
                $($crate::Module::visit_mut(&mut self.$field, &$crate::join(prefix, stringify!($field)), f)?;)*
                Ok(())
            }
        }
    };
}

impl Module for Parameter {
    fn visit<'a>(&'a self, prefix: &str, f: &mut dyn FnMut(String, Leaf<'a>)) {
        f(prefix.to_string(), Leaf::Parameter(self));
    }

    fn visit_mut(
        &mut self,
        prefix: &str,
        f: &mut dyn FnMut(String, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        f(prefix.to_string(), LeafMut::Parameter(self))
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit<'a>(&'a self, prefix: &str, f: &mut dyn FnMut(String, Leaf<'a>)) {
        (**self).visit(prefix, f);
    }

    fn visit_mut(
        &mut self,
        prefix: &str,
        f: &mut dyn FnMut(String, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        (**self).visit_mut(prefix, f)
    }
}

impl<M: Module> Module for Option<M> {
    fn visit<'a>(&'a self, prefix: &str, f: &mut dyn FnMut(String, Leaf<'a>)) {
        if let Some(module) = self {
            module.visit(prefix, f);
        }
    }

    fn visit_mut(
        &mut self,
        prefix: &str,
        f: &mut dyn FnMut(String, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self.as_mut().map_or(Ok(()), |module| module.visit_mut(prefix, f))
    }
}

impl<M: Module> Module for Vec<M> {
    fn visit<'a>(&'a self, prefix: &str, f: &mut dyn FnMut(String, Leaf<'a>)) {
        for (at, module) in self.iter().enumerate() {
            module.visit(&join(prefix, &at.to_string()), f);
        }
    }

    fn visit_mut(
        &mut self,
        prefix: &str,
        f: &mut dyn FnMut(String, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        for (at, module) in self.iter_mut().enumerate() {
            module.visit_mut(&join(prefix, &at.to_string()), f)?;
        }
        Ok(())
    }
}

/// Methods of every module.
pub trait ModuleExt: Module {
    /// The parameters by path. Packed blocks are not among them.
    fn parameters(&self) -> BTreeMap<String, Array> {
        let mut all = BTreeMap::new();
        self.visit("", &mut |path, leaf| {
            if let Leaf::Parameter(parameter) = leaf {
                all.insert(path, parameter.get().clone());
            }
        });
        all
    }

    /// The parameters that training may change, by path.
    fn trainable(&self) -> BTreeMap<String, Array> {
        let mut all = BTreeMap::new();
        self.visit("", &mut |path, leaf| match leaf {
            Leaf::Parameter(parameter) if !parameter.is_frozen() => {
                all.insert(path, parameter.get().clone());
            }
            _ => {}
        });
        all
    }

    /// The number of stored elements.
    fn count(&self) -> usize {
        let mut count = 0;
        self.visit("", &mut |_, leaf| {
            count += match leaf {
                Leaf::Parameter(parameter) => parameter.get().size(),
                Leaf::Packed(packed) => packed.shape().iter().product(),
            };
        });
        count
    }

    /// The number of stored bytes.
    fn nbytes(&self) -> usize {
        let mut bytes = 0;
        self.visit("", &mut |_, leaf| {
            bytes += match leaf {
                Leaf::Parameter(parameter) => parameter.get().nbytes(),
                Leaf::Packed(packed) => packed.bytes().nbytes(),
            };
        });
        bytes
    }

    /// Freezes the parameters whose path `which` accepts: training does not change them.
    fn freeze(&mut self, which: impl Fn(&str) -> bool)
    where
        Self: Sized,
    {
        set_frozen(self, which, true);
    }

    /// Unfreezes the parameters whose path `which` accepts.
    fn unfreeze(&mut self, which: impl Fn(&str) -> bool)
    where
        Self: Sized,
    {
        set_frozen(self, which, false);
    }

    /// Replaces every parameter by the result of `f`.
    fn map(&mut self, mut f: impl FnMut(&str, &Array) -> Result<Array>) -> Result<()>
    where
        Self: Sized,
    {
        self.visit_mut("", &mut |path, leaf| {
            if let LeafMut::Parameter(parameter) = leaf {
                let value = f(&path, parameter.get())?;
                parameter.set(value);
            }
            Ok(())
        })
    }

    /// Loads parameters by path. `given` must hold all of them, with their shapes, and nothing else if `strict`. An error
    /// leaves the module unchanged.
    fn load(&mut self, given: &BTreeMap<String, Array>, strict: bool) -> Result<()>
    where
        Self: Sized,
    {
        let own = self.parameters();
        for (path, old) in &own {
            let new = given.get(path).ok_or_else(|| Error::Missing { path: path.clone() })?;
            if new.shape() != old.shape() {
                return Err(Error::Shape {
                    path: path.clone(),
                    given: new.shape().to_vec(),
                    expected: old.shape().to_vec(),
                });
            }
        }
        if strict && let Some(path) = given.keys().find(|path| !own.contains_key(*path)) {
            return Err(Error::Unknown { path: path.clone() });
        }
        self.map(|path, old| Ok(given.get(path).unwrap_or(old).clone()))
    }

    /// Saves the parameters by path as a safetensors file, which cannot hold packed blocks.
    fn save(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        let mut packed = None;
        self.visit("", &mut |path, leaf| {
            if matches!(leaf, Leaf::Packed(_)) {
                packed.get_or_insert(path);
            }
        });
        if let Some(path) = packed {
            let what = format!("cannot save {path:?}: safetensors files do not hold packed blocks");
            return Err(Error::InvalidArgument(what));
        }
        Ok(io::save_safetensors(path, &self.parameters(), &[])?)
    }

    /// Loads parameters lazily from a file; see [`ModuleExt::load`].
    fn load_file(&mut self, path: impl AsRef<Path>, strict: bool) -> Result<()>
    where
        Self: Sized,
    {
        let given = io::load(path)?.into_arrays().into_iter().collect();
        self.load(&given, strict)
    }
}

impl<M: Module> ModuleExt for M {}

fn set_frozen(module: &mut dyn Module, which: impl Fn(&str) -> bool, frozen: bool) {
    // The visitor fails only if the callback does.
    let _ = module.visit_mut("", &mut |path, leaf| {
        if let LeafMut::Parameter(parameter) = leaf
            && which(&path)
        {
            parameter.frozen = frozen;
        }
        Ok(())
    });
}
