// Reads histograms from the text format of Prometheus.

export interface Histogram { name: string; labels: string; count: number; sum: number; buckets: [le: number, count: number][] }
interface Sample { name: string; labels: Record<string, string>; value: number }

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

export function parseMetrics(text: string): Sample[] {
  return text.split("\n").filter((line) => line && !line.startsWith("#")).flatMap((line) => {
    const match = LINE.exec(line);
    if (!match) return [];
    const labels = Object.fromEntries([...(match[2] ?? "").matchAll(LABEL)].map(([, key, value]) => [key!, value!]));
    return [{ name: match[1]!, labels, value: match[3] === "+Inf" ? Infinity : Number(match[3]) }];
  });
}

/** All histograms in seconds; those of the store come first. */
export function histograms(samples: Sample[]): Histogram[] {
  const found = new Map<string, Histogram>();
  for (const { name, labels, value } of samples) {
    const match = /^(.*_seconds)_(bucket|sum|count)$/.exec(name);
    if (!match) continue;
    const { le, ...rest } = labels;
    const text = Object.entries(rest).map(([key, word]) => `${key} ${word}`).join(", ");
    const key = `${match[1]} ${text}`;
    const histogram = found.get(key) ?? { name: match[1]!, labels: text, count: 0, sum: 0, buckets: [] };
    if (match[2] === "bucket") histogram.buckets.push([le === "+Inf" ? Infinity : Number(le), value]);
    else histogram[match[2] as "sum" | "count"] = value;
    found.set(key, histogram);
  }
  const rank = (item: Histogram) => (/commit|sync/.test(item.name) ? 0 : /store/.test(item.name) ? 1 : 2);
  return [...found.values()].sort((a, b) => rank(a) - rank(b) || b.count - a.count);
}

/** A quantile, interpolated inside its bucket. */
export function quantile(histogram: Histogram, share: number): number {
  const buckets = [...histogram.buckets].sort((a, b) => a[0] - b[0]);
  const wanted = histogram.count * share;
  let [lower, below] = [0, 0];
  for (const [le, total] of buckets) {
    if (total >= wanted) return le === Infinity ? lower : lower + (le - lower) * (total > below ? (wanted - below) / (total - below) : 1);
    [lower, below] = [le, total];
  }
  return lower;
}
