//! The content of loaded files: arrays by name, blocks, metadata.

use std::collections::HashMap;
use std::sync::Arc;

use hesper_files::{Cancel, FileDtype, Format, Layout, LoadOptions, Metadata, Progress};

use super::blocks::Blocks;
use super::open::Quantized;
use super::tensor::{Form, OpenFile, Wanted, dimensions, lazy, read};
use crate::error::{Error, Result};
use crate::graph::{Array, Data};
use crate::placement;

/// A tensor of an open file.
pub(super) type Part = (Arc<OpenFile>, usize);

/// The content of a file, or of the files of one checkpoint. Arrays are lazy.
///
/// ```
/// use hesper::{array, io};
/// let mut bytes = Vec::new();
/// io::write_safetensors(&mut bytes, [("w", &array![1.0, 2.0])], &[("step".into(), "7".into())])?;
/// let file = io::load_bytes(bytes)?;
/// assert_eq!((file.format(), file.byte_len()), (io::Format::Safetensors, 8));
/// assert_eq!(file.metadata().get("step").and_then(io::MetaValue::as_str), Some("7"));
/// assert_eq!(file.arrays()[0].0, "w");
/// assert!(file.get("w").is_some() && file.get("b").is_none() && file.require("b").is_err());
/// assert!(file.single().is_none()); // only an npy file has one
/// # Ok::<(), hesper::Error>(())
/// ```
pub struct Loaded {
    format: Format,
    metadata: Metadata,
    parts: Vec<Part>,
    quantized: Quantized,
    arrays: Vec<(String, Array)>,
    by_name: HashMap<String, usize>,
    blocks: Vec<(String, Blocks)>,
}

impl Loaded {
    pub(super) fn new(
        format: Format,
        metadata: Metadata,
        parts: Vec<Part>,
        quantized: Quantized,
    ) -> Result<Self> {
        let mut loaded = Loaded {
            format,
            metadata,
            parts: Vec::new(),
            quantized,
            arrays: Vec::with_capacity(parts.len()),
            by_name: HashMap::with_capacity(parts.len()),
            blocks: Vec::new(),
        };
        for part in &parts {
            loaded.add(part, lazy(&part.0, part.1)?)?;
        }
        loaded.parts = parts;
        Ok(loaded)
    }

    /// Adds a tensor, given in the layout of the file.
    fn add(&mut self, (file, at): &Part, array: Array) -> Result<()> {
        let tensor = &file.file.tensors()[*at];
        let FileDtype::Block(kind) = tensor.dtype else {
            let array = match tensor.layout {
                Layout::RowMajor => array,
                Layout::ColumnMajor => array.t()?,
            };
            return self.insert(tensor.name.clone(), array);
        };
        let blocks = Blocks::new(array, kind, dimensions(tensor)?);
        match self.quantized {
            Quantized::Affine => match blocks.affine()? {
                Some(affine) => {
                    let stem = tensor.name.strip_suffix(".weight").unwrap_or(&tensor.name);
                    self.insert(format!("{stem}.scales"), affine.scales)?;
                    self.insert(format!("{stem}.biases"), affine.biases)?;
                    self.insert(tensor.name.clone(), affine.weight)?;
                }
                None if kind.is_decoded() => {
                    self.insert(tensor.name.clone(), blocks.dequantize(crate::Dtype::Float16)?)?;
                }
                // No array; `blocks` returns it.
                None => {}
            },
            Quantized::Float(dtype) => self.insert(tensor.name.clone(), blocks.dequantize(dtype)?)?,
            Quantized::Blocks => {}
        }
        self.blocks.push((tensor.name.clone(), blocks));
        Ok(())
    }

    fn insert(&mut self, name: String, array: Array) -> Result<()> {
        if self.by_name.insert(name.clone(), self.arrays.len()).is_some() {
            return Err(Error::value("load", format!("cannot load two arrays of the name {name:?}")));
        }
        self.arrays.push((name, array));
        Ok(())
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The metadata of the file; for a sharded checkpoint, that of its first file.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All arrays in the order of their data.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use hesper::{Array, array, io};
    /// let mut bytes = std::io::Cursor::new(Vec::new());
    /// io::write_npz(&mut bytes, [("a", &array![1, 2]), ("b", &array![3])])?;
    /// let file = io::load_bytes(bytes.into_inner())?;
    /// assert_eq!(file.arrays().len(), 2);
    /// for (name, array) in &file {
    ///     println!("{name} {:?}", array.shape());
    /// }
    /// let by_name: BTreeMap<String, Array> = file.into_iter().collect();
    /// assert_eq!(by_name["b"].item::<i32>()?, 3);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn arrays(&self) -> &[(String, Array)] {
        &self.arrays
    }

