// A server, a proxy and a browser for one file of tests.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Browser, Page } from "playwright-core";
import { startBrowser, startProxy, startServer, type ProxyOptions, type Running } from "./support";

export interface Harness { server: Running; url: string; browser: Browser; open: (path: string, options?: { width?: number; dark?: boolean; scale?: number }) => Promise<Page>; failures: string[]; /** Token that new pages have. */ token: string | null; stop: () => Promise<void> }

/** Starts everything. Dialogs, errors of pages and refused content are collected in `failures`. */
export function start(...options: string[]): Promise<Harness> {
  return startWith({}, ...options);
}

export async function startWith(proxyOptions: ProxyOptions, ...options: string[]): Promise<Harness> {
  const server = await startServer(...options);
  const proxy = await startProxy(server.url, proxyOptions);
  const browser = await startBrowser();
  const failures: string[] = [];
  const open = async (path: string, { width = 1440, dark = false, scale = 1 } = {}) => {
    const page = await browser.newPage({ viewport: { width, height: width < 500 ? 844 : 900 }, colorScheme: dark ? "dark" : "light", reducedMotion: "reduce", deviceScaleFactor: scale });
    page.on("pageerror", (error) => failures.push(`error: ${error.message}`));
    page.on("dialog", (dialog) => (failures.push(`dialog: ${dialog.message()}`), void dialog.dismiss()));
    page.on("console", (message) => /Content Security Policy|Refused to/.test(message.text()) && failures.push(message.text()));
    page.setDefaultTimeout(8_000);
    if (harness.token) await page.addInitScript((value) => sessionStorage.setItem("longshore.token", value), harness.token);
    await page.goto(`${proxy.url}#/${path}`);
    return page;
  };
  const harness: Harness = { server, url: proxy.url, browser, open, failures, token: null, stop: async () => { await browser.close(); await proxy.stop(); await server.stop(); } };
  return harness;
}

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Finding { id: string; nodes: { target: string[]; failureSummary: string }[] }

/** Returns what axe-core finds on the page. */
export async function accessibilityProblems(page: Page, name: string): Promise<string[]> {
  await page.evaluate(axeSource);
  const found = (await page.evaluate(`axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"], rules: { region: { enabled: false } } }).then((result) => result.violations)`)) as Finding[];
  return found.map((item) => `${name}: ${item.id}: ${item.nodes.slice(0, 3).map((node) => `${node.target.join(" ")} ${node.failureSummary.split("\n").slice(1, 3).join(" ")}`).join("; ")}`);
}

/** Returns problems if the page is wider than its window, or one of its tables than its card. */
export async function widthProblems(page: Page, name: string): Promise<string[]> {
  const [content, window] = (await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")) as [number, number];
  const cut = (await page.evaluate('[...document.querySelectorAll(".scroll-x:not(:has(.attempts-table))")].filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.scrollWidth)')) as number[];
  return [...(content <= window ? [] : [`${name}: ${content} px wide in ${window}`]), ...cut.map((width) => `${name}: a table of ${width} px is cut`)];
}
