// Takes the pictures of docs/dashboard.md, light and dark, from real servers with real jobs. The
// clock is virtual, so that a day takes seconds; its banner is left out of all pictures but one.

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { test } from "vitest";
import { startWith, type Harness } from "./harness";
import type { ProxyOptions } from "./support";
import { day, open, retriedJob, type Port } from "./scenes";

const folder = new URL("../../docs/images/", import.meta.url).pathname;
mkdirSync(folder, { recursive: true });

const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

interface Shot { path: string; ready: (page: Page) => Promise<unknown>; themes?: string[]; width?: number }

/** A server on a directory of its own, as in production. */
async function onDisk(options: ProxyOptions, ...more: string[]): Promise<Harness> {
  const data = mkdtempSync(join(tmpdir(), "longshore-pictures-"));
  const harness = await startWith(options, "--virtual-clock", "--data", join(data, "store"), ...more);
  const end = harness.stop;
  harness.stop = () => end().then(() => rmSync(data, { recursive: true, force: true }));
  return harness;
}

async function shoot(h: Harness, name: string, { path, ready, themes = ["light", "dark"], width = 1440 }: Shot): Promise<void> {
  for (const theme of themes) {
    const page = await h.open(path, { width, dark: theme === "dark", scale: width < 500 ? 2 : 1 });
    await ready(page);
    await page.locator(".skel").waitFor({ state: "detached" });
    await page.screenshot({ path: join(folder, `${name}-${theme}${width < 500 ? "-390" : ""}.png`) });
    await page.close();
  }
}

/** A request of the page, until its answer has been drawn. */
const drawn = (page: Page, selector: string) => page.locator(selector).first().waitFor({ state: "attached" }).then(() => pause(300));

/** Starts a canary of a group, and ends three of its five jobs. One runs, one waits. */
async function runCanary({ api }: Port, code: string): Promise<string> {
  const { groups } = await api.get("v1/dead-letters/groups?queue=payments");
  const group = groups.find((item: { code: string }) => item.code === code);
  const { id } = await api.post("v1/operations", { action: "requeue", filter: { group: group.id }, canary: 5 });
  while ((await api.get(`v1/operations/${id}`)).canary.jobs.length < 5) await api.advance("1s");
  const jobs = await api.claim("payments", "charge-api-2", 4);
  await api.advance("2s");
  for (const job of jobs.slice(0, 3)) await api.complete(job);
  return group.id;
}

test("pictures of a day", async () => {
  const h = await onDisk({ hidesClock: true });
  const port = await open(h.server.api);
  h.token = port.token;
  const { flow, large } = await day(port);
  const range = "overview?range=15m";
  const overview = (page: Page) => drawn(page, ".attn li").then(() => drawn(page, ".queues-table tbody tr .spark"));
  await shoot(h, "overview", { path: range, ready: overview });
  await shoot(h, "overview", { path: range, ready: overview, width: 390 });
  await shoot(h, "types", { path: "types/email.send?range=15m", themes: ["light"], ready: (page) => drawn(page, ".mix li") });
  await shoot(h, "queue", { path: "queues/mail", themes: ["light"], ready: (page) => drawn(page, ".charts canvas") });
  await shoot(h, "workflow", { path: `workflows/${flow}`, ready: (page) => drawn(page, ".panel .err").then(() => page.getByRole("button", { name: "Fit" }).click()).then(() => pause(200)) });
  await shoot(h, "workflow-1000", { path: `workflows/${large}`, themes: ["light"], ready: (page) => drawn(page, ".node") });
  await shoot(h, "workers", { path: "workers", themes: ["light"], ready: (page) => drawn(page, "tbody tr:nth-child(8)") });
  await shoot(h, "palette", {
    path: range, themes: ["dark"],
    ready: async (page) => {
      await overview(page);
      await page.keyboard.press("/");
      await page.getByRole("combobox", { name: "Search and commands" }).fill("invoices");
      await drawn(page, ".palette-list [role=option]:nth-child(2)");
    },
  });
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
    },
  });
  const group = await runCanary(port, "template_missing");
  await shoot(h, "dead-letters", {
    path: `dead-letters?group=${group}`,
    ready: async (page) => {
      await page.locator(".groups li").nth(5).waitFor();
      await page.locator(".canary li").nth(4).waitFor();
      await drawn(page, ".dl-one");
    },
  });
  await h.stop();
}, 120_000);

test("a job with retries", async () => {
  // The receiver of the callback fails at first: its message is delivered at the second attempt.
  let calls = 0;
  const receiver = createServer((_, answer) => answer.writeHead((calls += 1) === 1 ? 503 : 204).end());
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  const h = await onDisk({ hidesClock: true }, "--webhook-allow", "127.0.0.0/8");
  const port = await open(h.server.api);
  h.token = port.token;
  const id = await retriedJob(port.api, port.operator, `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/ended`);
  const ready = (page: Page) => drawn(page, ".lanes svg").then(() => drawn(page, ".code .exact")).then(() => page.locator(".lanes", { hasText: "by ops-deploy" }).waitFor());
  await shoot(h, "job", { path: `jobs/${id}`, ready });
  await shoot(h, "job", { path: `jobs/${id}`, ready: (page) => drawn(page, ".code .exact"), themes: ["dark"], width: 390 });
  await h.stop();
  receiver.close();
}, 60_000);

test("a server with a virtual clock", async () => {
  const h = await onDisk({});
  await h.server.api.submit("mail", { type: "email.send", payload: {}, delay: "1h" });
  await shoot(h, "virtual-clock", { path: "jobs", themes: ["light"], ready: (page) => drawn(page, "tbody tr") });
  await h.stop();
}, 60_000);
