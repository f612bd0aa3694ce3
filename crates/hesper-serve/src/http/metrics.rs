//! `/metrics` in Prometheus' text format.
//!
//! Metrics that vLLM has keep the names of vLLM, which dashboards and gateways expect (the model-server
//! protocol of the Kubernetes gateway API inference extension). Metrics of this server alone begin with
//! `hesper:`.

use std::fmt::{Display, Write};

use crate::protocol::{Health, Histogram, Phase, Snapshot};

/// Appends metrics to a text.
struct Writer {
    text: String,
    /// The label of the model.
    label: String,
}

impl Writer {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl Display) {
        let comma = if labels.is_empty() { "" } else { "," };
        let _ = writeln!(self.text, "{name}{{{}{comma}{labels}}} {value}", self.label);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        self.line(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "counter", help);
        self.line(name, "", value);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let mut total = 0;
        let bounds = histogram.bounds.iter().map(f64::to_string).chain(["+Inf".to_string()]);
        let counts = histogram.counts.iter().chain(std::iter::repeat(&0));
        for (bound, count) in bounds.zip(counts) {
            total += count;
            self.line(&format!("{name}_bucket"), &format!("le=\"{bound}\""), total);
        }
        self.line(&format!("{name}_sum"), "", histogram.sum);
        self.line(&format!("{name}_count"), "", total);
    }
}

/// All metrics of a model.
pub(crate) fn render(model: &str, snapshot: &Snapshot, health: &Health) -> String {
    let escaped = model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let mut w = Writer { text: String::new(), label: format!("model_name=\"{escaped}\"") };
    let in_phase =
        |phases: &[Phase]| snapshot.requests.iter().filter(|one| phases.contains(&one.phase)).count();
    let waiting = in_phase(&[Phase::Queued, Phase::Preempted]);
    let running = in_phase(&[Phase::Prefill, Phase::Decode]);
    w.gauge("vllm:num_requests_running", "Requests in prefill or decode.", running);
    w.gauge("vllm:num_requests_waiting", "Requests in the queue.", waiting);
    let used = snapshot.pages_used as f64 / snapshot.pages.max(1) as f64;
    w.gauge("vllm:kv_cache_usage_perc", "Used share of the KV pages, from 0 to 1.", used);
    w.head("vllm:cache_config_info", "gauge", "Sizes of the KV memory.");
    let sizes = format!("block_size=\"{}\",num_gpu_blocks=\"{}\"", snapshot.page_tokens, snapshot.pages);
    w.line("vllm:cache_config_info", &sizes, 1);
    w.counter("vllm:num_preemptions_total", "Preemptions of running requests.", snapshot.preemptions);
    w.counter("vllm:prompt_tokens_total", "Tokens of prompts that were computed.", snapshot.prompt_tokens);
    w.counter("vllm:generation_tokens_total", "Generated tokens.", snapshot.generated_tokens);
    let rate = snapshot.tokens_per_second;
    w.gauge("hesper:generation_tokens_per_second", "Generated tokens per second, over ten seconds.", rate);
    w.counter(
        "vllm:spec_decode_num_draft_tokens_total",
        "Draft tokens that were computed.",
        snapshot.draft_tokens,
    );
    w.counter(
        "vllm:spec_decode_num_accepted_tokens_total",
        "Draft tokens that were accepted.",
        snapshot.accepted_drafts,
    );
    let queries = snapshot.prompt_tokens + snapshot.cached_tokens;
    w.counter("vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache.", queries);
    w.counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.", snapshot.cached_tokens);
    w.counter("vllm:request_success_total", "Answers that are complete.", snapshot.completed);
    let seconds = [
        (
            "vllm:time_to_first_token_seconds",
            "From submission to the first token.",
            &snapshot.time_to_first_token,
        ),
        ("vllm:inter_token_latency_seconds", "Between two tokens of a request.", &snapshot.inter_token),
        ("vllm:e2e_request_latency_seconds", "From submission to the end.", &snapshot.request_seconds),
        ("vllm:request_queue_time_seconds", "In the queue.", &snapshot.queue_seconds),
    ];
    for (name, help, histogram) in seconds {
        w.histogram(name, help, histogram);
    }
    w.counter("hesper:requests_accepted_total", "Requests that were accepted.", snapshot.accepted);
    w.counter("hesper:requests_refused_total", "Requests that were refused.", snapshot.refused);
    w.counter("hesper:requests_failed_total", "Requests that failed.", snapshot.failed);
    w.counter("hesper:requests_cancelled_total", "Requests that were cancelled.", snapshot.cancelled);
    w.counter("hesper:worker_restarts_total", "Restarts of the worker process.", snapshot.restarts);
    w.counter("hesper:steps_total", "Steps of the model.", snapshot.steps);
    let ahead = snapshot.steps_ahead;
    w.counter(
        "hesper:steps_ahead_total",
        "Steps that were launched before the last tokens were read.",
        ahead,
    );
    w.counter("hesper:step_seconds_total", "Seconds in steps of the model.", snapshot.step_seconds);
    let outside = snapshot.scheduler_seconds;
    w.counter("hesper:scheduler_seconds_total", "Seconds of the loop in planning and reporting.", outside);
    let cached = snapshot.pages_cached;
    w.gauge("hesper:kv_pages_cached", "Pages that only the prefix cache holds.", cached);
    w.gauge("hesper:healthy", "1 if the engine is healthy.", u8::from(*health == Health::Ok));
    w.text
}
