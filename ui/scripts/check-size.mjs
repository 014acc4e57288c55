// Fails if the first load is over its limit: the page, its scripts with their static imports, and its style.

import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

const LIMIT = 150_000;
const dist = new URL("../dist/", import.meta.url).pathname;
if (!existsSync(join(dist, "index.html"))) {
  console.error("check-size: dist/ is missing (run npm run build first)");
  process.exit(1);
}

const wanted = new Set(["index.html"]);
const html = readFileSync(join(dist, "index.html"), "utf8");
for (const [, path] of html.matchAll(/(?:src|href)="\.?\/?(ui\/[^"]+)"/g)) wanted.add(path);
for (const path of wanted) {
  if (!path.endsWith(".js")) continue;
  const text = readFileSync(join(dist, path), "utf8");
  for (const [, target] of text.matchAll(/(?:from|import)\s*["'](\.[^"']+)["']/g)) wanted.add(normalize(join(dirname(path), target)));
}

let total = 0;
for (const path of [...wanted].sort()) {
  const size = statSync(join(dist, `${path}.gz`)).size;
  total += size;
  console.log(`${String(size).padStart(8)}  ${path}`);
}
console.log(`${String(total).padStart(8)}  first load, gzipped (limit ${LIMIT})`);
process.exit(total > LIMIT ? 1 : 0);
