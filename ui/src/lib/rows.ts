// Rows of a live list: while they are held, updates change them in place, and new ones wait.

export interface Rows<T> { rows: T[]; waiting: number }

/**
 * The rows to show while the list is held: those that are shown, in their order and with their
 * newest values. Rows that left the list stay as they were. `waiting` counts the new ones.
 */
export function holdRows<T extends { id: string }>(shown: T[], fresh: T[]): Rows<T> {
  const newest = new Map(fresh.map((row) => [row.id, row]));
  const rows = shown.map((row) => newest.get(row.id) ?? row);
  const ids = new Set(shown.map((row) => row.id));
  return { rows, waiting: fresh.filter((row) => !ids.has(row.id)).length };
}

/** The row `step` rows after the current one; the first row if there is no current one. */
export function moveCursor<T extends { id: string }>(rows: T[], current: string | null, step: number): string | null {
  const at = rows.findIndex((row) => row.id === current);
  if (at < 0) return rows[0]?.id ?? null;
  return rows[Math.max(0, Math.min(rows.length - 1, at + step))]!.id;
}
