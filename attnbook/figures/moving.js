// Figures that move: one script for all of them.
// Beside the svg stands JSON: {"labels": [...], "parts": {name: {attribute: [value per frame]}}}.
// Where few values differ, they stand there as [values, a character per frame, "]" for the first].
// A control picks a frame; every part of the svg (data-part="name") goes to that frame's values.
// An element with data-pick="control:place" sets its control when it is clicked, one with data-drag
// while a pointer is drawn over it. The first line of a frame's label is told when a control has
// moved; the whole names the svg.
(() => {
  "use strict";
  const PACE = 240; // milliseconds from one frame to the next
  const NUMBER = /-?\d*\.?\d+/g;
  const PLACES = /^([xy][12]?|c[xy]|r[xy]?|width|height|points|d|transform|(fill-)?opacity|stroke-width|stroke-dashoffset)$/;
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  // Return what lies at a share of the way between two values with the same letters, else nothing.
  const between = (from, to) => {
    const a = from.match(NUMBER), b = to.match(NUMBER);
    if (a?.length !== b?.length || from.replace(NUMBER, "") !== to.replace(NUMBER, "")) return null;
    return (share) => {
      let i = 0;
      return to.replace(NUMBER, (end, at) => {
        const gap = /[\d.]/.test(to[at - 1] ?? "") ? " " : "";
        return gap + +(+a[i] + (end - a[i++]) * share).toFixed(3);
      });
    };
  };

  const start = (figure) => {
    figure.dataset.ready = "true";
    const svg = figure.querySelector("svg");
    const controls = figure.querySelector(".attn-controls");
    const inputs = [...controls.querySelectorAll("input, select")];
    const said = controls.querySelector(".attn-said");
    const buttons = [...controls.querySelectorAll("button")];
    const steps = (button) => inputs.find((one) => one.name === button.value);
    const ended = (input) => Number(input.value) === Number(input.max || input.options?.length - 1);
    let data = null, parts = null; // read by the first move: most figures of a page get none
    let moves = [], begun = 0, request = 0, playing = null, held = "";

    const mark = () => {
      for (const button of buttons) {
        const sign = button === playing?.button ? "❚❚" : ended(steps(button)) ? "↻" : "▶\uFE0E";
        if (button.textContent !== sign) button.textContent = sign;
      }
    };
    const tick = (now) => {
      begun ||= now;
      const share = Math.min((now - begun) / PACE, 1);
      for (const [part, key, at, end] of moves) part.setAttribute(key, share < 1 ? at(share * (2 - share)) : end);
      request = share < 1 ? requestAnimationFrame(tick) : 0;
    };
    const show = (moved) => {
      data ??= JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
      parts ??= new Map([...svg.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]));
      let frame = 0;
      for (const input of inputs) {
        const options = data.options[input.name];
        frame = frame * options.length + Number(input.value);
        if (input.type !== "range") continue;
        input.setAttribute("aria-valuetext", options[input.value]);
        input.parentElement.querySelector("output").textContent = options[input.value];
      }
      cancelAnimationFrame(request);
      moves = [];
      for (const [name, attributes] of Object.entries(data.parts)) {
        const part = parts.get(name);
        for (const [key, values] of Object.entries(attributes)) {
          const few = Array.isArray(values[0]);
          const end = few ? values[0][values[1].charCodeAt(frame) - 93] : values[frame];
          if (key === "text") { part.textContent = end; continue; }
          const from = part.getAttribute(key);
          const at = moved && !calm.matches && from !== end && PLACES.test(key) && between(from, end);
          if (at) moves.push([part, key, at, end]);
          else part.setAttribute(key, end);
        }
      }
      begun = 0;
      if (moves.length) request = requestAnimationFrame(tick);
      mark();
      svg.setAttribute("aria-label", data.labels[frame].replace("\n", " "));
      return data.labels[frame].split("\n")[0];
    };

    const pause = () => {
      if (!playing) return;
      const { button, words, timer } = playing;
      clearInterval(timer);
      button.setAttribute("aria-label", words);
      playing = null;
      mark();
    };
    // A page shows a telling frame. The first play begins before it, unless a hand chose a place.
    const placed = new Set();
    const play = (button, byItself) => {
      const again = playing?.button === button;
      pause();
      if (again) return;
      const input = steps(button);
      const go = (place) => { input.value = place; return show(true); };
      if (ended(input) || !(byItself || placed.has(input))) go(0);
      placed.add(input);
      playing = { button, words: button.getAttribute("aria-label"), timer: setInterval(() => {
        const words = go(Number(input.value) + 1);
        if (ended(input)) { pause(); said.textContent = words; }
      }, Number(button.dataset.pace)) };
      mark();
      button.setAttribute("aria-label", "pause");
    };
    for (const button of buttons) {
      button.addEventListener("click", () => play(button));
      // What plays by itself does so once, when it is seen whole, and not where motion is unwanted.
      if (!("once" in button.dataset) || calm.matches) continue;
      const eye = new IntersectionObserver(([seen]) => {
        if (!seen.isIntersecting) return;
        eye.disconnect();
        if (!playing) play(button, true);
      }, { threshold: 0.9 });
      eye.observe(svg);
    }

    for (const input of inputs) {
      input.addEventListener("input", () => { pause(); placed.add(input); said.textContent = show(true); });
    }
    const pick = (event, kind) => {
      const target = document.elementFromPoint(event.clientX, event.clientY)?.closest(`[data-${kind}]`);
      if (!target || !svg.contains(target)) return;
      // A drag keeps to the control that it began with.
      const hold = target.dataset[kind].replace(/\d+/g, "");
      if (event.type === "pointermove" && hold !== held) return;
      held = hold;
      event.preventDefault();
      for (const choice of target.dataset[kind].split(" ")) {
        const [name, place] = choice.split(":");
        const input = inputs.find((one) => one.name === name);
        input.focus({ preventScroll: true }); // the arrow keys go on from here
        if (input.value === place) continue;
        input.value = place;
        input.dispatchEvent(new Event("input"));
      }
    };
    // What a click would choose is lit while a pointer is over it, everywhere where it stands.
    const light = (event) => {
      for (const lit of svg.querySelectorAll(".attn-lit")) lit.classList.remove("attn-lit");
      const target = event.type === "pointerover" && event.pointerType !== "touch" &&
        event.target.closest("[data-pick], [data-drag]");
      if (!target) return;
      const { pick, drag } = target.dataset;
      const same = pick ? `[data-pick="${pick}"]` : `[data-drag="${drag}"]`;
      for (const one of svg.querySelectorAll(same)) one.classList.add("attn-lit");
    };
    svg.addEventListener("pointerover", light);
    svg.addEventListener("pointerleave", light);
    svg.addEventListener("click", (event) => pick(event, "pick"));
    svg.addEventListener("pointerdown", (event) => pick(event, "drag"));
    svg.addEventListener("pointermove", (event) => { if (event.buttons) pick(event, "drag"); });
    controls.hidden = false;
    mark();
    // The page has drawn the frame of the controls' defaults; a browser may have kept other values.
    const kept = (input) => input.value !== (input.defaultValue ?? input.querySelector("[selected]").value);
    if (inputs.some(kept)) show(false);
  };
  const startAll = () =>
    document.querySelectorAll(".attn-moving:not([data-ready])").forEach(start);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", startAll);
  else startAll();
})();
