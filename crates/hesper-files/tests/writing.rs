//! What is written reads back, and a save that fails leaves what was there.

use std::fs;
use std::io::{self, Cursor, Write};

use crate::common::{Folder, parse, pattern};
use hesper_files::write::{Compression, ProducerError};
use hesper_files::{
    Error, FileDtype, Format, GgmlType, Layout, MetaArray, MetaValue, Source, TensorFile, TensorSpec, write,
};

const BYTES: [FileDtype; 15] = [
    FileDtype::Bool,
    FileDtype::U8,
    FileDtype::I8,
    FileDtype::U16,
    FileDtype::I16,
    FileDtype::U32,
    FileDtype::I32,
    FileDtype::U64,
    FileDtype::I64,
    FileDtype::F16,
    FileDtype::BF16,
    FileDtype::F32,
    FileDtype::F64,
    FileDtype::C64,
    FileDtype::C128,
];

fn in_gguf(dtype: FileDtype) -> bool {
    use FileDtype::*;
    matches!(dtype, F32 | F16 | BF16 | F64 | I8 | I16 | I32 | I64 | Block(_))
}

/// Tensors of several shapes for each dtype that the format can hold, and their bytes.
fn tensors(can_hold: impl Fn(FileDtype) -> bool, rank_limit: usize) -> (Vec<TensorSpec>, Vec<Vec<u8>>) {
    let others = [
        FileDtype::F8E4M3,
        FileDtype::F8E5M2,
        FileDtype::F8E8M0,
        FileDtype::F8E4M3Fnuz,
        FileDtype::F8E5M2Fnuz,
        FileDtype::F6E2M3,
        FileDtype::F6E3M2,
        FileDtype::F4,
    ];
    let blocks = GgmlType::ALL.iter().map(|&ggml| FileDtype::Block(ggml));
    let shapes: [&[u64]; 6] = [&[4], &[2, 4], &[0], &[3, 0, 4], &[1, 2, 1, 2, 1, 4], &[]];
    let (mut specs, mut data) = (Vec::new(), Vec::new());
    for dtype in BYTES.into_iter().chain(others).chain(blocks).filter(|&dtype| can_hold(dtype)) {
        for shape in shapes.iter().filter(|shape| shape.len() <= rank_limit) {
            let mut shape = shape.to_vec();
            if let (FileDtype::Block(ggml), Some(last)) = (dtype, shape.last_mut()) {
                *last *= ggml.block_len() as u64;
            }
            let Ok(len) = dtype.byte_len(&shape) else { continue };
            let name = format!("é \"{dtype}\" {shape:?}\n");
            data.push(pattern(len as usize, specs.len()));
            specs.push(TensorSpec::new(name, dtype, shape));
        }
    }
    (specs, data)
}

fn slices(data: &[Vec<u8>]) -> Vec<&[u8]> {
    data.iter().map(Vec::as_slice).collect()
}

fn assert_same(file: &TensorFile, specs: &[TensorSpec], data: &[Vec<u8>]) {
    assert_eq!(file.tensors().len(), specs.len());
    for (spec, bytes) in specs.iter().zip(data) {
        let tensor = file.require(&spec.name).unwrap();
        assert_eq!((tensor.dtype, &tensor.shape, tensor.layout), (spec.dtype, &spec.shape, spec.layout));
        assert_eq!(file.read(tensor).unwrap(), bytes.as_slice(), "{}", spec.name);
        if tensor.in_place().is_some() && tensor.byte_len > 0 {
            assert!(tensor.is_aligned(), "{}", spec.name);
        }
        file.verify(tensor).unwrap();
    }
}

#[test]
fn safetensors_of_every_dtype_and_shape_reads_back() {
    let (specs, data) = tensors(|d| !matches!(d, FileDtype::Block(_) | FileDtype::C128), 9);
    let metadata = [("é\u{1}".to_string(), "\"\\\n😀".to_string()), ("".into(), "".into())];
    let mut bytes = Vec::new();
    write::safetensors(&mut bytes, &specs, &metadata, &mut slices(&data).as_slice()).unwrap();
    let file = parse(bytes).unwrap();
    assert_same(&file, &specs, &data);
    for (key, value) in &metadata {
        assert_eq!(file.metadata().get(key).unwrap().as_str(), Some(value.as_str()));
    }
    assert_eq!(file.metadata().len(), 2);
}

