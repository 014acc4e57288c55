// Requests of the dashboard as commands for a shell.

import { url } from "./api";

/** A text in single quotes of a POSIX shell. */
export function quote(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A call as a command of curl. The token stays in a variable of the shell. */
export function curl(method: string, path: string, body: string | null, hasToken: boolean): string {
  const parts = ["curl", "-sS", ...(method === "GET" ? [] : ["-X", method]), quote(url(path))];
  if (hasToken) parts.push("-H", `"authorization: Bearer $LONGSHORE_TOKEN"`);
  if (body !== null) parts.push("-H", quote("content-type: application/json"), "-d", quote(body));
  return parts.join(" ");
}

/** The address of the server for `--server`, if it is not the default one. */
function server(): string[] {
  const base = url("").replace(/\/$/, "");
  return base === "http://127.0.0.1:7070" || base === "http://localhost:7070" ? [] : ["--server", quote(base)];
}

/** A command of the `longshore` program. */
export function cli(...parts: string[]): string {
  return ["longshore", ...server(), ...parts.map(quote)].join(" ");
}
