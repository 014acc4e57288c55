// Actions of administrators: schedules, webhooks, tokens; and the commands that the pages teach.

import { execFile } from "node:child_process";
import { createServer, type AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { COMMANDS } from "../src/strings";
import { start, type Harness } from "./harness";
import { PROGRAM } from "./support";

let h: Harness;
beforeAll(async () => {
  h = await start("--virtual-clock", "--webhook-allow", "127.0.0.0/8");
});
afterAll(async () => {
  await h?.stop();
});

test("a schedule is created, run, paused with a note, resumed and deleted", async () => {
  const page = await h.open("schedules");
  await page.getByText("No schedule yet").waitFor();
  await page.getByRole("button", { name: "New schedule" }).click();
  const form = page.getByRole("dialog");
  await form.getByLabel("Name").fill("nightly");
  await form.getByLabel("Cron expression").fill("0 3 * * *");
  await form.getByLabel("Queue").fill("reports");
  await form.getByLabel("Type").fill("report.build");
  await form.getByLabel("Payload (JSON)").fill('{"n": 9007199254740993}');
  await form.getByRole("button", { name: "Save schedule" }).click();
  await page.getByRole("link", { name: "nightly" }).waitFor();
  expect((await (await fetch(`${h.server.url}/v1/schedules/nightly`)).text())).toContain("9007199254740993");
  await page.getByRole("button", { name: "Run now" }).click();
  await page.getByRole("button", { name: "Open", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "report.build" }).waitFor();
  await h.server.api.advance("25h");
  await page.goto(`${h.url}#/schedules/nightly`);
  await page.locator("tbody tr", { hasText: "fired" }).first().waitFor();
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await page.getByLabel("Note (optional)").fill("month-end check");
  await page.getByRole("button", { name: "Pause schedule" }).click();
  await page.getByText("month-end check").waitFor();
  await page.getByRole("button", { name: "Resume", exact: true }).click();
  await page.getByText("month-end check").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Edit", exact: true }).click();
  await page.getByRole("dialog").getByLabel("Cron expression").fill("0 4 * * *");
  await page.getByRole("button", { name: "Save schedule" }).click();
  await page.locator(".job-title code", { hasText: "0 4 * * *" }).waitFor();
  // Editing without touching the payload keeps its digits.
  expect((await (await fetch(`${h.server.url}/v1/schedules/nightly`)).text())).toContain("9007199254740993");
  await page.getByRole("button", { name: "Delete…" }).click();
  await page.getByRole("button", { name: "Delete schedule" }).click();
  await page.getByText("No schedule yet").waitFor();
  await page.close();
});

test("many schedules are paused and resumed together", async () => {
  for (const name of ["one", "two", "three"]) await h.server.api.put(`v1/schedules/${name}`, { every: "1h", queue: "reports", job: { type: "report.build", payload: {} } });
  const page = await h.open("schedules");
  await page.getByLabel("Select all schedules").check();
  await page.getByRole("button", { name: "Pause 3" }).waitFor();
  await page.getByLabel("Select three").uncheck();
  await page.getByRole("button", { name: "Pause 2" }).click();
  await page.locator("tbody .tag", { hasText: "paused" }).nth(1).waitFor();
  const { schedules } = await h.server.api.get("v1/schedules");
  expect(schedules.filter((schedule: { paused: boolean }) => schedule.paused).map((schedule: { name: string }) => schedule.name).sort()).toEqual(["one", "two"]);
  await page.close();
});

test("a missed tick is listed and run", async () => {
  const { api } = h.server;
  await api.put("v1/queues/full", { settings: { max_queued: 1 } });
  await api.put("v1/schedules/refill", { every: "1m", queue: "full", job: { type: "tank.fill" } });
  await api.advance("2m");
  const page = await h.open("schedules");
  const missed = page.locator(".missed li", { hasText: "refill" });
  await missed.getByRole("link", { name: "refill" }).waitFor();
  const [waiting] = await api.claim("full");
  await missed.getByRole("button", { name: "Run now" }).click();
  await page.locator(".toast", { hasText: "Submitted" }).waitFor();
  await api.complete(waiting);
  await page.close();
});

test("an endpoint is created, tested, its secret rotated, a delivery sent again", async () => {
  const bodies: string[] = [];
  const receiver = createServer((socket) => {
    socket.on("data", (data) => {
      bodies.push(data.toString());
      socket.end("HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    });
    socket.on("error", () => undefined);
  });
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`;
  const page = await h.open("webhooks");
  await page.getByRole("button", { name: "New endpoint" }).click();
  const form = page.getByRole("dialog");
  await form.getByLabel("Name").fill("alerts");
  await form.getByLabel("URL").fill(url);
  await form.getByRole("button", { name: "Save endpoint" }).click();
  await page.getByText(/^whsec_/).waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
  await page.getByRole("link", { name: "alerts" }).click();
  await page.getByRole("button", { name: "Send a test" }).click();
  await page.locator("tbody tr", { hasText: "webhook.test" }).waitFor();
  await expect.poll(() => bodies.length, { timeout: 10_000 }).toBeGreaterThan(0);
  const before = bodies.length;
  await page.getByRole("button", { name: "Redeliver" }).first().click();
  await expect.poll(() => bodies.length, { timeout: 10_000 }).toBeGreaterThan(before);
  await page.getByRole("button", { name: "Rotate the secret…" }).click();
  await page.getByRole("button", { name: "Rotate secret" }).click();
  await page.getByText(/^whsec_/).waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "Delete…" }).click();
  await page.getByRole("button", { name: "Delete endpoint" }).click();
  await page.getByText("No endpoint yet").waitFor();
  await page.close();
  receiver.close();
});

test("a failed job is edited and requeued, and the old one is deleted", async () => {
  const { api } = h.server;
  await api.put("v1/queues/edit", { settings: { retry: { on_permanent: "failed" } } });
  const { id } = await api.submit("edit", { type: "typo", payload: { n: 1 }, retry: { limit: 9 }, execution_timeout: "7m", tags: { a: "b" } });
  const [job] = await api.claim("edit");
  await api.fail(job, "bad_payload", "n must be 2", "permanent");
  const page = await h.open(`jobs/${id}`);
  await page.getByRole("button", { name: "More actions" }).click();
  await page.getByRole("link", { name: "Edit and requeue…" }).click();
  await page.getByLabel("Payload (JSON)").fill('{"n": 2}');
  await page.getByRole("button", { name: "Submit job" }).click();
  await page.getByRole("heading", { level: 1, name: "typo" }).waitFor();
  await page.locator(".pill", { hasText: "Scheduled" }).waitFor();
  const { jobs } = await api.get("v1/jobs?queue=edit");
  expect(jobs).toHaveLength(1);
  expect(jobs[0].policy).toMatchObject({ retry: { limit: 9 }, execution_timeout: "7m" });
  expect(jobs[0].tags).toEqual({ a: "b" });
  await page.close();
});

/** Runs the program and returns the code of its end, or `null` if it was still running after a while. */
function run(words: string[], input?: string): Promise<{ code: number | null; output: string; text: string }> {
  return new Promise((resolve) => {
    const child = execFile(PROGRAM, words, { timeout: 2_500, env: { PATH: process.env.PATH, HOME: "/nonexistent" } }, (error, stdout, stderr) => resolve({ code: error ? (typeof error.code === "number" ? error.code : null) : 0, output: stdout, text: stdout + stderr }));
    // A command that reads no input may end before it is written.
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(input ?? "");
  });
}

/** The words of a command as a POSIX shell splits them; enough for quotes and `\'`. */
function words(command: string): string[] {
  return [...command.matchAll(/(?:'[^']*'|\\.|[^\s'\\])+/g)].map(([word]) => word.replace(/'([^']*)'|\\(.)/g, (_, quoted: string | undefined, escaped: string | undefined) => quoted ?? escaped ?? ""));
}

const USAGE = 2;

test("every command that a page teaches is one of the program", async () => {
  const all = Object.values(COMMANDS).map((command) => (typeof command === "string" ? command : command("mail")));
  const refused: string[] = [];
  for (const command of all) {
    const [name, ...rest] = words(command);
    expect(name).toBe("longshore");
    // A token is made on a directory: only its options are read here.
    const { code, text } = await run(rest[0] === "tokens" ? [...rest, "--help"] : ["--server", h.server.url, ...rest]);
    if (code === USAGE && /error:|Usage/.test(text)) refused.push(`${command}: ${text}`);
  }
  expect(refused).toEqual([]);
}, 60_000);

test("the command of the submit form submits the same job", async () => {
  const page = await h.open("submit?queue=copy&type=email.send");
  await page.getByLabel("Payload (JSON)").fill(`{"n": 12345678901234567890, "text": "it's"}`);
  await page.getByLabel("Priority").selectOption("high");
  await page.getByText("More fields").click();
  await page.getByLabel("Tags").fill("tenant=acme, seven");
  await page.getByLabel("Idempotency key").fill("key 1");
  await page.getByLabel("Policy (JSON)").fill('{"execution_timeout":"7m","retry":{"limit":6}}');
  await page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copied = text; } } })");
  await page.getByRole("button", { name: "Copy as command" }).click();
  const command = (await page.waitForFunction("window.copied").then((value) => value.jsonValue())) as string;
  const answer = await run(words(command.replace(/^longshore /, "").replace(/--server \S+/, `--server ${h.server.url}`)));
  expect(answer).toMatchObject({ code: 0 });
  const id = answer.output.trim();
  const job = await h.server.api.get(`v1/jobs/${id}`);
  expect(job).toMatchObject({ queue: "copy", type: "email.send", priority: "high", tags: { tenant: "acme", seven: null }, idempotency_key: "key 1", policy: { execution_timeout: "7m", retry: { limit: 6 } } });
  expect(await (await fetch(`${h.server.url}/v1/jobs/${id}/payload`)).text()).toContain("12345678901234567890");
  await page.close();
});

