//! Imported functions.

use std::fmt::Write as _;
use std::path::Path;

use hesper_files::{SharedSource, Source};

use super::format::{ALIGNMENT, Body, Constant, HEADER, checksum, invalid, read_header};
use super::graph::{Graph, Signature};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::Array;

/// An imported function.
///
/// ```
/// use hesper::array;
/// use hesper::export;
/// # let path = std::env::temp_dir().join(format!("hesper-imported-{}", std::process::id()));
/// let mut exporter = export::Exporter::new(&path).shapeless(true).metadata("twice a vector");
/// exporter.trace(&[array![1.0]], &[], |x| Ok::<_, hesper::Error>(vec![x[0].multiply(2.0)?]))?;
/// exporter.finish()?;
/// let twice = export::Imported::from_bytes(std::fs::read(&path).unwrap())?;
/// assert_eq!(twice.metadata(), "twice a vector");
/// assert_eq!((twice.signatures().count(), twice.graphs().len()), (1, 1));
/// assert_eq!(twice.call(&[array![3.0, 4.0]], &[])?[0].to_vec::<f32>()?, [6.0, 8.0]);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), hesper::Error>(())
/// ```
#[derive(Debug)]
pub struct Imported {
    metadata: String,
    graphs: Vec<Graph>,
}

/// Imports a function from a file that [`export_function`](super::export_function) or an
/// [`Exporter`](super::Exporter) wrote. The whole file is checked now; constants stay in the mapped file.
///
/// ```
/// use hesper::array;
/// use hesper::export;
/// # let path = std::env::temp_dir().join(format!("hesper-import-{}", std::process::id()));
/// export::export_function(&path, |x| Ok(vec![x[0].multiply(2.0)?]), &[array![1.0]], false)?;
/// let twice = export::import_function(&path)?;
/// assert_eq!(twice.call(&[array![3.0]], &[])?[0].to_vec::<f32>()?, [6.0]);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn import_function(path: impl AsRef<Path>) -> Result<Imported> {
    Imported::read(Source::open(path)?)
}

impl Imported {
    /// A function from the bytes of a file.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self> {
        Imported::read(Source::from_bytes(bytes))
    }

    fn read(source: Source) -> Result<Self> {
        let len = source.len();
        if len < HEADER as u64 {
            return Err(invalid(format!("a file of {len} bytes is smaller than a header")));
        }
        let (length, sum) = source.scan(0..HEADER as u64, |header| read_header(header, len))??;
        let end = HEADER as u64 + length;
        let body = source.scan(HEADER as u64..end, |body| {
            if checksum(body) != sum {
                return Err(invalid("its body is damaged"));
            }
            Body::read(body)
        })??;
        let shared = SharedSource::new(source);
        let mut constants = Vec::with_capacity(body.constants.len());
        let data = end.next_multiple_of(ALIGNMENT);
        let mut at = 0;
        for (number, constant) in body.constants.iter().enumerate() {
            let (array, next) = load(&shared, data, at, number, constant)?;
            constants.push(array);
            at = next;
        }
        let graphs: Vec<Graph> = body
            .traces
            .into_iter()
            .map(|trace| Graph {
                signature: trace.signature,
                constants: constants.clone(),
                steps: trace.steps,
                outputs: trace.outputs,
            })
            .collect();
        graphs.iter().try_for_each(Graph::check)?;
        Ok(Imported { metadata: body.metadata, graphs })
    }

    /// The string that is stored with the function.
    pub fn metadata(&self) -> &str {
        &self.metadata
    }

    /// The signatures that the function was traced for.
    pub fn signatures(&self) -> impl Iterator<Item = &Signature> {
        self.graphs.iter().map(Graph::signature)
    }

    /// The traces.
    pub fn graphs(&self) -> &[Graph] {
        &self.graphs
    }

    /// Calls the function with positional and named arguments. Named arguments whose name a trace does not
    /// have follow the positional ones.
    pub fn call(&self, positional: &[Array], named: &[(&str, &Array)]) -> Result<Vec<Array>> {
        let mut named = named.to_vec();
        named.sort_by_key(|(name, _)| *name);
        for graph in &self.graphs {
            if let Some(arguments) = arguments(&graph.signature, positional, &named) {
                return graph.replay(&arguments);
            }
        }
        Err(Error::value("import_function", self.mismatch(positional, &named)))
    }

    /// The message of a call that fits no signature.
    fn mismatch(&self, positional: &[Array], named: &[(&str, &Array)]) -> String {
        let shape = |shape: &[usize]| -> String {
            let lengths: Vec<String> = shape.iter().map(usize::to_string).collect();
            format!("({})", lengths.join(","))
        };
        let counts = |positional: usize, named: usize| {
            format!("{positional} positional inputs and {named} keyword inputs")
        };
        let mut text = format!("cannot call the function with {}:\n", counts(positional.len(), named.len()));
        for (at, array) in positional.iter().enumerate() {
            let _ = writeln!(text, "  {}: {} {}", at + 1, shape(array.shape()), array.dtype());
        }
        for (name, array) in named {
            let _ = writeln!(text, "  {name:?}: {} {}", shape(array.shape()), array.dtype());
        }
        for signature in self.signatures() {
            let free = if signature.shapeless { " of any lengths" } else { "" };
            let _ =
                writeln!(text, "it takes {}{free}:", counts(signature.positional, signature.keywords.len()));
            for (at, (own, dtype)) in signature.arguments.iter().enumerate() {
                let name = match at.checked_sub(signature.positional) {
                    None => (at + 1).to_string(),
                    Some(at) => format!("{:?}", signature.keywords.get(at).map_or("", |name| name)),
                };
                let _ = writeln!(text, "  {name}: {} {dtype}", shape(own));
            }
        }
        text
    }
}

