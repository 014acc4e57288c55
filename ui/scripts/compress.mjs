// Writes each file of dist/ in the forms that the server sends: gzip and brotli beside the original.
// Then touches the build script of the server: cargo embeds the new files.

import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { existsSync, readdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const dist = new URL("../dist/", import.meta.url).pathname;

function* files(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* files(path);
    else if (!/\.(gz|br|map)$/.test(entry.name)) yield path;
  }
}

for (const path of files(dist)) {
  const data = readFileSync(path);
  writeFileSync(`${path}.gz`, gzipSync(data, { level: 9 }));
  writeFileSync(`${path}.br`, brotliCompressSync(data, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
}

const script = new URL("../../crates/server/build.rs", import.meta.url).pathname;
if (existsSync(script)) utimesSync(script, new Date(), new Date());
