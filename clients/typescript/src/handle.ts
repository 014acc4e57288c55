import type { Client, WaitOptions } from "./client.js";
import type { JobDefinition } from "./job.js";
import type { JobRecord, JobState } from "./records.js";

/** Answer to one submission, in wire form. */
export interface Submitted {
  id: string;
  seq: number;
  state: JobState | null;
  duplicate: boolean;
  same_payload?: boolean;
}

/** A submitted job. */
export class JobHandle<Result = unknown> {
  readonly id: string;
  readonly seq: number;
  /** State when it was submitted; null if an idempotency key outlived its job. */
  readonly state: JobState | null;
  /** Whether an earlier job has the same idempotency key. */
  readonly duplicate: boolean;
  /** For a duplicate: whether both payloads are the same. */
  readonly samePayload: boolean | undefined;

  constructor(
    private readonly client: Client,
    private readonly definition: JobDefinition<never, unknown, Result>,
    submitted: Submitted,
  ) {
    this.id = submitted.id;
    this.seq = submitted.seq;
    this.state = submitted.state;
    this.duplicate = submitted.duplicate;
    this.samePayload = submitted.same_payload;
  }

  /** Waits for the end and returns the result; throws a JobEndedError if the job did not complete. */
  async wait(options?: WaitOptions): Promise<Result> {
    return this.definition.parseResult(await this.client.wait(this.id, options));
  }

  /** Reads the job. */
  get(): Promise<JobRecord> {
    return this.client.get(this.id);
  }

  /** Cancels the job. */
  cancel(options?: { reason?: string; force?: boolean }): Promise<JobState> {
    return this.client.cancel(this.id, options);
  }
}
