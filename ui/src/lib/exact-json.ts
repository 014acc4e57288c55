// JSON without loss: numbers keep the characters of their source, keys keep their order and
// duplicates. `JSON.parse` would round 9007199254740993.

import { t } from "../strings";

export type Node =
  | { kind: "object"; entries: { key: string; value: Node }[] }
  | { kind: "array"; items: Node[] }
  | { kind: "string"; text: string }
  | { kind: "number"; raw: string }
  | { kind: "literal"; raw: "true" | "false" | "null" }
  /** A value that the page does not show. */
  | { kind: "hidden"; value: Node };

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const LITERAL = /true|false|null/y;
const DEPTH_MAX = 200;

class Reader {
  private at = 0;
  constructor(private readonly text: string) {}

  document(): Node {
    const node = this.value(0);
    this.take(SPACE);
    if (this.at !== this.text.length) throw this.error();
    return node;
  }

  private error(): SyntaxError {
    return new SyntaxError(this.at >= this.text.length ? "unexpected end" : `unexpected character at position ${this.at}`);
  }

  private take(pattern: RegExp): string | null {
    pattern.lastIndex = this.at;
    const match = pattern.exec(this.text);
    if (!match) return null;
    this.at = pattern.lastIndex;
    return match[0];
  }

  private string(): string {
    const raw = this.take(STRING);
    if (raw === null) throw this.error();
    return JSON.parse(raw) as string;
  }

  private skip(character: string): boolean {
    this.take(SPACE);
    if (this.text[this.at] !== character) return false;
    this.at += 1;
    return true;
  }

  private expect(character: string): void {
    if (!this.skip(character)) throw this.error();
  }

  private value(depth: number): Node {
    if (depth > DEPTH_MAX) throw new SyntaxError("nested too deeply");
    this.take(SPACE);
    const next = this.text[this.at];
    if (next === "{") return this.object(depth);
    if (next === "[") return this.array(depth);
    if (next === '"') return { kind: "string", text: this.string() };
    const literal = this.take(LITERAL);
    if (literal !== null) return { kind: "literal", raw: literal as "true" | "false" | "null" };
    const raw = this.take(NUMBER);
    if (!raw) throw this.error();
    return { kind: "number", raw };
  }

  private object(depth: number): Node {
    this.expect("{");
    const entries: { key: string; value: Node }[] = [];
    if (this.skip("}")) return { kind: "object", entries };
    do {
      this.take(SPACE);
      const key = this.string();
      this.expect(":");
      entries.push({ key, value: this.value(depth + 1) });
    } while (this.skip(","));
    this.expect("}");
    return { kind: "object", entries };
  }

  private array(depth: number): Node {
    this.expect("[");
    const items: Node[] = [];
    if (this.skip("]")) return { kind: "array", items };
    do items.push(this.value(depth + 1));
    while (this.skip(","));
    this.expect("]");
    return { kind: "array", items };
  }
}

/** Parses a JSON text without loss. Throws a `SyntaxError` that names the position. */
export function parseExact(text: string): Node {
  return new Reader(text).document();
}

/** Returns the member of an object, or `null`. */
export function member(node: Node, key: string): Node | null {
  if (node.kind !== "object") return null;
  return node.entries.find((entry) => entry.key === key)?.value ?? null;
}

/** Writes a tree as compact JSON. */
export function compact(node: Node): string {
  switch (node.kind) {
    case "object":
      return `{${node.entries.map((entry) => `${JSON.stringify(entry.key)}:${compact(entry.value)}`).join(",")}}`;
    case "array":
      return `[${node.items.map(compact).join(",")}]`;
    case "string":
      return JSON.stringify(node.text);
    case "hidden":
      return compact(node.value);
    default:
      return node.raw;
  }
}

const SECRET = /^(.*[_.-])?(pass(word|wd|phrase)?|secret|token|api[_-]?key|private[_-]?key|access[_-]?key|authorization|credentials?|cookie|card([_-]?number)?|cvc|cvv|iban|ssn)$/i;

