/** The test of the example application: a retrying handler, in virtual time. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { TestQueue } from "longshore/testing";

import { checkLink } from "../examples/link-checker/jobs.js";
import { submitPage } from "../examples/link-checker/submit.js";
import { linkWorker } from "../examples/link-checker/worker.js";

/** A site whose paths answer with the statuses of a list, the last one again and again. */
async function site(answers: Record<string, number[]>): Promise<{ url: string; close: () => void }> {
  const server = createServer((request, response) => {
    const left = answers[request.url ?? ""] ?? [404];
    response.writeHead(left.length > 1 ? left.shift()! : left[0]!, { "retry-after": "3600" }).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
}

test("links are retried, then reported", async () => {
  await using queue = await TestQueue.start();
  const { url, close } = await site({ "/good": [200], "/flaky": [503, 429, 200], "/down": [500] });
  const html = ["good", "flaky", "down", "gone"].map((path) => `<a href="${url}/${path}">`).join("");
  const report = await submitPage(queue.client, "home", html);
  const start = await queue.now();
  await queue.drain(linkWorker(queue.client), { upTo: "1d" });
  assert.deepEqual(await queue.client.wait(report), {
    page: "home",
    links: 4,
    broken: [`500 ${url}/down`, `404 ${url}/gone`],
  });
  assert.ok((await queue.now()).getTime() - start.getTime() > 3_600_000, "an hour of virtual time has passed");
  const attempts = (await queue.submitted(checkLink)).map((job) => job.attempt);
  assert.deepEqual(attempts, [1, 3, 4, 1]);
  close();
});
