import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import {
  Client,
  ConnectionError,
  JobEndedError,
  PayloadError,
  ProblemError,
  RawJson,
  WaitTimeoutError,
  Worker,
  job,
  permanent,
  silentLogger,
} from "longshore";
import { TestQueue } from "longshore/testing";
import { z } from "zod";

import { Proxy } from "./support.js";

const sum = job("sum", { queue: "maths", payload: z.object({ a: z.number(), b: z.number() }), result: z.number() });
let queue: TestQueue;
let client: Client;

before(async () => {
  queue = await TestQueue.start();
  client = queue.client;
});
after(() => queue.close());

function adder() {
  return new Worker(client, { logger: silentLogger }).on(sum, async (_ctx, { a, b }) => a + b);
}

test("a submitted job gives a typed result", async () => {
  const handle = await sum.submit(client, { a: 2, b: 3 });
  await queue.drain(adder());
  const result: number = await handle.wait();
  assert.equal(result, 5);
});

test("a payload that its schema refuses is not sent", async () => {
  await assert.rejects(client.submit(sum, { a: 1, b: "x" as unknown as number }), (error: PayloadError) => {
    assert.match(error.message, /^invalid payload of sum: b: /);
    return error instanceof PayloadError;
  });
});

test("an idempotency key gives the first job", async () => {
  const first = await client.submit(sum, { a: 1, b: 1 }, { key: "one" });
  const second = await client.submit(sum, { a: 1, b: 2 }, { key: "one" });
  assert.deepEqual([first.duplicate, second.duplicate, second.samePayload], [false, true, false]);
  assert.equal(second.id, first.id);
});

test("2,500 jobs of two queues are submitted in order", async () => {
  const many = job<number>("many", { queue: "many" });
  const handles = await client.submitMany(
    Array.from({ length: 2_500 }, (_, n) => many.with(n, { queue: n % 2 ? "odd" : "even" })),
  );
  assert.equal(new Set(handles.map((handle) => handle.id)).size, 2_500);
  const last = await client.get(handles[2_499]!.id, { include: "payload" });
  assert.deepEqual([last.payload, last.queue], [2_499, "odd"]);
});

test("a batch that is refused names the member", async () => {
  const jobs = [sum.with({ a: 1, b: 1 }), sum.with({ a: 1, b: 1 }, { delay: "1s", runAt: new Date() })];
  await assert.rejects(
    client.submitMany(jobs),
    (error: ProblemError) => error.code === "validation" && error.retry === "never",
  );
});

test("all options reach the server", async () => {
  const first = await client.submit(sum, { a: 0, b: 0 });
  const handle = await client.submit(
    sum,
    { a: 0, b: 0 },
    {
      priority: "high",
      delay: "1h",
      tags: { tenant: "acme" },
      correlationId: "c",
      after: [first.id],
      retry: { limit: 7, backoff: { kind: "constant", base: "2s" }, honourRetryAfter: false },
      executionTimeout: "10s",
      lease: "3s",
    },
  );
  const record = await handle.get();
  assert.deepEqual(
    [record.priority, record.tags, record.correlationId, record.after],
    ["high", { tenant: "acme" }, "c", [first.id]],
  );
  const policy = record["policy"] as {
    retry: { limit: number; honourRetryAfter: boolean };
    executionTimeout: string;
    lease: string;
  };
  assert.deepEqual(
    [policy.retry.limit, policy.retry.honourRetryAfter, policy.executionTimeout, policy.lease],
    [7, false, "10s", "3s"],
  );
});

test("a failed job rejects wait with its error", async () => {
  const bad = job<null, string>("bad");
  const handle = await client.submit(bad, null);
  await queue.drain(
    new Worker(client, { logger: silentLogger }).on(bad, () => permanent("no_such_thing", "it is gone")),
  );
  await assert.rejects(handle.wait(), (error: JobEndedError) => {
    assert.deepEqual([error.code, error.category, error.jobId], ["no_such_thing", "permanent", handle.id]);
    return /it is gone/.test(error.message);
  });
});

