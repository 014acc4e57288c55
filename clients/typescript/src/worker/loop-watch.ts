import { monotonicMs } from "../duration.js";
import type { LeaseKeeper } from "./lease-keeper.js";

const TURN_MS = 100;

/** Notices that the event loop was blocked, and by which handler if it was its first part. */
export class LoopWatch {
  private timer: NodeJS.Timeout | undefined;
  private lastTurn = 0;
  private syncStart = 0;
  private syncNumber = 0;
  /** Types of handlers that have ended since the last turn: one of them may have blocked the loop. */
  private readonly endedTypes = new Set<string>();
  private slowest: { number: number; ms: number } | undefined;

  constructor(
    private readonly keeper: LeaseKeeper,
    private readonly warningMs: number,
    private readonly warn: (ms: number, type: string | undefined, endedTypes: string[]) => void,
  ) {}

  /** Records the start of a handler's synchronous part, and with 0 its end. */
  readonly onSync = (number: number): void => {
    this.keeper.recordHandler(number);
    const now = monotonicMs();
    if (number > 0) {
      this.syncStart = now;
    } else if (now - this.syncStart > (this.slowest?.ms ?? this.warningMs / 2)) {
      this.slowest = { number: this.syncNumber, ms: now - this.syncStart };
    }
    this.syncNumber = number;
  };

  /** Records that a handler has ended. */
  recordEnd(type: string): void {
    this.endedTypes.add(type);
  }

  /** Starts the timer; it also keeps the process alive during a run. */
  start(): void {
    this.lastTurn = monotonicMs();
    this.keeper.recordTurn();
    this.timer = setInterval(() => this.turn(), TURN_MS);
  }

  stop(): void {
    clearInterval(this.timer);
    this.keeper.recordEnd();
  }

  private turn(): void {
    const now = monotonicMs();
    const lag = now - this.lastTurn - TURN_MS;
    this.lastTurn = now;
    this.keeper.recordTurn();
    if (lag > this.warningMs) this.warn(lag, this.keeper.typeOf(this.slowest?.number ?? 0), [...this.endedTypes]);
    this.endedTypes.clear();
    this.slowest = undefined;
  }
}
