//! Writing functions to files.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::format::{ALIGNMENT, Body, Constant, HEADER, Trace, checksum, header};
use super::graph::{Graph, ValueRef};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::Array;
use crate::ids::IdMap;
use crate::shape::Shape;

/// Constants of at most this many bytes are stored once if their bytes are equal.
const SMALL: usize = 64;

/// Collects the traces of a function, then writes them to a file.
///
/// ```
/// use hesper::{Array, Dtype, export};
/// # let path = std::env::temp_dir().join(format!("hesper-exporter-{}", std::process::id()));
/// let mut exporter = export::Exporter::new(&path);
/// for count in 1..=2 {
///     let arguments = vec![Array::ones(&[3], Dtype::Float32)?; count];
///     exporter.trace(&arguments, &[], |x| {
///         let sum = x[1..].iter().try_fold(x[0].clone(), |sum, one| sum.add(one))?;
///         Ok::<_, hesper::Error>(vec![sum])
///     })?;
/// }
/// exporter.finish()?;
/// let f = export::import_function(&path)?;
/// let x = Array::from_slice(&[1.0f32, 2.0, 3.0]);
/// assert_eq!(f.call(&[x.clone(), x.clone()], &[])?[0].to_vec::<f32>()?, [2.0, 4.0, 6.0]);
/// assert!(f.call(&[x.clone(), x.clone(), x], &[]).is_err());
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), hesper::Error>(())
/// ```
#[derive(Debug)]
pub struct Exporter {
    path: PathBuf,
    shapeless: bool,
    metadata: String,
    traces: Vec<Trace>,
    constants: Vec<Array>,
    by_id: IdMap<usize>,
    by_bytes: HashMap<(Shape, Dtype, Vec<u8>), usize>,
}

