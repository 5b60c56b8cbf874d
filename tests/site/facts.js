// What a loaded page looks like, gathered in one go.
() => {
  const size = (element) => {
    const box = element.getBoundingClientRect();
    return [box.width, box.height];
  };
  const shown = (element) => !element.closest("details:not([open])");
  // The words of the page, without code and without formulas that were rendered.
  const words = document.querySelector("article").cloneNode(true);
  for (const part of words.querySelectorAll("pre, code, script, style, .katex")) part.remove();

  const moves = new PerformanceObserver(() => {});
  moves.observe({ type: "layout-shift", buffered: true });
  const shift = moves.takeRecords().filter((move) => !move.hadRecentInput)
    .reduce((sum, move) => sum + move.value, 0);

  // Commas that a line begins with: those after a formula that cannot break by itself.
  const lost = [...document.querySelectorAll(".book-kept")].filter((kept) => {
    const [comma, formula] = [kept.lastChild, kept.querySelector(".katex-html")];
    if (comma.nodeType !== Node.TEXT_NODE || formula.children.length > 1) return false;
    const range = new Range();
    range.selectNodeContents(comma);
    return shown(kept) && range.getBoundingClientRect().top > formula.getBoundingClientRect().bottom;
  });

  return {
    paper: getComputedStyle(document.body).backgroundColor,
    words: words.textContent,
    formulas: [...document.querySelectorAll("article .math")].filter(shown).map((formula) => ({
      size: size(formula.querySelector(".katex-html") || formula),
      rendered: !!formula.querySelector(".katex-html"),
      wrong: !!formula.querySelector(".katex-error"),
      text: formula.querySelector(".katex-html")?.textContent || formula.textContent,
    })),
    fonts: [...document.fonts].filter((font) => font.status === "loaded").map((font) => font.family),
    broken: [...document.fonts].filter((font) => font.status === "error").map((font) => font.family),
    tables: [...document.querySelectorAll("article table")].map((table) => ({
      name: table.caption?.textContent || table.closest("[aria-label]")?.ariaLabel || "",
      headers: table.tHead?.rows[0].querySelectorAll("th").length || 0,
      columns: table.tBodies[0].rows[0].cells.length,
    })),
    scrollWidth: document.documentElement.scrollWidth,
    lost: lost.map((kept) => kept.textContent),
    shift,
  };
}
