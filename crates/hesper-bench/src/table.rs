//! Lines of several libraries as one table: for each workload our time, the best other time, and whose it is.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Parameters that describe how a library does the work, not what the work is.
const METHOD_PARAMS: [&str; 4] = ["mode", "layout", "impl", "model"];

/// A parsed line.
struct Line<'a> {
    peer: &'a str,
    workload: &'a str,
    params: Vec<(&'a str, &'a str)>,
    median: f64,
}

/// The value of a key of the line.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let start = line.find(&format!("\"{key}\": "))? + key.len() + 4;
    let rest = &line[start..];
    let mut depth = 0usize;
    let end = rest.find(|c: char| {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' if depth == 0 => return true,
            '}' | ']' => depth -= 1,
            ',' => return depth == 0,
            _ => {}
        }
        false
    })?;
    Some(rest[..end].trim())
}

/// The pairs of an object of plain values and lists.
fn pairs(object: &str) -> Vec<(&str, &str)> {
    let inside = object.trim_start_matches('{').trim_end_matches('}');
    let mut depth = 0usize;
    let parts = inside.split(|c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts
        .filter_map(|part| part.split_once(':'))
        .map(|(key, value)| (key.trim().trim_matches('"'), value.trim().trim_matches('"')))
        .collect()
}

fn parse(line: &str) -> Option<Line<'_>> {
    let mut params = pairs(field(line, "params")?);
    params.retain(|(key, _)| !METHOD_PARAMS.contains(key));
    Some(Line {
        peer: field(line, "peer")?.trim_matches('"'),
        workload: field(line, "workload")?.trim_matches('"'),
        params,
        median: field(line, "median_ms")?.parse().ok()?,
    })
}

/// A table in Markdown of all workloads that `own` and at least one other library have a line for.
pub fn table(lines: &str, own: &str) -> String {
    let mut rows: BTreeMap<(&str, String), BTreeMap<&str, f64>> = BTreeMap::new();
    for line in lines.lines().filter_map(parse) {
        let values: Vec<String> = line.params.iter().map(|(key, value)| format!("{key} {value}")).collect();
        let times = rows.entry((line.workload, values.join(", "))).or_default();
        let best = times.entry(line.peer).or_insert(f64::INFINITY);
        *best = best.min(line.median);
    }
    let mut text = String::from("| work | Hesper, ms | best other, ms | |\n|---|---|---|---|\n");
    for ((workload, values), times) in rows {
        let Some(ours) = times.get(own) else { continue };
        let others = times.iter().filter(|(peer, _)| **peer != own);
        let Some((peer, best)) = others.min_by(|a, b| a.1.total_cmp(b.1)) else { continue };
        let name = workload.split_once('.').map_or(workload, |(_, name)| name);
        let _ = writeln!(text, "| {name}: {values} | {} | {} | {peer} |", short(*ours), short(*best));
    }
    text
}

/// Formats a time to three significant digits.
fn short(ms: f64) -> String {
    let whole = ms.abs().log10().floor().max(-3.0);
    format!("{ms:.*}", (2.0 - whole).max(0.0) as usize)
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn lines_of_one_workload_form_one_row() {
        let lines = r#"
{"peer": "hesper", "workload": "W1.sum", "params": {"shape": [4, 8], "mode": "eager"}, "median_ms": 1.25, "reps": 3}
{"peer": "one", "workload": "W1.sum", "params": {"shape": [4, 8]}, "median_ms": 20.5, "reps": 3}
{"peer": "two", "workload": "W1.sum", "params": {"shape": [4, 8], "mode": "jit"}, "median_ms": 3.0, "reps": 3}
{"peer": "two", "workload": "W1.sum", "params": {"shape": [4, 9]}, "median_ms": 0.5, "reps": 3}
{"peer": "two", "workload": "W1.max", "params": {}, "skipped": "not there"}
"#;
        let expected = "| work | Hesper, ms | best other, ms | |\n|---|---|---|---|\n\
                        | sum: shape [4, 8] | 1.25 | 3.00 | two |\n";
        assert_eq!(table(lines, "hesper"), expected);
    }
}
