import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, StuckHandlersError, Worker, job } from "longshore";
import { TestServer } from "longshore/testing";

import { aborted, gate, memoryLogger, until } from "./support.js";

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

const fresh = () => `lease${(next += 1)}`;

function block(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

test("a blocked event loop keeps all leases, and the log names the handler", async () => {
  const queue = fresh();
  const blocking = job<null, string>("blocking", { queue, lease: "1500ms" });
  const waiting = job<null, string>("waiting", { queue, lease: "1500ms" });
  const logger = memoryLogger();
  const started = gate();
  const worker = new Worker(client, { logger })
    .on(waiting, async (ctx) => {
      started.open();
      await sleep(4_000, undefined, { signal: ctx.signal });
      return "waited";
    })
    .on(blocking, async () => {
      await started.promise;
      block(3_200);
      return "blocked";
    });
  const run = worker.run();
  const handles = [await client.submit(waiting, null), await client.submit(blocking, null)];
  assert.deepEqual(await Promise.all(handles.map((handle) => handle.wait({ timeout: "20s" }))), ["waited", "blocked"]);
  for (const handle of handles) assert.deepEqual((await handle.get()).counters.starts, 1);
  const report = await (worker.stop(), run);
  assert.deepEqual([report.completed, report.lost], [2, 0]);
  const warning = logger.lines.find((line) => /blocked the event loop/.test(line.message));
  assert.match(String(warning?.fields?.["handler"]), /blocking/);
});

test("a cancel reaches the handler, and the job ends as cancelled", async () => {
  const long = job("long", { queue: fresh(), lease: "600ms" });
  const reason = gate<string>();
  const started = gate();
  const worker = new Worker(client, { logger: memoryLogger() }).on(long, async (ctx) => {
    started.open();
    reason.open((await aborted(ctx.signal)).code);
    ctx.signal.throwIfAborted();
  });
  const run = worker.run();
  const handle = await client.submit(long, null);
  await started.promise;
  assert.equal(await handle.cancel(), "running");
  assert.equal(await reason.promise, "cancelled");
  await until("the job is cancelled", async () => (await handle.get()).state === "cancelled");
  await (worker.stop(), run);
});

test("a lost lease aborts the handler, and nothing is settled", async () => {
  const long = job("lost", { queue: fresh(), lease: "600ms" });
  const reason = gate<string>();
  const started = gate();
  const worker = new Worker(client, { logger: memoryLogger() }).on(long, async (ctx) => {
    started.open();
    reason.open((await aborted(ctx.signal)).code);
    throw new Error("too late");
  });
  const run = worker.run();
  const handle = await client.submit(long, null);
  await started.promise;
  await handle.cancel({ force: true });
  assert.equal(await reason.promise, "lease_lost");
  const report = await (worker.stop(), run);
  assert.deepEqual([report.lost, report.failed], [1, 0]);
});

test("the deadline aborts the handler before the server does", async () => {
  const slow = job("slow", { queue: fresh(), executionTimeout: "1s", retry: { limit: 1 } });
  const worker = new Worker(client, { logger: memoryLogger() }).on(slow, async (ctx) => {
    assert.ok(ctx.deadline !== undefined && ctx.deadline.getTime() - Date.now() <= 1_000);
    await sleep(60_000, undefined, { signal: ctx.signal });
  });
  const run = worker.run();
  const handle = await client.submit(slow, null);
  await assert.rejects(handle.wait({ timeout: "20s" }), { category: "timeout", code: "execution_timeout" });
  const report = await (worker.stop(), run);
  assert.deepEqual([report.failed, report.lost], [1, 0]);
});

test("a handler that ignores its signal is abandoned, and its slot is free", async () => {
  const queue = fresh();
  const deaf = job("deaf", { queue, executionTimeout: "500ms", retry: { limit: 1 } });
  const small = job("small", { queue });
  const worker = new Worker(client, { slots: 1, abandonAfter: "100ms", logger: memoryLogger() })
    .on(deaf, () => new Promise(() => {}))
    .on(small, () => "ran");
  const run = worker.run();
  const started = await client.submit(deaf, null);
  await until("the handler runs", async () => (await started.get()).state === "running");
  assert.equal(await (await client.submit(small, null)).wait({ timeout: "20s" }), "ran");
  const report = await (worker.stop(), run);
  assert.deepEqual([report.abandoned, report.completed], [1, 1]);
});

test("too many abandoned handlers end the worker with an error", async () => {
  const deaf = job("deaf", { queue: fresh(), executionTimeout: "300ms" });
  const worker = new Worker(client, { abandonAfter: "50ms", maxStuck: 1, logger: memoryLogger() }).on(
    deaf,
    () => new Promise(() => {}),
  );
  await client.submit(deaf, null);
  await assert.rejects(worker.run(), StuckHandlersError);
});

test("progress is sent with a heartbeat", async () => {
  const slow = job("progress", { queue: fresh(), lease: "600ms" });
  const done = gate();
  const worker = new Worker(client, { logger: memoryLogger() }).on(slow, async (ctx) => {
    ctx.progress({ pct: 10 });
    await done.promise;
  });
  const run = worker.run();
  const handle = await client.submit(slow, null);
  await until("progress is visible", async () => JSON.stringify((await handle.get()).progress) === '{"pct":10}');
  done.open();
  await handle.wait();
  await (worker.stop(), run);
});
