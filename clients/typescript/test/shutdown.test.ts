import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, Worker, job, silentLogger } from "longshore";
import { TestServer } from "longshore/testing";

import { aborted, gate, memoryLogger, until } from "./support.js";

test("a drain finishes what runs and returns what has not started", async () => {
  await using server = await TestServer.start({ virtualClock: false });
  using client = new Client(server.url);
  const work = job<number, number>("work");
  const stop = new AbortController();
  const done = gate();
  let started = 0;
  const worker = new Worker(client, { slots: 2, logger: silentLogger }).on(work, async (_ctx, n) => {
    started += 1;
    await done.promise;
    return n;
  });
  const run = worker.run({ signal: stop.signal });
  const handles = await client.submitMany(Array.from({ length: 6 }, (_, n) => work.with(n)));
  await until("two handlers run", () => started === 2);
  stop.abort();
  done.open();
  const report = await run;
  assert.deepEqual([report.completed, started], [2, 2]);
  const states = await Promise.all(handles.map(async (handle) => (await handle.get()).state));
  assert.deepEqual(states.sort(), ["completed", "completed", "scheduled", "scheduled", "scheduled", "scheduled"]);
});

test("at the end of the grace period handlers are aborted, then their jobs are released", async () => {
  await using server = await TestServer.start({ virtualClock: false });
  using client = new Client(server.url);
  const polite = job("polite");
  const deaf = job("deaf");
  const reasons: string[] = [];
  let started = 0;
  const worker = new Worker(client, { grace: "400ms", logger: silentLogger })
    .on(polite, async (ctx) => {
      started += 1;
      reasons.push((await aborted(ctx.signal)).code);
      throw ctx.signal.reason;
    })
    .on(deaf, () => new Promise(() => void (started += 1)));
  const run = worker.run();
  const handles = [await client.submit(polite, null), await client.submit(deaf, null)];
  await until("both handlers run", () => started === 2);
  await worker.stop();
  const report = await run;
  assert.deepEqual([report.released, report.failed, reasons], [2, 0, ["drain"]]);
  for (const handle of handles) {
    const { state, counters } = await handle.get();
    assert.deepEqual([state, counters.starts], ["scheduled", 0]);
  }
});

test("await using drains a worker", async () => {
  await using server = await TestServer.start({ virtualClock: false });
  using client = new Client(server.url);
  const quick = job<null, string>("quick");
  let run: Promise<unknown>;
  {
    await using worker = new Worker(client, { logger: silentLogger }).on(quick, () => "done");
    run = worker.run();
    assert.equal(await (await client.submit(quick, null)).wait({ timeout: "20s" }), "done");
  }
  await run;
});

test("a server that is killed and comes back loses no job", async () => {
  const data = await mkdtemp(join(tmpdir(), "longshore-"));
  try {
    let server = await TestServer.start({ virtualClock: false, data });
    const port = Number(new URL(server.url).port);
    using client = new Client(server.url);
    const work = job<number, number>("work", { lease: "20s" });
    const started = gate();
    const done = gate();
    const logger = memoryLogger();
    const worker = new Worker(client, { logger }).on(work, async (_ctx, n) => {
      started.open();
      await done.promise;
      return n;
    });
    const run = worker.run();
    const first = await client.submit(work, 1);
    await started.promise;
    await server.stop("SIGKILL");
    done.open(); // The outcome cannot be sent now.
    await until("the outage is noticed", () => logger.lines.some((line) => /cannot/.test(line.message)));
    server = await TestServer.start({ virtualClock: false, data, port });
    const second = await client.submit(work, 2);
    assert.deepEqual([await first.wait({ timeout: "20s" }), await second.wait({ timeout: "20s" })], [1, 2]);
    assert.equal((await first.get()).counters.starts, 1);
    const report = await (worker.stop(), run);
    assert.deepEqual([report.completed, report.lost], [2, 0]);
    await server.stop();
  } finally {
    await rm(data, { recursive: true });
  }
});

test("a claim that can never succeed ends the worker with the error", async () => {
  await using server = await TestServer.start({ virtualClock: false });
  using client = new Client(server.url);
  const worker = new Worker(client, { queues: ["not a name"], logger: silentLogger }).on(job("x"), () => 1);
  await assert.rejects(worker.run(), { code: "validation" });
  await sleep(0);
});
