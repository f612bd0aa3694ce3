// Sets the colours before the first paint: a classic script, because modules run after it.
// The choice is "light", "dark" or absent, which follows the system.
(() => {
  let choice = null;
  try {
    choice = localStorage.getItem("hesper.theme");
  } catch {
    // Without storage the page follows the system.
  }
  if (choice === "light" || choice === "dark") document.documentElement.dataset.theme = choice;
})();
