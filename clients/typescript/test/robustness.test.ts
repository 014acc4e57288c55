/** What handlers, servers and shutdowns may do wrong without the loss of a lease, a slot or a result. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { connect, createServer as createTcpServer } from "node:net";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, Worker, job, release, silentLogger, snooze } from "longshore";
import type { Outcome } from "longshore";
import { TestServer } from "longshore/testing";
import { z } from "zod";

import { aborted, gate, until } from "./support.js";

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

const fresh = () => `robust${(next += 1)}`;

test("the end of an old run leaves the lease of the new run of the same job", async () => {
  const work = job<null, number>("again", { queue: fresh(), lease: "600ms" });
  const started: number[] = [];
  const worker = new Worker(client, { abandonAfter: "400ms", logger: silentLogger }).on(work, async (ctx) => {
    started.push(ctx.attempt);
    if (started.length === 1) await new Promise(() => {}); // It ignores that its lease is lost.
    await sleep(2_500, undefined, { signal: ctx.signal });
    return started.length;
  });
  const run = worker.run();
  const handle = await client.submit(work, null);
  await until("the first run", () => started.length === 1);
  await handle.cancel({ force: true });
  await client.requeue(handle.id);
  assert.equal(await handle.wait({ timeout: "20s" }), 2);
  assert.equal((await handle.get()).counters.reclaims, 0);
  const report = await (worker.stop(), run);
  assert.deepEqual([report.abandoned, report.completed, started.length], [1, 1, 2]);
});

test("a handler may use the whole grace period after the drain signal", async () => {
  const work = job<null, string>("slow-end", { queue: fresh() });
  const started = gate();
  const worker = new Worker(client, { grace: "2s", abandonAfter: "50ms", logger: silentLogger }).on(
    work,
    async (ctx) => {
      started.open();
      assert.equal((await aborted(ctx.signal)).code, "drain");
      await sleep(200);
      return "finished";
    },
  );
  const run = worker.run();
  const handle = await client.submit(work, null);
  await started.promise;
  const report = await (worker.stop(), run);
  assert.deepEqual([report.completed, report.abandoned], [1, 0]);
  assert.equal(await handle.wait(), "finished");
});

test("checkpoints that do not fit into one request take several", async () => {
  const work = job<null, number>("large", { queue: fresh(), lease: "20s" });
  const text = "x".repeat(1_000_000);
  const all = gate();
  let ready = 0;
  const worker = new Worker(client, { slots: 40, logger: silentLogger }).on(work, async (ctx) => {
    if ((ready += 1) === 40) all.open();
    await all.promise;
    await ctx.saveCheckpoint(text);
    return text.length;
  });
  const handles = await client.submitMany(Array.from({ length: 40 }, () => work.with(null)));
  const run = worker.run();
  for (const handle of handles) assert.equal(await handle.wait({ timeout: "30s" }), text.length);
  await (worker.stop(), run);
});

test("a checkpoint over the limit is refused alone", async () => {
  const work = job<number, string>("too-large", { queue: fresh(), lease: "3s" });
  const worker = new Worker(client, { slots: 4, logger: silentLogger }).on(work, async (ctx, size) => {
    const error = await ctx.saveCheckpoint("x".repeat(size)).then(
      () => "saved",
      (reason: Error) => reason.message,
    );
    return error;
  });
  const handles = await client.submitMany([10, 2_000_000, 34_000_000, 20].map((size) => work.with(size)));
  const run = worker.run();
  const results = await Promise.all(handles.map((handle) => handle.wait({ timeout: "30s" })));
  assert.deepEqual([results[0], results[3]], ["saved", "saved"]);
  assert.match(results[1]!, /not saved/);
  assert.match(results[2]!, /not saved/);
  await (worker.stop(), run);
});

test("jobs that a claim in flight brings during a drain are released", async () => {
  const work = job("held-back", { queue: fresh() });
  const upstream = new URL(server.url);
  const held: (() => void)[] = [];
  let holds = false;
  const proxy = createTcpServer({ allowHalfOpen: true }, (near) => {
    const far = connect({ port: Number(upstream.port), host: upstream.hostname, allowHalfOpen: true });
    near.on("error", () => {});
    far.on("error", () => {});
    near.on("data", (chunk) => far.write(chunk));
    near.on("end", () => (holds ? held.push(() => far.end()) : far.end()));
    near.on("close", () => far.destroy());
    const pass = (act: () => void) => (holds ? held.push(act) : act());
    far.on("data", (chunk) => pass(() => void near.write(chunk)));
    far.on("end", () => pass(() => void near.end()));
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const far = new Client(`http://127.0.0.1:${(proxy.address() as AddressInfo).port}`);
  let runs = 0;
  const worker = new Worker(far, { wait: "20s", grace: "3s", logger: silentLogger }).on(work, () => void (runs += 1));
  const run = worker.run();
  await until("a waiting claim", async () => {
    const { workers } = (await client.call("GET", "/v1/workers")) as { workers: { name: string }[] };
    return workers.some((one) => one.name === worker.name);
  });
  holds = true;
  const handle = await client.submit(work, null);
  await until("the answer is on its way", async () => (await handle.get()).state === "running" && held.length > 0);
  const end = worker.stop();
  await sleep(50);
  holds = false;
  for (const act of held.splice(0)) act();
  await end;
  const report = await run;
  const { state, counters } = await handle.get();
  assert.deepEqual([state, counters.starts, report.released, runs], ["scheduled", 0, 1, 0]);
  far.close();
  proxy.close();
});

for (const [name, outcome] of [
  ["snooze", snooze(0)],
  ["release", release()],
] as [string, Outcome][]) {
  test(`a ${name} that the profile refuses becomes a failure`, async () => {
    const queue = fresh();
    await client.putQueue(queue, { profile: "document" });
    const work = job(`refused-${name}`, { queue });
    const handle = await client.submit(work, null);
    await client.call("POST", `/v1/jobs/${handle.id}/submit`, { body: {} });
    const worker = new Worker(client, { logger: silentLogger }).on(work, () => outcome);
    const report = await worker.runUntilIdle();
    assert.deepEqual([report.failed, report.lost], [1, 0]);
    assert.equal((await handle.get()).error?.code, "illegal_transition");
    await worker[Symbol.asyncDispose]();
  });
}

test("progress over the limit costs the progress, not the result", async () => {
  const work = job<null, string>("progress-limit", { queue: fresh() });
  const worker = new Worker(client, { logger: silentLogger }).on(work, (ctx) => {
    ctx.progress("x".repeat(1_200_000));
    return "result";
  });
  const handle = await client.submit(work, null);
  await worker.runUntilIdle();
  assert.equal(await handle.wait({ timeout: "5s" }), "result");
  await worker[Symbol.asyncDispose]();
});

test("thrown values without a text, and checks that throw, are failures", async () => {
  const queue = fresh();
  const odd = job("odd", { queue, retry: { limit: 1 } });
  const checked = job("checked", {
    queue,
    payload: z.unknown().transform(() => {
      throw new Error("secret");
    }),
  });
  const batched = job("batched", { queue, retry: { limit: 1 } });
  const thrown = Object.create(null) as object;
  const worker = new Worker(client, { slots: 1, logger: silentLogger })
    .on(odd, () => {
      throw thrown;
    })
    .on(checked, () => "not called")
    .onBatch(batched, { size: 1 }, () => {
      throw thrown;
    });
  const { id } = (await client.call("POST", `/v1/queues/${queue}/jobs`, { body: { type: "checked", payload: 1 } })) as { id: string };
  const handles = [await client.submit(odd, null), await client.submit(batched, null)];
  const report = await worker.runUntilIdle();
  await worker[Symbol.asyncDispose]();
  assert.equal(report.failed, 3);
  for (const handle of handles) assert.equal((await handle.get()).error?.category, "temporary");
  const { error } = await client.get(id);
  assert.deepEqual([error?.category, error?.code], ["permanent", "bad_payload"]);
  assert.doesNotMatch(error?.message ?? "", /secret/);
});

test("the server accepts every heartbeat", async () => {
  const statuses: number[] = [];
  const proxy = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const headers = { "content-type": "application/json" };
      fetch(server.url + request.url, { method: request.method!, headers, body: Buffer.concat(chunks) }).then(
        async (answer) => {
          if (request.url === "/v1/heartbeats") statuses.push(answer.status);
          response.writeHead(answer.status, headers).end(await answer.text());
        },
        () => response.destroy(),
      );
    });
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const far = new Client(`http://127.0.0.1:${(proxy.address() as AddressInfo).port}`);
  const work = job("beats", { queue: fresh(), lease: "600ms" });
  const worker = new Worker(far, { wait: "1s", logger: silentLogger }).on(work, async () => {
    await until("three heartbeats", () => statuses.length >= 3);
  });
  const run = worker.run();
  await (await client.submit(work, null)).wait({ timeout: "20s" });
  await (worker.stop(), run);
  far.close();
  proxy.close();
  assert.deepEqual(new Set(statuses), new Set([200]));
});

test("more types than a claim takes are refused at the start", async () => {
  const worker = new Worker(client, { logger: silentLogger });
  for (let n = 0; n <= 100; n += 1) worker.on(job(`type${n}`), () => null);
  await assert.rejects(worker.run(), /101 types/);
});
