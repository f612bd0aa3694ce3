// The chat page: conversations, messages, the prompt, and the keyboard.

import { answer, apiKey, ApiError, health, models } from "./api.js";
import { element, icon, iconButton } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { settingsDialog } from "./settings.js";
import * as store from "./store.js";
import { themeButton } from "./theme-button.js";

const $ = (id) => document.getElementById(id);
const scroll = $("scroll");
const prompt = $("prompt");
const touch = matchMedia("(pointer: coarse)");

let conversations = store.load();
let current = store.create();
let settings = store.settings();
let search = "";
/** The answers being generated, by the id of their conversation. */
const running = new Map();
/** The rows of the messages shown. */
let rows = [];

const SUGGESTIONS = [
  ["Explain an idea", "Why is Venus called the evening star?"],
  ["Write code", "Write a Rust function that merges two sorted slices, with tests."],
  ["Compare", "Compare a binary heap and a sorted array as a priority queue, as a table."],
  ["Plan", "Plan a weekend of stargazing with children."],
];

// ---------------------------------------------------------------- conversations

function persist(conversation) {
  conversation.updated = Date.now();
  if (!conversations.includes(conversation)) conversations.push(conversation);
  conversations.sort((one, other) => other.updated - one.updated);
  if (!store.save(conversation)) toast("The browser's storage is full or off: this conversation is not kept. Delete others to make room.");
}

function period(time) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (time >= midnight) return "Today";
  if (time >= midnight - 864e5) return "Yesterday";
  if (time >= midnight - 7 * 864e5) return "Last seven days";
  return new Date(time).toLocaleDateString(undefined, { month: "long", year: "numeric" });
}

function textOf(message) {
  return message.role === "user" ? message.text : message.versions[message.shown].text;
}

function renderHistory() {
  const wanted = search.toLowerCase();
  const found = conversations.filter((each) => !wanted || each.title.toLowerCase().includes(wanted) || each.messages.some((message) => textOf(message).toLowerCase().includes(wanted)));
  const nodes = [];
  let heading = "";
  for (const each of found) {
    if (period(each.updated) !== heading) {
      heading = period(each.updated);
      nodes.push(element("li", { class: "period" }, heading));
    }
    const open = element("button", { type: "button", class: "open", title: each.title, "aria-current": each === current ? "true" : undefined, onclick: () => show(each) }, each.title);
    nodes.push(element("li", { class: "entry", "data-current": each === current, "data-running": running.has(each.id) }, open,
      iconButton("trash", `Delete ${each.title}`, () => deleteConversation(each))));
  }
  if (!nodes.length) nodes.push(element("li", { class: "none" }, wanted ? "Nothing found." : "Conversations are kept in this browser only."));
  $("history").replaceChildren(...nodes);
}

function show(conversation) {
  current = conversation;
  document.body.classList.remove("menu-open");
  $("menu").setAttribute("aria-expanded", "false");
  renderMessages();
  renderHistory();
  scrollToEnd();
  // On a touch screen focus opens the keyboard, which covers the messages.
  if (!touch.matches) prompt.focus({ preventScroll: true });
}

function newChat() {
  show(store.create());
}

function deleteConversation(conversation) {
  running.get(conversation.id)?.abort();
  store.remove(conversation.id);
  conversations = conversations.filter((each) => each !== conversation);
  if (conversation === current) newChat();
  else renderHistory();
  toast(`Deleted "${conversation.title}".`, () => {
    conversations.push(conversation);
    store.save(conversation);
    conversations.sort((one, other) => other.updated - one.updated);
    show(conversation);
  });
}

function deleteAll() {
  const deleted = conversations;
  for (const each of deleted) {
    running.get(each.id)?.abort();
    store.remove(each.id);
  }
  conversations = [];
  newChat();
  toast(`Deleted ${deleted.length} conversation${deleted.length === 1 ? "" : "s"}.`, () => {
    conversations = deleted;
    deleted.forEach(store.save);
    renderHistory();
  });
}

