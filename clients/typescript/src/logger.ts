/** Facts of a log line. */
export type LogFields = Record<string, unknown>;

/** Where log lines go. `console` fits, and so do most loggers with a small adapter. */
export interface Logger {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

const LEVELS = ["debug", "info", "warn", "error"] as const;

/** A level of the log. */
export type LogLevel = (typeof LEVELS)[number];

/** A logger that writes `level message key=value …` to standard error, from `level` on. */
export function stderrLogger(level: LogLevel = "info"): Logger {
  const lowest = LEVELS.indexOf(level);
  const write = (line: LogLevel) => (message: string, fields?: LogFields) => {
    if (LEVELS.indexOf(line) < lowest) return;
    process.stderr.write(`${new Date().toISOString()} ${line} ${message}${describeFields(fields)}\n`);
  };
  return { debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") };
}

/** A logger that writes nothing. */
export const silentLogger: Logger = { debug() {}, info() {}, warn() {}, error() {} };

/** A logger that adds `fields` to each line. */
export function withFields(logger: Logger, fields: LogFields): Logger {
  const add = (level: LogLevel) => (message: string, more?: LogFields) =>
    logger[level](message, { ...fields, ...more });
  return { debug: add("debug"), info: add("info"), warn: add("warn"), error: add("error") };
}

function describeFields(fields: LogFields = {}): string {
  const pairs = Object.entries(fields).filter(([, value]) => value !== undefined);
  return pairs.map(([key, value]) => ` ${key}=${describeValue(value)}`).join("");
}

function describeValue(value: unknown): string {
  if (value instanceof Error) return JSON.stringify(value.message);
  if (typeof value === "string") return /^[\w.:\-/]+$/.test(value) ? value : JSON.stringify(value);
  return typeof value === "bigint" ? value.toString() : (JSON.stringify(value) ?? "undefined");
}
