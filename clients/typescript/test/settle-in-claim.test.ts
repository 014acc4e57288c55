/** Settlements inside claims, against a server that only this test has: it counts requests. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Client, Worker, job, silentLogger } from "longshore";

interface Call {
  path: string;
  settled: string[];
  limit: number | undefined;
}

interface Stub {
  url: string;
  calls: Call[];
  close(): void;
}

/** Serves `count` jobs. Without `knowsSettle` it refuses the field, as an older server does. */
async function stub(count: number, knowsSettle: boolean): Promise<Stub> {
  const calls: Call[] = [];
  let given = 0;
  const claim = (limit: number) =>
    Array.from({ length: Math.min(limit, count - given) }, () => {
      given += 1;
      const lease = { token: `t${given}`, version: 1, expires_at: null };
      return {
        id: `j${given}`,
        seq: given,
        queue: "default",
        type: "x",
        attempt: 1,
        created_at: new Date(),
        lease,
        payload: given,
      };
    });
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (chunk) => (text += String(chunk)));
    request.on("end", () => {
      const body = JSON.parse(text) as { settle?: { id: string }[]; settlements?: { id: string }[]; limit?: number };
      const settled = (body.settle ?? body.settlements ?? []).map((item) => item.id);
      calls.push({ path: request.url ?? "", settled, limit: body.limit });
      const results = settled.map((id) => ({ id, state: "completed" }));
      const answer = (status: number, value: object) => response.writeHead(status).end(JSON.stringify(value));
      if (request.url === "/v1/settlements") answer(200, { results });
      else if (body.settle !== undefined && !knowsSettle)
        answer(400, { code: "validation", field: "settle", retry: "never" });
      else
        answer(200, {
          jobs: claim(body.limit ?? 1),
          now: new Date(),
          ...(body.settle === undefined ? {} : { results }),
        });
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, calls, close: () => server.close() };
}

async function drain(server: Stub, slots: number) {
  const client = new Client(server.url);
  await using worker = new Worker(client, { slots, prefetch: 1, logger: silentLogger }).on(job("x"), async () => null);
  const report = await worker.runUntilIdle();
  client.close();
  server.close();
  return report;
}

test("an outcome and the next claim are one request", async () => {
  const server = await stub(3, true);
  const report = await drain(server, 1);
  assert.equal(report.completed, 3);
  assert.deepEqual(
    server.calls.map((call) => [call.path, call.settled]),
    [
      ["/v1/claims", []],
      ["/v1/claims", ["j1"]],
      ["/v1/claims", ["j2"]],
      ["/v1/claims", ["j3"]],
      ["/v1/claims", []],
    ],
  );
});

test("outcomes of the same moment share a request, and slots bound its claim", async () => {
  const server = await stub(40, true);
  const report = await drain(server, 20);
  assert.equal(report.completed, 40);
  assert.deepEqual(
    server.calls.map((call) => [call.settled.length, call.limit]),
    [
      [0, 20],
      [20, 20],
      [20, 20],
      [0, 20],
    ],
  );
});

test("a server without settlements in claims gets them in requests of their own", async () => {
  const server = await stub(3, false);
  const report = await drain(server, 1);
  assert.equal(report.completed, 3);
  const refused = server.calls.filter((call) => call.path === "/v1/claims" && call.settled.length > 0);
  assert.equal(refused.length, 1);
  assert.deepEqual(
    server.calls.filter((call) => call.path === "/v1/settlements").map((call) => call.settled),
    [["j1"], ["j2"], ["j3"]],
  );
});
