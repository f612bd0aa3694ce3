//! The peers of the sweep: a Python process that measures a case on request.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Error, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The process of the peers, and their best times of the current case.
pub struct Peers {
    python: String,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    best: BTreeMap<String, f64>,
}

fn script() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "peers", "sweep_gpu.py"].iter().collect()
}

impl Peers {
    pub fn start(python: &str) -> std::io::Result<Self> {
        let mut command = Command::new(python);
        command.arg(script()).args(["--serve", "--device", "cpu"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| {
            Error::new(error.kind(), format!("cannot start {python}: {error}; choose another with --python"))
        })?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::other("the process of the peers has no pipes"));
        };
        let mut peers = Peers {
            python: python.into(),
            child,
            requests,
            answers: BufReader::new(answers),
            best: BTreeMap::new(),
        };
        let found = peers.answer()?;
        eprintln!("peers: {}", if found.is_empty() { "none" } else { &found });
        Ok(peers)
    }

    fn answer(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(Error::other("the process of the peers exited"));
        }
        Ok(line.trim().to_string())
    }

    /// Measures a case once more, by all peers.
    pub fn round(
        &mut self,
        name: &str,
        dtype: &str,
        log2: u32,
        layout: &str,
        budget: f64,
    ) -> std::io::Result<()> {
        writeln!(self.requests, "{name}\t{dtype}\t{log2}\t{layout}\t{budget}")?;
        self.requests.flush()?;
        let answer = self.answer()?;
        let mut words = answer.split_whitespace();
        while let (Some(peer), Some(us)) = (words.next(), words.next()) {
            let us =
                us.parse().map_err(|_| Error::other(format!("{name}: the peers answered {answer:?}")))?;
            let best = self.best.entry(peer.into()).or_insert(f64::INFINITY);
            *best = best.min(us);
        }
        Ok(())
    }

    /// The best times of all rounds in microseconds, by peer. The next round begins a new case.
    pub fn take(&mut self) -> BTreeMap<String, f64> {
        std::mem::take(&mut self.best)
    }

    /// Ends the process, and prints the report on a file of cases.
    pub fn report(mut self, lines: &str, left_out: usize, png: Option<&str>) -> std::io::Result<()> {
        drop(self.requests);
        self.child.wait()?;
        let mut command = Command::new(&self.python);
        command.arg(script()).args(["--device", "cpu", "--report", lines]);
        command.arg("--left-out").arg(left_out.to_string());
        command.args(png.map(|png| ["--png", png]).iter().flatten());
        let status = command.status()?;
        if status.success() { Ok(()) } else { Err(Error::other(format!("the report failed: {status}"))) }
    }
}
