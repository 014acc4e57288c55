// What the token of this tab may do, from `GET /v1/tokens/self`. The server decides about each call;
// the page only leaves out what would be refused.

import type { Self } from "./types";

type Need = [actions: string[], everything?: boolean];

/** What the calls of the pages need, by their kind; the rest needs `read`. A test asks the server. */
export const NEEDS: Record<string, Need> = {
  "POST queues/*/pause": [["operate"]], "POST queues/*/resume": [["operate"]], "PUT queues/*": [["admin"]], "DELETE queues/*": [["admin"]], "POST queues/*/jobs": [["submit"]],
  "GET queues": [["read", "admin"]], "GET queues/*": [["read", "admin"]],
  "POST jobs/*/submit": [["submit"]], "POST jobs/*/cancel": [["operate"]], "POST jobs/*/requeue": [["operate"]], "POST jobs/*/run-now": [["operate"]], "POST jobs/*/dead-letter": [["operate"]],
  "PATCH jobs/*": [["operate"]], "DELETE jobs/*": [["operate"]], "POST jobs/bulk": [["operate"]],
  "POST operations": [["operate"]], "POST operations/*/stop": [["operate"]], "POST operations/*/continue": [["operate"]], "POST operations/*/undo": [["operate"]],
  "POST workflows/*/cancel": [["operate"]], "POST workflows/*/retry": [["operate"]], "POST workflows/*/close": [["submit"]],
  "GET schedules": [["read", "admin"]], "GET schedules/*": [["read", "admin"]], "PUT schedules/*": [["admin"]], "DELETE schedules/*": [["admin"]], "POST schedules/*/pause": [["operate"]], "POST schedules/*/resume": [["operate"]], "POST schedules/*/trigger": [["submit"]],
  "POST workers/*/quiet": [["operate"], true], "POST workers/*/stop": [["operate"], true], "POST workers/*/resume": [["operate"], true],
  "GET webhooks": [["read", "admin"], true], "GET webhooks/*": [["read", "admin"], true], "PUT webhooks/*": [["admin"], true], "DELETE webhooks/*": [["admin"], true], "POST webhooks/*/rotate": [["admin"], true], "POST webhooks/*/test": [["admin"], true],
  "POST deliveries/*/redeliver": [["operate"]],
  "GET tokens": [["admin"], true], "POST tokens": [["admin"], true], "DELETE tokens/*": [["admin"], true], "GET audit": [["admin"], true],
  "POST clock/advance": [["admin"], true],
};

/** The kind of a call: its path without names and ids. */
export function callKind(method: string, path: string): string {
  const parts = (path.split("?")[0] ?? "").replace(/^\/?v1\//, "").split("/");
  return `${method} ${parts.map((part, index) => (index % 2 === 1 && part !== "bulk" && part !== "groups" && part !== "advance" ? "*" : part)).join("/")}`;
}

/** Whether a token may make a call of a kind. */
export function isAllowed(self: Self, kind: string): boolean {
  const [actions, needsEverything] = NEEDS[kind] ?? [["read"]];
  return actions.some((action) => self.actions.includes(action)) && (!needsEverything || self.queues.includes("*"));
}
