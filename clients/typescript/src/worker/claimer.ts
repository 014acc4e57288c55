import { fromMilliseconds, monotonicMs } from "../duration.js";
import { ConnectionError, ProblemError } from "../errors.js";
import { parseJson } from "../json.js";
import type { Transport } from "../transport.js";
import type { ClaimAnswer, Verdict } from "./claimed.js";
import { AnswerText, HeldJob } from "./held-job.js";
import type { Pool } from "./pool.js";
import { ServerClock } from "./server-clock.js";

const LIMIT_MAX = 1_000;
const REQUEST_MS = 30_000;

/** The fields of every claim of a worker. */
export interface ClaimOptions {
  worker: string;
  /** Lease instead of the setting of the jobs, in wire form. */
  lease: string | undefined;
  /** Version of the worker's program, for people. */
  version: string | undefined;
}

/** Jobs that a claim brought, and the directive of the server. */
export interface Claimed {
  jobs: HeldJob[];
  answer: ClaimAnswer;
}

/** Sends claims and settlements, in one request where the server can. */
export class Claimer {
  private readonly clock = new ServerClock();
  private canSettleInClaim = true;
  private canSendVersion = true;

  constructor(
    private readonly transport: Transport,
    private readonly options: ClaimOptions,
  ) {}

  /** Claims jobs for a pool; waits up to `waitMs` for the first one, or until `hangup` aborts. */
  async claim(pool: Pool, waitMs: number, hangup?: AbortSignal): Promise<Claimed> {
    const wait = this.clock.asksSample(monotonicMs()) ? 0 : waitMs;
    return this.send(pool, Math.min(pool.free(), LIMIT_MAX), wait, undefined, hangup);
  }

  /** Sends settlements; claims jobs for `pool` with the same request. */
  async settle(texts: string[], pool: Pool | undefined, accept: (claimed: Claimed) => void): Promise<Verdict[]> {
    if (pool !== undefined && this.canSettleInClaim) {
      try {
        const claimed = await this.send(pool, Math.min(pool.free(), LIMIT_MAX), 0, texts);
        accept(claimed);
        return verdictsOf(claimed.answer.results, texts.length);
      } catch (error) {
        if (!(error instanceof ProblemError) || error.retry !== "never") throw error;
        // An older server has no settlements in claims. Other refusals concern the claim alone.
        if (error.field === "settle") this.canSettleInClaim = false;
      }
    }
    const body = `{"settlements":[${texts.join(",")}]}`;
    const answer = await this.transport.send({ method: "POST", path: "/v1/settlements", body, timeoutMs: REQUEST_MS });
    return verdictsOf(readJson<{ results?: Verdict[] } | null>(answer.text, JSON.parse)?.results, texts.length);
  }

  private async send(
    pool: Pool,
    limit: number,
    waitMs: number,
    texts?: string[],
    hangup?: AbortSignal,
  ): Promise<Claimed> {
    const { worker, lease, version } = this.options;
    const fields: Record<string, unknown> = { queues: pool.queues, worker, limit, types: pool.types };
    if (waitMs > 0) fields["wait"] = fromMilliseconds(waitMs);
    if (lease !== undefined) fields["lease"] = lease;
    if (version !== undefined && this.canSendVersion) fields["version"] = version;
    const plain = JSON.stringify(fields);
    const body = texts === undefined ? plain : `${plain.slice(0, -1)},"settle":[${texts.join(",")}]}`;
    const sentAt = monotonicMs();
    pool.reserved += limit;
    try {
      const answer = await this.transport.send({
        method: "POST",
        path: "/v1/claims",
        body,
        timeoutMs: waitMs + REQUEST_MS,
        hangup,
      });
      return this.read(answer.text, sentAt, waitMs > 0);
    } catch (error) {
      if (!(error instanceof ProblemError) || error.field !== "version" || !this.canSendVersion) throw error;
      this.canSendVersion = false;
    } finally {
      pool.reserved -= limit;
    }
    return this.send(pool, limit, waitMs, texts, hangup);
  }

  private read(text: string, sentAt: number, isPoll: boolean): Claimed {
    const answer = readJson<ClaimAnswer>(text, parseJson);
    if (!Array.isArray(answer?.jobs)) throw foreignAnswer("jobs");
    const serverNow = Date.parse(answer.now);
    const claimedAt = this.clock.answeredAt(sentAt, monotonicMs(), serverNow, isPoll);
    const answerText = new AnswerText(text);
    const jobs = answer.jobs.map((job, index) => new HeldJob(job, claimedAt, serverNow, answerText, index));
    return { jobs, answer };
  }
}

/** Returns the verdicts of an answer. One without them comes from a proxy: the outcomes are sent again. */
function verdictsOf(results: Verdict[] | undefined, count: number): Verdict[] {
  if (Array.isArray(results) && results.length === count) return results;
  throw foreignAnswer(`verdicts of ${count} outcomes`);
}

function foreignAnswer(missing: string): ConnectionError {
  return new ConnectionError(`the answer has no ${missing} (is a proxy in between?)`, "unknown");
}

/** Reads an answer. One that is no JSON comes from a proxy: the server may have seen the request. */
function readJson<T>(text: string, parse: (text: string) => unknown): T {
  try {
    return parse(text) as T;
  } catch (cause) {
    throw new ConnectionError("the answer is not JSON: it does not come from a Longshore server", "unknown", { cause });
  }
}