/** Hides the values of members whose names say that they are secret. Returns how many. */
export function hideSecrets(node: Node): { node: Node; hidden: number } {
  let hidden = 0;
  const visit = (value: Node): Node => {
    if (value.kind === "array") return { ...value, items: value.items.map(visit) };
    if (value.kind !== "object") return value;
    return {
      ...value,
      entries: value.entries.map((entry) => {
        const isSecret = SECRET.test(entry.key.replace(/([a-z0-9])([A-Z])/g, "$1_$2")) && compact(entry.value) !== "null";
        if (!isSecret) return { ...entry, value: visit(entry.value) };
        hidden += 1;
        return { ...entry, value: { kind: "hidden", value: entry.value } as const };
      }),
    };
  };
  return { node: visit(node), hidden };
}

/** Writes a tree as indented JSON. */
export function pretty(node: Node): string {
  return lines(node).map((line) => line.map((token) => token.text).join("")).join("\n");
}

export interface Piece { text: string; kind: "key" | "string" | "number" | "literal" | "mark" | "space" | "hidden"; exact?: boolean }

const INLINE_MAX = 72;

/** Returns the lines of indented JSON, as pieces with their kind for the viewer. */
export function lines(root: Node): Piece[][] {
  const out: Piece[][] = [[]];
  const push = (piece: Piece): void => void out[out.length - 1]!.push(piece);
  const newLine = (depth: number) => out.push(depth ? [{ text: "  ".repeat(depth), kind: "space" }] : []);
  const write = (node: Node, depth: number, inline: boolean): void => {
    switch (node.kind) {
      case "string":
        return push({ text: JSON.stringify(node.text), kind: "string" });
      case "number":
        return push({ text: node.raw, kind: "number", exact: isRounded(node.raw) });
      case "literal":
        return push({ text: node.raw, kind: "literal" });
      case "hidden":
        return push({ text: t.job.hiddenValue, kind: "hidden" });
      default:
        return writeContainer(node, depth, inline);
    }
  };
  const writeContainer = (node: Extract<Node, { kind: "object" | "array" }>, depth: number, inline: boolean): void => {
    const [open, close] = node.kind === "object" ? ["{", "}"] : ["[", "]"];
    const members = node.kind === "object" ? node.entries : node.items.map((value) => ({ key: null, value }));
    push({ text: open!, kind: "mark" });
    if (members.length) {
      const onOneLine = inline || (depth > 0 && fits(node));
      members.forEach(({ key, value }, index) => {
        if (!onOneLine) newLine(depth + 1);
        else push({ text: index || node.kind === "object" ? " " : "", kind: "space" });
        if (key !== null) push({ text: JSON.stringify(key), kind: "key" }), push({ text: ": ", kind: "mark" });
        write(value, depth + 1, onOneLine);
        if (index < members.length - 1) push({ text: ",", kind: "mark" });
      });
      if (!onOneLine) newLine(depth);
      else if (node.kind === "object") push({ text: " ", kind: "space" });
    }
    push({ text: close!, kind: "mark" });
  };
  write(root, 0, false);
  return out;
}

/** Whether a container is short and flat enough for one line. */
function fits(node: Extract<Node, { kind: "object" | "array" }>): boolean {
  const values = node.kind === "object" ? node.entries.map((entry) => entry.value) : node.items;
  return values.every((value) => value.kind !== "object" && value.kind !== "array") && compact(node).length <= INLINE_MAX;
}

/** Whether a double would not keep this number exactly. */
export function isRounded(raw: string): boolean {
  const digits = raw.replace(/^-/, "").replace(/[eE].*$/, "").replace(".", "").replace(/^0+/, "");
  if (digits.length <= 15) return false;
  if (!/^-?\d+$/.test(raw)) return digits.replace(/0+$/, "").length > 17;
  return BigInt(raw) !== BigInt(Number(raw));
}
