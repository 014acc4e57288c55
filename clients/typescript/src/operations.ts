import type { NewJob } from "./job.js";
import type {
  AttemptRecord,
  DeliveryRecord,
  HistoryRecord,
  JobState,
  WebhookRecord,
  WhyRecord,
  WorkerRecord,
} from "./records.js";
import { toCamelCase, toSnakeCase } from "./records.js";
import { scheduleToWire } from "./schedule.js";
import type { ScheduleOptions, ScheduleRecord, TickRecord } from "./schedule.js";
import type { HttpRequest } from "./transport.js";

/** Options of one request. */
export interface CallOptions {
  body?: unknown;
  /** Whether it may be sent again after a lost answer. Absent: true for GET, PUT and DELETE. */
  isRepeatable?: boolean;
  timeoutMs?: number;
  signal?: AbortSignal | undefined;
  /** Time in which it is repeated. Absent: the client's `retryFor`. */
  retryForMs?: number;
}

const PAGE_MAX = 1_000;

/** Returns a path of the API. Names may have any character. */
function pathOf(...parts: string[]): string {
  return `/v1/${parts.map(encodeURIComponent).join("/")}`;
}

/** The calls of a client about workers, queues, schedules and webhooks, and why a job does not run. */
export abstract class Operations {
  /** Sends one request of the HTTP API and returns the parsed answer. */
  abstract call(method: HttpRequest["method"], path: string, options?: CallOptions): Promise<unknown>;
  /** Returns the job to send for a new job. */
  abstract prepare<R>(job: NewJob<R>): NewJob<R>;

  /** Returns why a job does not run, and how many jobs are before it. */
  async why(id: string): Promise<WhyRecord> {
    return toCamelCase(await this.call("GET", pathOf("jobs", id, "why")));
  }

  /** Returns the attempts of a job, oldest first. */
  async attempts(id: string): Promise<AttemptRecord[]> {
    return toCamelCase<{ attempts: AttemptRecord[] }>(await this.call("GET", pathOf("jobs", id, "attempts"))).attempts;
  }

  /** Returns the changes of state of a job, oldest first. */
  async history(id: string): Promise<HistoryRecord[]> {
    return toCamelCase<{ history: HistoryRecord[] }>(await this.call("GET", pathOf("jobs", id, "history"))).history;
  }

  /** Moves a job to the dead letters. */
  async deadLetter(id: string, options: { reason?: string } = {}): Promise<JobState> {
    return ((await this.call("POST", pathOf("jobs", id, "dead-letter"), { body: options })) as { state: JobState }).state;
  }

  /** Returns the workers that the server has seen lately. */
  async listWorkers(): Promise<WorkerRecord[]> {
    return toCamelCase<{ workers: WorkerRecord[] }>(await this.call("GET", "/v1/workers")).workers;
  }

  /** Makes a worker claim nothing, end, or claim again. */
  async directWorker(name: string, directive: "quiet" | "stop" | "resume"): Promise<void> {
    await this.call("POST", pathOf("workers", name, directive), { body: {} });
  }

  /** Stops claims of a queue. Submissions go on. */
  async pauseQueue(name: string): Promise<void> {
    await this.call("POST", pathOf("queues", name, "pause"), { body: {} });
  }

  /** Ends the pause of a queue. */
  async resumeQueue(name: string): Promise<void> {
    await this.call("POST", pathOf("queues", name, "resume"), { body: {} });
  }

  /** Creates or replaces a schedule that submits a job. An equal one changes nothing. */
  async putSchedule(name: string, options: ScheduleOptions, job: NewJob<any>): Promise<ScheduleRecord> {
    // A trace belongs to one submission: `beforeSubmit` adds none to a schedule.
    const prepared = this.prepare(job).withFields({ traceparent: job.fields["traceparent"] as string | undefined });
    await prepared.check();
    const body = scheduleToWire(name, options, prepared);
    return toCamelCase(await this.call("PUT", pathOf("schedules", name), { body }));
  }

  /** Returns a schedule, with the next ten times at which it is due. */
  async getSchedule(name: string): Promise<ScheduleRecord> {
    return toCamelCase(await this.call("GET", pathOf("schedules", name)));
  }

