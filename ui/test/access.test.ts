// Real tokens: what a token may not do is not there, and the page knows it from the server.

import { afterAll, beforeAll, expect, test } from "vitest";
import { isAllowed, NEEDS } from "../src/lib/permissions";
import type { Self } from "../src/lib/types";
import { start, type Harness } from "./harness";

let h: Harness;
const tokens: Record<string, string> = {};
let job = "";

beforeAll(async () => {
  h = await start("--virtual-clock");
  const { api } = h.server;
  job = (await api.submit("mail", { type: "email.send", payload: {} })).id;
  await api.submit("secret", { type: "secret.job", payload: {} });
  await api.put("v1/schedules/nightly", { every: "1h", queue: "mail", job: { type: "email.send", payload: {} } });
  await api.put("v1/webhooks/alerts", { url: "https://example.com/" });
  const all = ["submit", "work", "read", "operate", "admin"];
  tokens.root = (await api.post("v1/tokens", { name: "root", actions: all, queues: ["*"] })).token;
  api.token = tokens.root!;
  for (const action of all) tokens[action] = (await api.post("v1/tokens", { name: action, actions: [action], queues: ["*"] })).token;
  tokens.mail = (await api.post("v1/tokens", { name: "mail only", actions: ["read", "operate"], queues: ["mail"] })).token;
}, 60_000);
afterAll(async () => {
  await h?.stop();
});

async function openAs(name: string, path: string) {
  const page = await h.open("system");
  await page.evaluate((value) => sessionStorage.setItem("longshore.token", value), tokens[name]!);
  await page.goto("about:blank");
  await page.goto(`${h.url}#/${path}`);
  return page;
}

/** Names for the parts of a path that are names. */
const PLACES: Record<string, string> = { queues: "mail", schedules: "nightly", webhooks: "alerts", workers: "w", tokens: "000000", workflows: "00000000-0000-4000-8000-000000000000", deliveries: "00000000-0000-4000-8000-000000000000", operations: "00000000-0000-4000-8000-000000000000" };

test("the table of permissions is that of the server", async () => {
  const wrong: string[] = [];
  for (const name of ["submit", "work", "read", "operate", "admin", "mail"]) {
    const headers = { authorization: `Bearer ${tokens[name]}` };
    const self = (await (await fetch(`${h.server.url}/v1/tokens/self`, { headers })).json()) as Self;
    for (const kind of Object.keys(NEEDS)) {
      if (isAllowed(self, kind)) continue;
      const [method = "", path = ""] = kind.split(" ");
      const [first = ""] = path.split("/");
      const response = await fetch(`${h.server.url}/v1/${path.replace("*", first === "jobs" ? job : PLACES[first]!)}`, { method, headers: { ...headers, "content-type": "application/json" }, ...(method === "GET" ? {} : { body: "{}" }) });
      if (response.status !== 403 && response.status !== 404) wrong.push(`${name}: ${kind}: ${response.status}`);
    }
  }
  expect(wrong).toEqual([]);
});

test("a reader sees everything and is offered nothing", async () => {
  const page = await openAs("read", "queues/mail");
  await page.getByRole("heading", { level: 1, name: "mail" }).waitFor();
  await page.getByRole("button", { name: "read", exact: true }).waitFor();
  for (const name of ["Pause", "Delete…"]) expect(await page.getByRole("button", { name, exact: true }).count()).toBe(0);
  expect(await page.getByLabel("retry.limit").isDisabled()).toBe(true);
  await page.goto(`${h.url}#/jobs/${job}`);
  await page.getByRole("heading", { level: 1, name: "email.send" }).waitFor();
  for (const name of ["Cancel…", "Edit"]) expect(await page.getByRole("button", { name, exact: true }).count()).toBe(0);
  await page.goto(`${h.url}#/jobs`);
  await page.locator("tbody tr").first().waitFor();
  expect(await page.getByRole("link", { name: /Submit a job/ }).count()).toBe(0);
  expect(await page.getByRole("link", { name: "Tokens and audit" }).count()).toBe(0);
  await page.close();
});

test("the timeline has actors for tokens that may read the audit log", async () => {
  const { api } = h.server;
  const { id } = await api.submit("mail", { type: "email.audit", payload: {} });
  await fetch(`${h.server.url}/v1/jobs/${id}/cancel`, { method: "POST", headers: { authorization: `Bearer ${tokens.operate}`, "content-type": "application/json" }, body: "{}" });
  const page = await openAs("root", `jobs/${id}`);
  await page.locator(".lanes", { hasText: "cancelled by operate" }).waitFor();
  await page.close();
  const reader = await openAs("read", `jobs/${id}`);
  await reader.locator(".lanes", { hasText: "cancelled" }).waitFor();
  expect(await reader.locator(".lanes", { hasText: "by operate" }).count()).toBe(0);
  await reader.close();
});

test("a token for one queue sees only that queue", async () => {
  const page = await openAs("mail", "queues");
  await page.getByRole("link", { name: "mail", exact: true }).waitFor();
  expect(await page.getByText("secret").count()).toBe(0);
  await page.goto(`${h.url}#/jobs/${job}`);
  await page.getByRole("button", { name: "Cancel…" }).waitFor();
  await page.goto(`${h.url}#/workers`);
  await page.getByRole("heading", { level: 1, name: "Workers" }).waitFor();
  expect(await page.getByRole("button", { name: "Quiet" }).count()).toBe(0);
  await page.close();
});

test("the page wants another token after a revocation", async () => {
  const page = await openAs("operate", "workflows");
  const id = (await h.server.api.get("v1/tokens")).tokens.find((token: { name: string }) => token.name === "operate").id;
  await h.server.api.call("DELETE", `v1/tokens/${id}`);
  await page.getByText("The server does not know this token").waitFor({ timeout: 15_000 });
  await page.getByLabel("Token", { exact: true }).fill(tokens.root!);
  await page.getByRole("button", { name: "Use this token" }).click();
  await page.getByRole("heading", { level: 1, name: "Workflows" }).waitFor();
  await page.close();
});
