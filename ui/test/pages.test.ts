// Every page against the real server, in virtual time and below a path prefix.

import { afterAll, beforeAll, expect, test } from "vitest";
import { accessibilityProblems, start, widthProblems, type Harness } from "./harness";

let h: Harness;
const ids: Record<string, string> = {};

beforeAll(async () => {
  h = await start("--virtual-clock");
  const api = h.server.api;
  ids.big = (await api.submit("mail", '{"type":"email.send","payload":{"id":9007199254740993,"name":"<b>x</b>"},"tags":{"tenant":"acme"}}')).id;
  ids.binary = (await api.submit("mail", { type: "email.raw", payload_base64: "AAECA//+" })).id;
  ids.delayed = (await api.submit("reports", { type: "report.build", payload: {}, delay: "1h" })).id;
  await api.submit("charges", Array.from({ length: 8 }, (_, index) => ({ type: "card.charge", payload: { index } })));
  for (const job of await api.claim("charges", "charger-1", 8)) await api.fail(job, "card_declined", `card tok_${1000 + job.seq} declined`, "permanent");
  await api.put("v1/queues/charges", { settings: { retry: { on_permanent: "dead_letter" } } });
  await api.submit("charges", Array.from({ length: 8 }, (_, index) => ({ type: "card.charge", payload: { index } })));
  for (const job of await api.claim("charges", "charger-1", 8)) await api.fail(job, "card_declined", `card tok_${1000 + job.seq} declined`, "permanent");
  const flow = await api.post("v1/workflows", { name: "month end", jobs: [{ ref: "collect", queue: "flow", type: "collect" }, { ref: "charge", queue: "flow", type: "charge", after: ["#collect"] }, { ref: "post", queue: "flow", type: "post", after: ["#charge"] }, { ref: "audit", queue: "flow", type: "audit", after: ["#collect"] }] });
  ids.flow = flow.id;
  const [collect] = await api.claim("flow", "flow-1");
  await api.complete(collect);
  const [charge] = await api.claim("flow", "flow-1", 1, ["charge"]);
  await api.fail(charge, "declined", "no funds", "permanent");
  await api.post("v1/queues/reports/pause");
  await api.put("v1/schedules/hourly", { every: "1h", queue: "mail", job: { type: "email.digest", payload: {} } });
  await api.put("v1/webhooks/alerts", { url: "https://example.com/hook" });
}, 60_000);
afterAll(async () => {
  await h?.stop();
});

const PAGES: [path: () => string, heading: string][] = [
  [() => "overview", "Overview"], [() => "queues", "Queues"], [() => "queues/mail", "mail"], [() => "jobs", "Jobs"], [() => `jobs/${ids.big}`, "email.send"], [() => "dead-letters", "Dead letters"], [() => "workflows", "Workflows"],
  [() => `workflows/${ids.flow}`, "month end"], [() => "workers", "Workers"], [() => "operations", "Operations"], [() => "overview?range=5m&queue=mail", "Overview"], [() => "system", "System"], [() => "submit", "Submit a job"], [() => "schedules", "Schedules"], [() => "schedules/hourly", "hourly"], [() => "webhooks", "Webhooks"], [() => "webhooks/alerts", "alerts"], [() => "tokens", "Tokens and audit"], [() => "types", "Types"], [() => "types/card.charge", "card.charge"],
];

test("every page renders, is accessible, and fits a phone", async () => {
  const page = await h.open("overview");
  const phone = await h.open("overview", { width: 390, dark: true });
  const problems: string[] = [];
  for (const [path, heading] of PAGES) {
    for (const [window, name] of [[page, "desktop"], [phone, "phone"]] as const) {
      await window.goto(`${h.url}#/${path()}`);
      await window.getByRole("heading", { level: 1, name: heading }).waitFor();
      await window.locator(".skel").waitFor({ state: "detached" });
      problems.push(...(await accessibilityProblems(window, `${path()} ${name}`)));
      if (name === "phone") problems.push(...(await widthProblems(window, path())));
    }
  }
  expect(problems).toEqual([]);
  expect(h.failures).toEqual([]);
  await page.close();
  await phone.close();
}, 120_000);