function titleOf(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
  return line.length > 60 ? `${line.slice(0, 58).trimEnd()}…` : line || "New chat";
}

// ---------------------------------------------------------------- messages

function renderMessages() {
  const empty = current.messages.length === 0;
  $("welcome").hidden = !empty;
  rows = current.messages.map((message, at) => (message.role === "user" ? userRow(message, at) : assistantRow(message, at)));
  $("messages").replaceChildren(...rows.map((row) => row.node));
  $("title").textContent = current.title;
  document.title = empty ? "Hesper" : `${current.title} · Hesper`;
  updateComposer();
}

function userRow(message, at) {
  const node = element("li", { class: "message user" }, element("span", { class: "hidden" }, "You:"), element("div", { class: "bubble" }, message.text),
    element("div", { class: "actions" }, copyButton(() => message.text), iconButton("edit", "Edit and send again", () => edit(at))));
  return { node };
}

function assistantRow(message, at) {
  const body = element("div", { class: "md answer" });
  const reasoningBody = element("div", { class: "md" });
  const reasoning = element("details", { class: "reasoning", hidden: true }, element("summary", {}, "Reasoning"), reasoningBody);
  const after = element("div", { class: "after" });
  const node = element("li", { class: "message assistant" }, element("img", { class: "star", src: "assets/icon.svg", alt: "" }),
    element("span", { class: "hidden" }, "Answer:"), reasoning, body, after);
  const view = new MarkdownView(body);
  const reasoningView = new MarkdownView(reasoningBody);
  let state = "";
  const update = () => {
    const version = message.versions[message.shown];
    view.set(version.text);
    if (version.reasoning) reasoningView.set(version.reasoning);
    reasoning.hidden = !version.reasoning;
    node.classList.toggle("running", version.state === "running");
    // While an answer grows, only its text changes.
    const now = `${message.shown} ${message.versions.length} ${version.state} ${version.text === "" && !version.reasoning}`;
    if (now !== state) after.replaceChildren(...below(message, version, at));
    state = now;
  };
  update();
  return { node, update };
}

/** The footer of an answer: a waiting indicator, why it ended, and its actions. */
function below(message, version, at) {
  const nodes = [];
  if (version.state === "running") {
    if (!version.text && !version.reasoning) nodes.push(element("span", { class: "waiting", role: "img", "aria-label": "Waiting for the first token" }, element("i"), element("i"), element("i")));
    return nodes;
  }
  if (version.error) nodes.push(failure(version.error, at));
  if (version.state === "stopped") nodes.push(element("p", { class: "stopped" }, "Stopped."));
  if (version.state === "length") nodes.push(element("p", { class: "stopped" }, "The limit of tokens was reached."));
  const actions = element("div", { class: "actions" });
  if (version.text) actions.append(copyButton(() => version.text));
  actions.append(iconButton("retry", "Generate again", () => regenerate(at)));
  const count = message.versions.length;
  if (count > 1) {
    const turn = (by) => {
      message.shown += by;
      persist(current);
      rows[at].update();
    };
    actions.append(element("span", { class: "versions" },
      iconButton("left", "Previous answer", () => turn(-1), { disabled: message.shown === 0 }), `${message.shown + 1} / ${count}`,
      iconButton("right", "Next answer", () => turn(1), { disabled: message.shown === count - 1 })));
  }
  if (version.stats) actions.append(element("span", { class: "stats" }, version.stats));
  nodes.push(actions);
  return nodes;
}

function failure(error, at) {
  const retry = element("button", { type: "button", onclick: () => regenerate(at, true) }, "Try again");
  let left = error.retryAfter ?? 0;
  const tick = () => {
    retry.textContent = left > 0 ? `Try again (${left} s)` : "Try again";
    if (left-- > 0) setTimeout(tick, 1000);
  };
  tick();
  const parts = [retry];
  if (error.status === 401) parts.unshift(element("button", { type: "button", onclick: () => openSettings("The server asks for an API key.") }, "Enter a key"));
  return element("div", { class: "failure", role: "alert" }, element("p", {}, element("b", {}, error.title), " ", error.detail), ...parts);
}

