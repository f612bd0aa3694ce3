//! Files that are replaced, deleted, truncated or rewritten while they are mapped: right data, or an error.

#![cfg(unix)]

use std::fs::{self, File, OpenOptions};
use std::io::{Cursor, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, SystemTime};

use crate::common::{Folder, pattern};
use hesper_files::{Error, FileDtype, FileState, Source, TensorFile, TensorSpec, write};

const PAGE: usize = 64 << 10; // A multiple of every system's page.

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&b| u64::from(b)).sum()
}

fn truncate(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// So that a change within the clock tick of the file system is seen.
fn age(path: &Path) {
    let past = SystemTime::now() - Duration::from_secs(100);
    OpenOptions::new().write(true).open(path).unwrap().set_modified(past).unwrap();
}

fn mapped(folder: &Folder, len: usize) -> (std::path::PathBuf, Source) {
    let path = folder.path("data");
    fs::write(&path, pattern(len, 1)).unwrap();
    age(&path);
    let source = Source::open(&path).unwrap();
    assert!(source.in_place(0..1).unwrap().is_some());
    (path, source)
}

#[test]
fn a_replaced_file_still_gives_the_old_bytes() {
    let folder = Folder::new("replaced");
    let (path, source) = mapped(&folder, 3 * PAGE);
    fs::write(folder.path("new"), "new").unwrap();
    fs::rename(folder.path("new"), &path).unwrap();
    assert_eq!(source.bytes(0..source.len()).unwrap(), pattern(3 * PAGE, 1));
    source.check(0..source.len()).unwrap();
    assert_eq!(source.state().unwrap(), FileState::Replaced);
}

#[test]
fn a_deleted_file_still_gives_the_old_bytes() {
    let folder = Folder::new("deleted");
    let (path, source) = mapped(&folder, 3 * PAGE);
    assert_eq!(source.state().unwrap(), FileState::Unchanged);
    fs::remove_file(&path).unwrap();
    assert_eq!(source.bytes(0..source.len()).unwrap(), pattern(3 * PAGE, 1));
    source.check(0..source.len()).unwrap();
    assert_eq!(source.state().unwrap(), FileState::Deleted);
}

#[test]
fn reading_a_truncated_mapping_gives_an_error_and_not_a_dead_process() {
    let folder = Folder::new("truncated");
    let (path, source) = mapped(&folder, 8 * PAGE);
    let all = source.bytes(0..source.len()).unwrap();
    truncate(&path, 0);
    assert_eq!(sum(&all), 0, "the pages that are gone read as zeros");
    let error = source.check(0..source.len()).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert!(error.to_string().contains("data: bytes 0..524288 are not what was opened"), "{error}");
    assert!(source.scan(5..9, sum).unwrap_err().is_damage());
    assert!(source.read_into(0, &mut [0; 10]).unwrap_err().is_damage());
    assert_eq!(source.state().unwrap(), FileState::Damaged);
    // Nothing was asked for, so nothing is wrong.
    source.check(7..7).unwrap();
}

#[test]
fn a_file_cut_within_a_page_raises_no_signal_but_is_found() {
    let folder = Folder::new("cut");
    let (path, source) = mapped(&folder, PAGE);
    truncate(&path, 100);
    let error = source.scan(0..200, sum).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("truncated"), "{error}");
}

#[test]
fn a_file_that_shrank_and_grew_again_is_damaged_where_it_was_read() {
    let folder = Folder::new("regrown");
    let (path, source) = mapped(&folder, 8 * PAGE);
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    truncate(&path, 0);
    let lost = source.bytes(2 * PAGE as u64..3 * PAGE as u64).unwrap();
    assert_eq!(sum(&lost), 0);
    // The same length, bytes and time as before: only the fault tells what the reader saw.
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all(&pattern(8 * PAGE, 1)).unwrap();
    file.set_modified(modified).unwrap();
    assert!(source.check(2 * PAGE as u64..3 * PAGE as u64).unwrap_err().is_damage());
    assert_eq!(
        source.scan(5 * PAGE as u64..6 * PAGE as u64, sum).unwrap(),
        sum(&pattern(8 * PAGE, 1)[5 * PAGE..6 * PAGE])
    );
}

