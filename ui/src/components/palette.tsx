// The command palette: pages, queues, workers, saved views, a job by its id.

import { useEffect, useMemo, useState } from "preact/hooks";
import { mayOffer, post, segment } from "../lib/api";
import { queues, workers } from "../lib/app";
import { refresh } from "../lib/live";
import { link, open } from "../lib/router";
import { overlay, toast } from "../lib/ui";
import { savedViews, viewLink } from "../lib/views";
import { t } from "../strings";
import { Icon } from "./basic";
import { errorText, Modal } from "./dialog";
import { ADMIN, PLACES } from "./shell";

interface Item { group: string; icon: string; text: string; strong?: string; hint?: string; run: () => void }

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

function act(path: string, done: string): void {
  post(path).then(() => (toast(done), refresh()), (error: unknown) => toast(errorText(error), "error"));
}

/** All items that match a text, best groups first. */
function find(text: string): Item[] {
  const wanted = text.trim().toLowerCase();
  const has = (value: string) => !wanted || wanted.split(/\s+/).every((part) => value.toLowerCase().includes(part));
  const items: Item[] = [];
  if (UUID.test(wanted)) items.push({ group: t.palette.jobsGroup, icon: "jobs", text: t.palette.openJob(wanted), run: () => open(link(["jobs", wanted])) });
  const may = mayOffer("POST", "v1/queues/q/pause");
  for (const queue of queues.value ?? []) {
    if (!may || !wanted) break;
    const verb = queue.paused ? t.palette.resumeQueue : t.palette.pauseQueue;
    if (has(`${verb} ${queue.name}`)) {
      const path = `v1/queues/${segment(queue.name)}/${queue.paused ? "resume" : "pause"}`;
      items.push({ group: t.palette.actions, icon: queue.paused ? "play" : "pause", text: verb, strong: queue.name, run: () => act(path, queue.paused ? t.queues.resumedDone(queue.name) : t.queues.pausedDone(queue.name)) });
    }
  }
  if (has(t.jobsPage.submit)) items.push({ group: t.palette.actions, icon: "plus", text: t.jobsPage.submit, hint: "n", run: () => open(link(["submit"])) });
  for (const place of [...PLACES, ...ADMIN]) if (has(place.name)) items.push({ group: t.palette.go, icon: place.icon, text: place.name, run: () => open(link([place.id])) });
  for (const queue of queues.value ?? []) if (has(`${t.palette.queue} ${queue.name}`)) items.push({ group: t.palette.go, icon: "queues", text: t.palette.queue, strong: queue.name, hint: t.palette.waiting(queue.counts.scheduled ?? 0), run: () => open(link(["queues", queue.name])) });
  for (const worker of wanted ? workers.value ?? [] : []) if (has(`${t.palette.worker} ${worker.name}`)) items.push({ group: t.palette.go, icon: "workers", text: t.palette.worker, strong: worker.name, run: () => open(link(["workers"], { worker: worker.name })) });
  for (const view of savedViews.value) if (has(view.name)) items.push({ group: t.palette.views, icon: "bookmark", text: view.name, run: () => open(viewLink(view)) });
  if (wanted && !/\s/.test(wanted) && !UUID.test(wanted)) {
    items.push({ group: t.palette.jobsGroup, icon: "types", text: t.palette.byType(text.trim()), run: () => open(link(["jobs"], { type: text.trim() })) });
    items.push({ group: t.palette.jobsGroup, icon: "jobs", text: t.palette.byTag(text.trim()), run: () => open(link(["jobs"], { tag: text.trim() })) });
  }
  return items.slice(0, 24);
}

export function Palette() {
  if (overlay.value !== "palette") return null;
  return <PaletteDialog />;
}

function PaletteDialog() {
  const [text, setText] = useState("");
  const [index, setIndex] = useState(0);
  const items = useMemo(() => find(text), [text, queues.value, workers.value]);
  useEffect(() => setIndex(0), [text]);
  useEffect(() => document.getElementById(`palette-${index}`)?.scrollIntoView({ block: "nearest" }), [index]);
  const close = () => {
    overlay.value = null;
  };
  const run = (item: Item | undefined) => {
    if (!item) return;
    close();
    item.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) (event.preventDefault(), setIndex((index + step + items.length) % Math.max(1, items.length)));
    if (event.key === "Enter") (event.preventDefault(), run(items[index]));
  };
  const groups = [...new Set(items.map((item) => item.group))];
  return (
    <Modal label={t.palette.label} close={close} class="palette">
      <div class="q">
        <Icon name="search" />
        <input role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant={`palette-${index}`} aria-label={t.palette.label} placeholder={t.palette.placeholder} value={text} onInput={(event) => setText(event.currentTarget.value)} onKeyDown={onKeyDown} data-autofocus />
        <kbd>esc</kbd>
      </div>
      <div id="palette-list" role="listbox" aria-label={t.palette.label} class="palette-list">
        {items.length ? groups.map((group) => (
          <div role="group" aria-label={group} key={group}>
            <div class="grp" aria-hidden="true">{group}</div>
            {items.map((item, at) => item.group !== group ? null : (
              <div class="item" key={at} id={`palette-${at}`} role="option" aria-selected={at === index} onMouseMove={() => setIndex(at)} onClick={() => run(item)}>
                <Icon name={item.icon} /><span class="trunc">{item.text} {item.strong ? <b>{item.strong}</b> : null}</span>{item.hint ? <span class="hint">{item.hint.length === 1 ? <kbd>{item.hint}</kbd> : item.hint}</span> : null}
              </div>
            ))}
          </div>
        )) : <p class="palette-none">{t.palette.nothing}</p>}
      </div>
      <div class="foot"><span><kbd>↑</kbd><kbd>↓</kbd>{t.palette.move}</span><span><kbd>↵</kbd>{t.palette.openKey}</span><span>{t.palette.paste}</span></div>
    </Modal>
  );
}
