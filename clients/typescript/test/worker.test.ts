import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Client, Worker, job, permanent, release, silentLogger, snooze, temporary } from "longshore";
import type { Middleware } from "longshore";
import { TestQueue } from "longshore/testing";
import { z } from "zod";

let queue: TestQueue;
let client: Client;
let next = 0;

before(async () => {
  queue = await TestQueue.start();
  client = queue.client;
});
after(() => queue.close());

/** A queue of its own for each test. */
const fresh = () => `q${(next += 1)}`;
const options = { logger: silentLogger };

test("a thrown error is temporary and is retried with its message and stack", async () => {
  const flaky = job<null, string>("flaky", { queue: fresh() });
  const handle = await client.submit(flaky, null);
  const worker = new Worker(client, options).on(flaky, async (ctx) => {
    if (ctx.attempt === 1) throw new Error("the first one fails");
    return `attempt ${ctx.attempt}`;
  });
  await queue.drain(worker);
  const record = await handle.get();
  assert.deepEqual(
    [record.state, record.error?.category, record.error?.message],
    ["retrying", "temporary", "the first one fails"],
  );
  assert.match(record.error?.cause ?? "", /worker\.test/);
  await queue.drain(worker, { upTo: "1m" });
  assert.equal(await handle.wait(), "attempt 2");
});

test("a temporary failure chooses its wait", async () => {
  const limited = job("limited", { queue: fresh() });
  const handle = await client.submit(limited, null);
  const worker = new Worker(client, options).on(limited, () =>
    temporary("slow down", { retryAfter: "7m", code: "http_429" }),
  );
  await queue.drain(worker);
  const record = await handle.get();
  assert.equal(record.error?.code, "http_429");
  assert.equal(Date.parse(record.runAt!) - (await queue.now()).getTime(), 7 * 60_000);
});

test("a permanent failure is not retried", async () => {
  const bad = job("bad", { queue: fresh() });
  const handle = await client.submit(bad, null);
  await queue.drain(new Worker(client, options).on(bad, () => permanent("bad_address")));
  const record = await handle.get();
  assert.deepEqual([record.state, record.error?.category, record.error?.code], ["failed", "permanent", "bad_address"]);
});

test("a worker classifies errors", async () => {
  const bad = job("classified", { queue: fresh() });
  const handle = await client.submit(bad, null);
  const classify = (error: unknown) => (error instanceof TypeError ? permanent("bug", String(error)) : undefined);
  const worker = new Worker(client, { ...options, classify }).on(bad, () => {
    throw new TypeError("no such method");
  });
  await queue.drain(worker);
  assert.deepEqual([(await handle.get()).state, (await handle.get()).error?.code], ["failed", "bug"]);
});

test("an outcome may be thrown from below", async () => {
  const deep = job("deep", { queue: fresh() });
  const handle = await client.submit(deep, null);
  await queue.drain(
    new Worker(client, options).on(deep, () => {
      throw permanent("deep_down");
    }),
  );
  assert.equal((await handle.get()).error?.code, "deep_down");
});

test("snooze and release cost no attempt", async () => {
  const polite = job<null, number>("polite", { queue: fresh() });
  const handle = await client.submit(polite, null);
  let runs = 0;
  const worker = new Worker(client, options).on(polite, (ctx) => {
    runs += 1;
    return runs === 1 ? snooze("5m") : runs === 2 ? release() : ctx.attempt;
  });
  await queue.drain(worker);
  assert.equal((await handle.get()).state, "delayed");
  await queue.advance("5m");
  const report = await queue.drain(worker);
  assert.equal(await handle.wait(), 1);
  assert.deepEqual([runs, report.released, (await handle.get()).counters.starts], [3, 1, 1]);
});

test("a payload that the schema refuses fails with bad_payload and never runs", async () => {
  const name = fresh();
  const loose = job<unknown>("typed", { queue: name });
  const strict = job("typed", { queue: name, payload: z.object({ to: z.email() }) });
  const handle = await client.submit(loose, { to: 5 });
  let runs = 0;
  await queue.drain(new Worker(client, options).on(strict, () => void (runs += 1)));
  const record = await handle.get();
  assert.deepEqual(
    [record.state, record.error?.category, record.error?.code, runs],
    ["failed", "permanent", "bad_payload", 0],
  );
  assert.match(record.error?.message ?? "", /to: /);
});

test("a schema transforms what the handler gets", async () => {
  const dated = job("dated", {
    queue: fresh(),
    payload: z.object({ at: z.iso.datetime().transform((text) => new Date(text)) }),
    result: z.number(),
  });
  const handle = await client.submit(dated, { at: "2026-11-18T00:00:00Z" });
  await queue.drain(new Worker(client, options).on(dated, (_ctx, { at }) => at.getUTCFullYear()));
  assert.equal(await handle.wait(), 2026);
});

test("a result that is no JSON fails with bad_result", async () => {
  const odd = job("odd", { queue: fresh() });
  const handle = await client.submit(odd, null);
  await queue.drain(
    new Worker(client, options).on(odd, () => {
      const circle: unknown[] = [];
      circle.push(circle);
      return circle;
    }),
  );
  assert.equal((await handle.get()).error?.code, "bad_result");
});

test("a result over the limit fails with the server's code", async () => {
  const large = job("large", { queue: fresh() });
  const handle = await client.submit(large, null);
  await queue.drain(new Worker(client, options).on(large, () => "x".repeat(1_100_000)));
  const record = await handle.get();
  assert.deepEqual([record.state, record.error?.code], ["failed", "payload_too_large"]);
});

