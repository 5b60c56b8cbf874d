// Predict, commit, reveal: a field for the guess before each answer (predictions.py). A guess stays in
// this browser, under the name that its cell has from its source; no page sends one. A field is made
// when the reader comes near, because fields cost time to lay out.
(() => {
  "use strict";
  const PREFIX = "attention-guesses:", ALL = "attention-answers", page = PREFIX + location.pathname;
  let guesses = {};
  const kept = (work) => { try { return work(localStorage); } catch { return null; } };  // storage may be refused
  kept((store) => { guesses = JSON.parse(store.getItem(page) || "{}"); });

  const [box] = document.querySelectorAll(".book-guesses input"), [erase] = document.querySelectorAll(".book-guesses button");
  const places = [...document.querySelectorAll(".predicted > .guess")];
  const made = (tag, fill) => Object.assign(document.createElement(tag), fill);
  const name = (place) => place.parentElement.className.match(/guess-(\w+)/)[1];

  const question = (place) => {
    let before = place.parentElement;
    while ((before = before.previousElementSibling)) {
      const here = [before, ...before.querySelectorAll("p, li")];
      const found = here.find((one) => one.matches("p, li") && [...one.querySelectorAll("strong")].some((s) => s.textContent === "Predict"));
      if (found) return (found.id ||= `question-${name(place)}`);
    }
    return "";
  };

  const fill = (place) => {
    const answer = place.nextElementSibling, guess = guesses[name(place)];
    if (guess !== undefined) return place.replaceChildren(made("p", { textContent: `Your guess: ${guess}` }));
    const form = made("form", {}), label = made("label", { textContent: "Your guess " });
    const field = made("input", { type: "text", required: true, maxLength: 200, autocomplete: "off" });
    const asked = question(place);
    if (asked) field.setAttribute("aria-describedby", asked);
    label.append(field);
    form.append(label, made("button", { textContent: "Commit" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!field.value.trim()) return;
      guesses[name(place)] = field.value.trim();
      kept((store) => store.setItem(page, JSON.stringify(guesses)));
      erase.hidden = false;
      fill(place);
      answer.open = true;
      answer.querySelector("summary").focus();
    });
    place.replaceChildren(form);
  };

  const show = () => {
    for (const place of places) place.nextElementSibling.open = box.checked || guesses[name(place)] !== undefined;
  };
  box.checked = kept((store) => store.getItem(ALL)) === "all";
  box.addEventListener("change", () => {
    kept((store) => (box.checked ? store.setItem(ALL, "all") : store.removeItem(ALL)));
    show();
  });
  erase.hidden = !(kept((store) => Object.keys(store).some((key) => key.startsWith(PREFIX))) ?? false);
  erase.addEventListener("click", () => {
    kept((store) => Object.keys(store).filter((key) => key.startsWith(PREFIX)).forEach((key) => store.removeItem(key)));
    guesses = {};
    erase.hidden = true;
    places.filter((place) => place.firstChild).forEach(fill);
    show();
    box.focus();
  });
  show();

  // A link to a figure that waits for a guess opens the answer before it.
  const reach = () => {
    const goal = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const before = goal?.closest(".cell")?.previousElementSibling;
    if (!before?.matches(".predicted")) return;
    before.querySelector(":scope > details").open = true;
    goal.scrollIntoView();
  };
  addEventListener("hashchange", reach);
  reach();

  for (const place of places) if (guesses[name(place)] !== undefined) fill(place);
  const near = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) if (isIntersecting) { near.unobserve(target); fill(target); }
  }, { rootMargin: "100%" });
  places.forEach((place) => near.observe(place));
})();
