//! Lazy arrays from files: kernels, threads, views, failures, and files that change while their arrays are in
//! use.

use std::fs::OpenOptions;
use std::io::{Cursor, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::folder::Folder;
use hesper::{Array, CustomKernel, Dtype, Error, async_eval, eval, io, placement};

const LEN: usize = 64 << 10;

fn ramp(len: usize) -> Vec<f32> {
    (0..len).map(|at| (at % 1013) as f32 - 500.0).collect()
}

/// A safetensors file of several tensors of `LEN` floats, larger than a few pages each.
fn write(path: &Path, count: usize) {
    let arrays: Vec<Array> = (0..count).map(|at| Array::from_slice(&ramp(LEN)) + at as f32).collect();
    let named = arrays.iter().enumerate().map(|(at, array)| (format!("t{at}"), array));
    io::save_safetensors(path, named, &[]).unwrap();
}

fn expected(at: usize) -> Vec<f32> {
    ramp(LEN).into_iter().map(|x| x + at as f32).collect()
}

fn doubled(x: &Array) -> Array {
    let source = "uint i = thread_position_in_grid.x; out[i] = x[i] * 2.0f;";
    let kernel = CustomKernel::new("double", &["x"], &["out"], source).unwrap();
    let call = kernel.call(std::slice::from_ref(x)).grid([x.size() as u64, 1, 1]).threadgroup([256, 1, 1]);
    call.output(x.shape(), Dtype::Float32).run().unwrap().remove(0)
}

#[test]
fn tensors_of_a_mapped_file_are_used_in_place() {
    let folder = Folder::new("place");
    let path = folder.path("a.safetensors");
    write(&path, 2);
    let file = io::load(&path).unwrap();
    assert!(!file.require("t0").unwrap().is_evaluated());
    let address = |name: &str| file.require(name).unwrap().host().unwrap().as_ptr() as usize;
    assert_eq!(address("t0") + LEN * 4, address("t1"), "they lie as in the file");
    assert!(file.require("t0").unwrap().is_evaluated());
}

#[test]
fn lazy_arrays_enter_fused_and_custom_kernels_before_and_after_they_are_evaluated() {
    let folder = Folder::new("kernels");
    let path = folder.path("a.safetensors");
    write(&path, 2);
    for mapped in [true, false] {
        for evaluated in [false, true] {
            let options = io::Options { mapped, ..Default::default() };
            let file = io::load_with(&path, &options).unwrap();
            let (x, y) = (file.require("t0").unwrap(), file.require("t1").unwrap());
            if evaluated {
                eval([x, y]).unwrap();
            }
            let custom = doubled(x);
            let fused = (x * 2.0).add(y).unwrap();
            let sum = fused.sum(()).unwrap();
            assert_eq!(
                custom.to_vec::<f32>().unwrap(),
                expected(0).iter().map(|x| x * 2.0).collect::<Vec<_>>()
            );
            let both: Vec<f32> = expected(0).iter().zip(expected(1)).map(|(x, y)| x * 2.0 + y).collect();
            assert_eq!(fused.to_vec::<f32>().unwrap(), both);
            assert!(sum.item::<f32>().unwrap().is_finite());
        }
    }
}

#[test]
fn sixty_four_threads_use_the_arrays_of_one_file() {
    let folder = Folder::new("threads");
    let path = folder.path("a.safetensors");
    write(&path, 8);
    for mapped in [true, false] {
        let file = io::load_with(&path, &io::Options { mapped, ..Default::default() }).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..64 {
                let file = &file;
                scope.spawn(move || {
                    let at = thread % 8;
                    let x = file.require(&format!("t{at}")).unwrap();
                    let y = if thread % 2 == 0 { doubled(x) } else { x * 2.0 };
                    let want: Vec<f32> = expected(at).iter().map(|x| x * 2.0).collect();
                    assert_eq!(y.to_vec::<f32>().unwrap(), want);
                });
            }
        });
    }
}

/// A reader that fails while a flag is set.
struct Flaky {
    bytes: Cursor<Vec<u8>>,
    fails: Arc<AtomicBool>,
    reads: Arc<AtomicUsize>,
}

impl Read for Flaky {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("the network is down"));
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.read(out)
    }
}

impl Seek for Flaky {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.bytes.seek(to)
    }
}

