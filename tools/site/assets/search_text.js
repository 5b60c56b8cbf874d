// A question has the name of its subject in it: "what is self attention" that of the entry
// "self-attention". Sphinx finds an entry only by a part of it. The longest name comes first.
const plain = (words) => ` ${words} `.toLowerCase().replace(/s?[^\p{L}\p{N}_]+/gu, " ");

function named(query) {
  const { docnames, filenames, indexentries, titles } = Search._index;
  const entries = Object.keys(indexentries).filter((entry) => plain(query).includes(plain(entry)));
  // Not the names of functions, and not such terms of the glossary as "attention", which most have.
  return entries.sort((one, other) => other.length - one.length).flatMap((entry) =>
    indexentries[entry]
      .filter(([, id, isMain]) => isMain && !(id.startsWith("term-") && /^\p{L}+$/u.test(entry)))
      .map(([page, id]) => [docnames[page], titles[page], id && `#${id}`, null, 100, filenames[page]]));
}

// A result shows a piece of its page as text. Sphinx takes all of it: each letter of a formula three
// times (for the eye, for the ear, and its TeX), the numbers of drawings, the names of buttons.
addEventListener("DOMContentLoaded", () => {
  "use strict";
  const unread = ".headerlink, script, style, figure, annotation, .katex-html, .book-actions";
  Search.htmlToText = (html, anchor) => {
    // The styles of moving figures are not this page's, and its policy would refuse them aloud.
    const unstyled = html.replace(/<style.*?<\/style>/gs, "");
    const page = new DOMParser().parseFromString(unstyled, "text/html");
    for (const part of page.querySelectorAll(unread)) part.remove();
    const place = (anchor && page.querySelector(anchor)) || page.querySelector("article");
    return place ? place.textContent.replace(/\s+/g, " ") : "";
  };
  const search = Search._performSearch;
  Search._performSearch = (query, ...terms) => {
    const found = [...named(query), ...search(query, ...terms).reverse()];
    const places = found.map(([page, , section]) => page + section);
    return found.filter((_, n) => places.indexOf(places[n]) === n).reverse(); // shown from the end
  };
  // What was searched for stands in the field, to be changed.
  const typed = new URLSearchParams(location.search).get("q");
  if (typed) document.querySelector(".book-search input").value = typed;
}, { capture: true }); // before Sphinx searches
// A page of a file may not read other files, so its results come without excerpts.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
