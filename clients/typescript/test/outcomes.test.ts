/** What handlers return and throw, and what becomes of it. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";

import { Client, ProblemError, Worker, job, silentLogger } from "longshore";
import { TestServer } from "longshore/testing";
import { z } from "zod";

import { Backoff } from "#internal/retry.js";

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

const fresh = () => `outcomes${(next += 1)}`;

test("an error that is returned fails the job as one that is thrown", async () => {
  const queue = fresh();
  const single = job<null, number>("single", { queue, retry: { limit: 1 } });
  const batched = job<number, number>("batched", { queue, retry: { limit: 1 } });
  const worker = new Worker(client, { logger: silentLogger })
    .on(single, () => new TypeError("returned") as never)
    .onBatch(batched, { size: 3, wait: "10ms" }, (_ctx, items) =>
      items.map(({ payload }) => (payload === 2 ? new RangeError("two") : payload)),
    );
  const one = await client.submit(single, null);
  const many = await client.submitMany([1, 2, 3].map((n) => batched.with(n)));
  const report = await worker.runUntilIdle();
  await worker[Symbol.asyncDispose]();
  assert.deepEqual([report.completed, report.failed], [2, 2]);
  assert.equal((await one.get()).error?.message, "returned");
  assert.equal((await many[1]!.get()).error?.message, "two");
});

test("half of a surrogate pair in an error does not cost the job its retries", async () => {
  const work = job<null>("surrogate", { queue: fresh(), retry: { limit: 2, backoff: { kind: "constant", base: "1h" } } });
  const worker = new Worker(client, { logger: silentLogger }).on(work, () => {
    throw Object.assign(new Error("bad \ud800 text"), { code: "c\udfff" });
  });
  const handle = await client.submit(work, null);
  await worker.runUntilIdle();
  await worker[Symbol.asyncDispose]();
  const { state, error } = await handle.get();
  assert.deepEqual([state, error?.message, error?.code], ["retrying", "bad \ufffd text", "c\ufffd"]);
});

test("null is a result, and fits a schema of nothing", async () => {
  const queue = fresh();
  const found = job<null, string | null>("found", { queue });
  const none = job("none", { queue, payload: z.null(), result: z.void() });
  const nullable = job("nullable", { queue, payload: z.null(), result: z.string().nullable() });
  const worker = new Worker(client, { logger: silentLogger })
    .on(found, () => null)
    .on(none, () => undefined)
    .on(nullable, () => null);
  const handles = [await found.submit(client, null), await none.submit(client, null), await nullable.submit(client, null)];
  await worker.runUntilIdle();
  await worker[Symbol.asyncDispose]();
  const results = [];
  for (const handle of handles) results.push(await handle.wait());
  assert.deepEqual(results, [null, undefined, null]);
});

test("mistakes of programs without types are named", () => {
  const worker = new Worker(client);
  const untyped = worker as unknown as { on: (definition: unknown, handler?: unknown) => void };
  assert.throws(() => untyped.on("greet", () => 1), /greet is not a job: expected job\("type"\)/);
  assert.throws(() => untyped.on(job("greet"), 3), /the handler of greet is not a function/);
  assert.throws(() => new Worker(undefined as never), /a worker needs a client/);
  assert.throws(() => new Client("127.0.0.1:7070"), /invalid server URL 127.0.0.1:7070: expected http:/);
});

test("a backoff is not shorter than the wait that the server asks for", () => {
  const asked = new ProblemError({ status: 429, code: "rate_limited", retry: "safe" }, 7_000);
  assert.equal(new Backoff(50).nextMs(asked), 7_000);
  assert.equal(new Backoff(50).nextMs(asked, 2_000), 2_000);
  assert.ok(new Backoff(50).nextMs(new Error("no connection")) <= 50);
});

test("an answer of a proxy costs no outcome and no job", async () => {
  const queue = fresh();
  let strange = 3;
  const proxy = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const body = Buffer.concat(chunks).toString();
      const headers = { "content-type": "application/json" };
      if (strange > 0 && body.includes('"outcome"')) {
        strange -= 1;
        response.writeHead(200, headers).end(["{}", "<html>", '{"results":[]}'][strange]);
        return;
      }
      fetch(server.url + request.url, { method: request.method!, headers, body }).then(
        async (answer) => response.writeHead(answer.status, headers).end(await answer.text()),
        () => response.destroy(),
      );
    });
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const far = new Client(`http://127.0.0.1:${(proxy.address() as AddressInfo).port}`);
  const work = job<null, number>("proxied", { queue });
  const worker = new Worker(far, { wait: "1s", logger: silentLogger }).on(work, () => 7);
  const run = worker.run();
  assert.equal(await (await client.submit(work, null)).wait({ timeout: "20s" }), 7);
  const report = await (worker.stop(), run);
  assert.deepEqual([strange, report.completed, report.unsettled, report.lost], [0, 1, 0, 0]);
  far.close();
  proxy.close();
});