fn flaky(bytes: Vec<u8>) -> (Flaky, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (fails, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    (Flaky { bytes: Cursor::new(bytes), fails: fails.clone(), reads: reads.clone() }, fails, reads)
}

#[test]
fn a_failed_load_is_retried_and_done_once() {
    let mut bytes = Vec::new();
    io::write_safetensors(&mut bytes, [("w", &Array::from_slice(&ramp(100)))], &[]).unwrap();
    let (reader, fails, reads) = flaky(bytes);
    let file = io::load_reader(reader).unwrap();
    let w = file.require("w").unwrap();
    let y = w * 2.0;
    fails.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        let error = y.eval().unwrap_err();
        assert!(matches!(error, Error::File(_)) && error.to_string().contains("network is down"), "{error}");
        assert!(!w.is_evaluated() && !y.is_evaluated());
    }
    assert!(doubled(w).to_vec::<f32>().is_err());
    fails.store(false, Ordering::Relaxed);
    let want: Vec<f32> = ramp(100).iter().map(|x| x * 2.0).collect();
    assert_eq!(y.to_vec::<f32>().unwrap(), want);
    let once = reads.load(Ordering::Relaxed);
    assert_eq!(doubled(w).to_vec::<f32>().unwrap(), want);
    assert_eq!(reads.load(Ordering::Relaxed), once, "it was read once");
}

#[test]
fn threads_that_share_a_failing_load_all_get_its_error_and_none_hangs() {
    let mut bytes = Vec::new();
    io::write_safetensors(&mut bytes, [("w", &Array::from_slice(&ramp(100)))], &[]).unwrap();
    let (reader, fails, _) = flaky(bytes);
    let file = io::load_reader(reader).unwrap();
    let w = file.require("w").unwrap();
    fails.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert!((w + 1.0).eval().is_err()));
        }
    });
    fails.store(false, Ordering::Relaxed);
    assert_eq!(w.to_vec::<f32>().unwrap(), ramp(100));
}

#[test]
fn tensors_without_elements_load_compute_and_save() {
    let folder = Folder::new("empty");
    let empty = Array::zeros(&[3, 0, 2], Dtype::Float32).unwrap();
    let one = Array::from_slice(&[1.0f32]);
    for end in ["safetensors", "npz", "gguf"] {
        let path = folder.path(&format!("a.{end}"));
        let named = [("empty", &empty), ("one", &one)];
        match end {
            "safetensors" => io::save_safetensors(&path, named, &[]).unwrap(),
            "npz" => io::save_npz(&path, named).unwrap(),
            _ => io::save_gguf(&path, named, &[]).unwrap(),
        }
        let file = io::load(&path).unwrap();
        let loaded = file.require("empty").unwrap();
        assert_eq!(loaded.shape(), [3, 0, 2], "{end}");
        assert_eq!((loaded + 1.0).to_vec::<f32>().unwrap(), [0f32; 0]);
        assert_eq!(loaded.sum(()).unwrap().item::<f32>().unwrap(), 0.0);
        assert_eq!(file.require("one").unwrap().to_vec::<f32>().unwrap(), [1.0]);
    }
}

#[test]
fn views_of_lazy_arrays_are_views_of_the_file() {
    let folder = Folder::new("views");
    let path = folder.path("a.safetensors");
    write(&path, 1);
    let rows = expected(0);
    for mapped in [true, false] {
        let file = io::load_with(&path, &io::Options { mapped, ..Default::default() }).unwrap();
        let x = file.require("t0").unwrap().reshape(&[256, 256]).unwrap();
        let part = x.slice(&[1, 2], &[255, 250], &[3, 2]).unwrap().t().unwrap();
        assert!(!part.is_evaluated());
        let want: Vec<f32> = (2..250)
            .step_by(2)
            .flat_map(|c| (1..255).step_by(3).map(move |r| (r, c)))
            .map(|(r, c)| rows[r * 256 + c])
            .collect();
        assert_eq!(doubled(&part).to_vec::<f32>().unwrap(), want.iter().map(|x| x * 2.0).collect::<Vec<_>>());
        assert_eq!((&part + 1.0).to_vec::<f32>().unwrap(), want.iter().map(|x| x + 1.0).collect::<Vec<_>>());
        assert_eq!(part.to_vec::<f32>().unwrap(), want);
    }
}

