/** Runs the guide as a new user would: its commands in an empty directory, and its code through the compiler. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test } from "node:test";

import { TestServer } from "longshore/testing";

const packageRoot = resolve(import.meta.dirname, "../..");
const repository = resolve(packageRoot, "../..");

/** Returns the blocks of a page that are marked with a language. */
async function blocks(page: string, language: string): Promise<string[]> {
  const text = await readFile(join(repository, page), "utf8");
  return [...text.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)]
    .filter((match) => match[1] === language)
    .map((match) => match[2]!);
}

function run(
  program: string,
  args: string[],
  directory: string,
  env: NodeJS.ProcessEnv = {},
): Promise<{ code: number | null; output: string }> {
  return new Promise((done) => {
    const child = spawn(program, args, { cwd: directory, env: { ...process.env, ...env } });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += String(chunk)));
    child.on("close", (code) => done({ code, output }));
  });
}

test("the commands of the guide work in an empty directory", async () => {
  await using server = await TestServer.start({ virtualClock: false });
  const directory = await mkdtemp(join(tmpdir(), "longshore-guide-"));
  try {
    const session = (await blocks("docs/guides/typescript.md", "bash")).join("\n");
    // The tools are installed and the package is built: other tests use it now.
    const script = session.replace("npm ci --silent && npm pack --silent", "npm pack --silent --ignore-scripts");
    assert.notEqual(script, session);
    const env = { LONGSHORE: repository, LONGSHORE_SERVER: server.url, npm_config_prefer_offline: "true" };
    // An inherited context of the test runner would change what `node --test` prints.
    const result = await run(
      "env",
      ["-u", "NODE_TEST_CONTEXT", "bash", "-euo", "pipefail", "-c", script],
      directory,
      env,
    );
    assert.equal(result.code, 0, result.output);
    assert.match(result.output, /^Hello Ann, attempt 1$/m);
    assert.match(result.output, /worker ended .*completed=1/);
    assert.match(result.output, /pass 1/);
  } finally {
    await rm(directory, { recursive: true });
  }
});

test("the code of the guide and the README compiles", async () => {
  const directory = await mkdtemp(join(tmpdir(), "longshore-code-"));
  try {
    const code = [
      ...(await blocks("docs/guides/typescript.md", "ts")),
      ...(await blocks("clients/typescript/README.md", "ts")),
    ];
    assert.ok(code.length >= 6);
    await mkdir(join(directory, "node_modules"));
    await symlink(packageRoot, join(directory, "node_modules/longshore"));
    for (const name of ["zod", "@types"])
      await symlink(join(packageRoot, "node_modules", name), join(directory, "node_modules", name));
    await Promise.all(code.map((block, index) => writeFile(join(directory, `block${index}.ts`), block)));
    const compilerOptions = { module: "nodenext", target: "es2022", strict: true, types: ["node"], noEmit: true };
    await writeFile(join(directory, "tsconfig.json"), JSON.stringify({ compilerOptions }));
    await writeFile(join(directory, "package.json"), '{"type":"module"}');
    const result = await run(join(packageRoot, "node_modules/.bin/tsc"), [], directory);
    assert.equal(result.code, 0, result.output);
  } finally {
    await rm(directory, { recursive: true });
  }
});

test("a minimal worker has at most 12 lines", async () => {
  const [minimal = ""] = await blocks("clients/typescript/README.md", "ts");
  assert.match(minimal, /\.run\(/);
  assert.ok(minimal.trim().split("\n").length <= 12);
});
