// What `make lighthouse` asks of every page, for a phone and for a desktop (FORM). The median of the
// runs counts, since other programs on the machine slow a page down and none makes it fast.
const desktop = process.env.FORM === "desktop";
const categories = ["performance", "accessibility", "best-practices", "seo"];
const least = Object.fromEntries(categories.map((name) => [name, 1]));
least.performance = 0.95;
const floors = Object.entries(least).map(([name, minScore]) => [`categories:${name}`, ["error", { minScore }]]);

module.exports = {
  ci: {
    collect: {
      staticDistDir: "html",
      // Every page but the two that are not for search engines.
      maxAutodiscoverUrls: 0,
      autodiscoverUrlBlocklist: ["/404.html", "/search.html"],
      numberOfRuns: Number(process.env.RUNS || 3),
      settings: {
        ...(desktop && { preset: "desktop" }),
        onlyCategories: categories,
        disableFullPageScreenshot: true,
        chromeFlags: "--headless=new --no-sandbox --disable-gpu --disable-background-networking",
      },
    },
    assert: { aggregationMethod: "median", includePassedAssertions: true, assertions: Object.fromEntries(floors) },
  },
};
