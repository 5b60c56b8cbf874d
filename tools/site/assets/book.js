// A box that scrolls sideways is a stop for the Tab key, and only then. Some browsers see to it by
// themselves. A box is looked at when the reader comes near: to ask for its width lays it out.
(() => {
  "use strict";
  const near = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      if (!isIntersecting) continue;
      if (target.scrollWidth > target.clientWidth + 1) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  }, { rootMargin: "100%" });
  for (const box of document.querySelectorAll("article :is(pre, .math-scroll, .table-wrapper)")) near.observe(box);
})();
