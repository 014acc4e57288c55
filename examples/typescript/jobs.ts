import { job } from "longshore";
import { z } from "zod";

/** Checks one link. Shared by the program that submits and the worker. */
export const checkLink = job("link.check", {
  queue: "links",
  payload: z.object({ url: z.url() }),
  result: z.object({ url: z.string(), status: z.int() }),
  executionTimeout: "30s",
  retry: { limit: 4, backoff: { kind: "exponential", base: "10s" } },
});

/** Writes the report after all links of a page have been checked. */
export const reportLinks = job("link.report", {
  queue: "links",
  payload: z.object({ page: z.string() }),
  result: z.object({ page: z.string(), links: z.int(), broken: z.array(z.string()) }),
});
