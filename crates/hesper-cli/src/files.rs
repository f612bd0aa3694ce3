//! `hesper files`: lists, verifies and converts tensor files.

use std::fmt::Write as _;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use hesper::Dtype;
use hesper::io::{self as arrays, Format, Loaded, MetaArray, MetaValue, Quantized};
use hesper_files::{Error as FileError, FileDtype, ShardedFile, TensorFile, TensorInfo, write};

use crate::progress::Progress;
use crate::{Failure, interrupt};

#[derive(Subcommand)]
pub enum Command {
    /// List the tensors and the metadata of a file
    Show {
        /// A safetensors, npy, npz or GGUF file, or the index file of a sharded checkpoint
        file: PathBuf,
    },
    /// Read a whole file, verify its checksums, and count elements that are not finite
    Check {
        /// A safetensors, npy, npz or GGUF file, or the index file of a sharded checkpoint
        file: PathBuf,
    },
    /// Convert a file to the format of the target's extension
    Convert {
        /// A safetensors, npy, npz or GGUF file, the index file of a sharded checkpoint, or a folder with one
        from: PathBuf,
        /// The file to write
        to: PathBuf,
        /// How to write quantized tensors; a GGUF target keeps them as they are
        #[arg(long, value_enum, default_value = "affine")]
        quantized: QuantizedForm,
        /// Compress the arrays of an npz file
        #[arg(long)]
        compress: bool,
    },
}

/// How quantized tensors are written.
#[derive(Clone, Copy, ValueEnum)]
pub enum QuantizedForm {
    /// Packed codes, scales and biases
    Affine,
    /// 16-bit floats
    Float16,
    /// bfloat16
    Bfloat16,
    /// 32-bit floats
    Float32,
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Show { file } => show(&Files::open(&file)?),
        Command::Check { file } => {
            interrupt::set_graceful(true);
            check(&Files::open(&file)?)
        }
        Command::Convert { from, to, quantized, compress } => {
            interrupt::set_graceful(true);
            convert(&from, &to, quantized, compress)
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    if interrupt::requested() { Failure::Interrupted } else { Failure::Message(error.to_string()) }
}

/// One file, or the files of a sharded checkpoint.
enum Files {
    One(TensorFile),
    Many(ShardedFile),
}

impl Files {
    fn open(path: &Path) -> Result<Self, Failure> {
        let index = path.extension().is_some_and(|extension| extension == "json");
        if index {
            return ShardedFile::open(path).map(Files::Many).map_err(failed);
        }
        TensorFile::open(path).map(Files::One).map_err(failed)
    }

    fn tensors(&self) -> Vec<(&TensorFile, &TensorInfo)> {
        match self {
            Files::One(file) => file.tensors().iter().map(|tensor| (file, tensor)).collect(),
            Files::Many(files) => files.tensors().collect(),
        }
    }

    fn first(&self) -> Option<&TensorFile> {
        match self {
            Files::One(file) => Some(file),
            Files::Many(files) => files.files().first(),
        }
    }
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = count as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{size:.1} {}", UNITS[unit]) }
}

fn show(files: &Files) -> Result<(), Failure> {
    let mut text = String::new();
    let tensors = files.tensors();
    if let Some(file) = files.first() {
        let _ = writeln!(text, "format {}", file.format());
        for (key, value) in file.metadata().entries() {
            let _ = writeln!(text, "  {key} = {}", value_of(value));
        }
    }
    let width = tensors.iter().map(|(_, tensor)| tensor.name.chars().count()).max().unwrap_or(0).min(60);
    for (_, tensor) in &tensors {
        let shape = tensor.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
        let _ = writeln!(
            text,
            "{:width$}  {:8}  {:>10}  [{shape}]",
            printable(&tensor.name),
            tensor.dtype.to_string(),
            bytes(tensor.byte_len),
        );
    }
    let total: u64 = tensors.iter().map(|(_, tensor)| tensor.byte_len).sum();
    let _ = writeln!(text, "{} tensors, {}", tensors.len(), bytes(total));
    io::stdout().write_all(text.as_bytes()).map_err(Failure::output)
}

/// Replaces control characters: names in files are not trusted.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A value on one line, truncated if it is long.
fn value_of(value: &MetaValue) -> String {
    let text = match value {
        MetaValue::String(text) => format!("{:?}", text.chars().take(100).collect::<String>()),
        MetaValue::U8(v) => v.to_string(),
        MetaValue::I8(v) => v.to_string(),
        MetaValue::U16(v) => v.to_string(),
        MetaValue::I16(v) => v.to_string(),
        MetaValue::U32(v) => v.to_string(),
        MetaValue::I32(v) => v.to_string(),
        MetaValue::U64(v) => v.to_string(),
        MetaValue::I64(v) => v.to_string(),
        MetaValue::F32(v) => v.to_string(),
        MetaValue::F64(v) => v.to_string(),
        MetaValue::Bool(v) => v.to_string(),
        MetaValue::Array(MetaArray::String(strings)) => {
            let first: Vec<&String> = strings.iter().take(4).collect();
            format!("{} strings {first:?}", strings.len())
        }
        MetaValue::Array(values) => format!("{} values", values.len()),
    };
    printable(&text)
}

/// A writer that reports progress and fails if the user interrupts the command.
struct ProgressWriter<'a, W> {
    out: W,
    what: &'a str,
    done: u64,
    total: u64,
    progress: Progress,
}

impl<'a, W> ProgressWriter<'a, W> {
    fn new(out: W, what: &'a str, total: u64) -> Self {
        ProgressWriter { out, what, done: 0, total, progress: Progress::new(false) }
    }

