// A result shows a piece of its page as text. Sphinx takes all of it: each letter of a formula three
// times (for the eye, for the ear, and its TeX), the numbers of drawings, the names of buttons. The
// formula of the first page has a sentence that says it.
addEventListener("DOMContentLoaded", () => {
  "use strict";
  const unread =
    ".headerlink, script, style, figure, annotation, .katex-html, .formula-line, .copybtn, "
    + "#pst-secondary-sidebar";
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    for (const part of page.querySelectorAll(unread)) part.remove();
    const place = (anchor && page.querySelector(anchor)) || page.querySelector("article");
    return place ? place.textContent.replace(/\s+/g, " ") : "";
  };
});
