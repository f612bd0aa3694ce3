//! Exported functions: a file is refused, or is a function whose evaluation succeeds or fails with an error.
//!
//! Mutations change the body; checksums and lengths are then corrected, so that they do not hide the
//! mutation.

use hesper::export::{self, Graph, Imported, Step, Value};
use hesper::{Array, Dtype};
use hesper_runtime::sim::Rng;

use crate::engine::{Target, Verdict};
use crate::mutate;

/// The table of all ops of the op suite.
#[path = "../../../hesper/tests/table/mod.rs"]
#[allow(clippy::unwrap_used, reason = "its numbers are its own")]
mod table;

/// See the [module](self).
pub struct Exports;

/// The most elements of an array, and threads of a kernel, in a function that is called.
const MAX_ELEMENTS: usize = 1 << 14;
/// The memory limit of a call in bytes.
const MEMORY_LIMIT: usize = 256 << 20;

impl Target for Exports {
    fn name(&self) -> &'static str {
        "exports"
    }

    fn about(&self) -> &'static str {
        "exported functions: imported, called, evaluated"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        samples()
    }

    fn fresh(&self) -> usize {
        0
    }

    fn mutate(&self, input: &mut Vec<u8>, others: &[Vec<u8>], rng: &mut Rng) {
        let Some((mut body, mut data)) = parts(input) else {
            return mutate::bytes(input, others, rng);
        };
        match rng.below(12) {
            0 => return mutate::bytes(input, others, rng),
            1 => mutate::bytes(&mut data, &[], rng),
            2..=4 => rename_op(&mut body, rng),
            5..=8 => change_number(&mut body, rng),
            9 => swap_records(&mut body, rng),
            _ => {
                let bodies: Vec<Vec<u8>> = others.iter().filter_map(|other| Some(parts(other)?.0)).collect();
                mutate::bytes(&mut body, &bodies, rng);
            }
        }
        *input = assembled(&body, &data);
    }

    fn run(&self, input: &[u8]) -> Result<Verdict, String> {
        hesper::placement::cpu().set_memory_limit(MEMORY_LIMIT);
        let Ok(imported) = Imported::from_bytes(input.to_vec()) else { return Ok(Verdict::Refused) };
        for graph in imported.graphs() {
            if !is_small(graph) {
                continue;
            }
            let signature = graph.signature();
            let mut arguments = Vec::new();
            for (number, (shape, dtype)) in signature.arguments.iter().enumerate() {
                let Ok(array) = argument(number, shape, *dtype) else { return Ok(Verdict::Accepted) };
                arguments.push(array);
            }
            let (places, names) = arguments.split_at(signature.positional.min(arguments.len()));
            let names: Vec<(&str, &Array)> =
                signature.keywords.iter().map(String::as_str).zip(names.iter()).collect();
            let Ok(outputs) = imported.call(places, &names) else { continue };
            for output in &outputs {
                if let Err(error) = output.eval()
                    && error.to_string().contains("panic")
                {
                    return Err(error.to_string());
                }
            }
        }
        Ok(Verdict::Accepted)
    }

    fn describe(&self, input: &[u8]) -> String {
        match Imported::from_bytes(input.to_vec()) {
            Ok(imported) => {
                let steps = |graph: &Graph| {
                    graph.steps().iter().map(|step| format!("{step:?}\n")).collect::<String>()
                };
                imported.graphs().iter().map(steps).collect()
            }
            Err(error) => error.to_string(),
        }
    }
}

fn is_small(graph: &Graph) -> bool {
    let small = |shape: &[usize]| {
        shape.iter().try_fold(1usize, |size, n| size.checked_mul(*n)).is_some_and(|size| size <= MAX_ELEMENTS)
    };
    let is_short = |step: &Step| {
        step.attributes.iter().all(|(name, value)| match value {
            Value::Ints(grid) if name == "grid" => {
                small(&grid.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect::<Vec<_>>())
            }
            _ => true,
        })
    };
    graph.steps().iter().flat_map(|step| &step.outputs).all(|(shape, _)| small(shape))
        && graph.steps().iter().all(is_short)
        && graph.signature().arguments.iter().all(|(shape, _)| small(shape))
}

