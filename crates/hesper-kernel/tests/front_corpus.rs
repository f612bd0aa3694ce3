//! The whole corpus, compiled and run on the reference interpreter.

use crate::support;
use hesper_corpus::{Phase, cases, invalid_cases, run_cases};

#[test]
fn every_kernel_of_the_corpus_compiles() {
    let failed: Vec<String> = cases()
        .iter()
        .filter_map(|c| support::compile(c).err().map(|e| format!("{}: {e}", c.name)))
        .collect();
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn every_kernel_of_the_corpus_computes_its_reference() {
    let report = run_cases(&cases(), &mut support::run);
    assert!(report.is_clean(), "{report}");
}

/// The generated signature around an unparsed text binds what the text expects.
#[test]
fn every_kernel_of_the_corpus_computes_its_reference_from_its_whole_text() {
    let report = run_cases(&cases(), &mut support::run_written);
    assert!(report.is_clean(), "{report}");
}

#[test]
fn faulty_texts_are_refused_at_the_right_line() {
    let mut wrong = Vec::new();
    for bad in invalid_cases().iter().filter(|b| b.phase == Phase::Compile) {
        match support::compile(&bad.case) {
            Ok(_) => wrong.push(format!("{}: compiles", bad.case.name)),
            Err(message) => {
                let part = match bad.part {
                    hesper_corpus::SourcePart::Body => "body:",
                    hesper_corpus::SourcePart::Header => "header:",
                };
                let line = message
                    .lines()
                    .find_map(|l| l.trim_start().strip_prefix("--> "))
                    .filter(|l| l.starts_with(part))
                    .and_then(|l| l.split(':').nth(1))
                    .and_then(|n| n.parse().ok());
                if let Err(e) = bad.judge(Phase::Compile, line, &message) {
                    wrong.push(e);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn checked_mode_finds_no_fault_in_the_corpus() {
    // One case shuffles past the end of a partial SIMD group and discards what it gets.
    let known = |c: &hesper_corpus::Case| c.divergent_simd || c.name == "argmax_small_group";
    let clean: Vec<_> = cases().into_iter().filter(|c| !known(c)).collect();
    let options = hesper_kernel::interp::Options::checked();
    let report = run_cases(&clean, &mut |c: &hesper_corpus::Case| support::run_with(c, &options));
    assert!(report.is_clean(), "{report}");
}