  /** Returns all schedules by name. */
  async listSchedules(): Promise<ScheduleRecord[]> {
    const found: ScheduleRecord[] = [];
    let cursor: string | null = "";
    while (cursor !== null) {
      const query: string = cursor === "" ? "" : `&cursor=${encodeURIComponent(cursor)}`;
      const answer = await this.call("GET", `/v1/schedules?limit=${PAGE_MAX}${query}`);
      const page = toCamelCase<{ schedules: ScheduleRecord[]; next: string | null }>(answer);
      found.push(...page.schedules);
      cursor = page.next;
    }
    return found;
  }

  /** Drops the ticks of a schedule until it is resumed. */
  async pauseSchedule(name: string, options: { note?: string } = {}): Promise<ScheduleRecord> {
    return toCamelCase(await this.call("POST", pathOf("schedules", name, "pause"), { body: options }));
  }

  /** Ends the pause of a schedule. */
  async resumeSchedule(name: string): Promise<ScheduleRecord> {
    return toCamelCase(await this.call("POST", pathOf("schedules", name, "resume"), { body: {} }));
  }

  /** Submits the job of a schedule now, also while it is paused. Returns the id of the job. */
  async triggerSchedule(name: string): Promise<string> {
    return ((await this.call("POST", pathOf("schedules", name, "trigger"), { body: {} })) as { id: string }).id;
  }

  /** Returns the last 100 ticks of a schedule, newest first. */
  async scheduleTicks(name: string): Promise<TickRecord[]> {
    return toCamelCase<{ ticks: TickRecord[] }>(await this.call("GET", pathOf("schedules", name, "ticks"))).ticks;
  }

  /** Deletes a schedule. Its jobs stay. */
  async deleteSchedule(name: string): Promise<void> {
    await this.call("DELETE", pathOf("schedules", name));
  }

  /** Creates or changes a queue. `settings` has the names of the API, in snake or camel case. */
  async putQueue(name: string, options: { profile?: string; settings?: object } = {}): Promise<unknown> {
    return this.call("PUT", pathOf("queues", name), { body: toSnakeCase(options) });
  }

  /** Creates or replaces a webhook endpoint. The answer that creates it has its secret. */
  async putWebhook(
    name: string,
    options: { url: string; events?: string[]; queues?: string[]; enabled?: boolean },
  ): Promise<WebhookRecord> {
    return (await this.call("PUT", pathOf("webhooks", name), { body: options })) as WebhookRecord;
  }

  /** Returns a webhook endpoint, without its secret. */
  async getWebhook(name: string): Promise<WebhookRecord> {
    return (await this.call("GET", pathOf("webhooks", name))) as WebhookRecord;
  }

  /** Returns the webhook endpoints by name. */
  async listWebhooks(): Promise<WebhookRecord[]> {
    return ((await this.call("GET", "/v1/webhooks")) as { webhooks: WebhookRecord[] }).webhooks;
  }

  /** Deletes a webhook endpoint. Its pending deliveries fail. */
  async deleteWebhook(name: string): Promise<void> {
    await this.call("DELETE", pathOf("webhooks", name));
  }

  /** Gives an endpoint a new secret. The old one signs too for 24 hours. */
  async rotateWebhook(name: string): Promise<WebhookRecord> {
    return (await this.call("POST", `${pathOf("webhooks", name)}/rotate`, { body: {} })) as WebhookRecord;
  }

  /** Sends `webhook.test` to an endpoint, once. */
  async testWebhook(name: string): Promise<DeliveryRecord> {
    return (await this.call("POST", `${pathOf("webhooks", name)}/test`, { body: {} })) as DeliveryRecord;
  }

  /** Returns deliveries to an endpoint, newest first. */
  async webhookDeliveries(name: string, options: { limit?: number } = {}): Promise<DeliveryRecord[]> {
    const path = `${pathOf("webhooks", name)}/deliveries?limit=${options.limit ?? 100}`;
    return ((await this.call("GET", path)) as { deliveries: DeliveryRecord[] }).deliveries;
  }

  /** Returns deliveries about a job, oldest first. */
  async jobDeliveries(id: string): Promise<DeliveryRecord[]> {
    const path = pathOf("jobs", id, "deliveries");
    return ((await this.call("GET", path)) as { deliveries: DeliveryRecord[] }).deliveries;
  }

  /** Attempts a delivery again, with the same `webhook-id`. */
  async redeliver(id: string): Promise<DeliveryRecord> {
    const path = pathOf("deliveries", id, "redeliver");
    return (await this.call("POST", path, { body: {} })) as DeliveryRecord;
  }
}
