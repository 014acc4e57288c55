import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const root = new URL("../../", import.meta.url);

interface Manifest {
  name: string;
  version: string;
  license: string;
  keywords: string[];
  dependencies?: object;
}

test("the published package has code, types, sources and the README, and no dependencies", () => {
  const manifest = JSON.parse(readFileSync(new URL("package.json", root), "utf8")) as Manifest;
  const output = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { cwd: root, stdio: "pipe" });
  const [packed] = JSON.parse(String(output)) as { files: { path: string }[] }[];
  const files = packed!.files.map((file) => file.path);
  for (const needed of ["dist/index.js", "dist/index.d.ts", "dist/testing/index.js", "dist/worker/lease-thread.js"]) {
    assert.ok(files.includes(needed), needed);
  }
  assert.ok(files.includes("README.md") && files.includes("src/index.ts"));
  const foreign = files.filter((path) => !/^(dist|src)\/|^(README\.md|package\.json|LICENSE-\w+)$/.test(path));
  assert.deepEqual(foreign, []);
  assert.deepEqual([manifest.dependencies, manifest.license], [undefined, "Apache-2.0 OR MIT"]);
  assert.ok(manifest.keywords.length > 0);
});
