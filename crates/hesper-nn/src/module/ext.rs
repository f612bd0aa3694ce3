//! Methods of every module.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use hesper_core::{Array, Category, Dtype, io, placement};

use super::{Leaf, LeafMut, Module, read, write};
use crate::error::{Error, Result};

/// What [`ModuleExt::load`] left out when it was not strict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// Paths of parameters and saved buffers that were not given. They are unchanged.
    pub missing: Vec<String>,
    /// Names that were given and that the module does not have.
    pub unknown: Vec<String>,
}

/// Methods of every module.
///
/// ```
/// use hesper::Dtype;
/// use hesper_nn::{Linear, ModuleExt};
/// let mut layer = Linear::new(4, 2)?;
/// assert_eq!((layer.count(), layer.nbytes()), (10, 40));
/// layer.freeze(|path| path == "bias");
/// assert_eq!(layer.trainable_parameters().into_keys().collect::<Vec<_>>(), ["weight"]);
/// layer.to_dtype(Dtype::Bfloat16)?;
/// assert_eq!(layer.nbytes(), 20);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub trait ModuleExt: Module {
    /// The parameters and the buffers that are saved, by path. Packed blocks are not among them.
    ///
    /// ```
    /// use hesper_nn::{Linear, ModuleExt};
    /// let parameters = Linear::new(4, 2)?.parameters();
    /// assert_eq!(parameters["weight"].shape(), [2, 4]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
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
    ///
    /// ```
    /// use hesper_nn::{BatchNorm, ModuleExt};
    /// let norm = BatchNorm::new(3)?;
    /// let statistics = norm.buffers(); // mean and variance
    /// norm.set_buffers(&[statistics[0].add(1.0)?, statistics[1].clone()]);
    /// assert_eq!(norm.buffers()[0].to_vec::<f32>()?, [1.0; 3]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
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
            if let Leaf::Buffer(buffer) = leaf
                && let Some(value) = rest.next()
            {
                buffer.set(value.clone());
            }
        });
    }

    /// The parameters and all buffers, by path: everything that training may change.
    ///
    /// ```
    /// use hesper_nn::{Dropout, ModuleExt};
    /// let layer = Dropout::new(0.5)?;
    /// assert!(layer.parameters().is_empty());
    /// assert_eq!(layer.state().into_keys().collect::<Vec<_>>(), ["key"]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
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
                Leaf::Parameter(parameter) => parameter.get().nbytes(),
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
    ///
    /// ```
    /// use hesper_nn::{Linear, ModuleExt};
    /// let mut layer = Linear::new(4, 2)?;
    /// layer.freeze(|_| true);
    /// layer.unfreeze(|path| path.ends_with("bias"));
    /// assert_eq!(layer.trainable_parameters().len(), 1);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    fn unfreeze(&mut self, which: impl Fn(&str) -> bool) {
        set_frozen(self, &which, false);
    }

    /// Switches layers like dropout and batch norm between training and evaluation.
    ///
    /// ```
    /// use hesper::array;
    /// use hesper_nn::{Dropout, ModuleExt};
    /// let mut layer = Dropout::new(0.9)?;
    /// layer.train(false);
    /// assert_eq!(layer.forward(&array![1.0, 2.0])?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    fn train(&mut self, on: bool) {
        // The visitor fails only if the callback does.
        let _ = write(self, &mut |_, leaf| {
            if let LeafMut::Training(training) = leaf {
                *training = on;
            }
            Ok(())
        });
    }

    /// Replaces every parameter by the result of `f`. After an error the module is unchanged.
    ///
    /// ```
    /// use hesper_nn::{Linear, ModuleExt};
    /// let mut layer = Linear::new(4, 2)?;
    /// layer.map(|path, array| Ok(if path == "bias" { array.zeros_like()? } else { array.clone() }))?;
    /// assert_eq!(layer.parameters()["bias"].to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    fn map(&mut self, mut f: impl FnMut(&str, &Array) -> Result<Array>) -> Result<()> {
        let mut new = Vec::new();
        let mut failed = None;
        read(self, &mut |path, leaf| {
            if let Leaf::Parameter(parameter) = leaf
                && failed.is_none()
            {
                match f(path, parameter) {
                    Ok(value) => new.push(value),
                    Err(error) => failed = Some(error),
                }
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let mut rest = new.into_iter();
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
    ///
    /// ```
    /// use hesper::placement::Device;
    /// use hesper_nn::{Linear, ModuleExt};
    /// let mut layer = Linear::new(4, 2)?;
    /// let device = if Device::Gpu(0).is_available() { Device::Gpu(0) } else { Device::Cpu };
    /// layer.to_device(device)?;
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    fn to_device(&mut self, device: placement::Device) -> Result<()> {
        placement::with_device(device, || {
            // Any op moves its input to the device of the current stream.
            self.map(|_, array| {
                Ok(hesper_core::concatenate(&[array.reshape(&[-1])?], 0)?.reshape(array.shape())?)
            })
        })?
    }

    /// Loads parameters and buffers by path. If `strict`, `given` must have all parameters and saved buffers,
    /// and nothing that the module does not have. Otherwise the matching ones are loaded, and the result
    /// names the others. Shapes must be equal. After an error the module is unchanged.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use hesper::array;
    /// use hesper_nn::{Linear, ModuleExt};
    /// let mut layer = Linear::new(4, 2)?;
    /// let given = BTreeMap::from([("bias".to_string(), array![1.0, 2.0])]);
    /// assert!(layer.load(&given, true).is_err()); // strict: the weight is missing
    /// let report = layer.load(&given, false)?;
    /// assert_eq!((report.missing, report.unknown.len()), (vec!["weight".to_string()], 0));
    /// assert_eq!(layer.parameters()["bias"].to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    fn load(&mut self, given: &BTreeMap<String, Array>, strict: bool) -> Result<LoadReport> {
        let own = self.state();
        let mut report = LoadReport::default();
        for path in self.parameters().into_keys().filter(|path| !given.contains_key(path)) {
            if strict {
                return Err(Error::Missing { path });
            }
            report.missing.push(path);
        }
        for (path, new) in given {
            match own.get(path) {
                None if strict => return Err(Error::Unknown { path: path.clone() }),
                None => report.unknown.push(path.clone()),
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
        })?;
        Ok(report)
    }

    /// Saves the parameters by path as a safetensors file, which cannot hold packed blocks.
    ///
    /// ```
    /// use hesper_nn::{Linear, ModuleExt};
    /// # let path = std::env::temp_dir().join(format!("hesper-module-{}.safetensors", std::process::id()));
    /// let (layer, mut other) = (Linear::new(4, 2)?, Linear::new(4, 2)?);
    /// layer.save(&path)?;
    /// other.load_file(&path, true)?;
    /// assert_eq!(other.parameters()["bias"].to_vec::<f32>()?, layer.parameters()["bias"].to_vec::<f32>()?);
    /// # std::fs::remove_file(&path).ok();
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
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
    ///
    /// ```
    /// use hesper_nn::{Linear, ModuleExt};
    /// assert!(Linear::new(4, 2)?.load_file("no/such/file.safetensors", true).is_err());
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    fn load_file(&mut self, path: impl AsRef<FilePath>, strict: bool) -> Result<LoadReport> {
        let given = io::load(path)?.into_arrays().into_iter().collect();
        self.load(&given, strict)
    }
}

impl<M: Module + ?Sized> ModuleExt for M {}

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
