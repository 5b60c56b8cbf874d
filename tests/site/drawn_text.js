// Each text of each drawing: its words, its contrast with all that is painted under its middle, and
// its size on the screen.
() => {
  for (const part of document.querySelectorAll("details")) part.open = true;
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((part) => part / 255);
  };
  const over = (top, below, share) => below.map((part, i) => part + (top[i] - part) * share);
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const found = [];
  for (const figure of document.querySelectorAll(".attn-figure")) {
    const paper = rgba(getComputedStyle(figure).backgroundColor).slice(0, 3);
    const shapes = [];
    for (const shape of figure.querySelectorAll("svg :is(rect, path, circle, polygon, text)")) {
      const box = shape.getBoundingClientRect();
      const style = getComputedStyle(shape);
      let seen = Number(style.fillOpacity) * Number(style.opacity);
      for (let up = shape.parentElement; up !== figure; up = up.parentElement) {
        seen *= Number(getComputedStyle(up).opacity);
      }
      if (style.fill === "none" || !seen || !box.width) continue;
      if (shape.localName !== "text") {
        shapes.push({ box, shape, fill: rgba(style.fill).slice(0, 3), seen });
      } else if (shape.textContent.trim()) {
        const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
        let below = paper;
        for (const one of shapes) {
          const inside = x > one.box.left && x < one.box.right && y > one.box.top
            && y < one.box.bottom;
          const matrix = inside && one.shape.getScreenCTM().inverse();
          if (inside && one.shape.isPointInFill(new DOMPoint(x, y).matrixTransform(matrix))) {
            below = over(one.fill, below, one.seen);
          }
        }
        const mine = over(rgba(style.fill).slice(0, 3), below, seen);
        const [low, high] = [light(mine), light(below)].sort((a, b) => a - b);
        const svg = shape.ownerSVGElement;
        const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
        found.push({ words: shape.textContent, contrast: (high + 0.05) / (low + 0.05),
          size: Number.parseFloat(style.fontSize) * scale });
      }
    }
  }
  return found;
}
