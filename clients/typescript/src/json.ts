/**
 * JSON without loss. `JSON.parse` rounds integers beyond 2^53 - 1 silently; here they become
 * `bigint`, and a `bigint` is written as an integer.
 */

/** JSON text that is sent as it is. */
export class RawJson {
  readonly text: string;

  /** Throws a SyntaxError if `text` is not JSON. */
  constructor(text: string) {
    JSON.parse(text);
    this.text = text;
  }

  /** Lets `JSON.stringify` fail, so that `stringifyJson` uses its exact form. */
  toJSON(): never {
    throw new TypeError("RawJson cannot be written by JSON.stringify (submit it as a payload)");
  }
}

const SLOT = `longshore:${Math.random().toString(36).slice(2)}:`;
const SLOT_PATTERN = new RegExp(`"${SLOT}(\\d+)"`, "g");

/** Writes JSON. A `bigint` becomes an integer, `RawJson` its own text, `undefined` is `null`. */
export function stringifyJson(value: unknown): string {
  try {
    return JSON.stringify(value) ?? "null";
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
  }
  const texts: string[] = [];
  function replace(this: unknown, key: string, replaced: unknown): unknown {
    // The replacer gets the value after toJSON: the holder has the value before it.
    const value = (this as Record<string, unknown>)[key];
    if (value instanceof RawJson) return SLOT + (texts.push(value.text) - 1);
    if (typeof value === "bigint") return SLOT + (texts.push(value.toString()) - 1);
    return replaced;
  }
  const exact = JSON.stringify(withoutRaw(value), replace) ?? "null";
  return exact.replace(SLOT_PATTERN, (_, index: string) => texts[Number(index)] ?? "null");
}

/** Copies a value so that no `RawJson.toJSON` runs. */
function withoutRaw(value: unknown, depth = 0): unknown {
  if (value instanceof RawJson)
    return Object.assign(Object.create(RawJson.prototype), { text: value.text, toJSON: undefined });
  if (value === null || typeof value !== "object" || depth > 64) return value;
  if (Array.isArray(value)) return value.map((item) => withoutRaw(item, depth + 1));
  if (typeof (value as { toJSON?: unknown }).toJSON === "function") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withoutRaw(item, depth + 1)]));
}

/** Parses JSON. An integer that a `number` cannot hold exactly becomes a `bigint`. */
export function parseJson(text: string): unknown {
  // Every such integer has at least 16 digits, so most texts take the fast path.
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  JSON.parse(text); // Reports malformed text with the usual error.
  return new ExactParser(text).parse();
}

/** Reads text that is known to be valid JSON. */
class ExactParser {
  private at = 0;

  constructor(private readonly text: string) {}

  parse(): unknown {
    this.skipBlank();
    switch (this.text[this.at]) {
      case "{":
        return this.parseObject();
      case "[":
        return this.parseArray();
      case '"':
        return this.parseString();
      default:
        return this.parseScalar();
    }
  }

  private skipBlank(): void {
    while (" \n\r\t".includes(this.text[this.at] ?? "x")) this.at += 1;
  }

  private parseObject(): Record<string, unknown> {
    const object: Record<string, unknown> = {};
    this.at += 1;
    this.skipBlank();
    while (this.text[this.at] !== "}") {
      const key = this.parseString();
      this.skipBlank();
      this.at += 1;
      const value = this.parse();
      Object.defineProperty(object, key, { value, writable: true, enumerable: true, configurable: true });
      this.skipSeparator();
    }
    this.at += 1;
    return object;
  }

  private parseArray(): unknown[] {
    const array: unknown[] = [];
    this.at += 1;
    this.skipBlank();
    while (this.text[this.at] !== "]") {
      array.push(this.parse());
      this.skipSeparator();
    }
    this.at += 1;
    return array;
  }

  private skipSeparator(): void {
    this.skipBlank();
    if (this.text[this.at] === ",") this.at += 1;
    this.skipBlank();
  }

  private parseString(): string {
    const end = endOfString(this.text, this.at);
    const string = JSON.parse(this.text.slice(this.at, end)) as string;
    this.at = end;
    return string;
  }

  private parseScalar(): unknown {
    const start = this.at;
    while (this.at < this.text.length && !",]} \n\r\t".includes(this.text[this.at] ?? "")) this.at += 1;
    const literal = this.text.slice(start, this.at);
    const value: unknown = JSON.parse(literal);
    const isUnsafe = typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(literal);
    return isUnsafe ? BigInt(literal) : value;
  }
}

/** Returns the position after the string that begins at `at`. */
function endOfString(text: string, at: number): number {
  for (let end = text.indexOf('"', at + 1); ; end = text.indexOf('"', end + 1)) {
    let escapes = 0;
    while (text[end - 1 - escapes] === "\\") escapes += 1;
    if (escapes % 2 === 0) return end + 1;
  }
}

/** Returns the position after the value that begins at `at`. */
function endOfValue(text: string, at: number): number {
  let depth = 0;
  for (let end = at; end < text.length;) {
    const character = text[end];
    if (character === '"') {
      end = endOfString(text, end);
      if (depth === 0) return end;
    } else if (character === "{" || character === "[") {
      depth += 1;
      end += 1;
    } else if (character === "}" || character === "]") {
      if (depth === 0) return end;
      depth -= 1;
      end += 1;
      if (depth === 0) return end;
    } else if (depth === 0 && ", \n\r\t".includes(character ?? "")) {
      return end;
    } else {
      end += 1;
    }
  }
  return text.length;
}

function skipBlank(text: string, at: number): number {
  while (" \n\r\t".includes(text[at] ?? "x")) at += 1;
  return at;
}

/** Calls `visit` with the start and end of each member of the object or array at `at`. */
function eachMember(
  text: string,
  at: number,
  visit: (start: number, end: number, key: string | undefined) => void,
): void {
  const isObject = text[at] === "{";
  at = skipBlank(text, at + 1);
  while (at < text.length && text[at] !== "}" && text[at] !== "]") {
    let key: string | undefined;
    if (isObject) {
      const end = endOfString(text, at);
      key = text.slice(at + 1, end - 1);
      at = skipBlank(text, skipBlank(text, end) + 1);
    }
    const end = endOfValue(text, at);
    visit(at, end, key);
    at = skipBlank(text, end);
    if (text[at] === ",") at = skipBlank(text, at + 1);
  }
}

/** Returns the text of `payload` of each member of `jobs`, as the server sent it. */
export function payloadTexts(response: string): (string | undefined)[] {
  const texts: (string | undefined)[] = [];
  eachMember(response, skipBlank(response, 0), (jobsStart, _jobsEnd, name) => {
    if (name !== "jobs") return;
    eachMember(response, jobsStart, (jobStart) => {
      let text: string | undefined;
      eachMember(response, jobStart, (start, end, key) => {
        if (key === "payload") text = response.slice(start, end);
      });
      texts.push(text);
    });
  });
  return texts;
}