    /// All arrays in the order of their data.
    ///
    /// ```
    /// use hesper::{array, io};
    /// let mut bytes = Vec::new();
    /// io::write_npy(&mut bytes, &array![1, 2])?;
    /// for (name, array) in io::load_bytes(bytes)?.into_arrays() {
    ///     assert_eq!(array.to_vec::<i32>()?, [1, 2], "{name}");
    /// }
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn into_arrays(self) -> Vec<(String, Array)> {
        self.arrays
    }

    /// An array by name.
    pub fn get(&self, name: &str) -> Option<&Array> {
        self.by_name.get(name).map(|&at| &self.arrays[at].1)
    }

    /// An array by name. Fails if there is none.
    pub fn require(&self, name: &str) -> Result<&Array> {
        self.get(name).ok_or_else(|| hesper_files::Error::NoTensor(name.to_owned()).into())
    }

    /// The array of an npy file.
    pub fn single(&self) -> Option<&Array> {
        match &self.arrays[..] {
            [(_, array)] if self.format == Format::Npy => Some(array),
            _ => None,
        }
    }

    /// A quantized tensor by name, as the blocks of the file.
    ///
    /// ```
    /// use hesper::{Array, Dtype, PackedArray, PackedFormat, io};
    /// let w = PackedArray::quantize(&Array::ones(&[2, 32], Dtype::Float32)?, PackedFormat::Q8_0)?;
    /// let mut bytes = Vec::new();
    /// io::write_gguf(&mut bytes, [("w", &w)], &[])?;
    /// let file = io::load_bytes(bytes)?;
    /// assert_eq!(file.all_blocks().len(), 1);
    /// assert_eq!(file.blocks("w").map(|blocks| blocks.kind()), Some(PackedFormat::Q8_0));
    /// let y = file.packed("w")?.map(|w| w.matmul(&Array::ones(&[32], Dtype::Float32)?)).transpose()?;
    /// assert_eq!(y.map(|y| y.shape().to_vec()), Some(vec![2]));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn blocks(&self, name: &str) -> Option<&Blocks> {
        self.blocks.iter().find(|(other, _)| other == name).map(|(_, blocks)| blocks)
    }

    /// A quantized matrix by name, for products that read the blocks of the file. `None` if there is none of
    /// that name, or if no product supports its type.
    pub fn packed(&self, name: &str) -> Result<Option<crate::PackedArray>> {
        self.blocks(name).map_or(Ok(None), Blocks::packed)
    }

    /// All quantized tensors in the order of their data.
    pub fn all_blocks(&self) -> &[(String, Blocks)] {
        &self.blocks
    }

    /// The number of bytes of all tensors.
    pub fn byte_len(&self) -> u64 {
        self.parts.iter().map(|(file, at)| file.file.tensors()[*at].byte_len).sum()
    }

    /// Reads all tensors into new memory with several threads. The file is not needed any more then.
    /// `progress` is called after each piece; `cancel` stops the reading from another thread.
    ///
    /// ```
    /// use hesper::{array, io};
    /// let mut bytes = Vec::new();
    /// io::write_npy(&mut bytes, &array![1, 2])?;
    /// let (reading, cancel) = (io::Reading::default(), io::Cancel::default());
    /// let file = io::load_bytes(bytes)?.read(reading, &cancel, |progress| println!("{progress:?}"))?;
    /// assert!(file.arrays()[0].1.is_evaluated());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn read(
        self,
        options: LoadOptions,
        cancel: &Cancel,
        progress: impl Fn(Progress) + Sync,
    ) -> Result<Loaded> {
        let runtime = placement::cpu().clone();
        let mut wanted = self
            .parts
            .iter()
            .map(|(file, at)| Wanted::new(&runtime, file.clone(), *at))
            .collect::<Result<Vec<_>>>()?;
        read(&mut wanted, options, cancel, progress)?;
        let mut loaded = Loaded {
            arrays: Vec::with_capacity(self.arrays.len()),
            by_name: HashMap::with_capacity(self.arrays.len()),
            blocks: Vec::new(),
            ..self
        };
        let parts = std::mem::take(&mut loaded.parts);
        for (part, wanted) in parts.iter().zip(wanted) {
            let form = Form::of(&part.0.file.tensors()[part.1])?;
            let data = Data::contiguous(wanted.finish()?, &form.shape);
            loaded.add(part, Array::ready(form.shape, form.dtype, data)?)?;
        }
        loaded.parts = parts;
        Ok(loaded)
    }
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loaded({}, {} tensors, {} bytes)", self.format, self.parts.len(), self.byte_len())
    }
}

/// Names and arrays in the order of their data.
impl IntoIterator for Loaded {
    type Item = (String, Array);
    type IntoIter = std::vec::IntoIter<(String, Array)>;

    fn into_iter(self) -> Self::IntoIter {
        self.arrays.into_iter()
    }
}

/// Names and arrays in the order of their data.
impl<'a> IntoIterator for &'a Loaded {
    type Item = &'a (String, Array);
    type IntoIter = std::slice::Iter<'a, (String, Array)>;

    fn into_iter(self) -> Self::IntoIter {
        self.arrays.iter()
    }
}