test("a number keeps its digits and binary is shown as hex", async () => {
  const page = await h.open(`jobs/${ids.big}`);
  await page.locator(".code .exact", { hasText: "9007199254740993" }).waitFor();
  await page.goto(`${h.url}#/jobs/${ids.binary}`);
  await page.getByText("00 01 02 03 ff fe").waitFor();
  await page.close();
});

test("secrets in a payload are hidden until Show is pressed", async () => {
  const { id } = await h.server.api.submit("mail", { type: "email.login", payload: { user: "ann", password: "hunter2" } });
  const page = await h.open(`jobs/${id}`);
  await page.locator(".code .redact").waitFor();
  expect(await page.locator("pre.code").textContent()).not.toContain("hunter2");
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await page.locator("pre.code", { hasText: "hunter2" }).waitFor();
  await page.close();
});

test("a type has its figures, errors, workers, and a mark of a new version", async () => {
  const { api } = h.server;
  await api.submit("parcels", Array.from({ length: 6 }, () => ({ type: "parcel.pack", payload: {} })));
  const [first] = (await api.post("v1/claims", { queues: ["parcels"], worker: "packer-1", version: "1.0", limit: 1 })).jobs;
  await api.complete(first);
  const { jobs } = await api.post("v1/claims", { queues: ["parcels"], worker: "packer-1", version: "1.1", limit: 5 });
  for (const job of jobs) await api.fail(job, "box_missing", "no box of size 3");
  const page = await h.open("types");
  await page.getByRole("link", { name: "parcel.pack" }).click();
  await page.locator(".mix li", { hasText: "box_missing" }).locator(".num", { hasText: "100 %" }).waitFor();
  await page.getByRole("link", { name: "packer-1" }).waitFor();
  await page.locator(".kv-row", { hasText: "1.1" }).getByText("parcels").waitFor();
  await page.getByRole("link", { name: "box_missing" }).click();
  await page.locator("tbody tr").nth(4).waitFor();
  await page.close();
});

test("filters and states are in the URL, keys select and open", async () => {
  const page = await h.open("jobs");
  await page.getByLabel("Filter", { exact: true }).fill("queue:charges type:card.charge");
  await page.keyboard.press("Enter");
  await page.locator("tbody tr").nth(15).waitFor();
  expect(page.url()).toContain("queue=charges");
  await page.getByRole("link", { name: /^Dead letter 8/ }).click();
  await page.locator("tbody tr").nth(7).waitFor();
  await page.locator("tbody tr").nth(8).waitFor({ state: "detached" });
  await page.locator("main").focus();
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.getByText("1 job selected").waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "card.charge" }).waitFor();
  await page.close();
});

test("only legal actions are offered, and they work", async () => {
  const page = await h.open(`jobs/${ids.delayed}`);
  await page.locator(".reasons", { hasText: "queue_paused" }).waitFor();
  await page.getByRole("button", { name: "Run now" }).click();
  await page.locator(".pill", { hasText: "Scheduled" }).waitFor();
  expect(await page.getByRole("button", { name: "Run now" }).count()).toBe(0);
  await page.getByRole("button", { name: "Edit", exact: true }).click();
  await page.getByLabel("Priority").selectOption("high");
  await page.getByRole("button", { name: "Save changes" }).click();
  await page.locator(".facts dd", { hasText: "high" }).waitFor();
  await page.getByRole("button", { name: "Cancel…" }).click();
  await page.getByRole("button", { name: "Cancel job" }).click();
  await page.locator(".pill", { hasText: "Cancelled" }).waitFor();
  await page.getByRole("button", { name: "Requeue" }).click();
  await page.locator(".pill", { hasText: "Scheduled" }).waitFor();
  await page.getByRole("button", { name: "More actions" }).click();
  await page.getByRole("link", { name: "Duplicate…" }).click();
  await page.getByRole("heading", { level: 1, name: "Duplicate the job" }).waitFor();
  await page.getByLabel("Payload (JSON)").fill('{"n": 12345678901234567890}');
  await page.getByRole("button", { name: "Submit job" }).click();
  await page.locator(".code .exact", { hasText: "12345678901234567890" }).waitFor();
  await page.close();
});

