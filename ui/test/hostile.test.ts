// Hostile texts through every field that a client sets, and restarts of the server.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { start, type Harness } from "./harness";
import { startProxy, startServer } from "./support";

const CORPUS = [
  "<script>window.hit=1;alert(1)</script>", "<img src=x onerror=\"window.hit=1;alert(1)\">", "\"><svg onload=alert(1)>", "javascript:alert(1)", "'-alert(1)-'", "{{constructor.constructor('alert(1)')()}}", "${alert(1)}", "<iframe srcdoc=\"<script>parent.hit=1</script>\">",
  "</textarea><script>alert(1)</script>", "\u202Egnp.exe", "<a href=\"javascript:alert(1)\">x</a>", "&lt;script&gt;alert(1)&lt;/script&gt;", "<style>*{display:none}</style>", "<use href=\"data:image/svg+xml,<svg onload=alert(1)>\">", "__proto__",
];

let h: Harness;
beforeAll(async () => {
  h = await start("--virtual-clock");
});
afterAll(async () => {
  await h?.stop();
});

const ascii = (text: string, length: number) => text.replace(/[^\x20-\x7e]/g, "?").slice(0, length);

test("no text of a client is executed", async () => {
  const { api } = h.server;
  const jobs: string[] = [];
  const flows: string[] = [];
  await api.put("v1/queues/x", { settings: { external_ids: true, retry: { on_permanent: "dead_letter" } } });
  for (const [index, text] of CORPUS.entries()) {
    const tagged = /^[\w.:-]+$/.test(text) ? { [text]: text } : { key: "v" };
    const fields = { type: ascii(text, 200), payload: { [text]: text, list: [text] }, tags: tagged, correlation_id: text, idempotency_key: text, external_id: text, callback_url: `https://example.com/${encodeURI(text)}` };
    const job = await api.submit("x", fields);
    jobs.push(job.id);
    const { jobs: [claimed] } = await api.post("v1/claims", { queues: ["x"], worker: ascii(text, 60), version: ascii(text, 60), limit: 1 });
    await api.post(`v1/jobs/${claimed.id}/heartbeat`, { lease: claimed.lease.token, progress: { [text]: text }, checkpoint: [text] });
    if (index % 2) await api.complete(claimed, { [text]: text });
    else await api.post(`v1/jobs/${claimed.id}/fail`, { lease: claimed.lease.token, error: { category: "permanent", code: ascii(text, 60), message: text, cause: text } });
    flows.push((await api.post("v1/workflows", { name: text, jobs: [{ ref: "a", queue: "w", type: fields.type }] })).id);
    await api.put(`v1/schedules/s${index}`, { every: "1h", queue: "w", job: { type: fields.type, payload: { [text]: text } } });
    await api.post(`v1/schedules/s${index}/pause`, { note: text });
    await api.put(`v1/webhooks/w${index}`, { url: `https://example.com/?${encodeURI(text)}` });
  }
  await api.submit("x", { type: "live", payload: {} });
  const page = await h.open("overview");
  const detail = (folder: string, amount: number, name: (index: number) => string) => CORPUS.slice(0, amount).map((_, index) => `${folder}/${name(index)}`);
  const filters = CORPUS.map((text) => `jobs?tag=${encodeURIComponent(text)}&type=${encodeURIComponent(text)}`);
  const names = [`queues/${encodeURIComponent(CORPUS[0]!)}`, `jobs/${encodeURIComponent(CORPUS[1]!)}`, `dead-letters?group=${encodeURIComponent(CORPUS[0]!)}`, `overview?queue=${encodeURIComponent(CORPUS[1]!)}`, `jobs?view=${encodeURIComponent(CORPUS[1]!)}`];
  for (const path of ["overview", "jobs", "dead-letters", "workers", "workflows", "queues", "queues/x", "operations", "types", ...CORPUS.slice(0, 4).map((text) => `types/${encodeURIComponent(ascii(text, 200))}`), "schedules", "webhooks", "tokens", "system", ...jobs.map((id) => `jobs/${id}`), ...flows.slice(0, 3).map((id) => `workflows/${id}`), ...detail("schedules", 4, (index) => `s${index}`), ...detail("webhooks", 4, (index) => `w${index}`), ...filters, ...names]) {
    await page.goto(`${h.url}#/${path}`);
    await page.locator("main .card, main.wf").first().waitFor();
  }
  for (const id of [jobs[0], jobs[1]]) {
    await page.goto(`${h.url}#/jobs/${id}`);
    for (const tab of ["Result", "Error", "Progress", "Checkpoint", "Policy", "Transitions"]) await page.getByRole("tab", { name: tab }).click();
  }
  await page.goto(`${h.url}#/submit?from=${jobs[0]}`);
  await page.getByLabel("Payload (JSON)").waitFor();
  await page.keyboard.press("Escape");
  await page.goto(`${h.url}#/overview`);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.keyboard.press("/");
  await page.getByRole("combobox", { name: "Search and commands" }).fill(CORPUS[1]!);
  await page.keyboard.press("Escape");
  // A token's name is shown in the list of tokens, in the audit and, for its owner, in the bar.
  const token = await api.post("v1/tokens", { name: CORPUS[1]!, actions: ["read", "admin"], queues: ["*"] });
  await page.goto(`${h.url}#/tokens`);
  await page.getByLabel("Token", { exact: true }).fill(token.token);
  await page.getByRole("button", { name: "Use this token" }).click();
  await page.locator("button.who", { hasText: "<img" }).waitFor();
  await page.locator("main tbody tr").first().waitFor();
  expect(h.failures).toEqual([]);
  expect(await page.evaluate("window.hit")).toBeUndefined();
  expect(await page.locator("main script, main iframe, main img").count()).toBe(0);
  await page.close();
}, 120_000);

test("the page survives a restart of the server", async () => {
  const folder = mkdtempSync(join(tmpdir(), "longshore-ui-data-"));
  const first = await startServer("--data", folder);
  const proxy = await startProxy(first.url);
  const page = await h.browser.newPage();
  await first.api.submit("mail", { type: "email.send", payload: {} });
  await page.goto(`${proxy.url}#/jobs`);
  await page.getByRole("link", { name: /email.send/ }).waitFor();
  await first.stop();
  await page.getByText("Connection lost.").waitFor();
  const second = await startServer("--data", folder, "--listen", `127.0.0.1:${first.port}`);
  await page.getByText("Connection lost.").waitFor({ state: "detached" });
  await second.api.submit("mail", { type: "email.after", payload: {} });
  await page.getByRole("link", { name: /email.after/ }).waitFor();
  await page.close();
  await second.stop();
  await proxy.stop();
  rmSync(folder, { recursive: true, force: true });
}, 60_000);
