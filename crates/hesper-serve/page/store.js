// Conversations and settings in the browser's storage.
//
// Each conversation has a separate entry, so that two tabs do not overwrite each other's. Entries are validated when they
// are read: an entry that is not a conversation is ignored.

const PREFIX = "hesper.conversation.";
const SETTINGS = "hesper.settings";

/** The values that the server uses if none is sent. */
export const DEFAULTS = {
  model: "",
  system: "",
  temperature: "",
  top_p: "",
  top_k: "",
  min_p: "",
  repetition_penalty: "",
  max_tokens: "1024",
  seed: "",
  stop: "",
};

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const isText = (value) => typeof value === "string";

function isVersion(value) {
  return value !== null && typeof value === "object" && isText(value.text);
}

function isMessage(value) {
  if (value?.role === "user") return isText(value.text);
  return value?.role === "assistant" && Array.isArray(value.versions) && value.versions.length > 0 &&
    value.versions.every(isVersion) && Number.isInteger(value.shown) && value.shown in value.versions;
}

function isConversation(value) {
  return value !== null && typeof value === "object" && isText(value.id) && isText(value.title) &&
    Number.isFinite(value.updated) && Array.isArray(value.messages) && value.messages.every(isMessage);
}

/** All conversations, the latest first. */
export function load() {
  const found = [];
  try {
    for (let at = 0; at < localStorage.length; at += 1) {
      const key = localStorage.key(at);
      if (!key.startsWith(PREFIX)) continue;
      const value = parse(localStorage.getItem(key));
      if (isConversation(value) && PREFIX + value.id === key) found.push(value);
    }
  } catch {
    // Without storage there is no history.
  }
  return found.sort((one, other) => other.updated - one.updated);
}

/** Whether a key of the storage belongs to a conversation. */
export const isConversationKey = (key) => key === null || key.startsWith(PREFIX);

/** Saves a conversation. Returns false if the storage is full or not available. */
export function save(conversation) {
  try {
    localStorage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
    return true;
  } catch {
    return false;
  }
}

/** Deletes a conversation. */
export function remove(id) {
  try {
    localStorage.removeItem(PREFIX + id);
  } catch {
    // Without storage it was not saved.
  }
}

/** An empty conversation. */
export function create() {
  const random = crypto.getRandomValues(new Uint32Array(2));
  return { id: `${Date.now().toString(36)}-${random[0].toString(36)}${random[1].toString(36)}`, title: "New chat", updated: Date.now(), messages: [] };
}

/** The text of a prompt that has not been sent, for this tab. */
export const draft = {
  get() {
    try {
      return sessionStorage.getItem("hesper.draft") ?? "";
    } catch {
      return "";
    }
  },
  set(text) {
    try {
      sessionStorage.setItem("hesper.draft", text);
    } catch {
      // Without storage it is lost when the page is closed.
    }
  },
};

/** The settings: text by name, each of `DEFAULTS`. */
export function settings() {
  let kept = {};
  try {
    kept = parse(localStorage.getItem(SETTINGS)) ?? {};
  } catch {
    // Without storage the defaults apply.
  }
  return Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, isText(kept[name]) ? kept[name] : value]));
}

/** Saves the settings. */
export function saveSettings(values) {
  try {
    localStorage.setItem(SETTINGS, JSON.stringify(values));
  } catch {
    // Without storage they apply until the page is closed.
  }
}
