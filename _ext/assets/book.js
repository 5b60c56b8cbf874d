// What the book's pages do, in place of the theme's scripts: the theme's markup stays, and of what
// its scripts did, what this book uses. Everything works on a page of a file as well.
(() => {
  "use strict";
  const root = document.documentElement;
  const one = (selector) => document.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Storage may be closed to a page; then nothing is kept, and all else works.
  const kept = (area, key, value) => {
    try {
      const storage = window[area];
      if (value === undefined) return storage.getItem(key);
      if (value === null) storage.removeItem(key);
      else storage.setItem(key, value);
    } catch { /* closed */ }
    return null;
  };

  // ---- Light, dark, or as the system has it ----

  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const showTheme = () => {
    const { mode } = root.dataset;
    root.dataset.theme = mode === "auto" ? (systemDark.matches ? "dark" : "light") : mode;
  };
  systemDark.addEventListener("change", showTheme);
  for (const button of all(".theme-switch-button")) {
    button.addEventListener("click", () => {
      // The first step away from "auto" changes what one sees.
      const modes = systemDark.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
      root.dataset.mode = modes[(modes.indexOf(root.dataset.mode) + 1) % modes.length];
      kept("localStorage", "mode", root.dataset.mode);
      showTheme();
    });
  }

  // ---- Dialogs: the search field, and the two drawers of a narrow window ----

  const closeOutside = (dialog) => dialog.addEventListener("click", (event) => {
    const box = dialog.getBoundingClientRect();
    const inside = event.clientX >= box.left && event.clientX <= box.right
      && event.clientY >= box.top && event.clientY <= box.bottom;
    // A key press on a button is a click without a place.
    if (!inside && event.detail) dialog.close();
  });

  const search = one("#pst-search-dialog");
  const openSearch = () => {
    // The page of results has a field of its own.
    const field = one(".bd-search-container input[type=search]");
    if (field) {
      field.focus();
      field.select();
    } else if (search.open) search.close();
    else search.showModal();
  };
  const mac = /^(Mac|iP)/.test(navigator.platform);
  if (search) {
    closeOutside(search);
    for (const button of all(".search-button__button")) button.addEventListener("click", openSearch);
    addEventListener("keydown", (event) => {
      const modifier = mac ? event.metaKey && !event.ctrlKey : event.ctrlKey && !event.metaKey;
      if (!modifier || event.shiftKey || event.altKey || event.key.toLowerCase() !== "k") return;
      event.preventDefault();
      openSearch();
    });
    if (mac) for (const key of all("kbd.kbd-shortcut__modifier:first-child")) key.textContent = "⌘";
  }
  if (one(".bd-search-container")) {
    if (!new URLSearchParams(location.search).get("q")) openSearch();
    // A page of a file may not read other files, so its results come without excerpts.
    if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }

  const wide = matchMedia("(min-width: 992px)");
  for (const side of ["primary", "secondary"]) {
    const button = one(`.${side}-toggle`);
    const bar = one(`#pst-${side}-sidebar`);
    const drawer = one(`#pst-${side}-sidebar-modal`);
    if (!button || !bar || !drawer) continue;
    const move = (from, to) => {
      to.append(...from.childNodes);
      to.className = from.className;
      from.className = "";
    };
    button.addEventListener("click", () => {
      if (side === "primary" && wide.matches) {
        bar.classList.toggle("pst-sidebar-hidden");
        return;
      }
      move(bar, drawer);
      drawer.showModal();
    });
    drawer.addEventListener("close", () => move(drawer, bar));
    // A link to a place on this page leads there, and out of the drawer.
    drawer.addEventListener("click", (event) => {
      if (event.target.closest('a[href^="#"]')) drawer.close();
    });
    closeOutside(drawer);
  }

  // ---- Where one is: a line under the header, the contents of the page and of the book ----

  const pixel = one(".sbt-scroll-pixel-helper");
  if (pixel) {
    new IntersectionObserver(([entry]) => {
      document.body.classList.toggle("scrolled", entry.boundingClientRect.y < 0);
    }).observe(pixel);
  }

  const entries = new Map();
  for (const link of all("#pst-page-toc-nav a[href^='#']")) {
    const heading = document.getElementById(link.hash.slice(1))?.querySelector("h1, h2, h3, h4");
    if (heading) entries.set(heading, link);
  }
  if (entries.size) {
    const show = (current) => {
      for (const link of entries.values()) {
        link.classList.toggle("active", link === current);
        if (link === current) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
        const item = link.closest(".toc-entry");
        item.classList.toggle("active", item.contains(current));
      }
    };
    // A link that was followed stays marked, though the end of the page may keep its heading low.
    let followed = 0;
    addEventListener("hashchange", () => {
      const link = [...entries.values()].find((each) => each.hash === location.hash);
      if (!link) return;
      followed = performance.now();
      show(link);
    });
    const here = new IntersectionObserver((seen) => {
      const heading = seen.filter((entry) => entry.isIntersecting).pop()?.target;
      if (heading && performance.now() > followed + 1000) show(entries.get(heading));
    }, { rootMargin: "0px 0px -70% 0px" });
    for (const heading of entries.keys()) here.observe(heading);
  }

  const contents = one("#pst-primary-sidebar");
  if (contents) {
    const place = kept("sessionStorage", "sidebar-scroll-top");
    const active = all(".bd-docs-nav .active", contents).pop();
    if (place) contents.scrollTop = Number(place);
    else if (active && active.getBoundingClientRect().top > innerHeight / 2) {
      const above = active.getBoundingClientRect().top - contents.getBoundingClientRect().top;
      contents.scrollTop = above - contents.clientHeight / 4;
    }
    addEventListener("pagehide", () => {
      kept("sessionStorage", "sidebar-scroll-top", String(contents.scrollTop));
    });
  }

  // ---- Copy buttons, for code that was written, not for what it printed ----

  const copy = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    // Only pages from this machine or over https have a clipboard.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("the browser did not copy");
  };
  const status = document.createElement("div");
  status.className = "visually-hidden";
  status.setAttribute("role", "status");
  document.body.append(status);

  const addCopyButton = (code) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copybtn";
    button.title = "Copy";
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async () => {
      let done = true;
      await copy(code.textContent.replace(/\n$/, "")).catch(() => { done = false; });
      status.textContent = done ? "Copied" : "Could not copy";
      if (done) button.classList.add("success");
      setTimeout(() => {
        button.classList.remove("success");
        status.textContent = "";
      }, 2000);
    });
    code.after(button);
  };

  // ---- Words that were searched for ----

  const mark = () => {
    const words = (kept("localStorage", "sphinx_highlight_terms") || "")
      .toLowerCase().split(/\s+/).filter(Boolean);
    kept("localStorage", "sphinx_highlight_terms", null);
    const article = one("article");
    if (!words.length || !article || !CSS.highlights) return;
    const ranges = [];
    const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode.data.toLowerCase();
      for (const word of words) {
        for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
          const range = new Range();
          range.setStart(texts.currentNode, at);
          range.setEnd(texts.currentNode, at + word.length);
          ranges.push(range);
        }
      }
    }
    CSS.highlights.set("searched", new Highlight(...ranges));
    addEventListener("keydown", (event) => {
      if (event.key === "Escape") CSS.highlights.delete("searched");
    });
  };
  if (!one(".bd-search-container")) mark();

  // ---- Full screen and back ----

  for (const button of all('[data-book-action="fullscreen"]')) {
    if (!document.fullscreenEnabled) button.hidden = true;
    button.addEventListener("click", () => {
      if (document.fullscreenElement) document.exitFullscreen();
      else root.requestFullscreen();
    });
  }

  // ---- What is below the first screen ----

  // The stylesheet leaves it out of the layout while it is far away (content-visibility), so that
  // the first screen is there at once. From the reader's first move on, or at once where the page
  // does not open at its top, the blocks get their true heights one after the other, in turns so
  // short that no key waits for one: then the scroll bar and the links within the page are exact.

  // A box that scrolls sideways is a stop for the Tab key, and only then.
  const boxes = ".math-scroll, .cell_output .output, .pst-scrollable-table-container, pre";
  const markBoxes = (within) => {
    for (const box of all(boxes, within)) {
      if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  const blocks = all(".bd-article section > :not(section)");
  const finish = (block) => {
    for (const code of all("pre", block)) if (!code.closest(".cell_output")) addCopyButton(code);
    if (block.classList.contains("book-later")) block.style.contentVisibility = "visible";
    markBoxes(block);
  };
  const finishFor = (time) => {
    const end = performance.now() + time;
    while (blocks.length && performance.now() < end) finish(blocks.shift());
    if (!blocks.length) root.dataset.laidOut = "true";
  };
  const turn = () => {
    finishFor(8);
    if (blocks.length) setTimeout(turn);
    else document.fonts.ready.then(() => markBoxes(document));
  };
  if (root.dataset.layout === "as-needed") {
    // A scroll of the page, that is: one of the contents beside it does not come up to here.
    const moves = ["scroll", "wheel", "touchstart", "pointermove", "pointerdown", "keydown"];
    const begin = () => {
      for (const move of moves) removeEventListener(move, begin);
      turn();
    };
    for (const move of moves) addEventListener(move, begin, { passive: true });
  } else turn();
  // A link within the page needs all heights before it is followed.
  const finishAll = () => finishFor(Infinity);
  addEventListener("click", (event) => {
    if (event.target.closest?.('a[href^="#"]')) finishAll();
  }, true);
  let resized = 0;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => markBoxes(document), 300);
  });

  // ---- Paper is white, and a solution on it cannot be opened ----

  let before = null;
  addEventListener("beforeprint", () => {
    if (before) return;
    finishAll();
    before = { theme: root.dataset.theme, closed: all("details.hide:not([open])") };
    root.dataset.theme = "light";
    for (const solution of before.closed) solution.open = true;
  });
  addEventListener("afterprint", () => {
    if (!before) return;
    root.dataset.theme = before.theme;
    for (const solution of before.closed) solution.open = false;
    before = null;
  });
})();
