/** Longest round trip whose observation of the server's clock is kept. */
const ROUND_TRIP_MAX_MS = 250;

/**
 * Finds when an answer was made. For a plain request that is not before it was sent. A claim that
 * waited was answered later than it was sent: the offset of the server's clock says when.
 */
export class ServerClock {
  private offset: number | undefined;

  /** Returns a monotonic instant, in milliseconds, that is not after the answer was made. */
  answeredAt(sentAt: number, receivedAt: number, serverNow: number): number {
    const isShort = receivedAt - sentAt <= ROUND_TRIP_MAX_MS;
    if (isShort) this.offset = serverNow - sentAt;
    if (isShort || this.offset === undefined) return sentAt;
    return Math.min(receivedAt, Math.max(sentAt, serverNow - this.offset));
  }
}