test("wait ends at its timeout", async () => {
  const handle = await client.submit(job("never"), 1);
  await assert.rejects(handle.wait({ timeout: "20ms" }), WaitTimeoutError);
});

test("a cancelled job ends, and a second cancel is refused", async () => {
  const handle = await client.submit(job("cancelled"), 1);
  assert.equal(await handle.cancel({ reason: "not needed" }), "cancelled");
  await assert.rejects(handle.cancel(), (error: ProblemError) => error.code === "illegal_transition");
  assert.equal(await client.requeue(handle.id), "scheduled");
});

test("a chord runs its finalizer with the results of the group", async () => {
  const part = job<number, number>("part", { queue: "flow" });
  const total = job<null, number>("total", { queue: "flow" });
  const flow = await client.submitWorkflow(
    { chord: { group: [part.with(1), part.with(2)], finally: total.with(null, { ref: "total" }) } },
    { name: "sum" },
  );
  const worker = new Worker(client, { logger: silentLogger })
    .on(part, (_ctx, n) => n * 10)
    .on(total, async (ctx) => (await ctx.inputs()).reduce((all, input) => all + Number(input.result), 0));
  await queue.drain(worker);
  const record = await client.getWorkflow(flow.id);
  assert.equal(record.state, "completed");
  assert.equal((await client.get(flow.jobs["total"]!)).result, 30);
});

test("big integers arrive unchanged", async () => {
  const big = job<{ id: bigint }, { id: bigint }>("big");
  const raw = job<unknown>("raw");
  const seen: unknown[] = [];
  const worker = new Worker(client, { logger: silentLogger })
    .on(big, (ctx, payload) => (seen.push(payload.id, ctx.payloadText), payload))
    .on(raw, (ctx) => void seen.push(ctx.payloadText));
  const handle = await client.submit(big, { id: 9_223_372_036_854_775_807n });
  await client.submit(raw, new RawJson('{"x": 1.10, "y":18446744073709551615}'));
  await queue.drain(worker);
  assert.deepEqual(seen.slice(0, 2), [9_223_372_036_854_775_807n, '{"id":9223372036854775807}']);
  assert.deepEqual(seen[2], '{"x": 1.10, "y":18446744073709551615}');
  assert.deepEqual(await handle.wait(), { id: 9_223_372_036_854_775_807n });
});

test("binary payloads arrive as bytes", async () => {
  const binary = job<Uint8Array, number[]>("binary");
  const handle = await client.submit(binary, new Uint8Array([0, 255, 10]));
  await queue.drain(new Worker(client, { logger: silentLogger }).on(binary, (_ctx, bytes) => [...bytes]));
  assert.deepEqual(await handle.wait(), [0, 255, 10]);
});

test("a submission whose answer is lost is repeated and creates one job", async () => {
  using proxy = await Proxy.start(queue.url);
  const through = new Client(proxy.url);
  proxy.answersToLose = 2;
  const lost = job<number>("lost", { queue: "lost" });
  const handle = await through.submit(lost, 1);
  assert.equal(handle.duplicate, true);
  assert.equal((await client.list({ queue: "lost" })).jobs.length, 1);
  through.close();
});

test("a request that may have been applied is not repeated without a key", async () => {
  await client.putQueue("keyless", { settings: { idempotency: { scope: "off" } } });
  using proxy = await Proxy.start(queue.url);
  const through = new Client(proxy.url);
  const keyless = job<number>("keyless", { queue: "keyless" });
  await through.submit(keyless, 1);
  proxy.answersToLose = 1;
  await assert.rejects(through.submit(keyless, 2), (error: ConnectionError) => error.retry === "unknown");
  assert.equal((await client.list({ queue: "keyless" })).jobs.length, 2);
  through.close();
});

test("a server that is away is tried again until the limit", async () => {
  const away = new Client({ url: "http://127.0.0.1:9", retryFor: "100ms" });
  await assert.rejects(away.submit(sum, { a: 1, b: 1 }), (error: ConnectionError) => error.retry === "safe");
});
