/** The conformance program of this SDK: see sdk-conformance/README.md. */

import { setTimeout as sleep } from "node:timers/promises";

import { Client, Worker, job, permanent, release, snooze, stderrLogger, temporary } from "longshore";
import { z } from "zod";

const { env } = process;
const queue = env["CONFORMANCE_QUEUE"] ?? "default";
const client = new Client(env["LONGSHORE_URL"] ?? {});

function print(line: Record<string, unknown>): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

interface Seconds {
  seconds: number;
}
interface Failing {
  category: "temporary" | "permanent";
  code: string;
  retry_after?: number;
}

const noop = job<unknown>("noop", { queue });
const typed = job("typed", { queue, payload: z.object({ n: z.int() }) });
const sleeper = job<Seconds>("sleep", { queue });
const deaf = job<Seconds>("deaf", { queue });
const block = job<Seconds>("block", { queue });
const snoozing = job("snooze", { queue });
const releasing = job("release", { queue });
const checkpointing = job("checkpoint", { queue });
const failing = job<Failing>("fail", { queue });

async function work(): Promise<void> {
  const seen = new Set<string>();
  const isFirstRun = (id: string) => !seen.has(id) && seen.add(id) !== undefined;
  const worker = new Worker(client, {
    name: env["CONFORMANCE_WORKER"] ?? "conformance",
    slots: Number(env["CONFORMANCE_SLOTS"] ?? 4),
    grace: Number(env["CONFORMANCE_GRACE"] ?? 20),
    abandonAfter: Number(env["CONFORMANCE_STUCK_GRACE"] ?? 5),
    logger: stderrLogger("debug"),
  })
    .use((ctx, next) => {
      if (ctx.type !== "noop") print({ event: "start", id: ctx.id, type: ctx.type, attempt: ctx.attempt });
      return next();
    })
    .on(noop, () => ({ ok: true }))
    .on(typed, (_ctx, { n }) => ({ n }))
    .on(sleeper, async (ctx, { seconds }) => {
      try {
        await sleep(seconds * 1_000, undefined, { signal: ctx.signal });
      } catch (error) {
        print({ event: "cancelled", id: ctx.id, reason: ctx.abortCode });
        throw error;
      }
      return { attempt: ctx.attempt };
    })
    .on(deaf, async (_ctx, { seconds }) => {
      await sleep(seconds * 1_000, undefined, { ref: false });
      return null;
    })
    .on(block, (ctx, { seconds }) => {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, seconds * 1_000);
      return { attempt: ctx.attempt };
    })
    .on(snoozing, (ctx) => (isFirstRun(ctx.id) ? snooze("100ms") : { attempt: ctx.attempt }))
    .on(releasing, (ctx) => (isFirstRun(ctx.id) ? release() : { attempt: ctx.attempt }))
    .on(checkpointing, async (ctx) => {
      if (ctx.checkpoint !== undefined) return { from: ctx.checkpoint };
      await ctx.saveCheckpoint({ at: 5 });
      print({ event: "checkpointed", id: ctx.id });
      await sleep(600_000, undefined, { signal: ctx.signal });
      return null;
    })
    .on(failing, (_ctx, { category, code, retry_after: retryAfter }) => {
      if (category === "permanent") return permanent(code);
      return temporary(code, retryAfter === undefined ? { code } : { code, retryAfter });
    });
  print({ event: "ready" });
  print({ event: "report", ...(await worker.run({ signals: true })) });
}

if (process.argv[2] === "submit") {
  const { id } = await client.submit(noop, { n: 1 });
  print({ event: "submitted", id });
} else {
  await work();
}
client.close();