test("a token is made and revoked, and the audit tells who did it", async () => {
  const page = await h.open("tokens");
  await page.getByRole("button", { name: "New token" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("root");
  for (const action of ["submit", "work", "read", "operate", "admin"]) await page.getByRole("dialog").getByLabel(action, { exact: true }).check();
  await page.getByRole("dialog").getByLabel("Queues").fill("*");
  await page.getByRole("button", { name: "Create token" }).click();
  const secret = (await page.getByText(/^lsk_/).textContent())!;
  // From now on the server wants a token: the page asks for it.
  await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
  await page.getByLabel("Token", { exact: true }).fill(secret);
  await page.getByRole("button", { name: "Use this token" }).click();
  await page.getByRole("button", { name: /root/ }).waitFor();
  h.server.api.token = secret;
  const reader = await h.server.api.post("v1/tokens", { name: "reader", actions: ["read"], queues: ["*"] });
  await page.goto(`${h.url}#/queues`);
  await page.goto(`${h.url}#/tokens`);
  await page.getByRole("row", { name: /reader/ }).getByRole("button", { name: "Revoke…" }).click();
  await page.getByRole("button", { name: "Revoke token" }).click();
  await page.getByText("reader revoked").waitFor();
  expect((await fetch(`${h.server.url}/v1/stats`, { headers: { authorization: `Bearer ${reader.token}` } })).status).toBe(401);
  await page.locator("section", { hasText: "Audit" }).getByRole("row", { name: /root/ }).first().waitFor();
  await page.close();
});