#[test]
fn a_file_that_is_rewritten_in_place_is_found_by_its_time() {
    let folder = Folder::new("rewritten");
    for mapped in [true, false] {
        let path = folder.path("data");
        fs::write(&path, pattern(PAGE, 1)).unwrap();
        age(&path);
        let source = if mapped { Source::open(&path) } else { Source::open_unmapped(&path) }.unwrap();
        assert_eq!(source.in_place(0..1).unwrap().is_some(), mapped);
        let mut file = OpenOptions::new().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start(10)).unwrap();
        file.write_all(b"changed").unwrap();
        assert!(source.scan(0..100, sum).unwrap_err().is_damage());
        assert!(source.read_into(0, &mut [0; 100]).unwrap_err().is_damage());
    }
}

#[test]
fn threads_that_read_while_the_file_is_truncated_all_survive() {
    let folder = Folder::new("threads");
    for round in 0..20 {
        let (path, source) = mapped(&folder, 32 * PAGE);
        let expected = sum(&pattern(32 * PAGE, 1));
        let go = AtomicBool::new(false);
        let damaged = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        while !go.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                        // Until the truncation is noticed, every answer is the right one.
                        loop {
                            match source.scan(0..source.len(), sum) {
                                Ok(seen) => assert_eq!(seen, expected),
                                Err(e) => return e.is_damage(),
                            }
                        }
                    })
                })
                .collect();
            go.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(100 * round));
            truncate(&path, (round % 3) * 7 * PAGE as u64 + 5);
            readers.into_iter().map(|r| r.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(damaged, [true; 4]);
    }
}

#[test]
fn damage_of_one_mapping_does_not_spread_to_others_or_to_later_ones() {
    let folder = Folder::new("spread");
    let other_path = folder.path("other");
    fs::write(&other_path, pattern(4 * PAGE, 2)).unwrap();
    let other = Source::open(&other_path).unwrap();
    let (path, source) = mapped(&folder, 4 * PAGE);
    truncate(&path, 0);
    assert!(source.scan(0..10, sum).is_err());
    assert_eq!(other.scan(0..other.len(), sum).unwrap(), sum(&pattern(4 * PAGE, 2)));
    drop(source);
    // The next mapping takes the slot of the damaged one.
    let next = Source::open(&other_path).unwrap();
    assert_eq!(next.scan(0..next.len(), sum).unwrap(), sum(&pattern(4 * PAGE, 2)));
}

#[test]
fn saving_over_the_file_that_a_mapping_reads_keeps_both_right() {
    let folder = Folder::new("over");
    let path = folder.path("model.safetensors");
    let specs = [TensorSpec::new("w", FileDtype::U8, [4 * PAGE as u64])];
    let first = pattern(4 * PAGE, 5);
    write::save_safetensors(&path, &specs, &[], &mut [first.as_slice()].as_slice()).unwrap();
    let file = TensorFile::open(&path).unwrap();
    let w = file.require("w").unwrap().clone();
    let lazy = file.in_place(&w).unwrap().expect("mapped");

    // Each byte of the new file comes from the mapping of the old one.
    let changed: Vec<u8> = lazy.iter().map(|b| b ^ 255).collect();
    let mut calls = 0;
    let mut producer = |_: usize, out: &mut dyn Write| {
        calls += 1;
        out.write_all(&lazy[..PAGE])?;
        Ok(out.write_all(&changed[PAGE..])?)
    };
    write::save_safetensors(&path, &specs, &[], &mut producer).unwrap();
    assert_eq!(calls, 1);
    assert_eq!(lazy, first, "the old mapping still reads the old file");
    file.source().check(w.in_place().unwrap()).unwrap();
    let saved = TensorFile::open(&path).unwrap();
    let bytes = saved.read(saved.require("w").unwrap()).unwrap();
    assert_eq!(bytes[..PAGE], first[..PAGE]);
    assert_eq!(bytes[PAGE..], changed[PAGE..]);
    assert_eq!(folder.list(), ["model.safetensors"]);
}

