/** Steps, middleware of batches, `beforeSubmit`, trace context and TLS. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { Client, Worker, job, silentLogger, temporary, traceJobs } from "longshore";
import type { TracingApi } from "longshore";
import { TestQueue, TestServer, perform } from "longshore/testing";

let server: TestServer;
let client: Client;
let next = 0;

before(async () => {
  server = await TestServer.start({ virtualClock: false });
  client = new Client(server.url);
});
after(async () => {
  client.close();
  await server.stop();
});

const fresh = () => `feature${(next += 1)}`;
const TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

test("steps run once over all attempts, also side by side", async () => {
  await using queue = await TestQueue.start();
  const work = job<null, unknown>("steps");
  const calls: string[] = [];
  const worker = new Worker(queue.client, { logger: silentLogger }).on(work, async (ctx) => {
    const step = (name: string, value: unknown) => ctx.step(name, () => (calls.push(name), value));
    const found = await Promise.all([step("zero", 0), step("none", undefined), step("list", [1])]);
    if (ctx.attempt === 1) return temporary("again", { retryAfter: "1h" });
    return found;
  });
  const handle = await queue.client.submit(work, null);
  await queue.drain(worker, { upTo: "1d" });
  assert.deepEqual(await handle.wait(), [0, null, [1]]);
  assert.deepEqual(calls.sort(), ["list", "none", "zero"]);
  const { checkpoint } = await queue.client.get(handle.id);
  assert.deepEqual(checkpoint, { $steps: { zero: 0, none: null, list: [1] } });
});

test("each job of a batch passes the middleware", async () => {
  const index = job<number, number>("index", { queue: fresh() });
  const seen: string[] = [];
  const sizes: number[] = [];
  const worker = new Worker(client, { logger: silentLogger })
    .use(async (ctx, proceed) => {
      const { payload } = await client.get(ctx.id, { include: "payload" });
      if (payload === 2) return temporary("not now", { code: "skipped" });
      const outcome = await proceed();
      seen.push(`${payload} ${outcome.kind}`);
      return outcome;
    })
    .onBatch(index, { size: 4, wait: "100ms" }, (_ctx, items) => {
      sizes.push(items.length);
      return items.map((item) => item.payload * 10);
    });
  const handles = await client.submitMany([0, 1, 2, 3].map((n) => index.with(n)));
  await worker.runUntilIdle();
  await worker[Symbol.asyncDispose]();
  assert.deepEqual(sizes, [3]);
  assert.deepEqual(seen.sort(), ["0 complete", "1 complete", "3 complete"]);
  assert.equal(await handles[3]!.wait({ timeout: "5s" }), 30);
  assert.equal((await handles[2]!.get()).error?.code, "skipped");
});

test("beforeSubmit sees every new job", async () => {
  const queue = fresh();
  const work = job<number>("work", { queue });
  const parent = job<null>("parent", { queue });
  const beforeSubmit = (one: { withFields(fields: object): any }) => 
    one.withFields({ tags: { team: "mail" }, traceparent: TRACE });
  using tagging = new Client({ url: server.url, beforeSubmit });
  await tagging.submit(work, 1);
  await tagging.submitMany([work.with(1), work.with(2)]);
  await tagging.submitWorkflow({ chord: { group: [work.with(1), { chain: [work.with(2)] }], finally: work.with(3) } });
  await tagging.submitWorkflow({ jobs: [work.with(1, { ref: "a" }), work.with(2, { after: ["#a"] })] });
  await tagging.putSchedule(queue, { cron: "@yearly" }, work.with(1));
  await tagging.triggerSchedule(queue);
  await tagging.submit(parent, null);
  const worker = new Worker(tagging, { logger: silentLogger }).on(parent, async (ctx) => {
    await ctx.createChildren([work.with(1)], { finally: work.with(2) });
  });
  await worker.runUntilIdle();
  await worker[Symbol.asyncDispose]();
  const { jobs } = await client.list({ queue, limit: 100 });
  assert.equal(jobs.length, 12);
  for (const one of jobs) assert.deepEqual(one.tags, { team: "mail" });
});

test("a submission has the trace context of the active span", () => {
  const key = Symbol.for("opentelemetry.js.api.1");
  const shared = globalThis as Record<symbol, unknown>;
  const work = job<null>("traced");
  assert.equal(client.prepareTraced(work.with(null)).fields["traceparent"], undefined);
  const [, traceId, spanId] = TRACE.split("-");
  const span = { spanContext: () => ({ traceId, spanId, traceFlags: 1 }) };
  const active = { getValue: (name: symbol) => (name === Symbol.for("OpenTelemetry Context Key SPAN") ? span : null) };
  shared[key] = { context: { active: () => active } };
  try {
    assert.equal(client.prepareTraced(work.with(null)).fields["traceparent"], TRACE);
    const given = work.with(null, { traceparent: "00-1-2-00" });
    assert.equal(client.prepareTraced(given).fields["traceparent"], "00-1-2-00");
  } finally {
    delete shared[key];
  }
});

test("a first attempt continues the trace, a retry links to it", async () => {
  const started: { name: string; options: any; parent: unknown }[] = [];
  const statuses: unknown[] = [];
  const api: TracingApi = {
    ROOT_CONTEXT: "root",
    trace: {
      getTracer: () => ({
        startSpan(name, options, parent) {
          started.push({ name, options, parent });
          return { setStatus: (status) => statuses.push(status), end: () => statuses.push("ended") };
        },
      }),
      setSpan: (context) => context,
      setSpanContext: (_context, identity) => identity,
    },
    context: { with: (_context, work) => work() },
  };
  const work = job<null>("traced");
  const worker = new Worker(client, { logger: silentLogger }).use(traceJobs(api)).on(work, (ctx) => {
    assert.equal(ctx.traceparent, TRACE);
    return temporary("no", { code: "smtp" });
  });
  await perform(worker, work, null, { traceparent: TRACE });
  await perform(worker, work, null, { traceparent: TRACE, attempt: 2 });
  const [, traceId, spanId] = TRACE.split("-");
  const identity = { traceId, spanId, traceFlags: 1, isRemote: true };
  assert.deepEqual([started[0]?.name, started[0]?.parent, started[0]?.options.links], ["process traced", identity, []]);
  assert.deepEqual([started[1]?.parent, started[1]?.options.links], ["root", [{ context: identity }]]);
  assert.deepEqual(statuses, [{ code: 2, message: "smtp" }, "ended", { code: 2, message: "smtp" }, "ended"]);
});

test("a client trusts the authorities that it is given", async (t) => {
  const directory = mkdtempSync(join(tmpdir(), "longshore-"));
  const [key, cert] = [join(directory, "key.pem"), join(directory, "cert.pem")];
  const subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"];
  const command = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
  try {
    execFileSync("openssl", [...command, ...subject, "-keyout", key, "-out", cert], { stdio: "ignore" });
  } catch {
    t.skip("openssl is not installed");
    return;
  }
  const ca = readFileSync(cert, "utf8");
  const web = createServer({ key: readFileSync(key), cert: ca }, (request, response) => {
    request.resume();
    response.end('{"now":"2026-11-18T00:00:00.000Z"}');
  });
  await new Promise<void>((resolve) => web.listen(0, "127.0.0.1", resolve));
  const url = `https://127.0.0.1:${(web.address() as AddressInfo).port}`;
  using trusting = new Client({ url, ca, retryFor: 0 });
  assert.deepEqual(await trusting.call("GET", "/v1/clock"), { now: "2026-11-18T00:00:00.000Z" });
  using doubting = new Client({ url, retryFor: 0 });
  await assert.rejects(doubting.call("GET", "/v1/clock"), /certificate/);
  assert.deepEqual(trusting.endpoint.ca, [ca]);
  web.closeAllConnections();
  web.close();
  rmSync(directory, { recursive: true });
});
