// The main flows on both stores that keep jobs on a disk.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { start, type Harness } from "./harness";
import { programs, startPostgres } from "./postgres";

async function onEmbedded(use: (h: Harness) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "longshore-ui-data-"));
  await check(await start("--data", folder), use);
  rmSync(folder, { recursive: true, force: true });
}

async function onPostgres(use: (h: Harness) => Promise<void>): Promise<void> {
  const cluster = await startPostgres();
  await check(await start("--store", cluster.url), use);
  cluster.stop();
}

async function check(h: Harness, use: (h: Harness) => Promise<void>): Promise<void> {
  try {
    await use(h);
    expect(h.failures).toEqual([]);
  } finally {
    await h.stop();
  }
}

const STORES: [name: string, isInstalled: boolean, run: (use: (h: Harness) => Promise<void>) => Promise<void>][] = [["embedded", true, onEmbedded], ["PostgreSQL", programs() !== null, onPostgres]];

describe.each(STORES)("%s", (_, isInstalled, run) => {
  test.skipIf(!isInstalled)("submit, see, requeue with a canary, cancel everything and undo", () => run(flows), 120_000);
});

async function flows(h: Harness): Promise<void> {
  const { api } = h.server;
  const page = await h.open("submit");
  // A job that is submitted here is on its page, and in the list of another tab at once.
  const other = await h.open("jobs?queue=mail");
  await other.getByText("No job matches").waitFor();
  await page.getByRole("combobox", { name: "Queue" }).fill("mail");
  await page.getByLabel("Type", { exact: true }).fill("email.send");
  await page.getByLabel("Payload (JSON)").fill('{"id": 9007199254740993}');
  await page.getByRole("button", { name: "Submit job" }).click();
  await page.locator(".code .exact", { hasText: "9007199254740993" }).waitFor();
  await other.getByRole("link", { name: /email.send/ }).waitFor();
  await other.close();

  // Nothing claims from the queue: the server says it. A paused queue with work is on the overview.
  await page.locator(".reasons", { hasText: "no_worker" }).waitFor();
  await page.goto(`${h.url}#/queues/mail`);
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await page.goto(`${h.url}#/overview`);
  await page.locator(".attn li[data-code=paused_with_work]").getByRole("button").click();
  await page.locator(".attn li[data-code=paused_with_work]").waitFor({ state: "detached" });
  expect((await api.get("v1/queues/mail")).paused).toBe(false);

  // Two groups; the larger one is requeued with a canary. The page may be left in between.
  await api.put("v1/queues/charges", { settings: { retry: { on_permanent: "dead_letter" } } });
  await api.submit("charges", Array.from({ length: 20 }, () => ({ type: "card.charge", payload: {} })));
  for (const [index, job] of (await api.claim("charges", "charger-1", 20)).entries()) await api.fail(job, index < 11 ? "declined" : "closed", `account ${index} refused`, "permanent");
  await page.goto(`${h.url}#/dead-letters`);
  await page.locator(".groups .big", { hasText: "11" }).waitFor();
  await page.getByRole("button", { name: "Requeue 5 as a canary" }).click();
  await page.getByRole("button", { name: "Requeue 6 after it" }).waitFor();
  await page.goto(`${h.url}#/queues`);
  await page.goto(`${h.url}#/dead-letters`);
  await page.getByRole("button", { name: /declined/ }).click();
  await page.locator(".canary li").nth(4).waitFor();
  for (const job of await api.claim("charges", "charger-2", 5)) await api.complete(job);
  await page.getByRole("button", { name: "Requeue the other 6" }).click();
  await page.getByText("11 jobs requeued").first().waitFor();
  expect((await api.get("v1/stats")).queues.charges.counts).toMatchObject({ dead_letter: 9, completed: 5, scheduled: 6 });

  // Everything that matches is cancelled, and the cancellation is taken back.
  await api.submit("bulk", Array.from({ length: 130 }, () => ({ type: "bulk.item", payload: {} })));
  await page.goto(`${h.url}#/jobs?queue=bulk&state=scheduled`);
  await page.locator("tbody tr").nth(99).waitFor();
  await page.getByLabel("Select all listed jobs").check();
  await page.getByRole("button", { name: "Select everything that matches" }).click();
  await page.getByRole("button", { name: "Cancel 130…" }).click();
  await page.getByRole("button", { name: "Cancel 130 jobs" }).click();
  await page.getByText("130 jobs cancelled").waitFor();
  expect((await api.get("v1/stats")).queues.bulk.counts.cancelled).toBe(130);
  await page.locator(".toast", { hasText: "130 jobs" }).getByRole("button", { name: "Undo" }).click();
  await page.locator("tbody tr").nth(99).waitFor();
  await expect.poll(async () => (await api.get("v1/stats")).queues.bulk.counts.scheduled, { timeout: 10_000 }).toBe(130);
  await page.close();
}
