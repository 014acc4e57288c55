/** A duration: units as in `"1h15m"` or `"500ms"`, or a number of seconds. */
export type Duration = string | number;

const UNITS: Record<string, number> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};

/** Returns the milliseconds of a duration; throws a RangeError if it is malformed. */
export function toMilliseconds(duration: Duration): number {
  if (typeof duration === "number") {
    if (!Number.isFinite(duration) || duration < 0) throw invalid(duration);
    return duration * 1_000;
  }
  const text = duration.replaceAll(" ", "");
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d|w)/gy)];
  const length = parts.reduce((sum, part) => sum + part[0].length, 0);
  if (parts.length === 0 || length !== text.length) throw invalid(duration);
  return parts.reduce((sum, part) => sum + Number(part[1]) * (UNITS[part[2] ?? ""] ?? 0), 0);
}

function invalid(duration: Duration): RangeError {
  return new RangeError(`invalid duration ${JSON.stringify(duration)}: expected units such as "1h15m", or seconds`);
}

/** Returns the wire form of a duration, in whole milliseconds. */
export function fromMilliseconds(milliseconds: number): string {
  return `${Math.max(0, Math.round(milliseconds))}ms`;
}

/** Returns milliseconds of a clock that never jumps and is the same in all threads of the process. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
