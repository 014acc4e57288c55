// Takes the pictures of docs/dashboard.md, light and dark, from real servers with real jobs.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { test } from "vitest";
import { start, type Harness } from "./harness";
import type { Api } from "./support";

const folder = new URL("../../docs/images/", import.meta.url).pathname;
mkdirSync(folder, { recursive: true });

async function shoot(h: Harness, name: string, path: string, ready: (page: Page) => Promise<unknown>, themes = ["light", "dark"], width = 1440): Promise<void> {
  for (const theme of themes) {
    const page = await h.open(path, { width, dark: theme === "dark" });
    await ready(page);
    // A table of many rows is a large picture: its lower part is left out.
    if (name === "jobs") await page.setViewportSize({ width, height: 720 });
    await page.screenshot({ path: join(folder, `${name}-${theme}${width < 500 ? "-390" : ""}.png`) });
    await page.close();
  }
}

const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const pick = <T>(list: T[]): T => list[Math.floor(Math.random() * list.length)]!;
const TENANTS = ["lantern", "blue-heron", "northpier", "saltmarsh", "tidewater"];
const KINDS: [queue: string, type: string, share: number][] = [["mail", "email.send", 5], ["mail", "email.receipt", 3], ["images", "image.resize", 4], ["images", "image.transcode", 0.4], ["search-index", "index.push", 6], ["invoices", "invoice.charge", 2], ["reports", "report.build", 1]];
const FAILURES: [string, string][] = [["smtp_421", "4.7.0 too many messages, slow down"], ["db_timeout", "statement timeout after 60000 ms"], ["upstream_5xx", "rates.internal answered 503"]];

/** Submits and works for some seconds, so that the charts have something to show. */
async function load(api: Api, seconds: number): Promise<void> {
  await api.put("v1/queues/mail", { settings: { retry: { limit: 2, backoff: { base: "20s" } } } });
  await api.post("v1/queues/invoices/pause").catch(() => api.put("v1/queues/invoices", {}).then(() => api.post("v1/queues/invoices/pause")));
  await api.submit("images", Array.from({ length: 40 }, () => ({ type: "image.transcode", payload: {} })));
  const end = Date.now() + seconds * 1000;
  const submitter = (async () => {
    for (let round = 0; Date.now() < end; round += 1) {
      for (const [queue, type, share] of KINDS) {
        const amount = Math.round(share * (2 + Math.random() * 2 + (round % 20 > 12 ? 2 : 0)));
        await api.submit(queue, Array.from({ length: amount }, () => ({ type, payload: { n: round }, priority: pick(["normal", "normal", "high", "low"]), tags: { tenant: pick(TENANTS) } })));
      }
      await pause(160);
    }
  })();
  const worker = async (queue: string, name: string, types: string[], speed: number) => {
    while (Date.now() < end) {
      const { jobs } = await api.post("v1/claims", { queues: [queue], worker: name, limit: speed, types, wait: "200ms" });
      await pause(90 + Math.random() * 60);
      const settlements = jobs.map((job: { id: string; lease: { token: string } }) => {
        const isBad = Math.random() < (queue === "mail" && end - Date.now() < (seconds * 1000) / 3 ? 0.2 : 0.01);
        const [code, message] = queue === "mail" ? FAILURES[0]! : pick(FAILURES);
        return isBad ? { id: job.id, lease: job.lease.token, outcome: "fail", error: { category: "temporary", code, message } } : { id: job.id, lease: job.lease.token, outcome: "complete", result: { ok: true } };
      });
      if (settlements.length) await api.post("v1/settlements", { settlements });
    }
  };
  await Promise.all([submitter, worker("mail", "mailer-1", ["email.send", "email.receipt"], 8), worker("mail", "mailer-2", ["email.send", "email.receipt"], 8), worker("images", "resizer-1", ["image.resize"], 5), worker("search-index", "indexer-1", ["index.push"], 12), worker("reports", "reportd-1", ["report.build"], 3)]);
}

test("pictures under load", async () => {
  const h = await start();
  const { api } = h.server;
  await api.put("v1/queues/payments", { settings: { retry: { on_permanent: "dead_letter" } } });
  await api.submit("payments", Array.from({ length: 60 }, (_, index) => ({ type: index % 3 ? "payment.charge" : "payment.refund", payload: {}, tags: { tenant: pick(TENANTS) } })));
  const claimed = await api.claim("payments", "charge-api-1", 60);
  for (const [index, job] of claimed.entries()) {
    if (index % 10 < 5) await api.fail(job, "card_declined", `card tok_${8000 + index} declined: "insufficient funds"`, "permanent");
    else if (index % 10 < 8) await api.fail(job, "template_missing", `template "invoice-ready" not found for locale "pt-BR"`, "permanent");
    else await api.fail(job, "payload_invalid", `field "path" must be a string`, "permanent");
  }
  const light = await h.open("overview");
  const dark = await h.open("overview", { dark: true });
  const phone = await h.open("overview", { width: 390, dark: true });
  const narrow = await h.open("overview", { width: 390 });
  const work = load(api, 44);
  await pause(42_000);
  for (const [page, name] of [[light, "overview-light"], [dark, "overview-dark"], [phone, "overview-dark-390"], [narrow, "overview-light-390"]] as const) await page.screenshot({ path: join(folder, `${name}.png`) });
  await work;
  await shoot(h, "jobs", "jobs?queue=mail&state=retrying", async (page) => {
    await page.locator("tbody tr").nth(20).waitFor();
    await page.getByLabel("Select all listed jobs").check();
    await page.getByText(/can be cancelled/).waitFor();
    const all = page.getByRole("button", { name: "Select everything that matches" });
    if (await all.isVisible()) await all.click();
    await page.getByText(/can be cancelled/).waitFor();
  });
  await shoot(h, "dead-letters", "dead-letters?queue=payments", async (page) => {
    await page.locator(".groups li").nth(2).waitFor();
    await page.locator(".dl-one").waitFor();
  });
  await shoot(h, "queues", "queues", (page) => page.locator("tbody tr").nth(5).waitFor(), ["light"]);
  await shoot(h, "workers", "workers", (page) => page.locator("tbody tr").nth(3).waitFor(), ["light"]);
  await shoot(h, "palette", "queues", async (page) => {
    await page.locator("tbody tr").nth(3).waitFor();
    await page.keyboard.press("/");
    await page.getByRole("combobox").fill("invoices");
    await page.getByRole("option").nth(2).waitFor();
  }, ["dark"]);
  await h.stop();
});