#[test]
fn npy_of_every_dtype_and_shape_reads_back() {
    let (specs, data) = tensors(|d| BYTES.contains(&d), 9);
    for (spec, bytes) in specs.iter().zip(&data) {
        let mut out = Vec::new();
        write::npy(&mut out, spec, &mut [bytes.as_slice()].as_slice()).unwrap();
        let file = parse(out).unwrap();
        let named = TensorSpec { name: hesper_files::npy::NAME.into(), ..spec.clone() };
        assert_same(&file, &[named], std::slice::from_ref(bytes));
    }
    let spec = TensorSpec { layout: Layout::ColumnMajor, ..TensorSpec::new("f", FileDtype::U8, [2, 3]) };
    let mut out = Vec::new();
    write::npy(&mut out, &spec, &mut [&[1u8, 2, 3, 4, 5, 6][..]].as_slice()).unwrap();
    assert_eq!(parse(out).unwrap().tensors()[0].layout, Layout::ColumnMajor);
}

#[test]
fn npz_stored_and_deflated_reads_back_and_equal_content_gives_equal_files() {
    let (mut specs, mut data) = tensors(|d| BYTES.contains(&d), 9);
    specs.push(TensorSpec::new("long", FileDtype::U8, [300_000]));
    data.push(pattern(300_000, 3));
    specs.push(TensorSpec { layout: Layout::ColumnMajor, ..TensorSpec::new("f", FileDtype::U8, [2, 3]) });
    data.push(pattern(6, 4));
    for compression in [Compression::Stored, Compression::Deflated] {
        let write = || {
            let mut out = Cursor::new(Vec::new());
            write::npz(&mut out, &specs, compression, &mut slices(&data).as_slice()).unwrap();
            out.into_inner()
        };
        let bytes = write();
        assert_eq!(bytes, write());
        let file = parse(bytes).unwrap();
        assert_same(&file, &specs, &data);
        assert!(file.ignored().is_empty());
    }
}

#[test]
fn gguf_of_every_type_and_value_reads_back() {
    let (specs, data) = tensors(in_gguf, 4);
    assert!(specs.iter().filter(|spec| matches!(spec.dtype, FileDtype::Block(_))).count() > 26);
    let nested = MetaArray::Array(vec![
        MetaArray::Array(vec![MetaArray::U8(vec![1]), MetaArray::String(vec!["x".into()])]),
        MetaArray::Array(vec![]),
    ]);
    let values = [
        MetaValue::U8(1),
        MetaValue::I8(-1),
        MetaValue::U16(2),
        MetaValue::I16(-2),
        MetaValue::U32(3),
        MetaValue::I32(-3),
        MetaValue::U64(u64::MAX),
        MetaValue::I64(i64::MIN),
        MetaValue::F32(0.5),
        MetaValue::F64(-0.5),
        MetaValue::Bool(true),
        MetaValue::String("é\n".into()),
        MetaValue::Array(MetaArray::U8(vec![1, 2])),
        MetaValue::Array(MetaArray::I8(vec![-1])),
        MetaValue::Array(MetaArray::U16(vec![1])),
        MetaValue::Array(MetaArray::I16(vec![-1])),
        MetaValue::Array(MetaArray::U32(vec![1])),
        MetaValue::Array(MetaArray::I32(vec![-1])),
        MetaValue::Array(MetaArray::U64(vec![1])),
        MetaValue::Array(MetaArray::I64(vec![-1])),
        MetaValue::Array(MetaArray::F32(vec![1.5])),
        MetaValue::Array(MetaArray::F64(vec![2.5, 3.5])),
        MetaValue::Array(MetaArray::Bool(vec![true, false])),
        MetaValue::Array(MetaArray::String(vec![])),
        MetaValue::Array(nested),
    ];
    for alignment in [1u32, 32, 4096] {
        let mut metadata: Vec<_> =
            values.iter().enumerate().map(|(i, value)| (format!("key.{i}"), value.clone())).collect();
        metadata.push(("general.alignment".into(), MetaValue::U32(alignment)));
        let mut bytes = Vec::new();
        write::gguf(&mut bytes, &specs, &metadata, &mut slices(&data).as_slice()).unwrap();
        let file = parse(bytes).unwrap();
        if alignment >= 32 {
            assert_same(&file, &specs, &data);
        }
        assert_eq!(file.metadata().entries(), metadata);
    }
}

