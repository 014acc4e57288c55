import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";

import { Client, ProblemError, job } from "longshore";
import type { Event } from "longshore";
import { TestQueue } from "longshore/testing";

import { EventParser, eventPath } from "#internal/events.js";

let queue: TestQueue;
let client: Client;

before(async () => {
  queue = await TestQueue.start();
  client = queue.client;
});
after(() => queue.close());

async function next(events: AsyncGenerator<Event, never>): Promise<Event> {
  return (await events.next()).value;
}

test("events are the same however they arrive", () => {
  const text =
    ': hi\n\n: cursor a-1\n\nevent: queue\r\nid: a-2\r\ndata: {"x":\r\ndata: "é"}\r\n\r\nevent: new\ndata: 1\n\nevent: x';
  for (const size of [1, 2, 5, 1_000]) {
    const parser = new EventParser();
    const events: Event[] = [];
    for (let at = 0; at < text.length; at += size) events.push(...parser.push(text.slice(at, at + size)));
    assert.deepEqual(events, [{ kind: "queue", data: { x: "é" }, cursor: "a-2" }]);
    assert.equal(parser.cursor, "a-2");
  }
});

test("a filter becomes a query", () => {
  assert.equal(eventPath({ after: "a-1" }), "/v1/events");
  assert.equal(eventPath({ queue: "a b", state: ["failed", "cancelled"] }), "/v1/events?queue=a+b&state=failed%2Ccancelled");
});

test("transitions arrive, and a cursor resumes", async () => {
  await client.putQueue("watched");
  const stop = new AbortController();
  const events = client.events({ queue: "watched" }, { signal: stop.signal });
  const first = next(events);
  const task = job<null>("t", { queue: "watched" });
  // The stream is open once an event of a later submission arrives.
  let isOpen = false;
  void first.then(() => (isOpen = true));
  while (!isOpen) {
    await task.submit(client, null);
    await Promise.race([first, new Promise((resolve) => setTimeout(resolve, 100))]);
  }
  const created = await first;
  assert.ok(created.kind === "job");
  assert.deepEqual([created.data.from, created.data.to, created.data.type], [null, "pending", "t"]);
  const scheduled = await next(events);
  assert.ok(scheduled.kind === "job" && scheduled.data.to === "scheduled");
  assert.ok(created.cursor !== undefined);
  const resumed = client.events({ queue: "watched", after: created.cursor }, { signal: stop.signal });
  assert.deepEqual(await next(resumed), scheduled);
  const unknown = client.events({ after: "0123456789abcdef-1" }, { signal: stop.signal });
  assert.equal((await next(unknown)).kind, "gap");
  const waiting = next(unknown);
  stop.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
});

test("a malformed cursor is refused", async () => {
  await assert.rejects(
    next(client.events({ after: "17" })),
    (error: ProblemError) => error instanceof ProblemError && error.code === "validation",
  );
});

test("a lost stream is resumed with its cursor", async () => {
  const asked: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    const number = asked.push(request.headers["last-event-id"] as string | undefined);
    response.write(`event: queue\nid: e-${number}\ndata: {"number":${number}}\n\n`, () => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const lonely = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const events = lonely.events();
  const numbers = [await next(events), await next(events), await next(events)].map((event) => event.data);
  await events.return(undefined as never);
  server.close();
  lonely.close();
  assert.deepEqual(numbers, [{ number: 1 }, { number: 2 }, { number: 3 }]);
  assert.deepEqual(asked, [undefined, "e-1", "e-2"]);
});