function copyButton(text) {
  const button = iconButton("copy", "Copy", async () => {
    const done = await copy(text());
    button.replaceChildren(icon(done ? "check" : "copy"));
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without a secure context there is no clipboard; a selection can be copied everywhere.
    const area = element("textarea", { class: "hidden", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) {
      toast("The browser does not allow copying here.");
      return false;
    }
  }
  announce("Copied.");
  return true;
}

$("messages").addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const done = await copy(button.closest("figure").querySelector("code").textContent);
  if (done) button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 1500);
});

function edit(at) {
  const message = current.messages[at];
  if (running.has(current.id)) return;
  const area = element("textarea", { "aria-label": "Edit the message" });
  area.value = message.text;
  const cancel = () => {
    renderMessages();
    prompt.focus();
  };
  const send = () => {
    const text = area.value.trim();
    if (!text) return;
    const before = current.messages;
    const conversation = current;
    conversation.messages = before.slice(0, at);
    if (at === 0) conversation.title = titleOf(text);
    submit(text);
    if (before.length > at + 2) toast("Later messages were replaced.", () => {
      running.get(conversation.id)?.abort();
      conversation.messages = before;
      persist(conversation);
      show(conversation);
    });
  };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      cancel();
    } else if (isSend(event)) {
      event.preventDefault();
      send();
    }
  });
  area.addEventListener("input", () => grow(area));
  rows[at].node.replaceChildren(element("div", { class: "editor" }, area,
    element("div", {}, element("button", { type: "button", class: "quiet-button", onclick: cancel }, "Cancel"), element("button", { type: "button", class: "main-button", onclick: send }, "Send"))));
  grow(area);
  area.focus();
  area.setSelectionRange(area.value.length, area.value.length);
}

// ---------------------------------------------------------------- answers

function submit(text) {
  current.messages.push({ role: "user", text });
  if (current.messages.length === 1) current.title = titleOf(text);
  current.messages.push({ role: "assistant", versions: [{ text: "", state: "running" }], shown: 0 });
  renderMessages();
  generate(current, current.messages.length - 1);
}

/** Another version of an answer. A failed one without text is replaced. */
function regenerate(at, replace = false) {
  if (running.has(current.id)) return;
  const message = current.messages[at];
  const version = message.versions[message.shown];
  if (replace && !version.text) message.versions.splice(message.shown, 1);
  message.versions.push({ text: "", state: "running" });
  message.shown = message.versions.length - 1;
  current.messages.length = at + 1;
  renderMessages();
  generate(current, at);
}

/** The body of a request: the messages before an answer, and the settings that are not left to the server. */
function requestOf(conversation, at) {
  const messages = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  for (const { role, content } of conversation.messages.slice(0, at).map((message) => ({ role: message.role, content: textOf(message) }))) {
    // Chat templates expect alternating turns, so a question without an answer is merged into the next one.
    if (role === "user" && messages.at(-1)?.role === "user") messages.at(-1).content += `\n\n${content}`;
    else if (role === "user" || content) messages.push({ role, content });
  }
  const request = { model: $("model").value, messages };
  for (const name of ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"]) {
    if (settings[name] !== "") request[name] = Number(settings[name]);
  }
  if (settings.stop !== "") request.stop = [settings.stop];
  return request;
}

