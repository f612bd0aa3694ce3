//! Functions from files.

use std::fmt::Write as _;
use std::path::Path;

use hesper_files::{SharedSource, Source};

use super::format::{ALIGNMENT, Body, Constant, HEADER, checksum, read_header};
use super::graph::{Graph, Signature};
use crate::Dtype;
use crate::array::Array;
use crate::error::{Error, Result};

/// A function from a file.
#[derive(Debug)]
pub struct Imported {
    metadata: String,
    graphs: Vec<Graph>,
}

/// Opens a file that [`export_function`](super::export_function) or an [`Exporter`](super::Exporter) has written.
/// All of it is checked now; constants stay where they lie in the mapped file.
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
            let what = format!("no exported function: a file of {len} bytes");
            return Err(Error::Export(what));
        }
        let (length, sum) = source.scan(0..HEADER as u64, |header| read_header(header, len))??;
        let end = HEADER as u64 + length;
        let body = source.scan(HEADER as u64..end, |body| {
            if checksum(body) != sum {
                return Err(Error::Export("an exported function whose body is damaged".into()));
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

    /// The text that the file holds besides the function.
    pub fn metadata(&self) -> &str {
        &self.metadata
    }

    /// What the function can be called with.
    pub fn signatures(&self) -> impl Iterator<Item = &Signature> {
        self.graphs.iter().map(Graph::signature)
    }

    /// The traces.
    pub fn graphs(&self) -> &[Graph] {
        &self.graphs
    }

    /// Calls the function with arguments by place and by name. Arguments by name that no trace has a name for
    /// stand behind those by place.
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

    /// What was given, and what would have been taken.
    fn mismatch(&self, positional: &[Array], named: &[(&str, &Array)]) -> String {
        let shape = |shape: &[usize]| -> String {
            let lengths: Vec<String> = shape.iter().map(usize::to_string).collect();
            format!("({})", lengths.join(","))
        };
        let mut text = String::from(
            "No imported function found which matches the given positional and keyword arguments. Possible \
             functions include:\n",
        );
        for (number, signature) in self.signatures().enumerate() {
            let free = if signature.shapeless { " of any lengths" } else { "" };
            let _ = writeln!(
                text,
                " {}. Function with {} positional inputs and {} keyword inputs{free}:",
                number + 1,
                signature.positional,
                signature.keywords.len()
            );
            for (at, (own, dtype)) in signature.arguments.iter().enumerate() {
                let name = match at.checked_sub(signature.positional) {
                    None => (at + 1).to_string(),
                    Some(at) => format!("{:?}", signature.keywords.get(at).map_or("", |name| name)),
                };
                let _ = writeln!(text, "   {name}: {} {dtype}", shape(own));
            }
        }
        let counts = (positional.len(), named.len());
        let _ =
            writeln!(text, "\nCalled with {} positional inputs and {} keyword inputs:", counts.0, counts.1);
        for (at, array) in positional.iter().enumerate() {
            let _ = writeln!(text, "  {}: {} {}", at + 1, shape(array.shape()), array.dtype());
        }
        for (name, array) in named {
            let _ = writeln!(text, "  {name:?}: {} {}", shape(array.shape()), array.dtype());
        }
        text
    }
}

/// The arguments of a trace in its order, if it can be called with these.
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

/// A constant where it lies, and the first byte behind it. Constants lie one behind the other.
fn load(
    shared: &SharedSource,
    data: u64,
    from: u64,
    number: usize,
    constant: &Constant,
) -> Result<(Array, u64)> {
    let wrong = |what: &str| Err(Error::Export(format!("constant {number} of an exported function {what}")));
    let bytes = constant
        .shape
        .iter()
        .try_fold(constant.dtype.size() as u64, |all, length| all.checked_mul(u64::try_from(*length).ok()?));
    let end = bytes.and_then(|bytes| bytes.checked_add(constant.offset)?.checked_add(data));
    let (Some(bytes), Some(end)) = (bytes, end) else { return wrong("has more bytes than can be addressed") };
    if !constant.offset.is_multiple_of(ALIGNMENT) || constant.offset < from {
        return wrong("does not lie behind the one before it");
    }
    let range = data + constant.offset..end;
    if end > shared.source().len() {
        return wrong("lies outside of the file");
    }
    let sound = shared.source().scan(range.clone(), |bytes| {
        // Only zero and one make a bool.
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