impl Exporter {
    /// An exporter without traces. [`finish`](Exporter::finish) writes the file.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Exporter {
            path: path.as_ref().to_path_buf(),
            shapeless: false,
            metadata: String::new(),
            traces: Vec::new(),
            constants: Vec::new(),
            by_id: IdMap::default(),
            by_bytes: HashMap::new(),
        }
    }

    /// Whether the function also takes other shapes of the same rank than those that it is traced with.
    ///
    /// ```
    /// use hesper::array;
    /// use hesper::export::Exporter;
    /// # let path = std::env::temp_dir().join(format!("hesper-shapeless-{}", std::process::id()));
    /// let mut exporter = Exporter::new(&path).shapeless(true).metadata("any length");
    /// exporter.trace(&[array![1.0]], &[], |x| Ok::<_, hesper::Error>(vec![x[0].exp()?]))?;
    /// exporter.finish()?;
    /// # std::fs::remove_file(&path).ok();
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn shapeless(mut self, shapeless: bool) -> Self {
        self.shapeless = shapeless;
        self
    }

    /// Sets a string that is stored with the function.
    pub fn metadata(mut self, text: impl Into<String>) -> Self {
        self.metadata = text.into();
        self
    }

    /// Traces the function with positional and named arguments. It gets the named ones last, sorted by name.
    pub fn trace<E: From<Error>>(
        &mut self,
        positional: &[Array],
        named: &[(String, Array)],
        f: impl FnOnce(&[Array]) -> Result<Vec<Array>, E>,
    ) -> Result<(), E> {
        let graph = Graph::trace(positional, named, self.shapeless, f)?;
        Ok(self.add(graph)?)
    }

    /// Adds a trace. Fails if there is one for the same shapes and types.
    pub fn add(&mut self, mut graph: Graph) -> Result<()> {
        if self.traces.iter().any(|trace| trace.signature.same(&graph.signature)) {
            let what = "cannot export the function: it can be traced only once for the same shapes and types";
            return Err(Error::Export(what.into()));
        }
        crate::eval(&graph.constants)?;
        let places = graph
            .constants
            .drain(..)
            .map(|constant| self.constant(constant))
            .collect::<Result<Vec<usize>>>()?;
        let change = |place: &mut ValueRef| {
            if let ValueRef::Constant(at) = place {
                *at = places[*at];
            }
        };
        graph.steps.iter_mut().flat_map(|step| &mut step.inputs).for_each(change);
        graph.outputs.iter_mut().for_each(change);
        self.traces.push(Trace { signature: graph.signature, steps: graph.steps, outputs: graph.outputs });
        Ok(())
    }

    /// The index of a constant in the file; adds it if it is new.
    fn constant(&mut self, array: Array) -> Result<usize> {
        let fresh = self.constants.len();
        let mut at = *self.by_id.entry(array.0.id).or_insert(fresh);
        if at == fresh && array.nbytes() <= SMALL {
            let bytes = array.read_bytes(<[u8]>::to_vec)?;
            at = *self.by_bytes.entry((array.0.shape.clone(), array.dtype(), bytes)).or_insert(fresh);
            self.by_id.insert(array.0.id, at);
        }
        if at == fresh {
            self.constants.push(array);
        }
        Ok(at)
    }

    /// The bytes of the file before its constants, and the offset of each constant.
    fn layout(&self) -> Result<(Vec<u8>, Vec<u64>)> {
        let mut offset = 0u64;
        let mut constants = Vec::with_capacity(self.constants.len());
        for array in &self.constants {
            let checksum = array.read_bytes(checksum)?;
            constants.push(Constant { shape: array.0.shape.clone(), dtype: array.dtype(), offset, checksum });
            offset = (offset + array.nbytes() as u64).next_multiple_of(ALIGNMENT);
        }
        let offsets: Vec<u64> = constants.iter().map(|constant| constant.offset).collect();
        let body =
            Body { metadata: self.metadata.clone(), constants, traces: self.traces.clone() }.write()?;
        let data = (HEADER as u64 + body.len() as u64).next_multiple_of(ALIGNMENT);
        let end = match (self.constants.last(), offsets.last()) {
            (Some(last), Some(offset)) => data + offset + last.nbytes() as u64,
            _ => HEADER as u64 + body.len() as u64,
        };
        let mut bytes = header(&body, end).to_vec();
        bytes.extend(body);
        Ok((bytes, offsets.iter().map(|offset| data + offset).collect()))
    }

    /// Writes the file. An existing file is replaced only after all bytes are written.
    pub fn finish(self) -> Result<()> {
        let (head, offsets) = self.layout()?;
        hesper_files::write::replace(&self.path, |out| {
            let failed = |error| hesper_files::Error::io("cannot write", None, error);
            out.write_all(&head).map_err(failed)?;
            let mut at = head.len() as u64;
            for (array, offset) in self.constants.iter().zip(&offsets) {
                let padding = [0; ALIGNMENT as usize];
                out.write_all(&padding[..(offset - at) as usize]).map_err(failed)?;
                let written = array.read_bytes(|bytes| out.write_all(bytes));
                match written {
                    Ok(written) => written.map_err(failed)?,
                    Err(error) => {
                        return Err(failed(std::io::Error::other(error.to_string())));
                    }
                }
                at = offset + array.nbytes() as u64;
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Exports a function to a file: traced once, for the shapes and types of `arguments`. With `shapeless` it
/// also takes other shapes of the same rank.
///
/// ```
/// use hesper::{Array, Dtype, export};
/// # let path = std::env::temp_dir().join(format!("hesper-export-{}", std::process::id()));
/// let weight = Array::from_slice(&[1.0f32, 10.0]);
/// let f = |x: &[Array]| Ok(vec![x[0].multiply(&weight)?.sum(-1)?]);
/// export::export_function(&path, f, &[Array::zeros(&[1, 2], Dtype::Float32)?], true)?;
/// let f = export::import_function(&path)?;
/// let x = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// assert_eq!(f.call(&[x], &[])?[0].to_vec::<f32>()?, [21.0, 43.0]);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn export_function(
    path: impl AsRef<Path>,
    f: impl FnOnce(&[Array]) -> Result<Vec<Array>>,
    arguments: &[Array],
    shapeless: bool,
) -> Result<()> {
    let mut exporter = Exporter::new(path).shapeless(shapeless);
    exporter.trace(arguments, &[], f)?;
    exporter.finish()
}
