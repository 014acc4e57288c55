import { pathToFileURL } from "node:url";

import { Client } from "longshore";

import { checkLink, reportLinks } from "./jobs.js";

/** Submits a check for each link of a page, and the report after all of them. Returns the report's id. */
export async function submitPage(client: Client, page: string, html: string): Promise<string> {
  const links = [...html.matchAll(/href="(https?:[^"]+)"/g)].map((match) => match[1]!);
  const group = [...new Set(links)].map((url) => checkLink.with({ url }, { tags: { page } }));
  const flow = await client.submitWorkflow(
    { chord: { group, finally: reportLinks.with({ page }, { ref: "report" }) } },
    { name: page },
  );
  return flow.jobs["report"]!;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const [page] = process.argv.slice(2);
  if (page === undefined) throw new Error("usage: submit.js URL");
  const client = new Client();
  const report = await submitPage(client, new URL(page).hostname, await (await fetch(page)).text());
  console.log(await client.wait(report, { timeout: "10m" }));
  client.close();
}
