import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, Worker, job, silentLogger } from "longshore";
import { TestQueue, TestServer } from "longshore/testing";

import { until } from "./support.js";

const report = job<string, string>("report", { queue: "reports" });

test("calls about schedules", async () => {
  await using queue = await TestQueue.start();
  const { client } = queue;
  const made = await client.putSchedule("nightly", { cron: "30 3 * * *", timezone: "UTC" }, report.with("all"));
  assert.deepEqual([made.cron, made.queue, made.job["payload"], made.next.length], ["30 3 * * *", "reports", "all", 10]);
  await client.putSchedule("often", { every: "90s", overlap: "skip", jitter: "1s" }, report.with("now"));
  assert.equal((await client.getSchedule("often")).every, "1m30s");
  assert.deepEqual(
    (await client.listSchedules()).map((schedule) => schedule.name),
    ["nightly", "often"],
  );
  assert.equal((await client.pauseSchedule("often", { note: "not today" })).pauseNote, "not today");
  assert.equal((await client.get(await client.triggerSchedule("often"))).type, "report");
  assert.equal((await client.resumeSchedule("often")).paused, false);
  await queue.advance("2m");
  assert.equal((await client.scheduleTicks("often")).length, 1);
  await client.deleteSchedule("often");
  assert.equal((await client.listSchedules()).length, 1);
  await assert.rejects(client.putSchedule("none", {}, report.with("x")), /one of cron and every/);
});

test("a worker creates its schedules, and a second start changes nothing", async () => {
  await using queue = await TestQueue.start();
  const make = () =>
    new Worker(queue.client, { logger: silentLogger })
      .on(report, (_ctx, day) => `report of ${day}`)
      .schedule("daily", "0 4 * * *", report.with("day"))
      .schedule("hourly", { every: "1h" }, report.with("hour"));
  await queue.drain(make());
  const before = await queue.client.listSchedules();
  await queue.drain(make());
  assert.deepEqual(await queue.client.listSchedules(), before);
  await queue.advance("1d");
  const done = await queue.drain(make());
  assert.equal(done.completed, 25);
  const payloads = (await queue.submitted(report)).map((one) => one.payload);
  assert.deepEqual([payloads.filter((one) => one === "day").length, payloads.length], [1, 25]);
});

test("a schedule that the server refuses ends the worker", async () => {
  await using server = await TestServer.start({ virtualClock: false });
  using client = new Client(server.url);
  const worker = new Worker(client, { logger: silentLogger }).on(report, () => "x");
  worker.schedule("wrong", "no cron", report.with("x"));
  assert.throws(() => worker.schedule("wrong", "@daily", report.with("x")), /exists already/);
  await assert.rejects(worker.run(), { code: "validation", field: "cron" });
});

test("calls of operators", async () => {
  await using queue = await TestQueue.start();
  const { client } = queue;
  const handle = await client.submit(report, "a");
  await client.pauseQueue("reports");
  assert.equal((await client.why(handle.id)).reasons[0]?.code, "queue_paused");
  await client.resumeQueue("reports");
  const dead = await client.submit(report, "b");
  assert.equal(await client.deadLetter(dead.id, { reason: "by hand" }), "dead_letter");
  const worker = new Worker(client, { name: "w1", logger: silentLogger }).on(report, () => "x");
  await queue.drain(worker);
  assert.deepEqual(
    (await client.attempts(handle.id)).map((attempt) => attempt.outcome),
    ["completed"],
  );
  assert.equal((await client.history(handle.id)).at(-1)?.to, "completed");
  await until("the worker is listed", async () => (await client.listWorkers()).some((one) => one.name === "w1"));
  await client.directWorker("w1", "quiet");
});