async function generate(conversation, at) {
  const message = conversation.messages[at];
  const version = message.versions.at(-1);
  const control = new AbortController();
  running.set(conversation.id, control);
  persist(conversation);
  renderHistory();
  updateComposer();
  scrollToEnd();
  announce("Generating an answer.");
  let scheduled = false;
  const paint = () => {
    scheduled = false;
    if (current !== conversation || !rows[at]) return;
    const follow = atEnd();
    rows[at].update();
    if (follow) scrollToEnd();
  };
  const schedule = () => {
    if (!scheduled) requestAnimationFrame(paint);
    scheduled = true;
  };
  const start = performance.now();
  let [first, pieces, usage, saved] = [0, 0, null, start];
  try {
    for await (const part of answer(requestOf(conversation, at), control.signal)) {
      const now = performance.now();
      if (part.text || part.reasoning) {
        if (!first) first = now;
        pieces += 1;
        if (part.text) version.text += part.text;
        else version.reasoning = (version.reasoning ?? "") + part.reasoning;
        schedule();
      } else if (part.finish) {
        version.state = part.finish === "length" ? "length" : "done";
      } else if (part.usage) {
        usage = part.usage;
      }
      // Save now and then, so that closing the page loses little text.
      if (now - saved > 1000) {
        saved = now;
        store.save(conversation);
      }
    }
    if (version.state === "running") version.state = "done";
  } catch (error) {
    if (error.name === "AbortError") {
      version.state = "stopped";
    } else {
      version.state = "failed";
      const known = error instanceof ApiError ? error : new ApiError("The page failed.", String(error));
      version.error = { title: known.title, detail: known.detail, status: known.status, retryAfter: known.retryAfter };
      if (known.status === 401 && current === conversation) openSettings(apiKey.get() ? "The server does not accept this API key." : "The server asks for an API key.");
      refreshHealth();
    }
  }
  version.stats = statistics(usage?.completion_tokens ?? pieces, first, start, usage);
  running.delete(conversation.id);
  // A conversation that was deleted while it ran stays deleted.
  if (conversations.includes(conversation)) persist(conversation);
  renderHistory();
  updateComposer();
  paint();
  announce(version.state === "failed" ? version.error.title : `Answer: ${version.text.slice(0, 600)}`);
}

function statistics(tokens, first, start, usage) {
  if (!first || !tokens) return "";
  const seconds = (performance.now() - first) / 1000;
  const parts = [`${tokens} token${tokens === 1 ? "" : "s"}`];
  if (tokens > 1 && seconds > 0.05) parts.push(`${((tokens - 1) / seconds).toFixed(1)} tokens/s`);
  parts.push(`first after ${((first - start) / 1000).toFixed(2)} s`);
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  if (cached) parts.push(`${cached} of ${usage.prompt_tokens} prompt tokens cached`);
  return parts.join(" · ");
}

// ---------------------------------------------------------------- prompt, scrolling, notices

function updateComposer() {
  const busy = running.has(current.id);
  $("stop").hidden = !busy;
  $("send").hidden = busy;
  $("send").disabled = prompt.value.trim() === "";
}

