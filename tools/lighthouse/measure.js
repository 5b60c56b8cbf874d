// Measures pages for page_scores.py: a line of JSON in for each run, a line of JSON out.
// Argument: the browser. It is started once, and ends with the input.
import { createInterface } from "node:readline";
import { launch } from "chrome-launcher";
import lighthouse, { defaultConfig, desktopConfig } from "lighthouse";

const chrome = await launch({
  chromePath: process.argv[2],
  chromeFlags: [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
try {
  for await (const line of createInterface({ input: process.stdin })) {
    const { url, form } = JSON.parse(line);
    const settings = {
      port: chrome.port,
      logLevel: "silent",
      onlyCategories: ["performance", "accessibility", "best-practices", "seo"],
      disableFullPageScreenshot: true,
    };
    const config = form === "desktop" ? desktopConfig : defaultConfig;
    const { lhr } = await lighthouse(url, settings, config);
    const ms = (audit) => Math.round(lhr.audits[audit].numericValue);
    const requests = lhr.audits["network-requests"].details.items;
    console.log(JSON.stringify({
      lighthouse: lhr.lighthouseVersion,
      browser: lhr.environment.hostUserAgent.match(/Chrome\/(\d+)/)?.[1],
      error: lhr.runtimeError?.message,
      performance: Math.round(100 * lhr.categories.performance.score),
      accessibility: Math.round(100 * lhr.categories.accessibility.score),
      best_practices: Math.round(100 * lhr.categories["best-practices"].score),
      seo: Math.round(100 * lhr.categories.seo.score),
      first_paint_ms: ms("first-contentful-paint"),
      largest_paint_ms: ms("largest-contentful-paint"),
      blocking_ms: ms("total-blocking-time"),
      shift: Number(lhr.audits["cumulative-layout-shift"].numericValue.toFixed(3)),
      // Pictures and what is data within another file are not counted.
      transfer_bytes: requests
        .filter((request) => request.resourceType !== "Image" && /^https?:/.test(request.url))
        .reduce((sum, request) => sum + request.transferSize, 0),
      // What keeps a score below 100, for whoever wants to mend it.
      failed: Object.values(lhr.categories).flatMap((category) => category.auditRefs
        .filter(({ id, weight }) => weight > 0 && (lhr.audits[id].score ?? 1) < 0.9)
        .map(({ id }) => id)),
    }));
  }
} finally {
  chrome.kill();
}
