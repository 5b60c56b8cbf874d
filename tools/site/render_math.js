// Renders formulas for static_math.py: a line of JSON in for each, a line of JSON out.
// Ends when its input ends, so it never outlives the build.
"use strict";
const katex = require(process.argv[2]);
const lines = require("node:readline").createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const { tex, display } = JSON.parse(line);
  let answer;
  try {
    const options = { displayMode: display, throwOnError: true, strict: "error" };
    answer = { html: katex.renderToString(tex, options) };
  } catch (problem) {
    answer = { error: problem.message };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});