#[test]
fn what_a_format_cannot_say_is_refused_before_anything_is_written() {
    let u8s = |name: &str| TensorSpec::new(name, FileDtype::U8, [1]);
    let mut none =
        |_: usize, _: &mut dyn Write| -> Result<(), ProducerError> { panic!("nothing may be asked for") };
    let twice = [u8s("a"), u8s("a")];
    let column = TensorSpec { layout: Layout::ColumnMajor, ..u8s("a") };
    let block = TensorSpec::new("q", FileDtype::Block(GgmlType::Q4_0), [32]);
    let huge = TensorSpec::new("h", FileDtype::F32, [u64::MAX / 2, 3]);
    let mut out = Cursor::new(Vec::new());
    for specs in [
        &twice[..],
        &[u8s("__metadata__")],
        std::slice::from_ref(&column),
        std::slice::from_ref(&block),
        std::slice::from_ref(&huge),
    ] {
        assert!(write::safetensors(&mut out, specs, &[], &mut none).is_err());
    }
    let same_key = [("k".to_string(), String::new()), ("k".to_string(), String::new())];
    assert!(write::safetensors(&mut out, &[], &same_key, &mut none).is_err());
    for specs in [&twice[..], &[column], &[u8s("a")], std::slice::from_ref(&huge)] {
        assert!(write::gguf(&mut out, specs, &[], &mut none).is_err());
    }
    let bad_alignment = [("general.alignment".to_string(), MetaValue::U32(3))];
    assert!(write::gguf(&mut out, &[], &bad_alignment, &mut none).is_err());
    for specs in [&twice[..], std::slice::from_ref(&block), &[u8s("nul\0")], &[u8s(&"x".repeat(70_000))]] {
        assert!(write::npz(&mut out, specs, Compression::Stored, &mut none).is_err(), "{specs:?}");
    }
    assert!(write::npy(&mut out, &block, &mut none).is_err());
    let error = write::npy(&mut out, &huge, &mut none).unwrap_err();
    assert!(matches!(error, Error::Unwritable { format: Format::Npy, .. }), "{error}");
    assert_eq!(out.into_inner(), b"", "nothing was written");
}

#[test]
fn a_producer_that_gives_too_few_or_too_many_bytes_or_fails_is_named() {
    let specs = [TensorSpec::new("good", FileDtype::U8, [2]), TensorSpec::new("bad", FileDtype::U8, [2])];
    for bad in ["few", "many", "fails"] {
        let mut producer = |index: usize, out: &mut dyn Write| -> Result<(), ProducerError> {
            match (index, bad) {
                (0, _) => Ok(out.write_all(&[1, 2])?),
                (_, "few") => Ok(out.write_all(&[1])?),
                (_, "many") => Ok(out.write_all(&[1, 2, 3])?),
                _ => Err("out of memory on the device".into()),
            }
        };
        let folder = Folder::new("producer");
        let path = folder.path("file");
        for format in ["safetensors", "npz", "gguf"] {
            fs::write(&path, "what was there").unwrap();
            let result = match format {
                "safetensors" => write::save_safetensors(&path, &specs, &[], &mut producer),
                "npz" => write::save_npz(&path, &specs, Compression::Deflated, &mut producer),
                _ => {
                    let specs = specs.clone().map(|spec| TensorSpec { dtype: FileDtype::I8, ..spec });
                    write::save_gguf(&path, &specs, &[], &mut producer)
                }
            };
            let error = result.unwrap_err();
            let Error::InFile { source, .. } = error else { panic!("{error}") };
            assert!(matches!(&*source, Error::Producer { name, .. } if name == "bad"), "{source}");
            assert_eq!(fs::read(&path).unwrap(), b"what was there");
            assert_eq!(folder.list(), ["file"], "no temporary file stays");
        }
    }
}

/// Takes so many bytes, then has no space left.
struct Full(usize, Cursor<Vec<u8>>);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(self.0);
        if len == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0 -= len;
        self.1.write(&bytes[..len])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for Full {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.1.seek(to)
    }
}

#[test]
fn an_output_that_fills_up_at_any_byte_is_reported_as_such() {
    let specs = [TensorSpec::new("a", FileDtype::I8, [40]), TensorSpec::new("b", FileDtype::I8, [3])];
    let data = [pattern(40, 1), pattern(3, 2)];
    let metadata = [("k".to_string(), "v".to_string())];
    let run = |which: usize, room: usize| {
        let mut out = Full(room, Cursor::new(Vec::new()));
        let slices = slices(&data);
        let mut data = slices.as_slice();
        let result = match which {
            0 => write::safetensors(&mut out, &specs, &metadata, &mut data),
            1 => write::npy(&mut out, &specs[0], &mut data),
            2 => write::npz(&mut out, &specs, Compression::Stored, &mut data),
            3 => write::npz(&mut out, &specs, Compression::Deflated, &mut data),
            _ => write::gguf(&mut out, &specs, &[], &mut data),
        };
        (result, room - out.0)
    };
    for which in 0..5 {
        let (result, used) = run(which, 1 << 20);
        result.unwrap();
        for room in 0..used {
            match run(which, room).0 {
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::StorageFull => {}
                other => panic!("writer {which} with room for {room} of {used} bytes: {other:?}"),
            }
        }
    }
}

