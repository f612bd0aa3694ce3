//! `hesper files` on files that the tests write.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hesper::{Array, Dtype, io};

fn hesper(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hesper")).arg("files").args(arguments).output().unwrap()
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

struct Folder(PathBuf);

impl Folder {
    fn new(label: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hesper-cli-{label}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn sample(path: &str) {
    let a = Array::from_slice(&[1.0f32, f32::NAN, f32::INFINITY, 2.0]);
    let b = Array::ones(&[2, 3], Dtype::Float16).unwrap();
    io::save_safetensors(path, [("a", &a), ("b", &b)], &[("note".into(), "hello".into())]).unwrap();
}

#[test]
fn show_lists_tensors_and_metadata() {
    let folder = Folder::new("show");
    sample(&folder.path("a.safetensors"));
    let output = hesper(&["show", &folder.path("a.safetensors")]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in ["note = \"hello\"", "F32", "F16", "[2 x 3]", "2 tensors, 28 B"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
}

#[test]
fn check_reads_all_tensors_counts_non_finite_elements_and_fails_on_corruption() {
    let folder = Folder::new("check");
    let path = folder.path("a.safetensors");
    sample(&path);
    let output = hesper(&["check", &path]);
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("a: 2 elements are not finite"), "{}", text(&output.stdout));

    let archive = folder.path("a.npz");
    io::save_npz(&archive, [("a", &Array::from_slice(&[7u8; 1000]))]).unwrap();
    assert!(hesper(&["check", &archive]).status.success());
    let mut bytes = std::fs::read(&archive).unwrap();
    let at = bytes.windows(8).position(|window| window == [7; 8]).unwrap();
    bytes[at + 100] ^= 1;
    std::fs::write(&archive, bytes).unwrap();
    let output = hesper(&["check", &archive]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("\"a\""), "{}", text(&output.stderr));
}

#[test]
fn convert_writes_all_formats_and_keeps_the_target_on_failure() {
    let folder = Folder::new("convert");
    let first = folder.path("a.safetensors");
    sample(&first);
    let mut from = first.clone();
    for to in ["b.npz", "c.gguf", "d.safetensors"].map(|name| folder.path(name)) {
        let output = hesper(&["convert", &from, &to]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        from = to;
    }
    let (original, converted) = (io::load(&first).unwrap(), io::load(&from).unwrap());
    for name in ["a", "b"] {
        let bytes = |file: &io::Loaded| file.require(name).unwrap().read_bytes(<[u8]>::to_vec).unwrap();
        assert_eq!(bytes(&original), bytes(&converted));
    }
    let kept = folder.path("kept.npy");
    std::fs::write(&kept, "kept").unwrap();
    let output = hesper(&["convert", &first, &kept]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("one array"), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(Path::new(&kept)).unwrap(), b"kept");
}

#[cfg(unix)]
#[test]
fn an_interrupted_check_exits_with_130() {
    let folder = Folder::new("interrupt");
    let path = folder.path("large.npy");
    io::save_npy(&path, &Array::zeros(&[16], Dtype::Uint8).unwrap()).unwrap();
    // The same header with a larger shape, and a sparse file instead of the data.
    let bytes = std::fs::read(&path).unwrap();
    let header =
        String::from_utf8_lossy(&bytes[10..128]).replace("(16,), }            ", "(68719476736,), }   ");
    std::fs::write(&path, [&bytes[..10], header.as_bytes()].concat()).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(128 + 68_719_476_736).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hesper"));
    let mut child = command.args(["files", "check", &path]).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(child.try_wait().unwrap().is_none(), "64 GiB take longer");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
