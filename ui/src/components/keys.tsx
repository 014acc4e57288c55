// Keyboard: shortcuts of every page, and the list of them.

import { paused, setPaused } from "../lib/live";
import { link, open } from "../lib/router";
import { overlay, question, toggleTheme } from "../lib/ui";
import { t } from "../strings";
import { Modal } from "./dialog";

const GO: Record<string, string> = { o: "overview", q: "queues", j: "jobs", d: "dead-letters", w: "workflows", s: "schedules", k: "workers", y: "types", h: "webhooks", b: "operations", t: "tokens", m: "system" };
let waitsForPage = 0;

/** Whether a key press belongs to a text field. */
export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement | null;
  return !!target?.closest("input:not([type='checkbox']),textarea,select,[contenteditable]");
}

function onKeyDown(event: KeyboardEvent): void {
  if (event.key === "k" && (event.metaKey || event.ctrlKey)) {
    event.preventDefault();
    overlay.value = "palette";
    return;
  }
  if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event)) return;
  if (event.key === "Escape") overlay.value = null;
  if (overlay.value || question.value || document.querySelector("[role=dialog]")) return;
  if (Date.now() - waitsForPage < 1_500) {
    waitsForPage = 0;
    const page = GO[event.key];
    if (page) (event.preventDefault(), open(link([page])));
    return;
  }
  const run: Record<string, () => void> = {
    "/": () => (overlay.value = "palette"), "?": () => (overlay.value = "keys"), g: () => (waitsForPage = Date.now()), n: () => open(link(["submit"])), p: () => setPaused(!paused.value), t: toggleTheme,
  };
  const act = run[event.key];
  if (act) (event.preventDefault(), act());
}

export function startKeys(): void {
  document.addEventListener("keydown", onKeyDown);
}

const LIST: [string[], string][] = [
  [["/"], t.keys.search], [["?"], t.keys.help], [["n"], t.keys.submit], [["p"], t.keys.pause], [["t"], t.keys.theme], [["j"], t.keys.next], [["k"], t.keys.previous], [["x"], t.keys.select], [["↵"], t.keys.open], [["Esc"], t.keys.close],
];
const PAGES: [string, string][] = [["o", t.nav.overview], ["q", t.nav.queues], ["j", t.nav.jobs], ["d", t.nav.deadLetters], ["w", t.nav.workflows], ["s", t.nav.schedules], ["k", t.nav.workers], ["y", t.nav.types], ["b", t.nav.operations], ["h", t.nav.webhooks], ["t", t.nav.tokens], ["m", t.nav.system]];

export function KeysDialog() {
  if (overlay.value !== "keys") return null;
  return (
    <Modal label={t.keys.title} close={() => (overlay.value = null)} class="dialog keys-dialog">
      <h2>{t.keys.title}</h2>
      <div class="keys-cols">
        <ul>{LIST.map(([keys, text]) => <li key={text}><span>{text}</span><span>{keys.map((key) => <kbd key={key}>{key}</kbd>)}</span></li>)}</ul>
        <ul>{PAGES.map(([key, text]) => <li key={text}><span>{text}</span><span><kbd>g</kbd><kbd>{key}</kbd></span></li>)}</ul>
      </div>
      <div class="acts"><button class="btn" type="button" onClick={() => (overlay.value = null)} data-autofocus>{t.common.close}</button></div>
    </Modal>
  );
}
