//! The supervisor: forwards the output of a worker, and restarts a worker that hangs or dies.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::checks::Check;

/// The time without output after which a worker is killed.
const WORKER_TIMEOUT: Duration = Duration::from_secs(45);
/// The time limit of all checks.
const TIME_LIMIT: Duration = Duration::from_secs(170);

fn spawn(first: usize, seeds: u64) -> std::io::Result<(Child, Receiver<String>)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--worker", &first.to_string(), "--seeds", &seeds.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let (send, receive) = channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
    }
    Ok((child, receive))
}

/// Runs workers until all checks are done; the exit status is the number of failures.
pub fn supervise(all: &[Check], seeds: u64) -> ExitCode {
    let begin = Instant::now();
    let (mut next, mut failures, mut passed, mut finished) = (0, 0usize, 0usize, false);
    let mut restarts = 0;
    while !finished && restarts < 12 {
        let (mut child, lines) = match spawn(next, seeds) {
            Ok(pair) => pair,
            Err(e) => {
                println!("FAIL worker: {e}");
                return ExitCode::FAILURE;
            }
        };
        let mut started = None;
        loop {
            let left = TIME_LIMIT.saturating_sub(begin.elapsed()).min(WORKER_TIMEOUT);
            match lines.recv_timeout(left) {
                Ok(line) if line == "@done" => finished = true,
                Ok(line) => {
                    let Some((number, rest)) = line.strip_prefix('@').and_then(|l| l.split_once(' ')) else {
                        failures += usize::from(line.starts_with("FAIL"));
                        println!("{line}");
                        continue;
                    };
                    let number: usize = number.parse().unwrap_or(next);
                    if rest == "start" {
                        started = Some(number);
                        continue;
                    }
                    started = None;
                    next = number + 1;
                    failures += usize::from(rest.starts_with("FAIL"));
                    passed += usize::from(rest.starts_with("ok"));
                    println!("{rest}");
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let _ = child.kill();
                    break;
                }
            }
        }
        let _ = child.wait();
        if begin.elapsed() >= TIME_LIMIT {
            println!("FAIL the time limit was reached after {} of {} checks", next, all.len());
            failures += 1;
            break;
        }
        if finished {
            break;
        }
        // The worker died or hung in the check that it had started.
        if let Some(at) = started {
            println!("FAIL {}: the worker died or hung here", all.get(at).map_or("?", |c| &c.name));
            failures += 1;
            next = at + 1;
        } else if next >= all.len() {
            println!("FAIL the worker died after the last check");
            failures += 1;
            break;
        }
        restarts += 1;
    }
    println!("{passed} passed, {failures} failed, {:.0} s", begin.elapsed().as_secs_f64());
    ExitCode::from(failures.min(255) as u8)
}