/// The arguments in the order of a signature, if they fit it.
fn arguments(signature: &Signature, positional: &[Array], named: &[(&str, &Array)]) -> Option<Vec<Array>> {
    let own = |name: &str| signature.keywords.iter().any(|other| other == name);
    let mut all: Vec<Array> = positional.to_vec();
    all.extend(named.iter().filter(|(name, _)| !own(name)).map(|(_, array)| (*array).clone()));
    if all.len() != signature.positional {
        return None;
    }
    all.extend(named.iter().filter(|(name, _)| own(name)).map(|(_, array)| (*array).clone()));
    let fits = all.len() == signature.arguments.len()
        && all.iter().enumerate().all(|(at, array)| signature.takes(at, array));
    fits.then_some(all)
}

/// A constant, and the offset of its end. Constants must not overlap.
fn load(
    shared: &SharedSource,
    data: u64,
    from: u64,
    number: usize,
    constant: &Constant,
) -> Result<(Array, u64)> {
    let wrong = |what: &str| Err(invalid(format!("constant {number} {what}")));
    let bytes = constant
        .shape
        .iter()
        .try_fold(constant.dtype.size() as u64, |all, length| all.checked_mul(u64::try_from(*length).ok()?));
    let end = bytes.and_then(|bytes| bytes.checked_add(constant.offset)?.checked_add(data));
    let (Some(bytes), Some(end)) = (bytes, end) else { return wrong("has more bytes than can be addressed") };
    if !constant.offset.is_multiple_of(ALIGNMENT) || constant.offset < from {
        return wrong("is not aligned or overlaps the one before");
    }
    let range = data + constant.offset..end;
    if end > shared.source().len() {
        return wrong("is not inside of the file");
    }
    let sound = shared.source().scan(range.clone(), |bytes| {
        // A bool must be 0 or 1.
        checksum(bytes) == constant.checksum
            && (constant.dtype != Dtype::Bool || bytes.iter().all(|byte| *byte <= 1))
    })?;
    if !sound {
        return wrong("is damaged");
    }
    let array = match shared.bytes(range.clone())? {
        Some(bytes) => {
            Array::adopt(bytes, "a constant of an exported function", constant.dtype, &constant.shape)?
        }
        None => shared
            .source()
            .scan(range, |bytes| Array::from_bytes(bytes, constant.dtype, &constant.shape))??,
    };
    Ok((array, constant.offset + bytes))
}
