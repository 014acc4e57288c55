// Load for the pictures: submitters and workers of eight queues, with the failures of a real day.

import type { Api } from "./support";

export const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const pick = <T>(list: T[]): T => list[Math.floor(Math.random() * list.length)]!;
const TENANTS = ["lantern", "blue-heron", "northpier", "saltmarsh", "tidewater"];

interface Kind { queue: string; type: string; perSecond: number }
const KINDS: Kind[] = [
  { queue: "mail", type: "email.send", perSecond: 60 }, { queue: "mail", type: "email.receipt", perSecond: 35 }, { queue: "images", type: "image.resize", perSecond: 28 }, { queue: "images", type: "image.transcode", perSecond: 1.2 },
  { queue: "search-index", type: "index.push", perSecond: 70 }, { queue: "invoices", type: "invoice.charge", perSecond: 7 }, { queue: "reports", type: "report.build", perSecond: 9 },
  { queue: "webhooks-in", type: "hook.apply", perSecond: 24 }, { queue: "exports", type: "export.csv", perSecond: 3 },
];
const FAILURES: [code: string, message: string][] = [["db_timeout", "statement timeout after 60000 ms"], ["upstream_5xx", "rates.internal answered 503"]];

interface Crew { queue: string; names: string[]; types: string[]; limit: number; waitMs: number }
const CREWS: Crew[] = [
  { queue: "mail", names: ["mailer-1", "mailer-2", "mailer-3"], types: ["email.send", "email.receipt"], limit: 16, waitMs: 420 }, { queue: "images", names: ["resizer-1", "resizer-2"], types: ["image.resize"], limit: 8, waitMs: 560 },
  { queue: "search-index", names: ["indexer-1", "indexer-2"], types: ["index.push"], limit: 20, waitMs: 500 }, { queue: "reports", names: ["reportd-1"], types: ["report.build"], limit: 8, waitMs: 1_000 },
  { queue: "webhooks-in", names: ["hooks-1"], types: ["hook.apply"], limit: 16, waitMs: 500 }, { queue: "exports", names: ["exporter-1"], types: ["export.csv"], limit: 4, waitMs: 900 },
];

const ERRORS: [code: string, type: string, message: (index: number) => string, amount: number][] = [
  ["card_declined", "payment.charge", (index) => `card tok_${8000 + index} declined: "insufficient funds"`, 212], ["template_missing", "payment.receipt", () => `template "invoice-ready" not found for locale "pt-BR"`, 74], ["payload_invalid", "payment.refund", (index) => `field "lines/${index}" must be a string`, 41],
  ["account_closed", "payment.charge", (index) => `account ${1000 + index} was closed`, 28], ["currency_unknown", "payment.refund", () => `currency "XTS" is not known`, 17], ["signature_invalid", "payment.notify", (index) => `signature of key ${index % 3} does not match`, 11], ["amount_negative", "payment.refund", (index) => `amount -${index} is negative`, 6], ["permanent", "payment.charge", () => `"limit reached"`, 4],
];

/** Queues with their targets, and dead letters in eight groups. */
export async function prepare(api: Api): Promise<void> {
  const targets: Record<string, string> = { mail: "30s", images: "2m", "search-index": "10s", reports: "1m", invoices: "5m" };
  for (const queue of ["mail", "images", "search-index", "reports", "invoices", "webhooks-in", "exports"]) await api.put(`v1/queues/${queue}`, { settings: { ...(targets[queue] ? { wait_target: targets[queue]! } : {}), retry: { limit: 3, backoff: { base: "20s" } } } });
  await api.put("v1/queues/payments", { settings: { retry: { on_permanent: "dead_letter" } } });
  for (const [code, type, message, amount] of ERRORS) {
    await api.submit("payments", Array.from({ length: amount }, () => ({ type, payload: { tenant: pick(TENANTS) }, tags: { tenant: pick(TENANTS) } })));
    const jobs = await api.claim("payments", "charge-api-1", amount);
    const settlements = jobs.map((job, index) => ({ id: job.id, lease: job.lease.token, outcome: "fail", error: { category: "permanent", code, message: message(index) } }));
    await api.post("v1/settlements", { settlements });
  }
}

/** Submits and works until `isOver`; the queue of mails fails after `failAfter` milliseconds. */
export async function load(api: Api, failAfter: number, isOver: () => boolean): Promise<void> {
  const start = Date.now();
  const owed = new Map<Kind, number>();
  const submitter = async () => {
    let last = Date.now();
    while (!isOver()) {
      const now = Date.now();
      const wave = 1 + 0.22 * Math.sin((now - start) / 21_000) + 0.12 * (Math.random() - 0.5);
      for (const kind of KINDS) {
        const amount = (owed.get(kind) ?? 0) + (kind.perSecond * wave * (now - last)) / 1000;
        owed.set(kind, amount % 1);
        if (amount < 1) continue;
        await api.submit(kind.queue, Array.from({ length: Math.floor(amount) }, () => ({ type: kind.type, payload: { to: "ann" }, priority: pick(["normal", "normal", "normal", "high", "low"]), tags: { tenant: pick(TENANTS) } })));
      }
      last = now;
      await pause(250);
    }
  };
  const worker = async (crew: Crew, name: string) => {
    while (!isOver()) {
      const { jobs } = await api.post("v1/claims", { queues: [crew.queue], worker: name, version: crew.queue === "mail" ? "2.14.0" : "1.8.2", limit: crew.limit, types: crew.types, wait: "300ms" });
      await pause(crew.waitMs * (0.8 + 0.4 * Math.random()));
      const isFailing = crew.queue === "mail" && Date.now() - start > failAfter;
      const settlements = jobs.map((job: { id: string; lease: { token: string } }) => {
        const isBad = Math.random() < (isFailing ? 0.16 : 0.006);
        const [code, message] = isFailing ? ["smtp_421", "4.7.0 too many messages, slow down"] : pick(FAILURES);
        return { id: job.id, lease: job.lease.token, ...(isBad ? { outcome: "fail", error: { category: "temporary", code, message } } : { outcome: "complete", result: { ok: true } }) };
      });
      if (settlements.length) await api.post("v1/settlements", { settlements });
    }
  };
  const pauser = async () => {
    await pause(failAfter / 3);
    await api.post("v1/queues/invoices/pause");
  };
  await Promise.all([submitter(), pauser(), ...CREWS.flatMap((crew) => crew.names.map((name) => worker(crew, name)))]);
}