test("a queue is paused, resumed and changed; locks are shown", async () => {
  const page = await h.open("queues/mail");
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await page.locator(".pill", { hasText: "paused" }).waitFor();
  await page.getByRole("button", { name: "Resume", exact: true }).click();
  await page.locator(".pill", { hasText: "paused" }).waitFor({ state: "detached" });
  await page.getByLabel("retry.limit").fill("7");
  await page.getByRole("button", { name: "Save 1 change" }).click();
  await page.getByText("Queue mail saved").waitFor();
  // One change is one override: the rest still comes from the profile.
  expect((await h.server.api.get("v1/queues/mail")).overrides).toEqual({ retry: { limit: 7 } });
  await page.getByRole("button", { name: "use the profile's" }).click();
  await page.getByRole("button", { name: "Save 1 change" }).click();
  await expect.poll(async () => (await h.server.api.get("v1/queues/mail")).overrides).toEqual({});
  await h.server.api.put("v1/queues/letters", { profile: "document" });
  await page.goto(`${h.url}#/queues/letters`);
  await page.locator(".setting.is-locked", { hasText: "fencing" }).waitFor();
  expect(await page.getByLabel("fencing").isDisabled()).toBe(true);
  await page.close();
});

test("new rows wait while the cursor is in the table, and selected jobs stay selected", async () => {
  const { api } = h.server;
  await api.submit("hold", Array.from({ length: 3 }, (_, index) => ({ type: `hold.${index}`, payload: {} })));
  const page = await h.open("jobs?queue=hold");
  await page.locator("tbody tr").nth(2).waitFor();
  await page.locator("main").focus();
  await page.keyboard.press("j");
  await page.locator("tbody tr.cur", { hasText: "hold.2" }).waitFor();
  await page.keyboard.press("x");
  await api.submit("hold", { type: "hold.new", payload: {} });
  await page.getByRole("button", { name: "1 new: show it" }).waitFor();
  expect(await page.locator("tbody tr").first().textContent()).toContain("hold.2");
  // Another row is taken from under the table; the cursor stays on its job.
  const [taken] = await api.claim("hold", "holder");
  await page.locator("tbody tr", { hasText: taken.type }).locator(".s-running").first().waitFor();
  await page.getByRole("button", { name: "1 new: show it" }).click();
  await page.getByRole("link", { name: /hold.new/ }).waitFor();
  await page.getByText("1 job selected").waitFor();
  await page.locator("main").focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "hold.2" }).waitFor();
  await page.close();
});

test("a hidden tab closes its stream, and catches up when it is shown", async () => {
  const page = await h.open("jobs?queue=hidden");
  await page.locator(".live[data-mode=stream]").waitFor();
  await page.getByText("No job matches").waitFor();
  const show = (isHidden: boolean) => page.evaluate(`Object.defineProperty(document, "hidden", { configurable: true, value: ${isHidden} }); document.dispatchEvent(new Event("visibilitychange"))`);
  const closed = page.waitForEvent("requestfailed", (request) => request.url().includes("/v1/events"));
  await show(true);
  await closed;
  await h.server.api.submit("hidden", { type: "hidden.job", payload: {} });
  const opened = page.waitForRequest((request) => request.url().includes("/v1/events"));
  await show(false);
  await opened;
  await page.getByRole("link", { name: /hidden.job/ }).waitFor();
  await page.close();
});

test("workers get the directives quiet, run and stop", async () => {
  const page = await h.open("workers");
  const row = page.getByRole("row", { name: /flow-1/ });
  await row.getByRole("button", { name: "Quiet" }).click();
  await row.getByText("quiet", { exact: true }).last().waitFor();
  await row.getByRole("button", { name: "Resume" }).click();
  await row.getByText("runs", { exact: true }).last().waitFor();
  await row.getByRole("button", { name: "Stop…" }).click();
  await page.getByRole("button", { name: "Stop worker" }).click();
  await row.getByText("stops", { exact: true }).last().waitFor();
  await page.close();
});

test("the failed path of a workflow is marked and retried", async () => {
  const page = await h.open(`workflows/${ids.flow}`);
  await page.locator(".node.root", { hasText: "charge" }).waitFor();
  await page.locator(".node.prop", { hasText: "post" }).waitFor();
  await page.getByRole("button", { name: "Retry what failed (2)" }).click();
  await page.locator(".node.root").waitFor({ state: "detached" });
  await page.close();
});

