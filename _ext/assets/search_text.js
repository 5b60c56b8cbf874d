// A result shows a piece of its page as text. Sphinx takes all of it: each letter of a formula three
// times (for the eye, for the ear, and its TeX), the numbers of drawings, the names of buttons.
addEventListener("DOMContentLoaded", () => {
  "use strict";
  const unread = ".headerlink, script, style, figure, annotation, .katex-html, .book-actions";
  Search.htmlToText = (html, anchor) => {
    // The styles of moving figures are not this page's, and its policy would refuse them aloud.
    const plain = html.replace(/<style.*?<\/style>/gs, "");
    const page = new DOMParser().parseFromString(plain, "text/html");
    for (const part of page.querySelectorAll(unread)) part.remove();
    const place = (anchor && page.querySelector(anchor)) || page.querySelector("article");
    return place ? place.textContent.replace(/\s+/g, " ") : "";
  };
  // A page of a file may not read other files, so its results come without excerpts.
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  // What was searched for stands in the field, to be changed.
  const typed = new URLSearchParams(location.search).get("q");
  if (typed) document.querySelector(".book-search input").value = typed;
});