#[test]
fn a_producer_that_panics_leaves_what_was_there_and_no_temporary_file() {
    let folder = Folder::new("panic");
    let path = folder.path("file");
    fs::write(&path, "what was there").unwrap();
    let specs = [TensorSpec::new("a", FileDtype::U8, [2])];
    let mut producer = |_: usize, _: &mut dyn Write| -> Result<(), ProducerError> { panic!("on purpose") };
    let save = std::panic::AssertUnwindSafe(|| write::save_safetensors(&path, &specs, &[], &mut producer));
    assert!(std::panic::catch_unwind(save).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"what was there");
    assert_eq!(folder.list(), ["file"]);
}

#[test]
fn saving_into_a_folder_that_is_not_there_or_onto_a_folder_is_an_error() {
    let folder = Folder::new("nowhere");
    let spec = TensorSpec::new("a", FileDtype::U8, [1]);
    let mut data = [&[1u8][..]];
    let missing = write::save_npy(folder.path("missing/file"), &spec, &mut data.as_slice());
    assert!(matches!(missing, Err(Error::Io { .. })));
    assert!(matches!(write::save_npy(folder.path(""), &spec, &mut data.as_slice()), Err(Error::NotAFile(_))));
    data[0] = &[2];
    write::save_npy(folder.path("new"), &spec, &mut data.as_slice()).unwrap();
    assert_eq!(folder.list(), ["new"]);
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_link_stays_a_link_and_permissions_stay() {
        let folder = Folder::new("link");
        let (target, link) = (folder.path("target"), folder.path("link"));
        fs::write(&target, "old").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("target", &link).unwrap();
        let spec = TensorSpec::new("a", FileDtype::U8, [1]);
        write::save_npy(&link, &spec, &mut [&[1u8][..]].as_slice()).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().file_type().is_symlink());
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(TensorFile::open(&target).is_ok());
        assert_eq!(folder.list(), ["link", "target"]);
    }

    /// The system itself refuses to write on, in a process of its own (the limit is the process's).
    #[test]
    fn a_disk_that_fills_up_leaves_what_was_there() {
        let scenario = "HESPER_TEST_FULL_DISK";
        let Some(path) = std::env::var_os(scenario) else {
            let folder = Folder::new("full");
            let path = folder.path("file");
            fs::write(&path, "what was there").unwrap();
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "writing::unix::a_disk_that_fills_up_leaves_what_was_there"])
                .env(scenario, &path)
                .status()
                .unwrap();
            assert!(status.success());
            assert_eq!(fs::read(&path).unwrap(), b"what was there");
            assert_eq!(folder.list(), ["file"], "no temporary file stays");
            return;
        };
        let limit = libc::rlimit { rlim_cur: 5 << 20, rlim_max: 5 << 20 };
        // SAFETY: a valid limit; an ignored signal turns the limit into an error of `write`.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
        let specs = [TensorSpec::new("a", FileDtype::U8, [8 << 20])];
        let data = vec![7; 8 << 20];
        let save = write::save_safetensors(&path, &specs, &[], &mut [data.as_slice()].as_slice());
        let error = save.unwrap_err();
        let Error::InFile { source, .. } = &error else { panic!("{error}") };
        assert!(
            matches!(&**source, Error::Io { source, .. } if source.raw_os_error() == Some(libc::EFBIG)),
            "{error}"
        );
    }
}

#[test]
fn a_saved_file_reads_back_from_path_bytes_and_reader() {
    let folder = Folder::new("paths");
    let path = folder.path("model.gguf");
    let (specs, data) = tensors(in_gguf, 4);
    write::save_gguf(&path, &specs, &[], &mut slices(&data).as_slice()).unwrap();
    assert_same(&TensorFile::open(&path).unwrap(), &specs, &data);
    assert_same(&parse(fs::read(&path).unwrap()).unwrap(), &specs, &data);
    let reader = Source::from_reader(fs::File::open(&path).unwrap()).unwrap();
    assert_same(&TensorFile::parse(reader).unwrap(), &specs, &data);
}
