// What needs attention, as the server lists it.

import { get } from "./api";
import { useResource, type Resource } from "./resource";
import type { AttentionItem } from "./types";

/** The list, read again after each live update. */
export function useAttention(): Resource<{ items: AttentionItem[] }> {
  return useResource<{ items: AttentionItem[] }>("attention", () => get("v1/attention"));
}

/** Queues of which a type, or all, has no worker. */
export function withoutWorker(items: AttentionItem[]): Set<string> {
  return new Set(items.filter((item) => item.code === "no_worker" && item.queue !== null).map((item) => item.queue!));
}
