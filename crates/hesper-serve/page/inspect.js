// The inspect page: polls the state of the engine once a second and draws it.

import { ApiError, getJson, health, post } from "./api.js";
import { element } from "./dom.js";
import { bars, duration, lines, short } from "./plots.js";
import { PagePicture, colourOf } from "./pages.js";
import { themeButton } from "./theme-button.js";

const $ = (id) => document.getElementById(id);
const PERIOD = 1000;
const SPANS = [15, 30, 60, 120];
const LONGEST = SPANS.at(-1);
const WINDOW = 10;

/** States with the time of their arrival in seconds, the latest last. */
let samples = [];
let paused = false;
let chosen = null;
const picture = new PagePicture($("pages"), $("page-under"));

const rate = (from, to, name) => Math.max(0, to.state[name] - from.state[name]) / (to.time - from.time);

/** The sample that is about `seconds` older than the one at an index. */
function before(index, seconds) {
  const time = samples[index].time - seconds;
  let at = index;
  while (at > 0 && samples[at].time > time) at -= 1;
  return at === index ? null : samples[at];
}

/** A quantile of what a histogram has counted between two states, linear within a bucket. */
function quantile(from, to, name, part) {
  const { bounds, counts } = to.state[name];
  const older = from?.state[name].counts ?? [];
  const fresh = counts.map((count, at) => count - (older[at] ?? 0));
  const total = fresh.reduce((sum, count) => sum + count, 0);
  if (total <= 0) return NaN;
  let rest = total * part;
  for (let at = 0; at < fresh.length; at += 1) {
    if (rest <= fresh[at] && fresh[at] > 0) {
      const low = bounds[at - 1] ?? 0;
      return low + ((bounds[at] ?? low * 2) - low) * (rest / fresh[at]);
    }
    rest -= fresh[at];
  }
  return NaN;
}

function tile(name, value, unit = "", bad = false) {
  return element("div", { class: bad ? "bad" : undefined }, element("dt", {}, name), element("dd", {}, value, unit ? element("small", {}, unit) : null));
}

function draw() {
  const now = samples.at(-1);
  const { state } = now;
  const last = samples.length - 1;
  const recent = before(last, WINDOW);
  const points = (value) => samples.map((sample, at) => [now.time - sample.time, value(sample, at)]);
  const count = (sample, ...phases) => sample.state.requests.filter((request) => phases.includes(request.phase)).length;

  const span = SPANS.find((seconds) => now.time - samples[0].time <= seconds) ?? LONGEST;
  const scheduler = recent ? state.scheduler_seconds - recent.state.scheduler_seconds : NaN;
  const steps = recent ? state.step_seconds - recent.state.step_seconds : NaN;
  const looked = state.cached_tokens + state.prompt_tokens;
  $("tiles").replaceChildren(
    tile("Generated", short(recent ? rate(recent, now, "generated_tokens") : NaN), "tokens/s"),
    tile("Running", short(count(now, "prefill", "decode"))),
    tile("Waiting", short(count(now, "queued", "preempted"))),
    tile("First token, p50", duration(quantile(null, now, "time_to_first_token", 0.5))),
    tile("Prefix hits", looked ? `${short((100 * state.cached_tokens) / looked)} %` : "–"),
    tile("Scheduler", steps > 0 ? `${short((100 * scheduler) / (scheduler + steps))} %` : "–", "of time"),
    tile("Completed", short(state.completed)),
    tile("Cancelled", short(state.cancelled)),
    tile("Refused", short(state.refused)),
    tile("Failed", short(state.failed), "", state.failed > 0),
    tile("Preempted", short(state.preemptions)),
    tile("Restarts", short(state.restarts), "", state.restarts > 0),
  );
  $("uptime").textContent = `up ${duration(state.uptime_seconds)}`;

  const flow = (name) => points((sample, at) => (at ? rate(before(at, 2) ?? samples[at - 1], sample, name) : NaN));
  lines($("throughput"), [flow("generated_tokens"), flow("prompt_tokens")], { span, names: ["generated", "prompt"] });
  const between = (part) => points((sample, at) => (at ? quantile(before(at, WINDOW), sample, "inter_token", part) : NaN));
  lines($("latency"), [between(0.5), [], between(0.99)], { span, format: duration, names: ["p50", "", "p99"] });
  const inPhase = (...phases) => points((sample) => count(sample, ...phases));
  lines($("batch"), [inPhase("decode"), inPhase("prefill"), inPhase("queued", "preempted")], { span, names: ["decode", "prefill", "waiting"] });
  bars($("first"), state.time_to_first_token);
  drawPages(state);
  drawRequests(state);
  drawFailures(state);
}