#[test]
fn sources_of_all_kinds_give_the_same_bytes_and_bounds() {
    let folder = Folder::new("kinds");
    let (path, mapped) = mapped(&folder, 1000);
    let sources = [
        mapped,
        Source::open_unmapped(&path).unwrap(),
        Source::from_bytes(pattern(1000, 1)),
        Source::from_reader(Cursor::new(pattern(1000, 1))).unwrap(),
    ];
    for source in &sources {
        assert_eq!(source.len(), 1000);
        assert_eq!(source.bytes(10..990).unwrap(), &pattern(1000, 1)[10..990], "{source:?}");
        assert_eq!(source.bytes(1000..1000).unwrap().len(), 0);
        #[allow(clippy::reversed_empty_ranges)]
        for bad in [0..1001, 20..10, u64::MAX..u64::MAX, 0..u64::MAX] {
            assert!(matches!(source.bytes(bad), Err(Error::OutOfRange { .. })), "{source:?}");
        }
        assert!(source.read_into(995, &mut [0; 6]).is_err());
        assert!(source.read_into(u64::MAX, &mut [0; 6]).is_err());
    }
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let folder = Folder::new("nofile");
    assert!(matches!(Source::open(folder.path("")), Err(Error::NotAFile(_))));
    let missing = Source::open(folder.path("missing")).unwrap_err();
    assert!(matches!(&missing, Error::Io { .. }) && missing.to_string().contains("missing"), "{missing}");
    let pipe = folder.path("pipe");
    let status = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(status.success());
    // Opening it would wait for a writer that never comes.
    assert!(matches!(Source::open(&pipe), Err(Error::NotAFile(_))));
    fs::write(folder.path("empty"), "").unwrap();
    assert!(matches!(TensorFile::open(folder.path("empty")), Err(Error::InFile { .. })));
}

/// Faults at an address that is no mapping of ours.
fn foreign_fault() {
    let folder = Folder::new("foreign");
    let path = folder.path("foreign");
    fs::write(&path, vec![1; PAGE]).unwrap();
    let file = File::open(&path).unwrap();
    // SAFETY: a new mapping; reading it after the truncation faults, which is what the test wants.
    unsafe {
        let at =
            libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        truncate(&path, 0);
        drop(folder);
        std::ptr::read_volatile(at.cast::<u8>());
    }
}

/// Opens a mapping and loses it, so that our handler is installed and has done its work.
fn survive_once() {
    let folder = Folder::new("once");
    let (path, source) = mapped(&folder, PAGE);
    truncate(&path, 0);
    assert!(source.scan(0..10, sum).unwrap_err().is_damage());
}

static CALLED: AtomicI32 = AtomicI32::new(0);

extern "C" fn earlier_handler(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's own, passed on; `_exit` is async-signal-safe.
    unsafe {
        CALLED.fetch_add(1, Ordering::SeqCst);
        let code = if (*info).si_addr().is_null() { 41 } else { 42 };
        libc::_exit(code);
    }
}

/// Runs one of the scenarios below in a process of its own, which is expected to die.
fn run_alone(scenario: &str) -> std::process::ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "changing_files::scenario_of_a_process_that_dies", "--nocapture"])
        .env("HESPER_TEST_SCENARIO", scenario)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap()
}

#[test]
fn scenario_of_a_process_that_dies() {
    match std::env::var("HESPER_TEST_SCENARIO").as_deref() {
        Ok("default") => {
            survive_once();
            foreign_fault();
        }
        Ok("earlier") => {
            // SAFETY: a valid handler of the three-argument form.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    earlier_handler;
                action.sa_sigaction = handler as usize;
                action.sa_flags = libc::SA_SIGINFO;
                assert_eq!(libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()), 0);
            }
            survive_once();
            assert_eq!(CALLED.load(Ordering::SeqCst), 0, "our own fault is not passed on");
            foreign_fault();
        }
        Ok("sent") => {
            survive_once();
            // Twice: Rust's own handler, which was there before, answers the first by restoring the default.
            // SAFETY: raising a signal is always allowed.
            unsafe {
                libc::raise(libc::SIGBUS);
                libc::raise(libc::SIGBUS);
            }
        }
        _ => {}
    }
}

#[test]
fn faults_of_others_take_the_default_action() {
    assert_eq!(run_alone("default").signal(), Some(libc::SIGBUS));
}

#[test]
fn faults_of_others_reach_the_handler_that_was_there_before() {
    assert_eq!(run_alone("earlier").code(), Some(42));
}

#[test]
fn a_signal_that_is_sent_is_passed_on_and_kills_in_the_end() {
    assert_eq!(run_alone("sent").signal(), Some(libc::SIGBUS));
}