#[test]
fn lazy_arrays_can_be_saved_over_the_file_they_come_from() {
    let folder = Folder::new("over");
    let path = folder.path("a.safetensors");
    write(&path, 3);
    let file = io::load(&path).unwrap();
    let evaluated = file.require("t1").unwrap();
    evaluated.eval().unwrap();
    let changed = file.require("t0").unwrap() * 10.0;
    let arrays = [("t2", file.require("t2").unwrap()), ("t1", evaluated), ("t0", &changed)];
    io::save_safetensors(&path, arrays, &[]).unwrap();
    assert_eq!(
        file.require("t0").unwrap().to_vec::<f32>().unwrap(),
        expected(0),
        "the old file is still there"
    );
    let again = io::load(&path).unwrap();
    assert_eq!(again.require("t0").unwrap().to_vec::<f32>().unwrap(), changed.to_vec::<f32>().unwrap());
    for at in [1, 2] {
        assert_eq!(again.require(&format!("t{at}")).unwrap().to_vec::<f32>().unwrap(), expected(at));
    }
    assert_eq!(folder.list(), ["a.safetensors"]);
}

#[test]
fn a_replaced_or_deleted_file_keeps_its_old_content() {
    let folder = Folder::new("replaced");
    let path = folder.path("a.safetensors");
    for mapped in [true, false] {
        write(&path, 1);
        let file = io::load_with(&path, &io::Options { mapped, ..Default::default() }).unwrap();
        std::fs::write(folder.path("new"), b"nothing").unwrap();
        std::fs::rename(folder.path("new"), &path).unwrap();
        assert_eq!((file.require("t0").unwrap() + 1.0).to_vec::<f32>().unwrap(), expected(1));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.require("t0").unwrap().to_vec::<f32>().unwrap(), expected(0));
    }
}

fn cut(path: &PathBuf, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

#[test]
fn a_file_that_was_truncated_gives_errors_before_and_after_evaluation() {
    let folder = Folder::new("truncated");
    let path = folder.path("a.safetensors");
    // To nothing, at the end of a page, within a page (whose rest reads as zeros without a signal).
    for len in [0, 64 << 10, (64 << 10) + 123] {
        for evaluated in [false, true] {
            for mapped in [false, true] {
                write(&path, 2);
                let file = io::load_with(&path, &io::Options { mapped, ..Default::default() }).unwrap();
                let (x, y) = (file.require("t0").unwrap(), file.require("t1").unwrap());
                let copy = x + 0.0;
                copy.eval().unwrap();
                let fused = (x * 2.0).add(y).unwrap();
                if evaluated {
                    eval([x, y]).unwrap();
                }
                cut(&path, len);
                if mapped || !evaluated {
                    let results = [fused.to_vec::<f32>(), y.to_vec::<f32>(), doubled(y).to_vec::<f32>()];
                    for result in results {
                        let error = result.unwrap_err();
                        assert!(error.is_damage(), "{error}");
                        assert!(error.to_string().contains("truncated"), "{error}");
                    }
                    let saved = io::save_npy(folder.path("out.npy"), y).unwrap_err();
                    assert!(saved.is_damage(), "{saved}");
                    assert!(!folder.path("out.npy").exists());
                } else {
                    assert_eq!(y.to_vec::<f32>().unwrap(), expected(1), "it was read before");
                }
                assert_eq!(copy.to_vec::<f32>().unwrap(), expected(0), "what was computed before is whole");
            }
        }
    }
}

#[test]
fn a_file_truncated_under_running_kernels_gives_right_results_or_an_error() {
    let folder = Folder::new("racing");
    let (mut right, mut failed) = (0, 0);
    for round in 0..24 {
        let path = folder.path(&format!("{round}.safetensors"));
        write(&path, 8);
        let file = io::load(&path).unwrap();
        let results: Vec<Array> = (0..8).map(|at| file.require(&format!("t{at}")).unwrap() * 2.0).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_micros(60 * round));
                cut(&path, 4096);
            });
            let _ = async_eval(&results);
        });
        for (at, result) in results.iter().enumerate() {
            match result.to_vec::<f32>() {
                Ok(numbers) => {
                    assert_eq!(numbers, expected(at).iter().map(|x| x * 2.0).collect::<Vec<_>>());
                    right += 1;
                }
                Err(error) => {
                    assert!(error.is_damage(), "{error}");
                    failed += 1;
                }
            }
        }
    }
    assert_eq!(right + failed, 24 * 8);
    assert!(Array::from_slice(&[1.0f32]).add(1.0).unwrap().item::<f32>().unwrap() == 2.0, "all else goes on");
}

