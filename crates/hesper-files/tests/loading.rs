//! Many tensors read at once, and checkpoints of several files.

use std::fs;
use std::io::Cursor;
use std::num::NonZeroUsize;
use std::sync::Mutex;

use crate::common::{Folder, golden, pattern};
use hesper_files::write::{self, Compression};
use hesper_files::{
    Cancel, Error, FileDtype, LoadOptions, Progress, Request, ShardedFile, Source, TensorFile, TensorSpec,
    load_into,
};

fn options(readers: usize, piece: usize) -> LoadOptions {
    LoadOptions { readers: NonZeroUsize::new(readers).unwrap(), piece: NonZeroUsize::new(piece).unwrap() }
}

fn save(path: &std::path::Path, sizes: &[u64]) -> Vec<Vec<u8>> {
    let specs: Vec<_> = sizes
        .iter()
        .enumerate()
        .map(|(i, &size)| TensorSpec::new(format!("t{i}"), FileDtype::U8, [size]))
        .collect();
    let data: Vec<_> = sizes.iter().enumerate().map(|(i, &size)| pattern(size as usize, i)).collect();
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    write::save_safetensors(path, &specs, &[], &mut slices.as_slice()).unwrap();
    data
}

fn buffers(file: &TensorFile) -> Vec<Vec<u8>> {
    file.tensors().iter().map(|tensor| vec![0xee; tensor.byte_len as usize]).collect()
}

fn requests<'a>(file: &'a TensorFile, buffers: &'a mut [Vec<u8>]) -> Vec<Request<'a>> {
    let pairs = file.tensors().iter().zip(buffers);
    pairs.map(|(tensor, into)| Request { file, tensor, into }).collect()
}

#[test]
fn several_readers_fill_all_buffers_and_report_growing_progress() {
    let folder = Folder::new("load");
    let path = folder.path("file");
    let sizes = [100_000, 0, 1, 65_536, 70_001];
    let data = save(&path, &sizes);
    let total: u64 = sizes.iter().sum();
    for (readers, piece) in [(1, 1 << 20), (4, 4096), (16, 999)] {
        for source in [
            Source::open(&path),
            Source::open_unmapped(&path),
            Ok(Source::from_bytes(fs::read(&path).unwrap())),
        ] {
            let file = TensorFile::parse(source.unwrap()).unwrap();
            let mut buffers = buffers(&file);
            let seen = Mutex::new(Vec::new());
            let requests = requests(&file, &mut buffers);
            let progress = |p: Progress| seen.lock().unwrap().push(p);
            load_into(requests, options(readers, piece), &Cancel::new(), progress).unwrap();
            for (tensor, buffer) in file.tensors().iter().zip(&buffers) {
                let index: usize = tensor.name[1..].parse().unwrap();
                assert!(buffer == &data[index], "{}", tensor.name);
            }
            let seen = seen.into_inner().unwrap();
            assert!(seen.is_sorted_by(|a, b| a.done < b.done));
            assert_eq!(*seen.last().unwrap(), Progress { done: total, total });
        }
    }
}

#[test]
fn compressed_and_swapped_tensors_load_as_they_read() {
    let file = TensorFile::open(golden("deflated.npz")).unwrap();
    let mut buffers = buffers(&file);
    load_into(requests(&file, &mut buffers), options(3, 64), &Cancel::new(), |_| {}).unwrap();
    for (tensor, buffer) in file.tensors().iter().zip(&buffers) {
        assert_eq!(file.read(tensor).unwrap(), buffer.as_slice(), "{}", tensor.name);
    }
}

#[test]
fn a_cancelled_load_ends_early() {
    let folder = Folder::new("cancel");
    save(&folder.path("file"), &[1_000_000]);
    let file = TensorFile::open(folder.path("file")).unwrap();
    let mut buffers = buffers(&file);
    let cancel = Cancel::new();
    let most = Mutex::new(0);
    let result = load_into(requests(&file, &mut buffers), options(2, 1000), &cancel, |p| {
        *most.lock().unwrap() = p.done;
        if p.done >= 10_000 {
            cancel.clone().cancel();
        }
    });
    assert!(matches!(result, Err(Error::Cancelled)));
    assert!(most.into_inner().unwrap() < 100_000);
    assert!(cancel.is_cancelled());
}

#[test]
fn a_load_from_a_truncated_file_or_into_a_wrong_buffer_is_an_error() {
    let folder = Folder::new("bad");
    let path = folder.path("file");
    save(&path, &[200_000]);
    let file = TensorFile::open(&path).unwrap();
    let mut buffers = buffers(&file);
    buffers[0].pop();
    let wrong = load_into(requests(&file, &mut buffers), options(2, 1000), &Cancel::new(), |_| {});
    assert!(matches!(wrong, Err(Error::BufferSize { expected: 200_000, given: 199_999, .. })));
    buffers[0].push(0);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100_000).unwrap();
    let cut = load_into(requests(&file, &mut buffers), options(2, 1000), &Cancel::new(), |_| {});
    assert!(cut.unwrap_err().is_damage());
}

