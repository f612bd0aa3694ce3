// The button that switches between the colours of the system, light and dark.

const ORDER = ["system", "light", "dark"];

/** Connects a button. Its label shows the current choice. */
export function themeButton(button) {
  let choice = document.documentElement.dataset.theme ?? "system";
  const show = () => {
    if (choice === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    button.dataset.choice = choice;
    button.title = `Colours: ${choice}`;
    button.setAttribute("aria-label", `Colours: ${choice}. Switch`);
  };
  const next = () => {
    choice = ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length];
    try {
      if (choice === "system") localStorage.removeItem("hesper.theme");
      else localStorage.setItem("hesper.theme", choice);
    } catch {
      // Without storage the choice lasts until the page is closed.
    }
    show();
  };
  button.addEventListener("click", next);
  show();
  return next;
}
