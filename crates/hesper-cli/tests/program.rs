//! The program as a user runs it: its output, its errors and its exit codes.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn hesper(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hesper"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    exit_and_output(hesper(arguments).output().unwrap())
}

fn exit_and_output(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn with_input(arguments: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
    let mut child = hesper(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Ignore an error: a program that refuses its arguments does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    exit_and_output(child.wait_with_output().unwrap())
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("hesper-cli-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

#[test]
fn generate_continues_a_prompt_and_prints_a_summary() {
    let (code, out, err) = run(&["generate", "--model", "demo", "-n", "8", "A language model"]);
    assert_eq!((code, out.as_str()), (Some(0), " reads a text and guesses the next word\n"));
    assert!(err.contains("tokens/s") && err.contains("maximum number of tokens"), "{err}");
    let (code, out, err) = run(&["generate", "--model", "demo", "-n", "8", "-q", "A language model"]);
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (Some(0), " reads a text and guesses the next word\n", "")
    );
    let (code, out, _) = with_input(&["generate", "--model", "demo", "-n", "8"], b"A language model\n");
    assert_eq!((code, out.as_str()), (Some(0), " reads a text and guesses the next word\n"));
}

#[test]
fn a_missing_device_is_refused_and_the_cpu_is_available() {
    let ask = |device: &str| {
        run(&["generate", "--model", "demo", "-n", "2", "--device", device, "-q", "A language"])
    };
    assert_eq!(ask("cpu").0, Some(0));
    let (code, _, err) = ask("gpu:97");
    assert!(code == Some(1) && err.contains("gpu:97") && err.contains("there is no GPU"), "{err}");
    let (code, _, err) = ask("toaster");
    assert!(code == Some(2) && err.contains("toaster"), "{err}");
    let mut command = hesper(&["generate", "--model", "demo", "-n", "2", "-q", "A language"]);
    let (code, _, err) = exit_and_output(command.env("HESPER_DEVICE", "gpu:97").output().unwrap());
    assert!(code == Some(1) && err.contains("HESPER_DEVICE"), "{err}");
}

#[test]
fn json_output_is_one_object() {
    let (code, out, err) = run(&["generate", "--model", "demo", "-n", "5", "--json", "The old poets"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((value["finish"].as_str(), value["generated_tokens"].as_u64()), (Some("length"), Some(5)));
    assert_eq!(value["tokens"].as_array().unwrap().len(), 5);
    let (code, out, _) = run(&[
        "bench", "--model", "demo", "--prompt", "8", "--tokens", "4", "--batch", "2", "--runs", "1", "--json",
    ]);
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(code == Some(0) && value["decode"]["tokens_per_second"].as_f64().unwrap() > 0.0, "{out}");
}

#[test]
fn invalid_input_is_refused_with_a_reason_and_an_exit_code() {
    let refused = |arguments: &[&str], reason: &str, expected: i32| {
        let (code, _, err) = with_input(arguments, b"");
        assert_eq!(code, Some(expected), "{arguments:?}: {err}");
        assert!(err.contains(reason), "{arguments:?}: {err}");
    };
    refused(&["generate", "--model", "demo", "  "], "empty", 1);
    refused(&["generate", "--model", "demo"], "empty", 1);
    refused(&["generate", "--model", "no/such/model", "x"], "no/such/model", 1);
    refused(&["generate", "--model", "demo", "--top-p", "7", "x"], "top_p", 1);
    refused(&["generate", "--model", "demo", "--window", "3", "x"], "window", 1);
    refused(&["generate", "--model", "demo", "--system", "be kind", "x"], "--system", 1);
    refused(&["generate", "--no-such-flag"], "--no-such-flag", 2);
    refused(&["chat", "--model", "demo"], "cannot chat", 1);
    refused(&["quantize", "demo", "/tmp", "--bits", "7"], "7 bits", 1);
    let (code, _, err) = with_input(&["generate", "--model", "demo"], b"\xff\xfe");
    assert!(code == Some(1) && err.contains("UTF-8"), "{err}");
    let long = "star ".repeat(5000);
    let (code, _, err) = with_input(&["generate", "--model", "demo"], long.as_bytes());
    assert!(code == Some(1) && err.contains("4096"), "{err}");
}

#[test]
fn a_truncated_or_unrelated_file_is_not_a_model() {
    let path = folder("cut");
    std::fs::create_dir_all(&path).unwrap();
    for (name, bytes) in [("a.gguf", &b"GGUF\x03\0\0\0"[..]), ("b.gguf", b"hello"), ("c.gguf", b"")] {
        let file = path.join(name);
        std::fs::write(&file, bytes).unwrap();
        let (code, _, err) = run(&["generate", "--model", &file.to_string_lossy(), "x"]);
        assert!(code == Some(1) && !err.is_empty() && !err.contains("panicked"), "{name}: {err}");
    }
    let (code, _, err) = run(&["generate", "--model", &path.to_string_lossy(), "x"]);
    assert!(code == Some(1) && err.contains("3 GGUF files"), "{err}");
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn without_a_network_the_demo_is_offered() {
    let cache = folder("cache");
    let output = hesper(&["generate", "x"]).env("HESPER_CACHE", &cache).env("PATH", "").output().unwrap();
    let (code, _, err) = exit_and_output(output);
    assert!(code == Some(1) && err.contains("--model demo"), "{err}");
    let left = std::fs::read_dir(cache.join("models")).unwrap().count();
    assert_eq!(left, 0, "a failed fetch leaves files behind");
    std::fs::remove_dir_all(cache).unwrap();
}

#[test]
fn quantize_makes_a_smaller_model_that_works() {
    let to = folder("codes");
    let path = to.to_string_lossy().to_string();
    let (code, out, err) = run(&["quantize", "demo", &path, "--bits", "8"]);
    assert!(code == Some(0) && out.contains("matrices quantized"), "{out}{err}");
    let (code, out, _) = run(&["generate", "--model", &path, "-n", "8", "A language model"]);
    assert_eq!((code, out.as_str()), (Some(0), " reads a text and guesses the next word\n"));
    let (code, _, err) = run(&["quantize", "demo", &path]);
    assert!(code == Some(1) && err.contains("already"), "{err}");
    std::fs::remove_dir_all(to).unwrap();
}

#[test]
fn help_and_completions_name_every_command() {
    let (code, help, _) = run(&["--help"]);
    assert_eq!(code, Some(0));
    let (_, completions, _) = run(&["completions", "bash"]);
    for command in ["generate", "chat", "quantize", "bench", "kernel", "info"] {
        assert!(help.contains(command) && completions.contains(command), "{command}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_generation_exits_with_130() {
    use std::io::Read;
    // At this temperature any word follows any other, and the text hardly ever ends.
    let mut child =
        hesper(&["generate", "--model", "demo", "-n", "100000", "-t", "50", "--seed", "3", "The"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
    let mut first = [0; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(sent.success());
    let mut rest = Vec::new();
    child.stdout.as_mut().unwrap().read_to_end(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(String::from_utf8(rest).is_ok());
}

#[test]
fn trace_summarizes_by_op_and_refuses_other_files() {
    let folder = folder("trace");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("trace.json");
    let name = file.to_str().unwrap();
    let event = |name: &str, start: f64, bytes: usize| {
        format!(
            "{{\"name\":\"{name}\",\"cat\":\"run\",\"ph\":\"X\",\"ts\":{start},\"dur\":500.0,\"args\":{{\"bytes\":{bytes}}}}}"
        )
    };
    let events =
        [event("matmul", 0.0, 1_000_000), event("exp", 500.0, 2_000_000), event("matmul", 1000.0, 1_000_000)];
    let text =
        format!("{{\"traceEvents\":[{}],\"otherData\":{{\"host_bytes_per_second\":8e9}}}}", events.join(","));
    std::fs::write(&file, text).unwrap();
    let (code, out, err) = run(&["trace", name]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let lines: Vec<&str> = out.lines().collect();
    assert!(
        lines[1].starts_with("matmul") && lines[1].contains("67 %") && lines[1].contains("25 %"),
        "{out}"
    );
    assert!(lines[2].starts_with("exp") && lines[2].contains("50 %"), "{out}");
    assert!(out.contains("busy 1.500 ms of 1.500 ms") && out.contains("8.0 GB/s"), "{out}");
    let (code, out, _) = run(&["trace", "--json", name]);
    assert!(code == Some(0) && out.contains("\"share_of_limit\":0.5"), "{out}");
    for (content, part) in
        [("", "not a trace in JSON"), ("{}", "no traceEvents"), ("{\"traceEvents\":[]}", "no commands")]
    {
        std::fs::write(&file, content).unwrap();
        let (code, _, err) = run(&["trace", name]);
        assert!(code == Some(1) && err.contains(part), "{err}");
    }
    let (code, _, err) = run(&["trace", "/no/such/file"]);
    assert!(code == Some(1) && err.contains("cannot read /no/such/file"), "{err}");
    let _ = std::fs::remove_dir_all(&folder);
}

/// Compares the table in the book with the output of the program, without the times. `HESPER_BLESS=1`
/// rewrites the table.
#[test]
fn the_table_of_a_trace_in_the_book_is_what_the_program_prints() {
    let folder = folder("book-trace");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("trace.json");
    hesper::trace::record(&file, || {
        let x = hesper::Array::ones(&[512, 512], hesper::Dtype::Float32)?;
        x.matmul(&x)?.exp()?.sum(())?.eval()
    })
    .unwrap();
    let (code, out, err) = run(&["trace", file.to_str().unwrap()]);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!((code, &err[..]), (Some(0), ""));
    let chapter = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/book/src/looking-inside.md");
    let text = std::fs::read_to_string(chapter).unwrap();
    let command = "```text\n$ hesper trace trace.json\n";
    let (before, rest) = text.split_once(command).unwrap();
    let (block, after) = rest.split_once("```").unwrap();
    if std::env::var_os("HESPER_BLESS").is_some() {
        std::fs::write(chapter, format!("{before}{command}{}\n```{after}", out.trim_end())).unwrap();
        return;
    }
    // The words of a line, without numbers.
    let words = |text: &str| -> Vec<String> {
        let without = |line: &str| -> String {
            let kept = line.split_whitespace().filter(|word| word.parse::<f64>().is_err());
            kept.collect::<Vec<_>>().join(" ")
        };
        let mut lines: Vec<String> = text.trim_end().lines().map(without).collect();
        // Ops are sorted by their time.
        lines.sort();
        lines
    };
    assert_eq!(words(block), words(&out), "HESPER_BLESS=1 rewrites the block");
}
