// Scenes of a working day, in virtual time: a quarter of an hour of load takes seconds, and every
// run shows the same picture.

import { Api } from "./support";

/** Random numbers from a seed (mulberry32). */
export function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let value = Math.imul(state ^ (state >>> 15), 1 | state);
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
    return ((value ^ (value >>> 14)) >>> 0) / 4_294_967_296;
  };
}
const random = randomFrom(21);
const pick = <T>(list: T[]): T => list[Math.floor(random() * list.length)]!;
const list = <T>(amount: number, make: (index: number) => T): T[] => Array.from({ length: amount }, (_, index) => make(index));
const TENANTS = ["lantern", "blue-heron", "northpier", "saltmarsh", "tidewater"];

interface Kind { queue: string; type: string; perSecond: number; payload: (index: number) => object }
const KINDS: Kind[] = [
  { queue: "mail", type: "email.send", perSecond: 24, payload: (n) => ({ to: `user-${n}@example.com`, template: "welcome" }) },
  { queue: "mail", type: "email.receipt", perSecond: 11, payload: (n) => ({ order: 40_000 + n }) },
  { queue: "images", type: "image.resize", perSecond: 13, payload: (n) => ({ source: `uploads/${n}.jpg`, width: 640 }) },
  { queue: "images", type: "image.transcode", perSecond: 0.4, payload: (n) => ({ source: `uploads/${n}.mov`, codec: "av1" }) },
  { queue: "search-index", type: "index.push", perSecond: 22, payload: (n) => ({ document: 7_000 + n }) },
  { queue: "invoices", type: "invoice.charge", perSecond: 2.4, payload: (n) => ({ invoice: 900 + n, currency: "EUR" }) },
  { queue: "reports", type: "report.build", perSecond: 2.2, payload: (n) => ({ report: "daily", page: n }) },
  { queue: "webhooks-in", type: "hook.apply", perSecond: 8, payload: (n) => ({ event: n }) },
  { queue: "exports", type: "export.csv", perSecond: 0.8, payload: (n) => ({ table: "orders", part: n }) },
];

interface Crew { queue: string; names: string[]; types: string[]; slots: number; runs: [least: number, most: number]; version: string }
const CREWS: Crew[] = [
  { queue: "mail", names: ["mailer-1", "mailer-2", "mailer-3"], types: ["email.send", "email.receipt"], slots: 32, runs: [0.4, 3], version: "2.13.1" },
  { queue: "images", names: ["resizer-1", "resizer-2"], types: ["image.resize"], slots: 24, runs: [1, 6], version: "1.8.2" },
  { queue: "search-index", names: ["indexer-1", "indexer-2"], types: ["index.push"], slots: 32, runs: [0.2, 3], version: "5.0.0" },
  { queue: "reports", names: ["reportd-1"], types: ["report.build"], slots: 16, runs: [3, 12], version: "1.8.2" },
  { queue: "webhooks-in", names: ["hooks-1"], types: ["hook.apply"], slots: 24, runs: [0.2, 2], version: "3.1.4" },
  { queue: "exports", names: ["exporter-1"], types: ["export.csv"], slots: 8, runs: [4, 14], version: "1.8.2" },
  { queue: "invoices", names: ["biller-1"], types: ["invoice.charge"], slots: 12, runs: [1, 4], version: "4.2.0" },
];
const DEPLOYED = "2.14.0";
const FAILURES: [code: string, message: string][] = [["db_timeout", "statement timeout after 60000 ms"], ["upstream_5xx", "rates.internal answered 503"]];
const TARGETS: Record<string, string> = { mail: "30s", images: "2m", "search-index": "10s", reports: "1m", invoices: "5m" };

type Lease = { id: string; type: string; lease: { token: string } };
interface Held { job: Lease; crew: Crew; endsAt: number; outcome: object }

/** Seconds of one step of the scene. */
const STEP = 2;
export const LENGTH = 900;

/** Settles, claims and submits, step by step, up to `LENGTH` seconds of virtual time. */
export class Day {
  private at = 0;
  private held: Held[] = [];
  private owed = new Map<Kind, number>();
  private number = 0;
  constructor(private readonly api: Api, private readonly operator: Api) {}

