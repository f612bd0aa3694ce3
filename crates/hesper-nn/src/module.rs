//! Trees of parameters.
//!
//! [`Module`] is implemented by [`module!`](crate::module) from a list of fields. It has two walks, one that
//! reads and one that may replace; everything else ([`ModuleExt`]) is written with them.

use std::collections::BTreeMap;
use std::path::Path;

use hesper::{Array, PackedArray, io};

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

    /// Its value.
    pub fn get(&self) -> &Array {
        &self.value
    }

    /// Gives it another value.
    pub fn set(&mut self, value: Array) {
        self.value = value;
    }

    /// Whether training leaves it as it is.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }
}

impl From<Array> for Parameter {
    fn from(value: Array) -> Self {
        Parameter::new(value)
    }
}

/// What a walk finds.
#[derive(Debug, Clone, Copy)]
pub enum Leaf<'a> {
    /// A parameter.
    Parameter(&'a Parameter),
    /// Packed blocks, which are used but not trained.
    Packed(&'a PackedArray),
}

/// What a walk that may replace finds.
#[derive(Debug)]
pub enum LeafMut<'a> {
    /// A parameter.
    Parameter(&'a mut Parameter),
    /// Packed blocks.
    Packed(&'a mut PackedArray),
}

/// The path of a field of what has path `prefix`.
pub fn join(prefix: &str, field: &str) -> String {
    if prefix.is_empty() { field.to_string() } else { format!("{prefix}.{field}") }
}

/// A tree of parameters.
pub trait Module {
    /// Calls `f` with the path of every leaf and the leaf.
    fn visit<'a>(&'a self, prefix: &str, f: &mut dyn FnMut(String, Leaf<'a>));

    /// Calls `f` with the path of every leaf and the leaf, until it fails.
    fn visit_mut(&mut self, prefix: &str, f: &mut dyn FnMut(String, LeafMut<'_>) -> Result<()>)
    -> Result<()>;
}

/// Implements [`Module`](crate::Module) for a struct: its fields that are modules, in order.
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

/// What every module can do.
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

    /// How many numbers the leaves hold, as they are stored.
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

    /// How many bytes the leaves take, as they are stored.
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

    /// Keeps training from changing the parameters whose path `which` accepts.
    fn freeze(&mut self, which: impl Fn(&str) -> bool)
    where
        Self: Sized,
    {
        set_frozen(self, which, true);
    }

    /// Lets training change the parameters whose path `which` accepts.
    fn unfreeze(&mut self, which: impl Fn(&str) -> bool)
    where
        Self: Sized,
    {
        set_frozen(self, which, false);
    }

    /// Replaces every parameter by what `f` makes of it.
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

    /// Takes parameters by path. Every one of the module's must be there, with its shape; if `strict`, no
    /// others may be. Nothing is changed if one does not fit.
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

    /// Saves the parameters by path as a safetensors file. Packed blocks have no place in one.
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
            return Err(Error::Setting(format!(
                "{path} is packed in blocks, which safetensors files do not hold"
            )));
        }
        Ok(io::save_safetensors(path, &self.parameters(), &[])?)
    }

    /// Takes parameters from a file, lazily; see [`ModuleExt::load`].
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
    // The walk fails only if the callback does.
    let _ = module.visit_mut("", &mut |path, leaf| {
        if let LeafMut::Parameter(parameter) = leaf
            && which(&path)
        {
            parameter.frozen = frozen;
        }
        Ok(())
    });
}
