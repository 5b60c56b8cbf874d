// What a narrow column cuts: formulas and figures wider than it or than the box they scroll in, and
// words that reach out of their drawing, in any frame. Code and wide tables may scroll.
() => {
  for (const part of document.querySelectorAll("details")) part.open = true;
  const cut = [];
  for (const box of document.querySelectorAll(
    ".math-scroll, .formula-map :is(.math, em), .attn-figure, .attn-figure svg")) {
    const [mine, column] = [box, box.closest("section")].map((e) => e.getBoundingClientRect());
    const over = Math.max(mine.right - column.right, column.left - mine.left,
      box.localName === "svg" ? 0 : box.scrollWidth - box.clientWidth);
    if (over > 1) cut.push({ over, what: box.ariaLabel || box.textContent.slice(0, 60) });
  }
  const look = (words) => {
    const [mine, drawing] = [words, words.ownerSVGElement].map((e) => e.getBoundingClientRect());
    const over = Math.max(mine.right - drawing.right, drawing.left - mine.left,
      mine.bottom - drawing.bottom, drawing.top - mine.top);
    if (mine.width && over > 1) {
      cut.push({ over, what: `“${words.textContent}” in ${words.ownerSVGElement.ariaLabel}` });
    }
  };
  document.querySelectorAll(".attn-figure svg text").forEach(look);
  for (const figure of document.querySelectorAll(".attn-moving")) {
    const { parts } = JSON.parse(figure.querySelector('[type="application/json"]').textContent);
    for (const [name, { text }] of Object.entries(parts)) {
      if (!text) continue;  // what changes there are no words
      const words = figure.querySelector(`[data-part="${name}"]`);
      const before = words.textContent;
      for (const value of new Set(Array.isArray(text[0]) ? text[0] : text)) {
        words.textContent = value;
        look(words);
      }
      words.textContent = before;
    }
  }
  return cut;
}