  async run(seconds = LENGTH): Promise<void> {
    const end = this.at + seconds;
    while (this.at < end) {
      if (this.at === 300) await this.operator.post("v1/queues/invoices/pause");
      await this.work();
      await this.submit();
      await this.api.advance(`${STEP}s`);
      this.at += STEP;
    }
  }

  private async submit(): Promise<void> {
    const wave = 1 + 0.22 * Math.sin(this.at / 95) + 0.1 * (random() - 0.5);
    const byQueue = new Map<string, object[]>();
    for (const kind of KINDS) {
      const exact = (this.owed.get(kind) ?? 0) + kind.perSecond * wave * STEP;
      this.owed.set(kind, exact % 1);
      const jobs = list(Math.floor(exact), () => ({ type: kind.type, payload: kind.payload((this.number += 1)), priority: pick(["normal", "normal", "normal", "high", "low"]), tags: { tenant: pick(TENANTS) } }));
      byQueue.set(kind.queue, [...(byQueue.get(kind.queue) ?? []), ...jobs]);
    }
    await Promise.all([...byQueue].filter(([, jobs]) => jobs.length).map(([queue, jobs]) => this.api.submit(queue, jobs as never)));
  }

  private async work(): Promise<void> {
    const due = this.held.filter((held) => held.endsAt <= this.at);
    this.held = this.held.filter((held) => held.endsAt > this.at);
    if (due.length) await this.api.post("v1/settlements", { settlements: due.map(({ job, outcome }) => ({ id: job.id, lease: job.lease.token, ...outcome })) as never });
    await Promise.all(CREWS.flatMap((crew) => crew.names.map((name) => this.claim(crew, name))));
  }

  private async claim(crew: Crew, worker: string): Promise<void> {
    const isDeployed = crew.queue === "mail" && this.at >= 540;
    // The reports have too few workers after ten minutes.
    const slots = crew.queue === "reports" && this.at >= 600 ? 6 : crew.queue === "images" && this.at >= 660 ? 16 : crew.slots;
    const busy = this.held.filter((held) => held.crew === crew).length / crew.names.length;
    const limit = Math.max(0, Math.floor(slots - busy));
    if (!limit) return;
    const { jobs } = await this.api.post("v1/claims", { queues: [crew.queue], worker, version: isDeployed ? DEPLOYED : crew.version, limit, types: crew.types });
    for (const job of jobs as Lease[]) {
      const isBad = random() < (isDeployed && this.at >= 570 ? 0.16 : 0.004);
      const [code, message] = isDeployed ? (["smtp_421", "4.7.0 too many messages, slow down"] as const) : pick(FAILURES);
      const took = crew.runs[0] + random() ** 2 * (crew.runs[1] - crew.runs[0]);
      this.held.push({ job, crew, endsAt: this.at + took, outcome: isBad ? { outcome: "fail", error: { category: "temporary", code, message } } : { outcome: "complete", result: { ok: true } } });
    }
  }
}

const ERRORS: [code: string, type: string, message: (index: number) => string, amount: number][] = [
  ["card_declined", "payment.charge", (index) => `card tok_${8000 + index} declined: "insufficient funds"`, 212], ["template_missing", "payment.receipt", () => `template "invoice-ready" not found for locale "pt-BR"`, 74],
  ["payload_invalid", "payment.refund", (index) => `field "lines/${index}" must be a string`, 41], ["account_closed", "payment.charge", (index) => `account ${1000 + index} was closed`, 28],
  ["currency_unknown", "payment.refund", () => `currency "XTS" is not known`, 17], ["signature_invalid", "payment.notify", (index) => `signature of key ${index % 3} does not match`, 11],
  ["amount_negative", "payment.refund", (index) => `amount -${index} is negative`, 6], ["permanent", "payment.charge", () => `"limit reached"`, 4],
];

