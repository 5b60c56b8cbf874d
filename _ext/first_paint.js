// Runs before the first paint, so that a dark page never flashes white.
(() => {
  const root = document.documentElement;
  let mode = null;
  try { mode = localStorage.getItem("mode"); } catch { /* storage is closed to this page */ }
  mode = mode || "auto";
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.mode = mode;
  root.dataset.theme = mode === "auto" ? (dark ? "dark" : "light") : mode;
  // A page that opens at its top may lay out what is below as it goes (book.js). One that opens
  // at an anchor, or where the reader left it, needs all heights at once.
  const [visit] = performance.getEntriesByType("navigation");
  if (!location.hash && visit?.type === "navigate") root.dataset.layout = "as-needed";
  // The fonts of the formulas are asked for early, so that nothing moves when they arrive; a page
  // of a file may not ask so.
  if (location.protocol !== "file:") {
    for (const href of document.currentScript.dataset.fonts.split(" ").filter(Boolean)) {
      const link = { rel: "preload", as: "font", type: "font/woff2", crossOrigin: "", href };
      document.head.append(Object.assign(document.createElement("link"), link));
    }
  }
})();
