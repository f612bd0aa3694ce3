//! Writers and copies hold a buffer, never a tensor.

use std::io::{self, Seek, SeekFrom, Write};

use crate::common::Folder;
use crate::counting::peak_of;
use hesper_files::write::{self, Compression, ProducerError};
use hesper_files::{FileDtype, Source, TensorFile, TensorSpec};

/// Takes everything, keeps nothing.
#[derive(Default)]
struct Sink(u64);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Sink {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if let SeekFrom::Start(at) = to {
            self.0 = at;
        }
        Ok(self.0)
    }
}

#[test]
fn the_counter_counts() {
    let ((), peak) = peak_of(|| drop(std::hint::black_box(vec![0u8; 3 << 20])));
    assert!(peak >= 3 << 20);
}

#[test]
fn writers_hold_no_tensor_whatever_its_size() {
    let specs =
        [TensorSpec::new("a", FileDtype::I8, [16 << 20]), TensorSpec::new("b", FileDtype::I8, [16 << 20])];
    let chunk = [5u8; 4096];
    let mut produce = |_: usize, out: &mut dyn Write| -> Result<(), ProducerError> {
        (0..(16 << 20) / 4096).try_for_each(|_| Ok(out.write_all(&chunk)?))
    };
    for which in 0..5 {
        let mut out = Sink::default();
        let (result, peak) = peak_of(|| match which {
            0 => write::safetensors(&mut out, &specs, &[], &mut produce),
            1 => write::npy(&mut out, &specs[0], &mut produce),
            2 => write::npz(&mut out, &specs, Compression::Stored, &mut produce),
            3 => write::npz(&mut out, &specs, Compression::Deflated, &mut produce),
            _ => write::gguf(&mut out, &specs, &[], &mut produce),
        });
        result.unwrap();
        assert!(peak < 1 << 20, "writer {which} held {peak} bytes");
    }
}

#[test]
fn a_tensor_is_copied_from_file_to_file_through_a_buffer() {
    let folder = Folder::new("copy");
    let (from, to) = (folder.path("from.safetensors"), folder.path("to.gguf"));
    let specs = [TensorSpec::new("w", FileDtype::F32, [5 << 20])];
    let data: Vec<u8> = (0..20u32 << 20).map(|i| (i % 249) as u8).collect();
    write::save_safetensors(&from, &specs, &[], &mut [data.as_slice()].as_slice()).unwrap();
    for source in [Source::open(&from).unwrap(), Source::open_unmapped(&from).unwrap()] {
        let file = TensorFile::parse(source).unwrap();
        let mut produce = |i: usize, out: &mut dyn Write| -> Result<(), ProducerError> {
            Ok(file.copy_to(&file.tensors()[i], out)?)
        };
        let (saved, peak) = peak_of(|| write::save_gguf(&to, &specs, &[], &mut produce));
        saved.unwrap();
        assert!(peak < 4 << 20, "held {peak} bytes");
        let copy = TensorFile::open(&to).unwrap();
        assert!(copy.read(copy.require("w").unwrap()).unwrap() == data);
    }
}

#[test]
fn a_copy_from_a_file_that_was_truncated_fails_and_leaves_what_was_there() {
    let folder = Folder::new("copy-cut");
    let (from, to) = (folder.path("from"), folder.path("to"));
    let specs = [TensorSpec::new("w", FileDtype::U8, [3 << 20])];
    write::save_safetensors(&from, &specs, &[], &mut [vec![1; 3 << 20].as_slice()].as_slice()).unwrap();
    let file = TensorFile::open(&from).unwrap();
    std::fs::write(&to, "what was there").unwrap();
    std::fs::OpenOptions::new().write(true).open(&from).unwrap().set_len(2 << 20).unwrap();
    let mut produce = |i: usize, out: &mut dyn Write| -> Result<(), ProducerError> {
        Ok(file.copy_to(&file.tensors()[i], out)?)
    };
    let error = write::save_safetensors(&to, &specs, &[], &mut produce).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert_eq!(std::fs::read(&to).unwrap(), b"what was there");
    assert_eq!(folder.list(), ["from", "to"]);
}

#[test]
fn sources_and_files_go_to_any_thread() {
    fn free<T: Send + Sync + 'static>() {}
    free::<Source>();
    free::<TensorFile>();
    free::<hesper_files::ShardedFile>();
    free::<hesper_files::Error>();
    free::<hesper_files::Cancel>();
}
