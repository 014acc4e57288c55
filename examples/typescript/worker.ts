import { pathToFileURL } from "node:url";

import { Client, Worker, permanent, temporary } from "longshore";

import { checkLink, reportLinks } from "./jobs.js";

/** What a check stores: a broken link is a result, not a failure of the job. */
interface Checked {
  url: string;
  status: number;
}

/** Returns the worker of the link checker. */
export function linkWorker(client: Client): Worker {
  return new Worker(client, { slots: 20, grace: "20s" })
    .use(async (ctx, next) => {
      const start = performance.now();
      const outcome = await next();
      ctx.log.info(outcome.kind, { ms: Math.round(performance.now() - start) });
      return outcome;
    })
    .on(checkLink, async (ctx, { url }) => {
      const response = await fetch(url, { method: "HEAD", signal: ctx.signal, redirect: "follow" });
      const { status } = response;
      if (status === 429) return temporary("too many requests", { code: "http_429", retryAfter: waitOf(response) });
      // The site may recover: the last attempt takes its answer as it is.
      if (status >= 500 && !ctx.isLastAttempt) return temporary(`status ${status}`, { code: `http_${status}` });
      return { url, status };
    })
    .on(reportLinks, async (ctx, { page }) => {
      const checked = (await ctx.inputs()).map((input) => input.result as Checked);
      if (checked.length === 0) return permanent("no_links", `${page} has no links`);
      const broken = checked.filter((link) => link.status >= 400).map((link) => `${link.status} ${link.url}`);
      return { page, links: checked.length, broken };
    });
}

function waitOf(response: Response): number {
  const seconds = Number(response.headers.get("retry-after"));
  return Number.isFinite(seconds) && seconds > 0 ? seconds : 60;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  await linkWorker(new Client()).run({ signals: true });
}
