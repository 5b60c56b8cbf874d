// Joins stylesheets for one_stylesheet.py and drops what no page can use. In: JSON on standard
// input; argument: the folder whose node_modules has the tools. Out: the stylesheet.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const tools = require("node:module").createRequire(path.join(process.argv[2], "package.json"));
const postcss = tools("postcss");
const parser = tools("postcss-selector-parser");
const { transform } = tools("lightningcss");

const { folder, parts, names } = JSON.parse(fs.readFileSync(0, "utf8"));
const known = {
  tag: new Set(names.tags),
  class: new Set(names.classes),
  id: new Set(names.ids),
  attribute: new Set(names.attributes),
};
const nameOf = {
  tag: (node) => node.value.toLowerCase(),
  class: (node) => node.value,
  id: (node) => node.value,
  attribute: (node) => node.attribute,
};
const ONE_OF = new Set([":is", ":where", ":has", ":-webkit-any", ":-moz-any", ":host"]);

// A selector can match if each of its names occurs; of those in brackets, one is enough. What
// stands in :not() need not occur, and pseudo-classes such as :hover are no names.
const canMatch = (selector) => selector.nodes.every((node) => {
  if (node.type in known) return known[node.type].has(nameOf[node.type](node));
  if (node.type === "pseudo" && ONE_OF.has(node.value) && node.nodes.length) {
    return node.nodes.some(canMatch);
  }
  return true;
});

const inKeyframes = (rule) => rule.parent.type === "atrule" && /keyframes$/.test(rule.parent.name);
const inFontFace = (declaration) => declaration.parent.name === "font-face";

const all = postcss.root();
for (const part of parts) {
  const sheet = postcss.parse(fs.readFileSync(path.join(folder, part)), { from: part });
  sheet.walkRules((rule) => {
    if (inKeyframes(rule)) return;
    const selectors = parser().astSync(rule.selector).nodes;
    const kept = selectors.filter(canMatch);
    if (!kept.length) rule.remove();
    else if (kept.length < selectors.length) rule.selector = kept.map(String).join(",");
  });
  // Addresses were relative to the part; the joined stylesheet lies in `folder`.
  sheet.walkDecls((declaration) => {
    declaration.value = declaration.value.replace(
      /url\((["']?)(?!["']|data:|#|[a-z]+:)([^"')]+)\1\)/g,
      (_, quote, address) => `url(${quote}${path.posix.join(path.posix.dirname(part), address)}${quote})`,
    );
  });
  all.append(sheet.nodes);
}

// Variables, fonts and animations that nothing refers to; one may have referred to another.
for (let before = ""; all.toString() !== before;) {
  before = all.toString();
  const variables = new Set(names.variables);
  for (const [, name] of before.matchAll(/var\(\s*(--[\w-]+)/g)) variables.add(name);
  let fonts = "";
  let animations = "";
  all.walkDecls((declaration) => {
    if (declaration.prop.startsWith("--") && !variables.has(declaration.prop)) declaration.remove();
    else if (/^(--|font)/.test(declaration.prop) && !inFontFace(declaration)) fonts += ` ${declaration.value}`;
    if (/^(--|(-webkit-)?animation)/.test(declaration.prop)) animations += ` ${declaration.value}`;
  });
  all.walkAtRules((rule) => {
    if (rule.name === "font-face") {
      rule.walkDecls("font-family", (declaration) => {
        if (!fonts.includes(declaration.value.replace(/["']/g, ""))) rule.remove();
      });
    } else if (/keyframes$/.test(rule.name) && !animations.includes(rule.params)) rule.remove();
  });
  all.walk((node) => {
    if (node.nodes && !node.nodes.length) node.remove();
  });
}

// Browsers of 2022 and later.
const version = (major, minor = 0) => (major << 16) | (minor << 8);
const { code } = transform({
  filename: "pages.css",
  code: Buffer.from(all.toString()),
  minify: true,
  errorRecovery: true,
  targets: { chrome: version(105), firefox: version(110), safari: version(15, 6) },
});
process.stdout.write(code);
