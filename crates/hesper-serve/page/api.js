// Requests to the server: models, health, and answers as a stream of server-sent events.

const KEY = "hesper.api-key";

/** The API key, stored for the session or, if the user wants that, permanently on this device. */
export const apiKey = {
  get() {
    try {
      return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
    } catch {
      return "";
    }
  },
  remembered() {
    try {
      return localStorage.getItem(KEY) !== null;
    } catch {
      return false;
    }
  },
  set(key, remember) {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
    if (key) (remember ? localStorage : sessionStorage).setItem(KEY, key);
  },
};

/** Why a request failed, as text for the user. */
export class ApiError extends Error {
  constructor(title, detail, { status = 0, retryAfter = 0 } = {}) {
    super(`${title} ${detail}`);
    Object.assign(this, { title, detail: detail.charAt(0).toUpperCase() + detail.slice(1), status, retryAfter });
  }
}

const headers = () => (apiKey.get() ? { Authorization: `Bearer ${apiKey.get()}` } : {});

const TITLES = {
  400: "The server refused the request.",
  401: "The server asks for an API key.",
  403: "The server does not allow this request.",
  404: "The server does not know this address or model.",
  413: "The request is too large for the server.",
  429: "The server is busy.",
  503: "The server cannot answer now.",
};

async function failureOf(response) {
  let detail = "";
  try {
    const text = (await response.text()).slice(0, 4000);
    try {
      const body = JSON.parse(text);
      detail = body?.error?.message ?? body?.message ?? "";
    } catch {
      detail = /^\s*</.test(text) ? "" : text;
    }
  } catch {
    // Without a readable body, only the status is shown.
  }
  const title = TITLES[response.status] ?? (response.status >= 500 ? "The server failed." : "The server refused the request.");
  const retryAfter = Math.min(600, parseInt(response.headers.get("Retry-After") ?? "0", 10) || 0);
  return new ApiError(title, String(detail) || `Status ${response.status}.`, { status: response.status, retryAfter });
}

async function send(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: { ...headers(), ...options.headers }, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached.", "Is it running?");
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

/** A JSON document of the server. */
export async function getJson(path) {
  return (await send(path)).json();
}

/** Posts to an address of the server. */
export async function post(path) {
  return send(path, { method: "POST" });
}

/** The names of the models. */
export async function models() {
  return ((await getJson("v1/models")).data ?? []).map((model) => String(model.id));
}

/** The health of the server. An unhealthy server answers 503 with the same document. */
export async function health() {
  try {
    const response = await fetch("health", { headers: headers(), cache: "no-store", credentials: "omit" });
    const text = await response.text();
    try {
      return { status: response.ok ? "ok" : "unavailable", ...JSON.parse(text) };
    } catch {
      return { status: response.ok ? "ok" : "unavailable" };
    }
  } catch {
    return { status: "unreachable" };
  }
}

/** The data of each event of a stream, by the rules of server-sent events. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  let data = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    pending += value;
    const lines = pending.split(/\r\n|\n|\r(?!$)/);
    pending = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (data.length) yield data.join("\n");
        data = [];
      } else if (line.startsWith("data:")) {
        data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
  }
}

/**
 * Asks for an answer and yields its parts: `{ text }`, `{ reasoning }`, `{ finish }`, `{ usage }`.
 * Throws an `ApiError` if the server refuses, fails, or the stream ends before the answer is complete.
 */
export async function* answer(request, signal) {
  const response = await send("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  let finished = false;
  try {
    for await (const data of events(response.body)) {
      if (data === "[DONE]") return;
      let chunk;
      try {
        chunk = JSON.parse(data);
      } catch {
        throw new ApiError("The server sent something that is not JSON.", data.slice(0, 200));
      }
      if (chunk.error) throw new ApiError("The server failed while it answered.", String(chunk.error.message ?? chunk.error));
      const choice = chunk.choices?.[0];
      const reasoning = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning;
      if (reasoning) yield { reasoning: String(reasoning) };
      if (choice?.delta?.content) yield { text: String(choice.delta.content) };
      if (choice?.finish_reason) {
        finished = true;
        yield { finish: String(choice.finish_reason) };
      }
      if (chunk.usage) yield { usage: chunk.usage };
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof ApiError) throw error;
    if (!finished) throw new ApiError("The connection was lost.", "The text so far is kept.");
  }
  if (!finished) throw new ApiError("The connection was lost.", "The text so far is kept.");
}