/// Varied ordinary values of any dtype.
fn argument(number: usize, shape: &[usize], dtype: Dtype) -> hesper::Result<Array> {
    let size = shape.iter().product();
    let list: Vec<f32> = (0..size).map(|i| ((i * 7 + number) % 11) as f32 * 0.25 - 1.0).collect();
    Array::try_from_slice(&list, shape)?.astype(dtype)
}

/// A file of a body and constants, with valid checksums and lengths.
fn assembled(body: &[u8], data: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 64];
    file.extend(body);
    file.resize(file.len().next_multiple_of(64), 0);
    file.extend(data);
    let header = export::file_header(body, file.len() as u64);
    file[..64].copy_from_slice(&header);
    file
}

/// The body of a file and its constants.
fn parts(file: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let length = usize::try_from(u64::from_le_bytes(file.get(16..24)?.try_into().ok()?)).ok()?;
    let end = length.checked_add(64)?;
    Some((file.get(64..end)?.to_vec(), file.get(end.next_multiple_of(64)..).unwrap_or_default().to_vec()))
}

/// The positions of strings in a body: a length, then letters.
fn string_ranges(body: &[u8]) -> Vec<(usize, usize)> {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b' ';
    let text_at = |at: usize| {
        let length = u32::from_le_bytes(body.get(at..at + 4)?.try_into().ok()?) as usize;
        let letters = body.get(at + 4..(at + 4).checked_add(length)?)?;
        (length > 0 && length < 40 && letters.iter().all(is_letter)).then_some((at, length))
    };
    (0..body.len()).filter_map(text_at).collect()
}

/// Replaces a string by the name of another op.
fn rename_op(body: &mut Vec<u8>, rng: &mut Rng) {
    let (strings, names) = (string_ranges(body), export::op_names().collect::<Vec<_>>());
    if strings.is_empty() || names.is_empty() {
        return;
    }
    let (at, length) = rng.pick(&strings);
    let name = rng.pick(&names);
    let mut field = (name.len() as u32).to_le_bytes().to_vec();
    field.extend(name.bytes());
    body.splice(at..at + 4 + length, field);
}

/// Replaces a number of one, four or eight bytes.
fn change_number(body: &mut [u8], rng: &mut Rng) {
    let at = rng.below(body.len());
    let width = rng.pick(&[1, 4, 8]);
    let end = (at + width).min(body.len());
    let value = match rng.below(4) {
        0 => mutate::number(rng, body.len()),
        1 => (rng.below(9) as i64 - 4) as u64,
        2 => f64::to_bits(rng.pick(&[0.0, -1.0, 1e300, f64::NAN, f64::INFINITY, 0.5])),
        _ => rng.below(6) as u64,
    };
    body[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
}

/// Replaces a piece that starts with a text by another one.
fn swap_records(body: &mut Vec<u8>, rng: &mut Rng) {
    let strings = string_ranges(body);
    if strings.len() < 3 {
        return;
    }
    let mut cuts: Vec<usize> = (0..3).map(|_| rng.pick(&strings).0).collect();
    cuts.sort_unstable();
    let piece = body[cuts[1]..cuts[2]].to_vec();
    body.splice(cuts[0]..cuts[1], piece);
}

/// Exports every op of the table, with fixed and with symbolic shapes.
fn samples() -> Vec<Vec<u8>> {
    let path = std::env::temp_dir().join(format!("hesper-fuzz-{}.hesperfn", std::process::id()));
    let mut files = Vec::new();
    for case in table::groups().iter().flat_map(|(_, cases)| cases) {
        for shapeless in [false, true] {
            // Some ops cannot be exported, or not with symbolic shapes.
            if export::export_function(&path, &case.function, &case.inputs, shapeless).is_ok() {
                files.extend(std::fs::read(&path).ok());
            }
        }
    }
    let _ = std::fs::remove_file(&path);
    files
}
