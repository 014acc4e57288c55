/**
 * Drains no-op jobs with one worker against one server on the same machine, and prints jobs per
 * second. JOBS (50,000), SLOTS (200), STORE (memory or a directory) change the run.
 */

import { Client, Worker, job, silentLogger } from "longshore";
import { TestServer } from "longshore/testing";

const jobs = Number(process.env["JOBS"] ?? 50_000);
const slots = Number(process.env["SLOTS"] ?? 200);
const store = process.env["STORE"] ?? "memory";

const noop = job<{ n: number }, void>("bench.noop", { queue: "bench" });

await using server = await TestServer.start({ virtualClock: false, ...(store === "memory" ? {} : { data: store }) });
const client = new Client(server.url);

const submitStart = performance.now();
await client.submitMany(Array.from({ length: jobs }, (_, n) => noop.with({ n })));
const submitSeconds = (performance.now() - submitStart) / 1_000;

let runs = 0;
const worker = new Worker(client, { slots, logger: silentLogger }).on(noop, async () => {
  runs += 1;
});
const drainStart = performance.now();
const report = await worker.runUntilIdle();
const drainSeconds = (performance.now() - drainStart) / 1_000;
await worker[Symbol.asyncDispose]();

console.log(
  JSON.stringify({
    jobs,
    slots,
    store,
    runs,
    completed: report.completed,
    submitted_per_second: Math.round(jobs / submitSeconds),
    drained_per_second: Math.round(jobs / drainSeconds),
  }),
);
