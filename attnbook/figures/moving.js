// Figures that move: one script for all of them.
// Beside the svg stands JSON: {"labels": [...], "parts": {name: {attribute: [value per frame]}}}.
// A control picks a frame; every part of the svg (data-part="name") takes that frame's values.
// The first line of a frame's label is told when a control has moved; the whole names the svg.
(() => {
  "use strict";
  const start = (figure) => {
    figure.dataset.ready = "true";
    const data = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    const svg = figure.querySelector("svg");
    const controls = figure.querySelector(".attn-controls");
    const inputs = [...controls.querySelectorAll("input, select")];
    const parts = new Map(
      [...svg.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]),
    );
    const said = controls.querySelector(".attn-said");
    const show = () => {
      let frame = 0;
      for (const input of inputs) {
        const options = data.options[input.name];
        frame = frame * options.length + Number(input.value);
        if (input.type !== "range") continue;
        input.setAttribute("aria-valuetext", options[input.value]);
        input.parentElement.querySelector("output").textContent = options[input.value];
      }
      for (const [name, attributes] of Object.entries(data.parts)) {
        for (const [attribute, values] of Object.entries(attributes)) {
          if (attribute === "text") parts.get(name).textContent = values[frame];
          else parts.get(name).setAttribute(attribute, values[frame]);
        }
      }
      svg.setAttribute("aria-label", data.labels[frame].replace("\n", " "));
      return data.labels[frame].split("\n")[0];
    };
    for (const input of inputs) {
      input.addEventListener("input", () => { said.textContent = show(); });
    }
    controls.hidden = false;
    show();
  };
  const startAll = () =>
    document.querySelectorAll("figure.attn-moving:not([data-ready])").forEach(start);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", startAll);
  else startAll();
})();
