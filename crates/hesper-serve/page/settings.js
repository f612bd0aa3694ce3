// The dialog for the settings and the API key.

import { apiKey } from "./api.js";
import { DEFAULTS, saveSettings, settings } from "./store.js";

/** Connects the dialog. Returns a function that opens it with an optional note. */
export function settingsDialog({ saved, deleteAll }) {
  const dialog = document.getElementById("settings");
  const form = dialog.querySelector("form");
  const note = document.getElementById("settings-note");
  const fields = Object.keys(DEFAULTS).filter((name) => name !== "model");
  const fill = (values) => {
    for (const name of fields) form.elements[name].value = values[name];
  };

  document.getElementById("reset-settings").addEventListener("click", () => fill(DEFAULTS));
  document.getElementById("delete-all").addEventListener("click", () => {
    dialog.close();
    deleteAll();
  });
  // A click outside the dialog closes it.
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  form.addEventListener("submit", (event) => {
    if (event.submitter?.value === "close") return;
    const values = settings();
    for (const name of fields) values[name] = form.elements[name].value;
    saveSettings(values);
    try {
      apiKey.set(form.elements.api_key.value.trim(), form.elements.remember.checked);
    } catch {
      // Without storage the key is not saved.
    }
    saved(values);
  });

  return (text = "") => {
    if (dialog.open) return;
    fill(settings());
    form.elements.api_key.value = apiKey.get();
    form.elements.remember.checked = apiKey.remembered();
    note.textContent = text;
    note.hidden = text === "";
    dialog.showModal();
    form.elements[text ? "api_key" : "system"].focus();
  };
}