#[test]
fn a_failed_save_keeps_the_old_file() {
    let folder = Folder::new("kept");
    let (source, path) = (folder.path("source.safetensors"), folder.path("a.safetensors"));
    write(&source, 2);
    std::fs::write(&path, b"what was there").unwrap();
    let file = io::load(&source).unwrap();
    let arrays: Vec<(String, Array)> = file.into_arrays();
    cut(&source, 5000);
    let error = io::save_safetensors(&path, arrays.iter().map(|(n, a)| (n.as_str(), a)), &[]).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"what was there");
    assert_eq!(folder.list(), ["a.safetensors", "source.safetensors"]);
}

/// A disk with a limited number of free bytes.
struct Disk(usize);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.0 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_and_the_arrays_stay_usable() {
    let x = Array::from_slice(&ramp(LEN)) * 2.0;
    for room in [0, 100, LEN] {
        let error = io::write_safetensors(&mut Disk(room), [("x", &x)], &[]).unwrap_err();
        match error {
            Error::File(error) => assert!(error.to_string().contains("storage"), "{error}"),
            other => panic!("{other}"),
        }
    }
    assert_eq!(x.to_vec::<f32>().unwrap().len(), LEN);
}

#[test]
fn memory_that_is_not_there_is_an_error_and_the_load_can_be_tried_again() {
    // In a process of its own: the limit is the process's.
    if std::env::var_os("HESPER_TEST_MEMORY").is_none() {
        let me = std::env::current_exe().unwrap();
        let name = "files::memory_that_is_not_there_is_an_error_and_the_load_can_be_tried_again";
        let status =
            std::process::Command::new(me).args([name, "--exact"]).env("HESPER_TEST_MEMORY", "1").status();
        assert!(status.unwrap().success());
        return;
    }
    let mut bytes = Vec::new();
    io::write_safetensors(&mut bytes, [("w", &Array::from_slice(&ramp(LEN)))], &[]).unwrap();
    let (reader, ..) = flaky(bytes);
    let file = io::load_reader(reader).unwrap();
    placement::cpu().clear_cache();
    let limit = placement::cpu().set_memory_limit(1000);
    let w = file.require("w").unwrap();
    let error = w.eval().unwrap_err();
    assert!(matches!(error, Error::Runtime(hesper_runtime::Error::OutOfMemory { .. })), "{error}");
    placement::cpu().set_memory_limit(limit);
    assert_eq!(w.to_vec::<f32>().unwrap(), ramp(LEN));
}

#[test]
fn arrays_belong_to_the_stream_that_they_were_loaded_for() {
    let folder = Folder::new("stream");
    let path = folder.path("a.safetensors");
    write(&path, 1);
    let stream = placement::cpu().stream().unwrap();
    let file = placement::with_stream(&stream, || io::load(&path)).unwrap();
    let y = file.require("t0").unwrap() + 1.0;
    assert_eq!(y.to_vec::<f32>().unwrap(), expected(1));
    stream.close();
    drop(file);
    assert_eq!(y.to_vec::<f32>().unwrap(), expected(1));
}

#[test]
fn all_of_a_file_is_read_with_progress_and_can_be_cancelled() {
    let folder = Folder::new("read");
    let path = folder.path("a.safetensors");
    write(&path, 4);
    let seen = AtomicUsize::new(0);
    let file = io::load(&path).unwrap();
    let total = file.byte_len();
    assert_eq!(total, 4 * 4 * LEN as u64);
    let read = file.read(io::Reading::default(), &io::Cancel::new(), |progress| {
        assert_eq!(progress.total, total);
        seen.store(progress.done as usize, Ordering::Relaxed);
    });
    let read = read.unwrap();
    assert_eq!(seen.load(Ordering::Relaxed) as u64, total);
    cut(&path, 0);
    for at in 0..4 {
        assert_eq!(read.require(&format!("t{at}")).unwrap().to_vec::<f32>().unwrap(), expected(at));
    }
    write(&path, 4);
    let cancel = io::Cancel::new();
    let ended = io::load(&path).unwrap().read(io::Reading::default(), &cancel, |_| cancel.cancel());
    match ended {
        Err(Error::File(error)) => assert!(matches!(*error, hesper_files::Error::Cancelled), "{error}"),
        other => panic!("{other:?}"),
    }
}