#[test]
fn a_failed_load_can_be_retried_when_its_reader_works_again() {
    /// Fails until told otherwise.
    struct Flaky(Cursor<Vec<u8>>, std::sync::Arc<std::sync::atomic::AtomicBool>);
    impl std::io::Read for Flaky {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            if self.1.load(std::sync::atomic::Ordering::SeqCst) {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            self.0.read(out)
        }
    }
    impl std::io::Seek for Flaky {
        fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
            self.0.seek(to)
        }
    }
    let folder = Folder::new("flaky");
    let data = save(&folder.path("file"), &[5000]);
    let down = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reader = Flaky(Cursor::new(fs::read(folder.path("file")).unwrap()), down.clone());
    let file = TensorFile::parse(Source::from_reader(reader).unwrap()).unwrap();
    let mut buffers = buffers(&file);
    down.store(true, std::sync::atomic::Ordering::SeqCst);
    let failed = load_into(requests(&file, &mut buffers), options(2, 1000), &Cancel::new(), |_| {});
    assert!(matches!(failed, Err(Error::Io { .. })));
    down.store(false, std::sync::atomic::Ordering::SeqCst);
    load_into(requests(&file, &mut buffers), options(2, 1000), &Cancel::new(), |_| {}).unwrap();
    assert_eq!(buffers, data);
}

#[test]
fn a_sharded_checkpoint_is_one_set_of_tensors() {
    let folder = Folder::new("shards");
    for shard in 0..3u8 {
        let spec = TensorSpec::new(format!("w{shard}"), FileDtype::U8, [1]);
        let path = folder.path(&format!("model-{shard}.safetensors"));
        write::save_safetensors(path, &[spec], &[], &mut [&[shard][..]].as_slice()).unwrap();
    }
    let index = folder.path("model.safetensors.index.json");
    let map = r#""w0": "model-0.safetensors", "w1": "model-1.safetensors", "w2": "model-2.safetensors""#;
    fs::write(&index, format!(r#"{{"metadata": {{"total_size": 3}}, "weight_map": {{{map}}}}}"#)).unwrap();
    let sharded = ShardedFile::open(&index).unwrap();
    assert_eq!((sharded.files().len(), sharded.tensors().len()), (3, 3));
    for shard in 0..3u8 {
        let (file, tensor) = sharded.require(&format!("w{shard}")).unwrap();
        assert_eq!(file.read(tensor).unwrap().as_ref(), [shard]);
    }
    assert!(sharded.get("w3").is_none());

    // Without an index, and with a name in two files.
    let paths: Vec<_> = (0..3).map(|i| folder.path(&format!("model-{i}.safetensors"))).collect();
    assert_eq!(ShardedFile::open_all(&paths, &|path| TensorFile::open(path)).unwrap().tensors().len(), 3);
    let twice = [paths[0].clone(), paths[0].clone()];
    assert!(
        ShardedFile::open_all(&twice, &|path| TensorFile::open(path))
            .unwrap_err()
            .to_string()
            .contains("\"w0\"")
    );

    // A tensor that its shard does not have, and a shard that is not there.
    fs::write(&index, r#"{"weight_map": {"w9": "model-0.safetensors"}}"#).unwrap();
    let error = ShardedFile::open(&index).unwrap_err().to_string();
    assert!(error.contains("\"w9\"") && error.contains("model-0.safetensors"), "{error}");
    fs::write(&index, r#"{"weight_map": {"w0": "model-7.safetensors"}}"#).unwrap();
    assert!(ShardedFile::open(&index).unwrap_err().to_string().contains("model-7.safetensors"));
}

#[test]
fn npz_members_that_are_no_arrays_are_listed_and_not_read() {
    let folder = Folder::new("ignored");
    let path = folder.path("file.npz");
    let spec = TensorSpec::new("x", FileDtype::U8, [1]);
    write::save_npz(&path, &[spec], Compression::Stored, &mut [&[5u8][..]].as_slice()).unwrap();
    let bytes = fs::read(&path).unwrap();
    // The same member under a name of the same length that is no array.
    let renamed: Vec<u8> = bytes.windows(5).enumerate().fold(bytes.clone(), |mut out, (i, window)| {
        if window == b"x.npy" {
            out[i..i + 5].copy_from_slice(b"x.txt");
        }
        out
    });
    let file = TensorFile::parse(Source::from_bytes(renamed)).unwrap();
    assert!(file.tensors().is_empty());
    assert_eq!(file.ignored(), ["x.txt"]);
}