function drawPages(state) {
  const bytes = (pages) => `${short((pages * state.page_bytes) / 1e6)} MB`;
  const free = Math.max(0, state.pages - state.pages_used - state.pages_cached);
  $("pages-text").textContent = `${state.pages_used} in use, ${state.pages_cached} cached, ${free} free of ${state.pages} (${bytes(state.pages_used)} of ${bytes(state.pages)}; ${state.page_tokens} tokens each)`;
  const part = (name, pages) => {
    const node = element("i", { class: name, title: `${pages} ${name}` });
    node.style.width = `${(100 * pages) / Math.max(1, state.pages)}%`;
    return node;
  };
  $("pages-bar").replaceChildren(part("used", state.pages_used), part("cached", state.pages_cached));
  $("pages-bar").setAttribute("aria-label", $("pages-text").textContent);
  picture.draw(state, chosen);
}

function drawRequests(state) {
  const { requests } = state;
  $("requests-text").textContent = requests.length ? `${requests.length} in all` : "";
  const shown = requests.slice(0, 200).map((request) => {
    const swatch = element("i", { class: "swatch" });
    swatch.style.background = colourOf(request.id);
    const progress = element("progress", { max: Math.max(1, request.prompt_tokens), value: request.computed_tokens, "aria-label": "Prompt computed" });
    const cancel = element("button", { type: "button", "aria-label": `Cancel ${request.id}`, onclick: () => post(`v1/requests/${encodeURIComponent(request.id)}/cancel`).then(refresh, problem) }, "Cancel");
    return element("tr", { "data-chosen": request.id === chosen, onpointerenter: () => choose(request.id), onpointerleave: () => choose(null) },
      element("td", {}, swatch, element("code", {}, request.id)),
      element("td", {}, element("span", { class: `phase ${request.phase}` }, request.phase)),
      element("td", {}, progress, `${request.computed_tokens} / ${request.prompt_tokens}`),
      element("td", { class: "number" }, String(request.generated_tokens)),
      element("td", { class: "number" }, String(request.pages.length)),
      element("td", { class: "number" }, duration(request.seconds)),
      element("td", { class: "number" }, cancel));
  });
  if (requests.length > shown.length) shown.push(element("tr", {}, element("td", { class: "none", colspan: 7 }, `and ${requests.length - shown.length} more`)));
  if (!shown.length) shown.push(element("tr", {}, element("td", { class: "none", colspan: 7 }, "No request waits or runs.")));
  // Replacing the rows loses the keyboard focus: restore it.
  const focused = $("requests").contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  $("requests").replaceChildren(...shown);
  if (focused) [...$("requests").querySelectorAll("button")].find((button) => button.getAttribute("aria-label") === focused)?.focus();
}

function choose(id) {
  chosen = id;
  if (samples.length) picture.draw(samples.at(-1).state, chosen);
}

function drawFailures(state) {
  const rows = state.recent_failures.slice(-20).reverse().map(([seconds, id, message]) =>
    element("li", {}, element("span", { class: "muted" }, `${duration(Math.max(0, state.uptime_seconds - seconds))} ago `), element("code", {}, id), ` ${message}`));
  $("failures").replaceChildren(...(rows.length ? rows : [element("li", { class: "none" }, "None.")]));
}

function problem(error) {
  const node = $("problem");
  node.hidden = !error;
  if (error) node.textContent = error instanceof ApiError ? error.message : `The page failed. ${error}`;
  if (error?.status === 401) node.append(" ", element("a", { href: "./" }, "Enter a key in the settings of the chat page"), " in this tab.");
}

const STATES = { ok: "Ready", loading: "Loading", stalled: "Stalled", lost_device: "Device lost", stopping: "Stopping", unreachable: "Not reachable", unavailable: "Not available" };

function drawHealth(loop) {
  const node = $("health");
  node.dataset.status = loop.status;
  const detail = loop.cause ?? loop.what ?? (loop.seconds ? `for ${duration(loop.seconds)}` : "");
  const text = [STATES[loop.status] ?? loop.status, detail].filter(Boolean).join(": ");
  if (node.lastElementChild.textContent !== text) node.lastElementChild.textContent = text;
}

async function refresh() {
  drawHealth(await health());
  try {
    const state = await getJson("inspect/data");
    // Counters that decrease belong to a restarted process.
    if (samples.length && state.uptime_seconds < samples.at(-1).state.uptime_seconds) samples = [];
    samples.push({ time: performance.now() / 1000, state });
    samples = samples.slice(-Math.ceil((LONGEST + WINDOW) * (1000 / PERIOD)));
    problem(null);
    draw();
  } catch (error) {
    problem(error);
  }
}

async function loop() {
  // A hidden page does not poll.
  if (!paused && !document.hidden) await refresh();
  setTimeout(loop, PERIOD);
}

function pause() {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  $("pause").setAttribute("aria-label", paused ? "Continue" : "Pause");
  $("pause").querySelector("path").setAttribute("d", paused ? "M8 5l11 7-11 7z" : "M9 6v12M15 6v12");
}
$("pause").addEventListener("click", pause);
document.addEventListener("keydown", (event) => {
  if (event.key === " " && event.target === document.body) {
    event.preventDefault();
    pause();
  }
});
themeButton($("theme"));
loop();