test("a job with retries", async () => {
  const h = await start("--virtual-clock");
  const { api } = h.server;
  await api.put("v1/queues/reports", { settings: { lease: "1m", retry: { limit: 3, on_exhausted: "dead_letter", backoff: { kind: "exponential", base: "2m", multiplier: 2 }, jitter: { kind: "none" } } } });
  const { id } = await api.submit("reports", '{"type":"report.build","payload":{"report":"ledger-summary","period":{"from":"2026-10-01","to":"2026-10-31"},"account":9007199254740993,"recipients":["ann@example.com","ops@example.com"]},"tags":{"tenant":"blue-heron","period":"2026-10"},"priority":"high","correlation_id":"month-end-2026-10"}');
  const run = async (worker: string, minutes: number, code: string, message: string) => {
    const [job] = await api.claim("reports", worker);
    for (let minute = 0; minute < minutes; minute += 1) {
      await api.advance("40s");
      await api.post(`v1/jobs/${id}/heartbeat`, { lease: job.lease.token });
    }
    await api.advance("20s");
    await api.fail(job, code, message);
  };
  await api.advance("5s");
  await run("reportd-2", 4, "db_timeout", "statement timeout after 60000 ms");
  await api.advance("2m10s");
  await run("reportd-7", 5, "db_timeout", "statement timeout after 60000 ms");
  await api.advance("4m20s");
  await run("reportd-2", 2, "db_timeout", "statement timeout after 60000 ms");
  await api.advance("6m");
  await api.post(`v1/jobs/${id}/requeue`);
  await api.advance("10s");
  await run("reportd-5", 7, "upstream_5xx", "rates.internal answered 503 after 3 tries");
  await api.advance("1m10s");
  const ready = async (page: Page) => {
    await page.locator(".lanes svg").waitFor();
    await page.locator(".code .exact").waitFor();
  };
  await shoot(h, "job", `jobs/${id}`, ready);
  await shoot(h, "job", `jobs/${id}`, ready, ["dark"], 390);
  await h.stop();
});

test("a workflow of 200 jobs", async () => {
  const h = await start();
  const { api } = h.server;
  await api.put("v1/queues/ledger", { settings: { retry: { on_permanent: "failed" } } });
  const regions = ["eu", "us", "apac", "uk"];
  const job = (ref: string, type: string, after: string[] = []) => ({ ref, queue: "ledger", type, after: after.map((name) => `#${name}`) });
  const jobs = [job("collect", "ledger.collect"), job("fx-rates", "rates.load")];
  for (const region of regions) {
    jobs.push(job(`ledger-${region}`, `ledger.${region}`, region === "eu" ? ["collect", "fx-rates"] : ["collect"]));
    const parts = region === "us" ? 5 : region === "eu" ? 60 : 15;
    for (let index = 1; index <= parts; index += 1) jobs.push(job(`render-${region}-${index}`, `render.${region}`, [`ledger-${region}`]), job(`charge-${region}-${index}`, region === "us" ? `charge.us.${index}` : `charge.${region}`, [`render-${region}-${index}`]));
    jobs.push(job(`post-${region}`, "books.post", Array.from({ length: parts }, (_, index) => `charge-${region}-${index + 1}`)), job(`report-${region}`, "report.build", [`post-${region}`]));
  }
  jobs.push(job("close-books", "books.close", regions.map((region) => `report-${region}`)), job("notify", "mail.notify", ["report-us"]));
  const { id } = await api.post("v1/workflows", { name: "month-end close", jobs });
  for (let round = 0; round < 5; round += 1) {
    const claimed = await api.claim("ledger", "ledger-1", 400);
    for (const [index, found] of claimed.entries()) {
      if (found.type === "charge.us.3") await api.fail(found, "card_declined", "card tok_8842 declined: insufficient funds", "permanent");
      else if (round === 3 && index % 3 === 0) continue;
      else if (round < 4) await api.complete(found);
    }
  }
  await shoot(h, "workflow", `workflows/${id}`, async (page) => {
    await page.locator(".node.root").waitFor();
    await page.locator(".panel .err").waitFor();
    await page.getByRole("button", { name: "Fit" }).click();
  });
  await h.stop();
});