    /// Adds written bytes to the progress. Fails if the user has interrupted the command.
    fn advance(&mut self, len: u64) -> io::Result<()> {
        if interrupt::requested() {
            return Err(io::Error::other("interrupted"));
        }
        self.done += len;
        let percent = (self.done * 100).checked_div(self.total).unwrap_or(100).min(100);
        self.progress.set(&format!("{} {percent}% of {}", self.what, bytes(self.total)));
        Ok(())
    }
}

impl<W: Write> Write for ProgressWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Write in pieces, to report progress and poll for Ctrl-C within a large tensor.
        let written = self.out.write(&bytes[..bytes.len().min(4 << 20)])?;
        self.advance(written as u64)?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Seek> Seek for ProgressWriter<'_, W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.out.seek(to)
    }
}

/// Counts floats that are not finite.
struct NonFinite {
    dtype: FileDtype,
    count: u64,
}

impl Write for NonFinite {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // An exponent of all ones is an infinity or NaN.
        let count = |size: usize, high: usize, mask: u16| -> u64 {
            let all_ones =
                |element: &[u8]| u16::from_le_bytes([element[high - 1], element[high]]) & mask == mask;
            bytes.chunks_exact(size).filter(|element| all_ones(element)).count() as u64
        };
        self.count += match self.dtype {
            FileDtype::F16 => count(2, 1, 0x7c00),
            FileDtype::BF16 => count(2, 1, 0x7f80),
            FileDtype::F32 | FileDtype::C64 => count(4, 3, 0x7f80),
            FileDtype::F64 => count(8, 7, 0x7ff0),
            _ => 0,
        };
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn check(files: &Files) -> Result<(), Failure> {
    let tensors = files.tensors();
    let total = tensors.iter().map(|(_, tensor)| tensor.byte_len).sum();
    let mut writer = ProgressWriter::new(NonFinite { dtype: FileDtype::U8, count: 0 }, "checking", total);
    let mut found = String::new();
    for (file, tensor) in &tensors {
        writer.out = NonFinite { dtype: tensor.dtype, count: 0 };
        file.copy_to(tensor, &mut writer).and_then(|()| file.verify(tensor)).map_err(failed)?;
        if writer.out.count > 0 {
            let _ =
                writeln!(found, "{}: {} elements are not finite", printable(&tensor.name), writer.out.count);
        }
    }
    drop(writer);
    let _ = writeln!(found, "{} tensors, {}: all readable", tensors.len(), bytes(total));
    io::stdout().write_all(found.as_bytes()).map_err(Failure::output)
}

fn convert(from: &Path, to: &Path, form: QuantizedForm, compress: bool) -> Result<(), Failure> {
    let format = match to.extension().and_then(|extension| extension.to_str()) {
        Some("safetensors") => Format::Safetensors,
        Some("npz") => Format::Npz,
        Some("npy") => Format::Npy,
        Some("gguf") => Format::Gguf,
        _ => {
            let what = "the extension must be safetensors, npz, npy or gguf";
            return Err(Failure::Message(format!("{}: {what}", to.display())));
        }
    };
    let quantized = match form {
        _ if format == Format::Gguf => Quantized::Blocks,
        QuantizedForm::Affine => Quantized::Affine,
        QuantizedForm::Float16 => Quantized::Float(Dtype::Float16),
        QuantizedForm::Bfloat16 => Quantized::Float(Dtype::Bfloat16),
        QuantizedForm::Float32 => Quantized::Float(Dtype::Float32),
    };
    let options = arrays::Options { quantized, ..Default::default() };
    let file = arrays::load_with(from, &options).map_err(failed)?;
    let blocks: usize = match quantized {
        Quantized::Blocks => file.all_blocks().iter().map(|(_, blocks)| blocks.bytes().nbytes()).sum(),
        _ => 0,
    };
    let total = file.arrays().iter().map(|(_, array)| array.nbytes()).sum::<usize>() + blocks;
    write::replace(to, |out| {
        let mut out = ProgressWriter::new(out, "writing", total as u64);
        write_arrays(&mut out, &file, format, compress)
            .map_err(|error| FileError::Producer { name: to.display().to_string(), cause: Box::new(error) })
    })
    .map_err(failed)?;
    println!(
        "{}: {} arrays, {}",
        to.display(),
        file.arrays().len() + file.all_blocks().len(),
        bytes(total as u64)
    );
    Ok(())
}

fn write_arrays(
    out: &mut (impl Write + Seek),
    file: &Loaded,
    format: Format,
    compress: bool,
) -> hesper::Result<()> {
    let named = || file.arrays().iter().map(|(name, array)| (name.as_str(), array));
    match format {
        Format::Npz if compress => arrays::write_npz_compressed(out, named()),
        Format::Npz => arrays::write_npz(out, named()),
        Format::Npy => match file.arrays() {
            [(_, array)] => arrays::write_npy(out, array),
            all => {
                let what = format!("npy holds one array, not {}", all.len());
                Err(FileError::UnknownFormat(what).into())
            }
        },
        Format::Gguf => {
            let plain = file.arrays().iter().map(|(name, array)| (name.as_str(), array.into()));
            let blocks = file.all_blocks().iter().map(|(name, blocks)| (name.as_str(), blocks.into()));
            let tensors: Vec<(&str, arrays::GgufTensor<'_>)> = plain.chain(blocks).collect();
            arrays::write_gguf(out, tensors, file.metadata().entries())
        }
        _ => {
            let text = |value: &MetaValue| value.as_str().map_or_else(|| value_of(value), str::to_owned);
            let metadata: Vec<(String, String)> =
                file.metadata().entries().iter().map(|(key, value)| (key.clone(), text(value))).collect();
            arrays::write_safetensors(out, named(), &metadata)
        }
    }
}
