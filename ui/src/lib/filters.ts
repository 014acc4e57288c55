// Filters of the page of jobs: parameters of the URL, chips, and words typed into the box.

export const FILTERS: [parameter: string, word: string][] = [
  ["queue", "queue"], ["type", "type"], ["tag", "tag"], ["priority", "priority"], ["error_code", "error"], ["workflow", "workflow"], ["correlation_id", "correlation"], ["idempotency_key", "key"], ["external_id", "external"],
  ["created_after", "after"], ["created_before", "before"],
];

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export type Parsed = { job: string } | { filters: Record<string, string> } | null;

/** Parses what was typed: a job id, or words such as `queue:mail tag:tenant:acme`. A bare word is a queue if one has that name, a type if it has a dot, else a tag. */
export function parseFilter(text: string, queues: string[] = []): Parsed {
  const trimmed = text.trim();
  if (!trimmed) return null;
  if (UUID.test(trimmed)) return { job: trimmed.toLowerCase() };
  const filters: Record<string, string> = {};
  for (const word of trimmed.split(/\s+/)) {
    const colon = word.indexOf(":");
    const known = colon > 0 ? FILTERS.find(([parameter, name]) => name === word.slice(0, colon) || parameter === word.slice(0, colon)) : undefined;
    if (known && word.length > colon + 1) filters[known[0]] = word.slice(colon + 1);
    else if (queues.includes(word)) filters.queue = word;
    else if (!known) filters[word.includes(".") && colon < 0 ? "type" : "tag"] = word;
  }
  return Object.keys(filters).length ? { filters } : null;
}

/** The filters of a URL, in the order of the table. */
export function activeFilters(query: URLSearchParams): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [parameter] of FILTERS) {
    const value = query.get(parameter);
    if (value) found[parameter] = value;
  }
  return found;
}

/** The word of a parameter on its chip. */
export function wordOf(parameter: string): string {
  return FILTERS.find(([name]) => name === parameter)?.[1] ?? parameter;
}
