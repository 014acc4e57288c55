// Numbers, durations and times as the dashboard writes them.

const NUMBER = new Intl.NumberFormat("en");

/** An exact count with separated thousands. */
export function count(value: number): string {
  return NUMBER.format(value);
}

/** A count that is short above a million: `1.25 M`. */
export function shortCount(value: number): string {
  if (Math.abs(value) < 1_000_000) return count(value);
  const [unit, letter] = Math.abs(value) < 1e9 ? [1e6, "M"] : [1e9, "G"];
  return `${(value / Number(unit)).toFixed(2).replace(/\.?0+$/, "")} ${letter}`;
}

/** A rate or share with at most three significant digits. */
export function figure(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  if (Math.abs(value) >= 100) return count(Math.round(value));
  if (Math.abs(value) >= 10) return value.toFixed(1).replace(/\.0$/, "");
  if (Math.abs(value) < 0.01) return "< 0.01";
  return value.toFixed(2).replace(/\.?0+$/, "");
}

const UNITS: [string, number][] = [["w", 604_800_000], ["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1_000], ["ms", 1]];

/** Milliseconds of a duration of the API, such as `1h15m5s`; `null` if it is none. */
export function parseDuration(text: string): number | null {
  const compactText = text.replace(/\s+/g, "");
  if (!/^(\d+(?:\.\d+)?(w|d|h|ms|m|s))+$/.test(compactText)) return null;
  let total = 0;
  for (const [, amount, unit] of compactText.matchAll(/(\d+(?:\.\d+)?)(w|d|h|ms|m|s)/g)) {
    total += Number(amount) * (UNITS.find(([name]) => name === unit)?.[1] ?? 0);
  }
  return total;
}

const WORDS: [string, number][] = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];

/** A duration for people: `0.8 s`, `3 min 29 s`, `2 h 5 min`, `12 d`. */
export function duration(milliseconds: number): string {
  const ms = Math.max(0, milliseconds);
  if (ms === 0) return "0 s";
  if (ms < 1) return `${Math.max(1, Math.round(ms * 1000))} µs`;
  if (ms < 100) return `${Math.round(ms)} ms`;
  if (ms < 9_950) return `${(ms / 1000).toFixed(1).replace(/\.0$/, "")} s`;
  let seconds = Math.round(ms / 1000);
  const index = WORDS.findIndex(([, size]) => seconds >= size);
  const parts: string[] = [];
  for (const [name, size] of WORDS.slice(index, index + (seconds >= 10 * 86_400 ? 1 : 2))) {
    const amount = Math.floor(seconds / size);
    seconds -= amount * size;
    if (amount) parts.push(`${amount} ${name}`);
  }
  return parts.join(" ");
}

/** A duration with its largest unit only: `36 min`. */
export function shortDuration(milliseconds: number): string {
  const ms = Math.max(0, milliseconds);
  if (ms < 9_950) return duration(ms);
  const seconds = Math.round(ms / 1000);
  const [name, size] = WORDS.find(([, unit]) => seconds >= unit)!;
  return `${Math.floor(seconds / size)} ${name}`;
}

/** A duration at an axis: one unit, with a part of it where steps need one. */
export function axisDuration(milliseconds: number): string {
  if (milliseconds < 1_000) return milliseconds === 0 ? "0 s" : `${Math.round(milliseconds)} ms`;
  const [name, size] = WORDS.find(([, unit]) => milliseconds / 1000 >= unit)!;
  return `${Number((milliseconds / 1000 / size).toFixed(1))} ${name}`;
}

const DAY = 86_400_000;

/** A time relative to `now` up to a day, then a date: `36 min ago`, `in 4 min 12 s`, `12 Nov 17:30`. */
export function relative(at: string, now: number): string {
  const time = Date.parse(at);
  const distance = time - now;
  if (Math.abs(distance) > DAY) return date(at);
  if (distance > 0) return `in ${distance < 3_600_000 ? duration(distance) : shortDuration(distance)}`;
  if (distance > -1_000) return "now";
  return `${distance > -10_000 ? `${Math.floor(-distance / 1000)} s` : shortDuration(-distance)} ago`;
}

const pad = (value: number): string => String(value).padStart(2, "0");
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** Day and minute in UTC, with the year if it is not the present one. */
export function date(at: string): string {
  const time = new Date(at);
  return `${time.getUTCDate()} ${MONTHS[time.getUTCMonth()]} ${time.getUTCFullYear()} ${pad(time.getUTCHours())}:${pad(time.getUTCMinutes())}`;
}

/** Time of day in UTC. */
export function clock(at: string | number, seconds = true): string {
  const time = new Date(at);
  return `${pad(time.getUTCHours())}:${pad(time.getUTCMinutes())}${seconds ? `:${pad(time.getUTCSeconds())}` : ""}`;
}

/** Bytes with a binary unit. */
export function bytes(value: number): string {
  if (value < 1024) return `${value} bytes`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let amount = value / 1024;
  let unit = 0;
  while (amount >= 1024 && unit < units.length - 1) (amount /= 1024), (unit += 1);
  return `${amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${units[unit]}`;
}

/** The class of a state: `dead_letter` is `s-dead-letter`. */
export function stateClass(state: string): string {
  return `s-${state.replace("_", "-")}`;
}