/** Queues with their targets, and dead letters in eight groups that arrived over two hours. */
export async function prepare(api: Api): Promise<void> {
  for (const queue of new Set(KINDS.map((kind) => kind.queue))) await api.put(`v1/queues/${queue}`, { settings: { ...(TARGETS[queue] ? { wait_target: TARGETS[queue]! } : {}), retry: { limit: 3, backoff: { base: "20s" } } } });
  await api.put("v1/queues/payments", { settings: { retry: { on_permanent: "dead_letter" } } });
  for (let part = 0; part < 12; part += 1) {
    for (const [code, type, message, amount] of ERRORS) {
      const size = Math.floor((amount * (part + 1)) / 12) - Math.floor((amount * part) / 12);
      if (!size) continue;
      await api.submit("payments", list(size, (index) => ({ type, payload: { charge: index, tenant: pick(TENANTS) }, tags: { tenant: pick(TENANTS) } })));
      const jobs: Lease[] = await api.claim("payments", "charge-api-1", size);
      await api.advance(`${400 + Math.floor(900 * random())}ms`);
      await api.post("v1/settlements", { settlements: jobs.map((job, index) => ({ id: job.id, lease: job.lease.token, outcome: "fail", error: { category: "permanent", code, message: message(part * 20 + index) } })) });
    }
    await api.advance("10m");
  }
}

/** Schedules with ticks behind them: two that work, one that is paused, one whose queue does not keep up. */
export async function schedules(api: Api): Promise<void> {
  await api.put("v1/schedules/nightly-ledger", { cron: "0 3 * * *", timezone: "Europe/Berlin", queue: "ledger", job: { type: "ledger.close", payload: { scope: "all" } } });
  await api.put("v1/schedules/search-refresh", { every: "5m", queue: "search-index", job: { type: "index.push", payload: { document: 0 } } });
  await api.put("v1/schedules/invoice-run", { every: "10m", overlap: "skip", queue: "invoices", job: { type: "invoice.charge", payload: { invoice: 0 } } });
  await api.put("v1/schedules/weekly-digest", { cron: "30 8 * * MON", timezone: "America/New_York", queue: "mail", job: { type: "email.send", payload: { template: "digest" } } });
  await api.post("v1/schedules/weekly-digest/pause", { note: "until the new template is live" });
}

/** A job of a workflow with four failed attempts, a requeue, and a delivered callback. Returns its id. */
export async function retriedJob(api: Api, operator: Api, callback: string): Promise<string> {
  await api.put("v1/queues/month-end", { settings: { lease: "1m", retry: { limit: 3, on_exhausted: "dead_letter", backoff: { kind: "constant", base: "40s" }, jitter: { kind: "none" } } } });
  const report = `{"ref":"summary","queue":"month-end","type":"report.build","payload":{"report":"ledger-summary","period":{"from":"2026-10-01","to":"2026-10-31"},"account":9007199254740993,"recipients":["ann@example.com","ops@example.com"]},"tags":{"tenant":"blue-heron","period":"2026-10"},"priority":"high","correlation_id":"month-end-2026-10","callback_url":"${callback}"}`;
  const { jobs } = await api.post("v1/workflows", `{"name":"ledger summary","jobs":[${report},{"ref":"notify","queue":"month-end","type":"mail.notify","after":["#summary"]}]}`);
  const id: string = jobs.summary;
  const run = async (worker: string, seconds: number, code: string, message: string) => {
    const [job] = (await api.post("v1/claims", { queues: ["month-end"], worker, types: ["report.build"] })).jobs;
    for (let second = 0; second < seconds; second += 4) {
      await api.advance("4s");
      await api.post(`v1/jobs/${id}/heartbeat`, { lease: job.lease.token, progress: { pages: second } });
    }
    await api.fail(job, code, message);
    await api.advance("40s");
  };
  await api.advance("6s");
  await run("reportd-2", 16, "db_timeout", "statement timeout after 60000 ms");
  await run("reportd-7", 24, "db_timeout", "statement timeout after 60000 ms");
  await run("reportd-2", 12, "db_timeout", "statement timeout after 60000 ms");
  await operator.post(`v1/jobs/${id}/requeue`);
  await api.advance("5s");
  const [job] = (await api.post("v1/claims", { queues: ["month-end"], worker: "reportd-5", types: ["report.build"] })).jobs;
  for (let second = 0; second < 32; second += 4) {
    await api.advance("4s");
    await api.post(`v1/jobs/${id}/heartbeat`, { lease: job.lease.token });
  }
  await api.fail(job, "upstream_5xx", "rates.internal answered 503 after 3 tries");
  await api.advance("12s");
  return id;
}

