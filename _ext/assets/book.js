// The few things that the book's pages need beyond the theme.
(() => {
  "use strict";

  // A box that scrolls sideways is a stop for the Tab key, and only then.
  const boxes = ".math-scroll, .attn-figure:not(.attn-moving), .attn-drawing, .cell_output .output";
  const mark = () => {
    for (const box of document.querySelectorAll(boxes)) {
      if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  mark();
  addEventListener("resize", mark);
  document.fonts.ready.then(mark);

  // Full screen and back.
  for (const button of document.querySelectorAll('[data-book-action="fullscreen"]')) {
    if (!document.fullscreenEnabled) button.hidden = true;
    button.addEventListener("click", () => {
      if (document.fullscreenElement) document.exitFullscreen();
      else document.documentElement.requestFullscreen();
    });
  }

  // Paper is white, and a solution on it cannot be opened.
  const root = document.documentElement;
  let before = null;
  addEventListener("beforeprint", () => {
    if (before) return;
    const closed = [...document.querySelectorAll("details.hide:not([open])")];
    before = { theme: root.dataset.theme, closed };
    root.dataset.theme = "light";
    for (const solution of closed) solution.open = true;
  });
  addEventListener("afterprint", () => {
    if (!before) return;
    root.dataset.theme = before.theme;
    for (const solution of before.closed) solution.open = false;
    before = null;
  });
})();
