// Hostile texts through every field that a client sets, and restarts of the server.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { start, type Harness } from "./harness";
import { startServer } from "./support";

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

test("no text of a client is executed", async () => {
  const { api } = h.server;
  const jobs: string[] = [];
  const flows: string[] = [];
  await api.put("v1/queues/x", { settings: { retry: { on_permanent: "dead_letter" } } });
  for (const text of CORPUS) {
    const tagged = /^[\w.:-]+$/.test(text) ? { [text]: text } : { key: "v" };
    const type = text.replace(/[^\x20-\x7e]/g, "?").slice(0, 200);
    const job = await api.submit("x", { type, payload: { [text]: text, list: [text] }, tags: tagged, correlation_id: text, idempotency_key: text });
    jobs.push(job.id);
    const [claimed] = await api.claim("x", text.replace(/[^\x20-\x7e]/g, "?").slice(0, 60));
    await api.fail(claimed, text.replace(/[^\x20-\x7e]/g, "?").slice(0, 60), text, "permanent");
    flows.push((await api.post("v1/workflows", { name: text, jobs: [{ ref: "a", queue: "w", type }] })).id);
  }
  const page = await h.open("overview");
  for (const path of ["overview", "jobs", "dead-letters", "workers", "workflows", "queues", "queues/x", "system", ...jobs.map((id) => `jobs/${id}`), ...flows.slice(0, 3).map((id) => `workflows/${id}`), ...CORPUS.map((text) => `jobs?tag=${encodeURIComponent(text)}&type=${encodeURIComponent(text)}`), `queues/${encodeURIComponent(CORPUS[0]!)}`, `jobs/${encodeURIComponent(CORPUS[1]!)}`]) {
    await page.goto(`${h.url}#/${path}`);
    await page.locator("main .card, main.wf").first().waitFor();
  }
  for (const tab of ["Error", "Policy", "Transitions"]) {
    await page.goto(`${h.url}#/jobs/${jobs[1]}`);
    await page.getByRole("tab", { name: tab }).click();
  }
  await page.goto(`${h.url}#/submit?from=${jobs[0]}`);
  await page.getByLabel("Payload (JSON)").waitFor();
  await page.keyboard.press("Escape");
  await page.goto(`${h.url}#/overview`);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.keyboard.press("/");
  await page.getByRole("combobox").fill(CORPUS[1]!);
  expect(h.failures).toEqual([]);
  expect(await page.evaluate("window.hit")).toBeUndefined();
  expect(await page.locator("main script, main iframe, main img").count()).toBe(0);
  await page.close();
}, 90_000);

test("the page survives a restart of the server", async () => {
  const folder = mkdtempSync(join(tmpdir(), "longshore-ui-data-"));
  const first = await startServer("--data", folder);
  const page = await h.browser.newPage();
  // Where the program has no dashboard in it, the proxy of the harness serves its files.
  const isEmbedded = (await (await fetch(first.url)).text()).includes('id="app"');
  if (isEmbedded) {
    await first.api.submit("mail", { type: "email.send", payload: {} });
    await page.goto(`${first.url}/#/jobs`);
    await page.getByRole("link", { name: /email.send/ }).waitFor();
    await first.stop();
    await page.getByText("Connection lost.").waitFor();
    const second = await startServer("--data", folder, "--listen", `127.0.0.1:${first.port}`);
    await page.getByText("Connection lost.").waitFor({ state: "detached" });
    await second.api.submit("mail", { type: "email.after", payload: {} });
    await page.getByRole("link", { name: /email.after/ }).waitFor();
    await second.stop();
  } else await first.stop();
  await page.close();
  rmSync(folder, { recursive: true, force: true });
}, 60_000);
