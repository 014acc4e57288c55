// Takes the pictures of docs/dashboard.md, light and dark, from real servers with real jobs.

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { test } from "vitest";
import { start, type Harness } from "./harness";
import { load, pause, prepare } from "./load";
import type { Api } from "./support";

const folder = new URL("../../docs/images/", import.meta.url).pathname;
mkdirSync(folder, { recursive: true });

/** Seconds of load before the first picture: the charts of five minutes are full. */
const LOAD_SECONDS = Number(process.env.LOAD_SECONDS ?? 310);

interface Shot { path: string; ready: (page: Page) => Promise<unknown>; themes?: string[]; width?: number }

async function shoot(h: Harness, name: string, { path, ready, themes = ["light", "dark"], width = 1440 }: Shot): Promise<void> {
  for (const theme of themes) {
    const page = await h.open(path, { width, dark: theme === "dark", scale: width < 500 ? 2 : 1 });
    await ready(page);
    await page.locator(".skel").waitFor({ state: "detached" });
    await page.screenshot({ path: join(folder, `${name}-${theme}${width < 500 ? "-390" : ""}.png`) });
    await page.close();
  }
}

/** Waits until the stream has brought an event, so that its delay is shown. */
const live = (page: Page) => page.locator(".live[data-mode=stream] .lag, .live[data-mode=busy]").first().waitFor({ state: "attached" });

/** Starts a canary of a group, and ends three of its five jobs. One runs, one waits. */
async function runCanary(api: Api, code: string): Promise<string> {
  const { groups } = await api.get("v1/dead-letters/groups?queue=payments");
  const group = groups.find((item: { code: string }) => item.code === code);
  await api.post("v1/operations", { action: "requeue", filter: { group: group.id }, rate: 20, canary: 5 });
  await pause(1_000);
  const jobs = await api.claim("payments", "charge-api-2", 4);
  await pause(700);
  for (const job of jobs.slice(0, 3)) await api.complete(job);
  return group.id;
}

test("pictures under load", async () => {
  const data = mkdtempSync(join(tmpdir(), "longshore-pictures-"));
  const h = await start("--data", join(data, "store"));
  const { api } = h.server;
  await prepare(api);
  let isOver = false;
  const work = load(api, LOAD_SECONDS * 550, () => isOver);
  await pause(LOAD_SECONDS * 1_000);
  const overview = async (page: Page) => {
    await page.locator(".attn li").first().waitFor();
    await page.locator(".queues-table tbody tr").nth(4).waitFor();
    await live(page);
    await pause(1_200);
  };
  const range = "overview?range=5m";
  await shoot(h, "overview", { path: range, ready: overview });
  await shoot(h, "overview", { path: range, ready: overview, width: 390 });
  await shoot(h, "jobs", {
    path: "jobs?queue=payments&state=dead_letter&error_code=card_declined",
    ready: async (page) => {
      await page.locator("tbody tr").nth(20).waitFor();
      await page.locator("main").focus();
      for (const key of ["j", "j", "j"]) await page.keyboard.press(key);
      await page.getByLabel("Select all listed jobs").check();
      await page.getByRole("button", { name: "Select everything that matches" }).click();
      await page.getByText(/can be requeued/).waitFor();
      await page.evaluate("scrollTo(0, 0)");
      await live(page);
    },
  });
  await shoot(h, "queues", { path: "queues", themes: ["light"], ready: (page) => page.locator("tbody tr").nth(5).waitFor().then(() => pause(1_500)) });
  await shoot(h, "workers", { path: "workers", themes: ["light"], ready: (page) => page.locator("tbody tr").nth(8).waitFor() });
  await shoot(h, "palette", {
    path: range, themes: ["dark"],
    ready: async (page) => {
      await overview(page);
      await page.keyboard.press("/");
      await page.getByRole("combobox", { name: "Search and commands" }).fill("invoices");
      await page.locator(".palette-list [role=option]").nth(2).waitFor();
    },
  });
  const group = await runCanary(api, "template_missing");
  await shoot(h, "dead-letters", {
    path: `dead-letters?group=${group}`,
    ready: async (page) => {
      await page.locator(".groups li").nth(5).waitFor();
      await page.locator(".canary li").nth(4).waitFor();
      await page.locator(".dl-one").waitFor();
      await live(page);
      await pause(500);
    },
  });
  isOver = true;
  await work;
  await h.stop();
  rmSync(data, { recursive: true, force: true });
}, 900_000);

