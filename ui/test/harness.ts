// A server, a proxy and a browser for one file of tests.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Browser, Page } from "playwright-core";
import { expect } from "vitest";
import { startBrowser, startProxy, startServer, type Running } from "./support";

export interface Harness { server: Running; url: string; browser: Browser; open: (path: string, options?: { width?: number; dark?: boolean }) => Promise<Page>; troubles: string[]; stop: () => Promise<void> }

/** Starts everything. Dialogs, errors of pages and refused content are collected in `troubles`. */
export async function start(...options: string[]): Promise<Harness> {
  const server = await startServer(...options);
  const proxy = await startProxy(server.url);
  const browser = await startBrowser();
  const troubles: string[] = [];
  const open = async (path: string, { width = 1440, dark = false } = {}) => {
    const page = await browser.newPage({ viewport: { width, height: width < 500 ? 844 : 900 }, colorScheme: dark ? "dark" : "light", reducedMotion: "reduce" });
    page.on("pageerror", (error) => troubles.push(`error: ${error.message}`));
    page.on("dialog", (dialog) => (troubles.push(`dialog: ${dialog.message()}`), void dialog.dismiss()));
    page.on("console", (message) => /Content Security Policy|Refused to/.test(message.text()) && troubles.push(message.text()));
    page.setDefaultTimeout(8_000);
    await page.goto(`${proxy.url}#/${path}`);
    return page;
  };
  return { server, url: proxy.url, browser, open, troubles, stop: async () => { await browser.close(); await proxy.stop(); await server.stop(); } };
}

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Finding { id: string; nodes: { target: string[]; failureSummary: string }[] }

/** Checks the page with axe-core. */
export async function checkAccessibility(page: Page, name: string): Promise<void> {
  await page.evaluate(axeSource);
  const found = (await page.evaluate(`axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"], rules: { region: { enabled: false } } }).then((result) => result.violations)`)) as Finding[];
  const text = found.map((item) => `${item.id}: ${item.nodes.slice(0, 3).map((node) => `${node.target.join(" ")} ${node.failureSummary.split("\n").slice(1, 3).join(" ")}`).join("; ")}`);
  expect(text, name).toEqual([]);
}

/** The text of the page is at most as wide as the window. */
export async function checkWidth(page: Page, name: string): Promise<void> {
  const [content, window] = (await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")) as [number, number];
  expect(content, name).toBeLessThanOrEqual(window);
}
