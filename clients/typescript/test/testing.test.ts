import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, PayloadError, Worker, job, silentLogger, snooze, temporary } from "longshore";
import { TestQueue, perform } from "longshore/testing";
import { z } from "zod";

const charge = job("charge", {
  queue: "billing",
  payload: z.object({ cents: z.int() }),
  result: z.string(),
  retry: { limit: 3, backoff: { kind: "exponential", base: "1m" }, jitter: { kind: "none" } },
});

function worker(queue: TestQueue, answers: number[]) {
  return new Worker(queue.client, { logger: silentLogger, state: { answers } }).on(charge, (ctx, { cents }) => {
    const status = ctx.state.answers.shift() ?? 200;
    if (status === 429) return temporary("busy", { retryAfter: "1h" });
    if (status !== 200) throw new Error(`status ${status}`);
    return `charged ${cents}`;
  });
}

test("drain runs retries in virtual time", async () => {
  await using queue = await TestQueue.start();
  const handle = await queue.client.submit(charge, { cents: 500 });
  const before = await queue.now();
  const report = await queue.drain(worker(queue, [503, 429]), { upTo: "1d" });
  assert.equal(await handle.wait(), "charged 500");
  assert.deepEqual([report.failed, report.completed, report.handled], [2, 1, { charge: 3 }]);
  assert.equal((await queue.now()).getTime() - before.getTime(), 61 * 60_000);
});

test("drain without upTo leaves retries waiting", async () => {
  await using queue = await TestQueue.start();
  const handle = await queue.client.submit(charge, { cents: 500 });
  await queue.drain(worker(queue, [503]));
  assert.equal((await handle.get()).state, "retrying");
  await queue.advance("59s");
  assert.equal((await handle.get()).state, "retrying");
  await queue.advance("1s");
  assert.equal((await handle.get()).state, "scheduled");
});

test("submitted jobs are listed with their payloads", async () => {
  await using queue = await TestQueue.start();
  await queue.client.submitMany([charge.with({ cents: 1 }), charge.with({ cents: 2 }, { delay: "1h" })]);
  const jobs = await queue.submitted(charge);
  assert.deepEqual(
    jobs.map((one) => [one.payload.cents, one.state]),
    [
      [1, "scheduled"],
      [2, "delayed"],
    ],
  );
});

test("perform runs one handler without a server, with a given attempt", async () => {
  const poll = job("poll", { payload: z.object({ id: z.string() }) });
  const poller = new Worker(new Client(), { logger: silentLogger }).on(poll, async (ctx) => {
    if (ctx.attempt < 3) return snooze("1m");
    ctx.progress(ctx.attempt);
    await ctx.saveCheckpoint({ seen: ctx.checkpoint });
    return ctx.isLastAttempt ? "last" : "done";
  });
  assert.equal((await perform(poller, poll, { id: "a" })).outcome.kind, "snooze");
  const third = await perform(poller, poll, { id: "a" }, { attempt: 3, isLastAttempt: true, checkpoint: 5 });
  assert.deepEqual([third.result, third.checkpoints, third.progress], ["last", [{ seen: 5 }], [3]]);
  const bad = await perform(poller, poll, { id: 7 as unknown as string });
  assert.ok(bad.outcome.kind === "fail" && bad.outcome.error.code === "bad_payload");
  const drained = await perform(poller, poll, { id: "a" }, { abort: "drain" });
  assert.equal(drained.outcome.kind, "snooze");
});

test("a payload error names its type and path", () => {
  const error = new PayloadError("charge", [{ message: "expected a number", path: ["cents"] }]);
  assert.equal(error.message, "invalid payload of charge: cents: expected a number");
});
