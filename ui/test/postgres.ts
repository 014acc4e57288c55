// A PostgreSQL server for tests, on a free port, as an unprivileged user.

import { execFileSync } from "node:child_process";
import { appendFileSync, chmodSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** The directory of the PostgreSQL programs, or `null` if it is not installed. */
export function programs(): string | null {
  if (process.env.LONGSHORE_PG_BIN) return process.env.LONGSHORE_PG_BIN;
  const root = "/usr/lib/postgresql";
  const versions = existsSync(root) ? readdirSync(root).sort() : [];
  return versions.map((version) => join(root, version, "bin")).filter((folder) => existsSync(join(folder, "initdb"))).at(-1) ?? null;
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}

/** Starts a cluster. PostgreSQL refuses to run as root: then the user `postgres` runs it. */
export async function startPostgres(): Promise<{ url: string; stop: () => void }> {
  const folder = mkdtempSync(join(tmpdir(), "longshore-ui-pg-"));
  chmodSync(folder, 0o777);
  const data = join(folder, "data");
  const run = (name: string, ...options: string[]) => {
    const program = join(programs()!, name);
    const [command, ...words] = process.getuid?.() === 0 ? ["runuser", "-u", "postgres", "--", program, ...options] : [program, ...options];
    execFileSync(command!, words, { stdio: "ignore", cwd: folder });
  };
  run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "-N", "-D", data);
  const port = await freePort();
  appendFileSync(join(data, "postgresql.conf"), `listen_addresses = '127.0.0.1'\nport = ${port}\nunix_socket_directories = ''\nfsync = off\nsynchronous_commit = off\n`);
  run("pg_ctl", "-D", data, "-l", join(folder, "log"), "-w", "start");
  const stop = () => {
    run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop");
    rmSync(folder, { recursive: true, force: true });
  };
  return { url: `postgres://postgres@127.0.0.1:${port}/postgres`, stop };
}
