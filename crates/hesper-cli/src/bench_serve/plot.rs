//! An SVG plot of the results: throughput, time to first token and time between tokens by load.

use std::fmt::Write;

use super::report::{Percentiles, Row, name};

const PANEL_WIDTH: f64 = 340.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 92.0;
const BOTTOM: f64 = 40.0;

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#5a5c78}.t{font-size:15px;font-weight:600;fill:#1d1e33}\
    .h{font-size:13px;font-weight:600;fill:#1d1e33}.g{stroke:#dfdfec}.e{text-anchor:end}.m{text-anchor:middle}\
    .l{fill:none;stroke-width:2}.a{stroke:#5046c8;fill:#5046c8}.b{stroke:#b4690e;fill:#b4690e}\
    .c{stroke:#c23a6b;fill:#c23a6b}.l{fill:none}text.a,text.b,text.c{stroke:none}";

/// The plot as SVG.
pub fn svg(title: &str, rows: &[Row]) -> String {
    let width = PANEL_WIDTH * 3.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" role=\"img\"><title>{0}</title>\
         <style>{STYLE}</style><rect width=\"{width}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\
         <text x=\"20\" y=\"28\" class=\"t\">{0}</text>",
        escape(title)
    );
    let throughput = [("", rows.iter().map(|row| row.tokens_per_second).collect())];
    panel(&mut out, 0, "Generated tokens/s", rows, &throughput);
    let milliseconds = |of: fn(&Row) -> Percentiles| {
        let line = |pick: fn(&Percentiles) -> f64| rows.iter().map(|row| pick(&of(row)) * 1e3).collect();
        [("p50", line(|times| times.p50)), ("p90", line(|times| times.p90)), ("p99", line(|times| times.p99))]
    };
    panel(&mut out, 1, "Time to first token, ms", rows, &milliseconds(|row| row.first));
    panel(&mut out, 2, "Time between tokens, ms", rows, &milliseconds(|row| row.gap));
    out + "</svg>\n"
}

/// One set of axes with a line for each series.
fn panel(out: &mut String, index: usize, heading: &str, rows: &[Row], series: &[(&str, Vec<f64>)]) {
    let left = PANEL_WIDTH * index as f64 + LEFT;
    let right = PANEL_WIDTH * (index + 1) as f64 - RIGHT;
    let floor = HEIGHT - BOTTOM;
    let values = series.iter().flat_map(|(_, values)| values).copied().filter(|value| value.is_finite());
    let top = ceiling(values.fold(0.0, f64::max));
    let x = |at: usize| match rows.len() {
        1 => (left + right) / 2.0,
        count => left + 14.0 + (right - left - 28.0) * at as f64 / (count - 1) as f64,
    };
    let y = |value: f64| floor - (floor - TOP) * value / top;
    let mut text = |x: f64, y: f64, class: &str, text: &str| {
        // Writing to a string cannot fail.
        let _ = write!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escape(text));
    };
    text(left - 36.0, 60.0, "h", heading);
    for (at, (label, _)) in series.iter().enumerate() {
        text(right - 30.0 * (series.len() - at) as f64 + 6.0, 78.0, CLASSES[at % 3], label);
    }
    for (at, row) in rows.iter().enumerate() {
        text(x(at), floor + 20.0, "m", &name(row.arrivals));
    }
    for part in [0.0, 0.5, 1.0] {
        text(left - 8.0, y(top * part) + 4.0, "e", &format!("{}", (top * part * 100.0).round() / 100.0));
    }
    for part in [0.0, 0.5, 1.0] {
        let at = y(top * part);
        let _ = write!(out, "<path class=\"g\" d=\"M{left:.1} {at:.1}H{right:.1}\"/>");
    }
    for (index, (_, values)) in series.iter().enumerate() {
        let class = CLASSES[index % 3];
        let points: Vec<(f64, f64)> =
            values.iter().enumerate().filter(|(_, v)| v.is_finite()).map(|(at, v)| (x(at), y(*v))).collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        if path.len() > 1 {
            let _ = write!(out, "<path class=\"{class} l\" d=\"M{}\"/>", path.join("L"));
        }
        for (x, y) in points {
            let _ = write!(out, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
    }
}

const CLASSES: [&str; 3] = ["a", "b", "c"];

/// A round number that is at least `value`.
fn ceiling(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|top| *top >= value)
        .unwrap_or(value)
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars() {
        match char {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            // Not allowed in XML, even escaped.
            control if control.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    out
}