test("middleware wraps handlers, and state is shared", async () => {
  const named = job<string, string>("named", { queue: fresh() });
  const calls: string[] = [];
  const layer =
    (name: string): Middleware<{ greeting: string }> =>
    async (ctx, next) => {
      calls.push(`${name} before ${ctx.type}`);
      const outcome = await next();
      calls.push(`${name} after ${outcome.kind}`);
      return outcome;
    };
  const worker = new Worker(client, { ...options, state: { greeting: "hello" } })
    .use(layer("outer"))
    .use(layer("inner"))
    .on(named, (ctx, name) => `${ctx.state.greeting} ${name}`);
  const handle = await client.submit(named, "ann");
  await queue.drain(worker);
  assert.equal(await handle.wait(), "hello ann");
  assert.deepEqual(calls, ["outer before named", "inner before named", "inner after complete", "outer after complete"]);
});

test("a batch handler gets jobs together and gives each its outcome", async () => {
  const doc = job<number, number>("doc", { queue: fresh() });
  const sizes: number[] = [];
  const handles = await client.submitMany(Array.from({ length: 25 }, (_, n) => doc.with(n)));
  const worker = new Worker(client, options).onBatch(doc, { size: 10, wait: "10ms" }, async (_ctx, items) => {
    sizes.push(items.length);
    return items.map(({ payload }) => (payload === 7 ? permanent("seven") : payload * 2));
  });
  const report = await queue.drain(worker);
  assert.deepEqual([sizes, report.completed, report.failed], [[10, 10, 5], 24, 1]);
  assert.equal(await handles[24]!.wait(), 48);
  assert.equal((await handles[7]!.get()).error?.code, "seven");
});

test("a batch handler that throws fails all of its jobs", async () => {
  const doc = job<number>("doc2", { queue: fresh() });
  await client.submitMany([doc.with(1), doc.with(2)]);
  const report = await queue.drain(
    new Worker(client, options).onBatch(doc, { size: 2 }, async () => {
      throw new Error("index is away");
    }),
  );
  assert.equal(report.failed, 2);
});

test("types without a handler are not claimed", async () => {
  const name = fresh();
  const known = job("known", { queue: name });
  const unknown = await client.submit(job("unknown", { queue: name }), null);
  await client.submit(known, null);
  const report = await queue.drain(new Worker(client, options).on(known, () => 1));
  assert.deepEqual([report.claimed, (await unknown.get()).state], [1, "scheduled"]);
});

test("a checkpoint survives the failure of its attempt, and progress is visible", async () => {
  const long = job<null, unknown>("long", { queue: fresh() });
  const handle = await client.submit(long, null);
  const worker = new Worker(client, options).on(long, async (ctx) => {
    ctx.progress({ pct: 50 });
    if (ctx.attempt > 1) return ctx.checkpoint;
    await ctx.saveCheckpoint({ page: 3 });
    assert.deepEqual((await ctx.client.get(ctx.id)).checkpoint, { page: 3 });
    throw new Error("half way");
  });
  await queue.drain(worker, { upTo: "1m" });
  assert.deepEqual(await handle.wait(), { page: 3 });
  assert.deepEqual((await handle.get()).progress, { pct: 50 });
});

test("a running job creates children", async () => {
  const name = fresh();
  const parent = job<number, unknown>("parent", { queue: name });
  const child = job<number, number>("child", { queue: name });
  const ran: number[] = [];
  const worker = new Worker(client, options)
    .on(parent, async (ctx, count) => ctx.createChildren(Array.from({ length: count }, (_, n) => child.with(n))))
    .on(child, (_ctx, n) => (ran.push(n), n));
  await client.submit(parent, 3);
  await queue.drain(worker);
  assert.deepEqual(ran.sort(), [0, 1, 2]);
});

test("slots bound what runs at the same time", async () => {
  const slow = job("slow", { queue: fresh() });
  await client.submitMany(Array.from({ length: 20 }, () => slow.with(null)));
  let running = 0;
  let most = 0;
  const worker = new Worker(client, { ...options, slots: 4 }).on(slow, async () => {
    most = Math.max(most, (running += 1));
    await new Promise((resolve) => setImmediate(resolve));
    running -= 1;
  });
  const report = await queue.drain(worker);
  assert.deepEqual([report.completed, most], [20, 4]);
});

test("10,000 jobs run exactly once", async () => {
  const count = job<number>("count", { queue: fresh() });
  await client.submitMany(Array.from({ length: 10_000 }, (_, n) => count.with(n)));
  const runs = new Uint8Array(10_000);
  const worker = new Worker(client, { ...options, slots: 100 }).on(count, async (_ctx, n) => void (runs[n]! += 1));
  const report = await queue.drain(worker);
  assert.deepEqual([report.completed, runs.every((times) => times === 1)], [10_000, true]);
});

test("mistakes of the program are refused", () => {
  const one = job("one");
  assert.throws(() => new Worker(client, { slots: 0 }), /slots/);
  assert.throws(() => new Worker(client).on(one, () => 1).on(one, () => 2), /exists already/);
  assert.throws(() => new Worker(client).onBatch(one, { size: 0 }, () => {}), /batch size/);
  return assert.rejects(new Worker(client).run(), /no handlers/);
});