test("a graph of 1,000 jobs is folded and unfolds without a frozen page", async () => {
  const parts = Array.from({ length: 998 }, (_, index) => ({ ref: `part-${index}`, queue: "big", type: `part.${index % 5}`, after: ["#start"] }));
  const flow = await h.server.api.post("v1/workflows", { name: "thousand", jobs: [{ ref: "start", queue: "big", type: "start" }, ...parts, { ref: "end", queue: "big", type: "end", after: parts.map((part) => `#${part.ref}`) }] });
  const page = await h.open(`workflows/${flow.id}`);
  await page.locator(".graph[data-nodes='7']").waitFor();
  await page.getByRole("button", { name: "Fold groups" }).click();
  await page.locator(".graph[data-nodes='1000']").waitFor();
  await page.close();
}, 60_000);

test("what needs attention is listed, and its link leads to the cause", async () => {
  const { api } = h.server;
  await api.submit("lonely", { type: "lonely.job", payload: {} });
  await api.advance("10m");
  const page = await h.open("overview");
  const item = page.locator(".attn li[data-code=no_worker]", { hasText: "lonely" });
  await item.getByRole("link", { name: "See jobs" }).click();
  await page.getByRole("link", { name: /lonely.job/ }).click();
  await page.locator(".reasons", { hasText: "no_worker" }).waitFor();
  await page.goto(`${h.url}#/overview`);
  await page.getByRole("button", { name: "5 min", exact: true }).click();
  await page.getByRole("main").getByLabel("Queue").selectOption("lonely");
  await page.locator(".stat", { hasText: "Waiting" }).locator(".v", { hasText: /^1$/ }).waitFor();
  expect(page.url()).toContain("queue=lonely");
  await page.close();
});

test("the virtual clock is advanced from the banner", async () => {
  const page = await h.open("overview");
  const before = Date.parse((await h.server.api.get("v1/clock")).now);
  await page.getByRole("button", { name: "+1 min" }).click();
  await page.locator(".toast").waitFor();
  expect(Date.parse((await h.server.api.get("v1/clock")).now)).toBe(before + 60_000);
  await page.close();
});

test("a change appears by itself; a paused page waits", async () => {
  const page = await h.open("jobs?queue=live");
  await page.getByText("No job matches").waitFor();
  await h.server.api.submit("live", { type: "live.first", payload: {} });
  await page.getByRole("link", { name: /live.first/ }).waitFor({ timeout: 4_000 });
  await page.keyboard.press("p");
  await page.locator(".live[data-live=paused]").waitFor();
  await h.server.api.submit("live", { type: "live.second", payload: {} });
  await page.locator(".live .lag").waitFor();
  expect(await page.getByRole("link", { name: /live.second/ }).count()).toBe(0);
  await page.keyboard.press("p");
  await page.getByRole("link", { name: /live.second/ }).waitFor();
  await page.close();
});

test("palette, keys and saved views", async () => {
  const page = await h.open("overview");
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Search and commands" }).fill("charges");
  await page.getByRole("option", { name: "Queue charges", exact: false }).last().click();
  await page.getByRole("heading", { level: 1, name: "charges" }).waitFor();
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.press("j");
  await page.getByRole("heading", { level: 1, name: "Jobs" }).waitFor();
  await page.getByRole("link", { name: /^Failed/ }).click();
  await page.getByRole("button", { name: "Save view" }).click();
  await page.getByLabel("Name of the view").fill("what failed");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByRole("button", { name: "Saved views" }).click();
  await page.getByRole("link", { name: "what failed" }).waitFor();
  // The link alone is the view: another browser has it without a saved one.
  const link = page.url();
  expect(link).toContain("view=what+failed");
  await page.close();
  const other = await h.open(link.slice(link.indexOf("#/") + 2));
  await other.locator(".view-name", { hasText: "what failed" }).waitFor();
  await other.getByRole("button", { name: "Columns" }).click();
  await other.getByLabel("Tags").uncheck();
  await other.getByRole("columnheader", { name: "Tags" }).waitFor({ state: "hidden" });
  await other.close();
});