function grow(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight}px`;
}

const atEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;

function scrollToEnd() {
  scroll.scrollTop = scroll.scrollHeight;
}

/** Whether a key press sends: Enter, except with Shift, while an input method is composing, or on a touch keyboard. */
function isSend(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing && (event.ctrlKey || event.metaKey || !touch.matches);
}

let toastTimer;
function toast(text, undo) {
  const node = $("toast");
  node.firstElementChild.textContent = text;
  node.lastElementChild.hidden = !undo;
  node.lastElementChild.onclick = () => {
    node.hidden = true;
    undo();
  };
  node.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (node.hidden = true), 7000);
}

function announce(text) {
  $("announcer").textContent = text;
}

const openSettings = settingsDialog({
  saved(values) {
    settings = values;
    loadModels();
  },
  deleteAll,
});

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = prompt.value.trim();
  if (!text || running.has(current.id)) return;
  prompt.value = "";
  store.draft.set("");
  grow(prompt);
  submit(text);
});
prompt.addEventListener("input", () => {
  store.draft.set(prompt.value);
  grow(prompt);
  updateComposer();
});
prompt.addEventListener("keydown", (event) => {
  if (isSend(event)) {
    event.preventDefault();
    $("composer").requestSubmit();
  } else if (event.key === "ArrowUp" && prompt.value === "") {
    const last = current.messages.findLastIndex((message) => message.role === "user");
    if (last >= 0) {
      event.preventDefault();
      edit(last);
    }
  }
});
scroll.addEventListener("scroll", () => ($("to-end").hidden = atEnd()), { passive: true });
$("to-end").addEventListener("click", scrollToEnd);
$("stop").addEventListener("click", () => running.get(current.id)?.abort());
$("new-chat").addEventListener("click", newChat);
$("open-settings").addEventListener("click", () => openSettings());
$("search").addEventListener("input", (event) => {
  search = event.target.value;
  renderHistory();
});
$("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter") document.querySelector("#history .open")?.click();
});
const setMenu = (open) => {
  document.body.classList.toggle("menu-open", open);
  $("menu").setAttribute("aria-expanded", String(open));
};
$("menu").addEventListener("click", () => setMenu(true));
$("scrim").addEventListener("click", () => setMenu(false));
themeButton($("theme"));

document.addEventListener("keydown", (event) => {
  const control = event.ctrlKey || event.metaKey;
  if (control && event.key.toLowerCase() === "k") {
    event.preventDefault();
    setMenu(true);
    $("search").focus();
    $("search").select();
  } else if (control && event.key === ",") {
    event.preventDefault();
    openSettings();
  } else if (event.altKey && !control && event.code === "KeyN") {
    event.preventDefault();
    newChat();
  } else if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (document.activeElement === $("search") || document.body.classList.contains("menu-open")) {
      setMenu(false);
      prompt.focus();
    } else {
      running.get(current.id)?.abort();
    }
  }
});
window.addEventListener("pagehide", () => {
  for (const each of conversations) if (running.has(each.id)) store.save(each);
});
window.addEventListener("storage", (event) => {
  if (!store.isConversationKey(event.key)) return;
  // Another tab has changed the history. Answers that are being generated here are unchanged.
  const mine = conversations.filter((each) => running.has(each.id));
  conversations = [...mine, ...store.load().filter((each) => !running.has(each.id))].sort((one, other) => other.updated - one.updated);
  const fresh = conversations.find((each) => each.id === current.id);
  if (fresh && fresh !== current) {
    current = fresh;
    renderMessages();
  }
  renderHistory();
});

// ---------------------------------------------------------------- server

async function loadModels() {
  const select = $("model");
  try {
    const names = await models();
    const chosen = names.includes(settings.model) ? settings.model : names[0];
    select.replaceChildren(...names.map((name) => element("option", { value: name, selected: name === chosen }, name)));
    select.disabled = names.length === 0;
  } catch (error) {
    select.replaceChildren(element("option", { value: settings.model }, error.status === 401 ? "API key needed" : "No model"));
    select.disabled = true;
  }
  refreshHealth();
}
$("model").addEventListener("change", (event) => {
  settings = { ...settings, model: event.target.value };
  store.saveSettings(settings);
});

const STATES = { ok: "Ready", loading: "Loading", stalled: "Stalled", lost_device: "Device lost", stopping: "Stopping", unreachable: "Not reachable", unavailable: "Not available" };
let healthTimer;
async function refreshHealth() {
  clearTimeout(healthTimer);
  const state = await health();
  const node = $("health");
  const was = node.dataset.status;
  node.dataset.status = state.status;
  node.lastElementChild.textContent = STATES[state.status] ?? state.status;
  node.title = state.cause ?? state.what ?? "";
  // The list of models may change when the server becomes ready.
  if (state.status === "ok" && was !== "ok" && was !== "unknown") loadModels();
  healthTimer = setTimeout(refreshHealth, state.status === "ok" ? 15_000 : 3_000);
}

// Answers that were interrupted when the page was closed.
for (const each of conversations) {
  for (const message of each.messages) {
    for (const version of message.versions ?? []) if (version.state === "running") version.state = "stopped";
  }
}
const hour = new Date().getHours();
$("welcome").querySelector("h2").textContent = hour < 5 || hour >= 18 ? "Good evening" : hour < 12 ? "Good morning" : "Good afternoon";
$("suggestions").append(...SUGGESTIONS.map(([title, text]) => element("button", { type: "button", onclick: () => submit(text) }, element("b", {}, title), element("span", {}, text))));
prompt.value = store.draft.get();
grow(prompt);
renderMessages();
renderHistory();
loadModels();
