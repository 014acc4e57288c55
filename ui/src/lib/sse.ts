// Server-sent events over fetch: EventSource cannot send the header Authorization.

export interface ServerEvent { event: string; id: string | null; data: string }

/** Splits a stream of text into events. Keeps what is incomplete for the next chunk. */
export class EventParser {
  private rest = "";
  private event = "";
  private data: string[] = [];
  /** Id of the last event: the value for `Last-Event-ID`. */
  lastId: string | null = null;

  push(chunk: string): ServerEvent[] {
    const found: ServerEvent[] = [];
    const text = this.rest + chunk;
    const lines = text.split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) this.line(line, found);
    return found;
  }

  private line(line: string, found: ServerEvent[]): void {
    if (line === "") {
      if (this.data.length) found.push({ event: this.event || "message", id: this.lastId, data: this.data.join("\n") });
      this.event = "";
      this.data = [];
      return;
    }
    if (line.startsWith(":")) return;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.event = value;
    else if (field === "data") this.data.push(value);
    else if (field === "id" && !value.includes("\0")) this.lastId = value;
  }
}