test("a job with retries", async () => {
  // The receiver of the callback fails at first: its message is delivered at the second attempt.
  let calls = 0;
  const receiver = createServer((_, answer) => answer.writeHead((calls += 1) === 1 ? 503 : 204).end());
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  const data = mkdtempSync(join(tmpdir(), "longshore-pictures-"));
  const h = await start("--data", join(data, "store"), "--webhook-allow", "127.0.0.0/8");
  const { api } = h.server;
  await api.put("v1/queues/reports", { settings: { lease: "1m", retry: { limit: 3, on_exhausted: "dead_letter", backoff: { kind: "constant", base: "18s" }, jitter: { kind: "none" } } } });
  const callback = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/ended`;
  const report = `{"ref":"summary","queue":"reports","type":"report.build","payload":{"report":"ledger-summary","period":{"from":"2026-10-01","to":"2026-10-31"},"account":9007199254740993,"recipients":["ann@example.com","ops@example.com"]},"tags":{"tenant":"blue-heron","period":"2026-10"},"priority":"high","correlation_id":"month-end-2026-10","callback_url":"${callback}"}`;
  const { jobs } = await api.post("v1/workflows", `{"name":"month-end close","jobs":[${report},{"ref":"notify","queue":"reports","type":"mail.notify","after":["#summary"]}]}`);
  const id: string = jobs.summary;
  const run = async (worker: string, seconds: number, code: string, message: string) => {
    let job;
    while (!job) [job] = (await api.post("v1/claims", { queues: ["reports"], worker, types: ["report.build"], wait: "20s" })).jobs;
    for (let second = 0; second < seconds; second += 1) {
      await pause(1_000);
      await api.post(`v1/jobs/${id}/heartbeat`, { lease: job.lease.token });
    }
    await api.fail(job, code, message);
  };
  await pause(1_500);
  await run("reportd-2", 4, "db_timeout", "statement timeout after 60000 ms");
  await run("reportd-7", 6, "db_timeout", "statement timeout after 60000 ms");
  await run("reportd-2", 3, "db_timeout", "statement timeout after 60000 ms");
  await pause(9_000);
  await api.post(`v1/jobs/${id}/requeue`);
  await pause(1_500);
  await run("reportd-5", 8, "upstream_5xx", "rates.internal answered 503 after 3 tries");
  const beat = setInterval(() => void api.submit("log", { type: "log.line", payload: {} }).catch(() => undefined), 400);
  const ready = async (page: Page) => {
    await page.locator(".lanes svg").waitFor();
    await page.locator(".code .exact").waitFor();
    await live(page);
  };
  await shoot(h, "job", { path: `jobs/${id}`, ready });
  await shoot(h, "job", { path: `jobs/${id}`, ready, themes: ["dark"], width: 390 });
  clearInterval(beat);
  await h.stop();
  receiver.close();
  rmSync(data, { recursive: true, force: true });
}, 240_000);

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
  const ready = async (page: Page) => {
    await page.locator(".node.root").waitFor();
    await page.locator(".panel .err").waitFor();
    await page.getByRole("button", { name: "Fit" }).click();
    await live(page);
  };
  const beat = setInterval(() => void api.submit("ledger-log", { type: "log.line", payload: {} }).catch(() => undefined), 400);
  await shoot(h, "workflow", { path: `workflows/${id}`, ready });
  clearInterval(beat);
  await h.stop();
});