/** A workflow of 200 jobs in four regions; one payment is declined. Returns its id. */
export async function monthEnd(api: Api): Promise<string> {
  await api.put("v1/queues/ledger", { settings: { lease: "1h", retry: { on_permanent: "failed" } } });
  const regions = ["eu", "us", "apac", "uk"];
  const job = (ref: string, type: string, after: string[] = []) => ({ ref, queue: "ledger", type, after: after.map((name) => `#${name}`) });
  const jobs = [job("collect", "ledger.collect"), job("fx-rates", "rates.load")];
  for (const region of regions) {
    jobs.push(job(`ledger-${region}`, `ledger.${region}`, region === "eu" ? ["collect", "fx-rates"] : ["collect"]));
    const parts = region === "us" ? 5 : region === "eu" ? 60 : 15;
    for (let index = 1; index <= parts; index += 1) jobs.push(job(`render-${region}-${index}`, `render.${region}`, [`ledger-${region}`]), job(`charge-${region}-${index}`, region === "us" ? `charge.us.${index}` : `charge.${region}`, [`render-${region}-${index}`]));
    jobs.push(job(`post-${region}`, "books.post", list(parts, (index) => `charge-${region}-${index + 1}`)), job(`report-${region}`, "report.build", [`post-${region}`]));
  }
  jobs.push(job("close-books", "books.close", regions.map((region) => `report-${region}`)), job("notify", "mail.notify", ["report-us"]));
  const { id } = await api.post("v1/workflows", { name: "month-end close", jobs });
  for (let round = 0; round < 5; round += 1) {
    const claimed = await api.claim("ledger", "ledger-1", 400);
    await api.advance(`${3 + 2 * round}s`);
    for (const [index, found] of claimed.entries()) {
      if (found.type === "charge.us.3") await api.fail(found, "card_declined", "card tok_8842 declined: insufficient funds", "permanent");
      else if (round === 3 && index % 3 === 0) continue;
      else if (round < 4) await api.complete(found);
    }
  }
  return id;
}

/** A workflow of 1,000 jobs of five types. Returns its id. */
export async function thousand(api: Api): Promise<string> {
  await api.put("v1/queues/tiles", { settings: { lease: "1h" } });
  const parts = list(998, (index) => ({ ref: `part-${index}`, queue: "tiles", type: `tile.${["ne", "nw", "se", "sw", "mid"][index % 5]!}`, after: ["#start"] }));
  const { id } = await api.post("v1/workflows", { name: "map tiles", jobs: [{ ref: "start", queue: "tiles", type: "tiles.plan" }, ...parts, { ref: "end", queue: "tiles", type: "tiles.publish", after: parts.map((part) => `#${part.ref}`) }] });
  const [start] = await api.claim("tiles", "tiler-1");
  await api.complete(start);
  const claimed: Lease[] = await api.claim("tiles", "tiler-1", 600);
  await api.post("v1/settlements", { settlements: claimed.slice(0, 560).map((job) => ({ id: job.id, lease: job.lease.token, outcome: "complete", result: null })) });
  return id;
}

export interface Port { api: Api; operator: Api; token: string }

/** Tokens of two operators on a server. */
export async function open(api: Api): Promise<Port> {
  const token = (name: string, actions: string[]) => api.post("v1/tokens", { name, actions, queues: ["*"] }).then((made) => made.token as string);
  api.token = await token("ops-oncall", ["submit", "work", "read", "operate", "admin"]);
  const operator = new Api(api.url);
  operator.token = await token("ops-deploy", ["read", "operate"]);
  return { api, operator, token: api.token };
}

/** A working day of a whole port, on one server. */
export async function day({ api, operator }: Port): Promise<{ flow: string; large: string }> {
  await prepare(api);
  await schedules(api);
  const flow = await monthEnd(api);
  const large = await thousand(api);
  await new Day(api, operator).run();
  return { flow, large };
}
