// The first page's line: a sentence of the reader's, and what one of its words takes from the others.
// The numbers are those of attnbook/sentence.py, from the same rows; tests compare the two. Words of
// the sentences that the page opens on stand in the page; all others come when somebody types.
(() => {
  "use strict";
  const D_K = 64, FIRST = 80, LONGEST = 16, CLEAR = 0.05;
  const root = document.querySelector(".sentence"), here = document.currentScript.src;
  const find = (name) => root.querySelector(`.sentence-${name}`);
  const line = root.querySelector("input[type=text]"), words = find("words");
  const radios = [...root.querySelectorAll("input[type=radio]")];
  const opening = JSON.parse(root.querySelector("script").textContent);
  const { senses, sentences } = opening;
  const rows = new Map(); // each word's row, of length 1
  let others = null; // of each other word, where the two nearest ones are
  let state = { tokens: [], asks: 0, divisor: 8 };
  let before = { tokens: [], asks: 0 }; // the sentence before this one

  // -- numbers --
  const dot = (a, b) => {
    let sum = 0;
    for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
    return sum;
  };
  const read = (table) => table.words.split(" ").forEach((word, i) => {
    const row = Float64Array.from({ length: D_K }, (_, j) => table.rows.charCodeAt(D_K * i + j) - FIRST);
    rows.set(word, row.map((x) => x / Math.sqrt(dot(row, row))));
  });
  const mean = (vectors, weights) =>
    Float64Array.from({ length: D_K }, (_, i) => dot(weights, vectors.map((vector) => vector[i])));
  // Query and key are rows of length √D_K, so a score is D_K times the cosine. A word does not ask
  // itself or a copy of itself, nor a word that is not there.
  const attend = ({ tokens, asks, divisor }) => {
    const x = tokens.map((token) => rows.get(token)), there = x.map((row, j) => row && tokens[j] !== tokens[asks]);
    if (!x[asks] || !there.some(Boolean)) return null;
    const scores = x.map((row, j) => there[j] ? D_K * dot(x[asks], row) / divisor : -Infinity);
    const most = Math.max(...scores), e = scores.map((score) => Math.exp(score - most));
    const weights = e.map((one) => one / e.reduce((sum, other) => sum + other));
    const vectors = x.map((row) => row ?? new Float64Array(D_K)), n = there.filter(Boolean).length;
    const [least, largest] = [Math.min, Math.max].map((end) => end(...weights.filter((_, j) => there[j])));
    return {
      weights, vectors, least, best: weights.indexOf(largest),
      alike: n > 1 && largest < 2 * least, // nearly the plain mean
      alone: x[asks],
      "plain mean": mean(vectors, there.map((is) => is ? 1 / n : 0)),
      attention: mean(vectors, weights),
    };
  };
  const nearest = (vector, tokens) => {
    const best = [];
    let left = opening.named; // rare words have rows, and are not named
    for (const [word, row] of rows) {
      if (left-- === 0) break;
      const near = dot(row, vector);
      if (best.length === 3 && near <= best[2].near || tokens.includes(word)) continue;
      best.push({ near, word });
      best.sort((a, b) => b.near - a.near);
      best.length = Math.min(best.length, 3);
    }
    return best.map(({ word }) => word);
  };
  const decimal = (x) => x.toFixed(2).replace(/^-0\.00$/, "0.00").replace("-", "−");
  const percent = (x) => `${(100 * x).toFixed(0)}%`;

  // How many letters must be changed, added or taken away.
  const apart = (a, b) => {
    let last = [...Array(b.length + 1).keys()];
    for (let i = 1; i <= a.length; i++) {
      const next = [i];
      for (let j = 1; j <= b.length; j++) {
        next.push(Math.min(last[j] + 1, next[j - 1] + 1, last[j - 1] + (a[i - 1] !== b[j - 1])));
      }
      last = next;
    }
    return last[b.length];
  };
  const instead = (word) => {
    const place = others ? others.words.indexOf(word) : -1, all = [...rows.keys()];
    if (place >= 0) return [0, 1].map((i) => all[others.nearest[2 * place + i]]);
    return all.map((one) => [apart(word, one), one]).filter(([letters]) => letters <= (word.length < 5 ? 1 : 2))
      .sort((a, b) => a[0] - b[0]).slice(0, 2).map(([, one]) => one);
  };

  // -- files --
  const load = (name) => new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: new URL(`sentence_${name}.js`, here) });
    script.onload = () => { resolve(window.attnSentence); script.remove(); };
    script.onerror = () => reject(new Error(name));
    document.head.append(script);
  });
  let whole = null, rest = null;
  const all = () => whole ??= load("words").then((table) => { rows.clear(); read(table); });
  const elsewhere = () => rest ??= load("others").then((table) => {
    others = { words: table.words.split(" "), nearest: table.nearest };
  });

  // -- the picture --
  const make = (name, attributes, ...inside) => {
    const svg = /^(svg|path|line|circle|polygon|text)$/.test(name);
    const one = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    one.append(...inside);
    return one;
  };
  let arcs = [], buttons = [], labels = [], chosen = false; // whether the reader chose the word that asks

  // Arcs go from the top of the word that asks to the top of another, or to its foot where that one
  // stands in a line above.
  const place = () => {
    const box = find("picture").getBoundingClientRect();
    const spots = buttons.map((button) => {
      const { left, width, top, bottom } = button.getBoundingClientRect();
      return { x: left + width / 2 - box.left, top: top - box.top, foot: bottom - box.top };
    });
    const from = spots[state.asks], above = Math.max(0, ...spots.map(({ foot }) => foot < from.top ? foot : 0));
    arcs.forEach((arc, j) => {
      const to = spots[j];
      if (to.top === from.top) {
        const rise = Math.min(14 + 0.28 * Math.abs(to.x - from.x), from.top - above - 8) / 0.75;
        arc.setAttribute("d", `M${from.x} ${from.top}C${from.x} ${from.top - rise} ${to.x} ${to.top - rise} ${to.x} ${to.top}`);
      } else {
        const [upper, lower] = to.top < from.top ? [to, from] : [from, to], half = (upper.foot + lower.top) / 2;
        arc.setAttribute("d", `M${lower.x} ${lower.top}C${lower.x} ${half} ${upper.x} ${half} ${upper.x} ${upper.foot}`);
      }
    });
  };

  const spell = () => {
    labels = state.tokens.map(() => make("small", {}));
    buttons = state.tokens.map((token, j) => {
      const button = make("button", { type: "button" }, token, " ", labels[j]);
      button.disabled = !rows.has(token);
      button.addEventListener("click", () => { state.asks = j; chosen = true; show(); settle(); });
      return button;
    });
    arcs = state.tokens.map(() => make("path", { "stroke-width": 0 }));
    words.replaceChildren(...buttons);
    find("arcs").replaceChildren(...arcs);
  };

  // Elements stay where they can, so that their places move (book.css).
  const update = (svg, fresh) => {
    const kind = (one) => `${one.localName} ${one.getAttribute("class")}`, old = [...svg.children];
    if (fresh.map(kind).join() !== old.map(kind).join()) svg.replaceChildren(...fresh);
    else fresh.forEach((one, i) => {
      for (const { name, value } of one.attributes) old[i].setAttribute(name, value);
      old[i].textContent = one.textContent;
    });
  };
  const beam = (found, poles, past) => {
    const svg = find("beam"), at = (lean) => 262 + 140 * lean, [a, b] = poles.map((pole) => rows.get(pole));
    const lean = (vector) => dot(vector, b) - dot(vector, a);
    const text = (x, y, look, words) => make("text", { transform: `translate(${x} ${y})`, class: look }, words);
    // What attention makes hangs on a line from the plain mean.
    const mark = (row, name, vector, look, from = vector) => {
      const x = at(lean(vector)), start = at(lean(from)), y = 64 + 20 * row;
      const right = Math.max(x, start), number = decimal(lean(vector));
      return [
        text(4, y + 14, look, name),
        make("line", { x1: start, x2: x, y1: y + 9, y2: y + 9, class: look }),
        look === "equal" ? make("circle", { cx: x, cy: y + 9, r: 6, class: look })
          : make("polygon", { points: "0,0 9,16 -9,16", transform: `translate(${x} ${y})`, class: look }),
        right < 392 ? text(right + 13, y + 14, look, number)
          : text(Math.min(x, start) - 13, y + 14, `${look} end`, number),
      ];
    };
    // Each word stands on the beam where it leans, as large as its weight. Names need room.
    const named = [], x = found.vectors.map((vector) => at(lean(vector)));
    for (const j of [...x.keys()].sort((i, j) => found.weights[j] - found.weights[i])) {
      if (found.weights[j] > 0.04 && named.every((i) => Math.abs(x[i] - x[j]) > 62)) named.push(j);
    }
    const discs = found.weights.flatMap((weight, j) => {
      const r = 15 * Math.sqrt(weight), name = named.includes(j) ? state.tokens[j] : "";
      return [make("circle", { cx: x[j], cy: 60 - r, r, class: "load" }), text(Math.min(Math.max(x[j], 40), 408), 54 - 2 * r, "middle", name)];
    });
    const name = (one, tokens, how) => `${how} “${tokens[one.best]}”`;
    update(svg, [
      make("line", { x1: at(-1.2), x2: at(1.2), y1: 62, y2: 62, class: "beam" }),
      make("line", { x1: at(0), x2: at(0), y1: 62, y2: 146, class: "zero" }),
      text(4, 163, "axis", `lean = product with “${poles[1]}” − product with “${poles[0]}”`),
      text(4, 12, "pole", `← ${poles[0]}`),
      text(444, 12, "pole end", `${poles[1]} →`),
      ...discs,
      ...mark(0, name(found, state.tokens, "with"), found.attention, "attention", found["plain mean"]),
      ...(past ? mark(1, name(past, before.tokens, "before:"), past.attention, "other", past["plain mean"]) : []),
      ...mark(past ? 2 : 1, "plain mean", found["plain mean"], "equal"),
      ...mark(past ? 3 : 2, "alone", found.alone, "alone"),
    ]);
    const leans = ["alone", "plain mean", "attention"].map((way) => `${way} ${decimal(lean(found[way]))}`);
    svg.setAttribute("aria-label", `A beam from ${poles[0]} to ${poles[1]}: ${leans.join(", ")}.`);
    // To which side it leans further than the plain mean does, if the word that gives most does
    // too, and if it is no matter of length: for vectors of one length as well.
    const unit = (vector) => lean(vector) / Math.sqrt(dot(vector, vector));
    const equal = found["plain mean"], moves = lean(found.attention) - lean(equal);
    const gives = lean(found.vectors[found.best]) - lean(equal), turns = unit(found.attention) - unit(equal);
    return Math.abs(moves) > CLEAR && moves * gives > 0 && moves * turns > 0 ? poles[moves < 0 ? 0 : 1] : null;
  };

  // Draw what the state says; the words are there already.
  const show = () => {
    const { tokens, asks, divisor } = state, asked = tokens[asks], found = attend(state);
    root.dataset.found = !!found;
    buttons.forEach((button, j) => {
      button.setAttribute("aria-pressed", j === asks && !!found);
      labels[j].textContent = button.disabled ? "not here" : j === asks ? "asks" : found ? percent(found.weights[j]) : "";
      arcs[j].setAttribute("stroke-width", found && j !== asks && rows.has(tokens[j]) ? (0.6 + 15 * found.weights[j]).toFixed(1) : 0);
    });
    if (!found) {
      find("said").textContent = "Type at least two words that are here.";
      find("single").textContent = "";
      return;
    }
    place();
    const word = senses[asked] ? asked : null; // two senses make a beam
    const past = before.tokens.join(" ") !== tokens.join(" ") && before.tokens.indexOf(asked);
    const other = past !== false && past >= 0 ? attend({ tokens: before.tokens, asks: past, divisor }) : null;
    const side = word && beam(found, senses[word].split(" "), other);
    find("beam").toggleAttribute("hidden", !word);
    find("single").textContent = word ? "" : `No two senses of “${asked}” are stored, so there is no beam.`;
    const most = percent(found.weights[found.best]);
    find("said").textContent = found.alike
      ? `“${asked}” takes ${percent(found.least)} to ${most} from each word, nearly the plain mean`
      : `“${asked}” takes ${most} from “${tokens[found.best]}”` + (side ? `: nearer to ${side} than the plain mean` : "");
    for (const way of ["alone", "plain mean", "attention"]) {
      root.querySelector(`[data-way="${way}"]`).textContent = nearest(found[way], tokens).join(", ");
    }
  };

  // -- what the reader does --
  const missing = async () => {
    const { tokens } = state, unknown = [...new Set(tokens.filter((token) => !rows.has(token)))].slice(0, 3);
    if (unknown.length) await Promise.all([all(), elsewhere()]);
    if (tokens !== state.tokens) return;
    const long = line.value.trim().split(/\s+/).length > LONGEST;
    find("missing").replaceChildren(...(long ? [make("span", {}, `Only the first ${LONGEST} words are drawn.`)] : []), ...unknown.map((word) => {
      const near = instead(word).map((one) => {
        const button = make("button", { type: "button" }, one);
        button.addEventListener("click", () => {
          line.value = tokens.map((token) => token === word ? one : token).join(" ");
          say();
          line.focus();
        });
        return button;
      });
      return make("span", {}, `“${word}” is not here${near.length ? ". Near it: " : ", and none is spelt like it."}`, ...near);
    }));
  };
  const split = (text) => text.toLowerCase().replace(/['’]s\b/g, "").match(/[\p{L}\d'’]+/gu)?.slice(0, LONGEST) ?? [];
  // A word that was chosen asks on if it is there; else one that has two senses, else the rarest one.
  const choose = (tokens) => {
    const asked = state.tokens[state.asks], there = tokens.filter((token) => rows.has(token));
    const order = [...rows.keys()], rarest = Math.max(...there.map((token) => order.indexOf(token)));
    chosen &&= there.includes(asked);
    const next = chosen ? asked : there.find((token) => senses[token]) ?? order[rarest];
    return next === asked && tokens[state.asks] === asked ? state.asks : Math.max(0, tokens.lastIndexOf(next));
  };
  // The address follows where the reader rests: Safari allows it a hundred changes in half a minute.
  let timer = 0;
  const settle = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      history.replaceState(null, "", address());
      missing().catch(trouble);
    }, 400);
  };
  const address = () =>
    `#${new URLSearchParams({ say: state.tokens.join(" "), word: state.asks + 1, divisor: state.divisor })}`;
  const trouble = () => {
    find("missing").textContent = "The stored words could not be loaded. Is there a network?";
    whole = rest = null;
  };
  const set = (tokens, asks) => {
    state = { ...state, tokens, asks };
    find("missing").replaceChildren();
    find("copy").textContent = "Copy the link";
    spell();
    show();
  };
  const say = (asks) => {
    const tokens = split(line.value);
    chosen ||= asks !== undefined;
    set(tokens, asks ?? choose(tokens));
    settle();
  };
  const told = async () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    if (!asked.has("say")) return;
    line.value = split(asked.get("say")).join(" ");
    const radio = radios.find((one) => one.value === asked.get("divisor"));
    if (radio) { radio.checked = true; state.divisor = Number(radio.value); }
    await all();
    const place = Number(asked.get("word")) - 1, tokens = split(line.value);
    say(rows.has(tokens[place]) ? place : undefined);
  };

  line.addEventListener("focus", () => { before = { ...state }; all().catch(trouble); });
  line.addEventListener("input", () => all().then(() => say()).catch(trouble));
  root.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  for (const button of find("try").querySelectorAll("[value]")) {
    button.addEventListener("click", () => {
      before = { ...state };
      line.value = button.textContent;
      say(Number(button.value));
    });
  }
  for (const radio of radios) {
    radio.addEventListener("change", () => { state.divisor = Number(radio.value); show(); settle(); });
  }
  find("copy").hidden = !navigator.clipboard;
  find("copy").addEventListener("click", async (event) => {
    await navigator.clipboard.writeText(new URL(address(), location.href).href);
    event.target.textContent = "Copied";
  });
  addEventListener("hashchange", () => told().catch(trouble));

  read(opening);
  state.divisor = Number(radios.find((radio) => radio.checked).value);
  set(sentences[0][0].split(" "), sentences[0][1]);
  line.value = state.tokens.join(" ");
  new ResizeObserver(place).observe(find("picture"));
  told().catch(trouble);
})();
