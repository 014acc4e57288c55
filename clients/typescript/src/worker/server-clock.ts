/** A worker that only waits asks for a new sample after this time, */
const SAMPLE_MS = 45_000;
/** and takes any sample after this one. */
const SAMPLE_MAX_MS = 60_000;
const ASK_MIN_MS = 1_000;

/**
 * Finds when an answer was made, in monotonic milliseconds. A call that was sent at `sentAt` and
 * answered with the server's `now` proves that the server's clock is ahead by at most `now - sentAt`.
 * A long poll proves little by itself: it may have waited for most of its time.
 */
export class ServerClock {
  private bound: number | undefined;
  private sampledAt = 0;
  private askedAt = -Infinity;

  /** Whether the next claim should not wait, so that its answer is a good sample. */
  asksSample(now: number): boolean {
    const isFresh = this.bound !== undefined && now - this.sampledAt <= SAMPLE_MS;
    if (isFresh || now - this.askedAt < ASK_MIN_MS) return false;
    this.askedAt = now;
    return true;
  }

  /** Returns an instant that is not after the answer was made. `isPoll`: the call may have waited. */
  answeredAt(sentAt: number, receivedAt: number, serverNow: number, isPoll: boolean): number {
    const before = this.bound;
    this.add(sentAt, serverNow, isPoll);
    if (before === undefined) return sentAt;
    return Math.min(receivedAt, Math.max(sentAt, serverNow - before));
  }

  private add(sentAt: number, serverNow: number, isPoll: boolean): void {
    const bound = serverNow - sentAt;
    const isOld = sentAt - this.sampledAt > (isPoll ? SAMPLE_MAX_MS : SAMPLE_MS);
    if (this.bound !== undefined && bound > this.bound && !isOld) return;
    this.bound = bound;
    this.sampledAt = sentAt;
  }
}
