// The frame of every page: side bar, top bar, banners, bottom bar of phones.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { connection, mayOffer, post, self, setToken, token, tokenWanted } from "../lib/api";
import { expireFigures, info, queues, stats, workers } from "../lib/app";
import { bytes, clock, count, parseDuration, shortCount } from "../lib/format";
import { heldBack, lag, mode, paused, reconnect, refresh, retryNow, setPaused } from "../lib/live";
import { link, route } from "../lib/router";
import { dismiss, overlay, toast, toasts, toggleTheme } from "../lib/ui";
import { COMMANDS, t } from "../strings";
import { Button, Command, Icon } from "./basic";
import { errorText, Field, Modal } from "./dialog";

interface Place { id: string; icon: string; name: string; path: string; badge?: () => number | null; isHot?: boolean }

export const PLACES: Place[] = [
  { id: "overview", icon: "overview", name: t.nav.overview, path: "v1/stats" },
  { id: "queues", icon: "queues", name: t.nav.queues, path: "v1/queues", badge: () => queues.value?.length ?? null },
  { id: "jobs", icon: "jobs", name: t.nav.jobs, path: "v1/jobs" },
  { id: "dead-letters", icon: "dead", name: t.nav.deadLetters, path: "v1/jobs", badge: () => stats.value?.totals.counts.dead_letter ?? null, isHot: true },
  { id: "workflows", icon: "workflows", name: t.nav.workflows, path: "v1/workflows" },
  { id: "schedules", icon: "schedules", name: t.nav.schedules, path: "v1/schedules" },
  { id: "workers", icon: "workers", name: t.nav.workers, path: "v1/workers", badge: () => workers.value?.length ?? null },
  { id: "types", icon: "types", name: t.nav.types, path: "v1/types" },
];
export const ADMIN: Place[] = [
  { id: "operations", icon: "bolt", name: t.nav.operations, path: "v1/operations" },
  { id: "webhooks", icon: "webhooks", name: t.nav.webhooks, path: "v1/webhooks" },
  { id: "tokens", icon: "tokens", name: t.nav.tokens, path: "v1/tokens" },
  { id: "system", icon: "system", name: t.nav.system, path: "v1/info" },
];

export function Logo() {
  return (
    <svg viewBox="0 0 24 24" aria-hidden="true">
      <rect class="logo-bg" width="24" height="24" rx="6" /><path class="logo-line" d="M12 3.6v3.6" /><rect class="logo-fg" x="7.6" y="7.2" width="8.8" height="4.6" rx="1" />
      <rect class="logo-fg" x="3.8" y="14.4" width="7.6" height="4.9" rx="1" opacity=".72" /><rect class="logo-fg" x="12.6" y="14.4" width="7.6" height="4.9" rx="1" opacity=".72" />
    </svg>
  );
}

function NavLink({ place }: { place: Place }) {
  const badge = place.badge?.() ?? null;
  const isCurrent = route.value.path[0] === place.id;
  return (
    <a href={link([place.id])} title={place.name} aria-current={isCurrent ? "page" : undefined}>
      <Icon name={place.icon} /><span>{place.name}</span>
      {badge ? <span class={`n ${place.isHot ? "hot" : ""}`} title={count(badge)}>{shortCount(badge)}</span> : null}
    </a>
  );
}

function Side() {
  const server = info.value;
  const kinds: Record<string, string> = { embedded: t.foot.embedded, postgres: t.foot.postgres, memory: t.foot.memory };
  return (
    <aside class="side">
      <a class="brand" href={link(["overview"])} aria-label={t.product}><Logo /><span>{t.product}</span></a>
      <nav class="nav" aria-label={t.nav.label}>{PLACES.filter((place) => mayOffer("GET", place.path)).map((place) => <NavLink key={place.id} place={place} />)}</nav>
      <div class="nav-label">{t.nav.administration}</div>
      <nav class="nav nav-2" aria-label={t.nav.administration}>{ADMIN.filter((place) => place.id === "system" || mayOffer("GET", place.path)).map((place) => <NavLink key={place.id} place={place} />)}</nav>
      <div class="side-foot">
        {server ? (
          <>
            <div><span>{t.foot.store}</span><b>{kinds[server.store.kind] ?? server.store.kind}</b></div>
            {server.store.free_bytes !== null ? <div><span>{t.foot.disk}</span><b class="num">{t.foot.free(bytes(server.store.free_bytes))}</b></div> : null}
            <div><span>{t.foot.version}</span><b class="num">{server.version}</b></div>
          </>
        ) : null}
      </div>
    </aside>
  );
}

/** The delay of an event, with a tenth of a second as the least that is told apart. */
const lagText = (milliseconds: number): string => (milliseconds < 100 ? "< 0.1 s" : `${(milliseconds / 1000).toFixed(1)} s`);

function Live() {
  const isPaused = paused.value;
  const word = isPaused ? t.bar.paused : { connecting: t.bar.connecting, stream: t.bar.live, busy: t.bar.live, polling: t.bar.polling, lost: t.bar.lost }[mode.value];
  const state = isPaused || mode.value === "lost" ? "paused" : "on";
  const note = isPaused ? (heldBack.value ? count(heldBack.value) : "") : mode.value === "stream" && lag.value !== null && !info.value?.virtual_clock && lag.value < 60_000 ? lagText(lag.value) : mode.value === "polling" ? "2 s" : "";
  return (
    <div class="live" data-live={state} data-mode={mode.value}>
      <span class="what" title={isPaused ? t.bar.held(heldBack.value) : t.bar.modeTitle[mode.value]}>
        <i class="beat" aria-hidden="true" /><span class="word">{word}</span>{note ? <span class="lag">{note}</span> : null}
      </span>
      <button type="button" aria-pressed={isPaused} aria-label={isPaused ? t.bar.resume : t.bar.pause} title={`${isPaused ? t.bar.resume : t.bar.pause} (p)`} onClick={() => setPaused(!isPaused)}>
        <Icon name={isPaused ? "play" : "pause"} />
      </button>
    </div>
  );
}

const isMac = typeof navigator !== "undefined" && /Mac|iPhone|iPad/.test(navigator.platform);

function Bar() {
  return (
    <header class="bar">
      <a class="menu" href={link(["overview"])} aria-label={`${t.product}, ${t.nav.overview}`}><Logo />{t.product}</a>
      <button class="search" type="button" aria-keyshortcuts="Control+K Meta+K /" onClick={() => (overlay.value = "palette")}>
        <Icon name="search" /><span>{t.bar.search}</span><span class="keys" aria-hidden="true"><kbd>{isMac ? "⌘" : "Ctrl"}</kbd><kbd>K</kbd></span>
      </button>
      <div class="bar-right">
        <Live />
        <button class="icon-btn" type="button" aria-label={t.bar.theme} title={t.bar.theme} onClick={toggleTheme}><Icon name="moon" /></button>
        <button class="who" type="button" title={t.token.change} onClick={() => (overlay.value = "token")}><Icon name="tokens" />{self.value?.name ?? (token.value ? (token.value.split("_")[1]?.slice(0, 8) ?? t.bar.tokenSet) : t.bar.noToken)}</button>
      </div>
    </header>
  );
}

/** Advances the virtual clock. */
async function advance(by: string): Promise<void> {
  const { now } = await post<{ now: string }>("v1/clock/advance", { by });
  expireFigures();
  refresh();
  toast(t.clock.advanced(now));
}

function ClockBanner() {
  const [isOpen, setOpen] = useState(false);
  const [by, setBy] = useState("1d");
  const [failure, setFailure] = useState<string | null>(null);
  const server = info.value;
  if (!server?.virtual_clock) return null;
  const run = (amount: string) => advance(amount).then(() => setOpen(false), (error: unknown) => (isOpen ? setFailure(errorText(error)) : toast(errorText(error), "error")));
  const may = mayOffer("POST", "v1/clock/advance");
  return (
    <section class="banner s-delayed" aria-label={t.clock.title}>
      <Icon name="clock" /><span><b>{t.clock.title}</b> {t.clock.stands} <code class="nowrap">{(stats.value ?? server).now}</code></span>
      {may ? (
        <div class="right">
          <Button kind="btn-sm" onClick={() => run("1m")}>{t.clock.minute}</Button><Button kind="btn-sm" onClick={() => run("1h")}>{t.clock.hour}</Button><Button kind="btn-sm" onClick={() => setOpen(true)}>{t.clock.other}</Button>
        </div>
      ) : null}
      {isOpen ? (
        <Modal label={t.clock.by} close={() => setOpen(false)}>
          <form class="form" onSubmit={(event) => (event.preventDefault(), run(by))}>
            <h2>{t.clock.by}</h2>
            <Field label={t.clock.by} hint={t.clock.hint} error={failure}><input class="input" value={by} onInput={(event) => setBy(event.currentTarget.value)} data-autofocus /></Field>
            <div class="acts"><Button onClick={() => setOpen(false)}>{t.common.close}</Button><Button kind="btn-primary" type="submit" disabled={parseDuration(by) === null}>{t.clock.act}</Button></div>
          </form>
        </Modal>
      ) : null}
    </section>
  );
}

function ConnectionBanner() {
  const { answeredAt, lostAt } = connection.value;
  if (lostAt === null) return null;
  return (
    <section class="banner s-retrying" role="status">
      <Icon name="alert" /><span><b>{t.failure.lost}</b> {t.failure.lostText(clock(answeredAt))}</span>
      <div class="right"><Button kind="btn-sm" onClick={retryNow}>{t.common.retry}</Button></div>
    </section>
  );
}

function TokenDialog({ canClose }: { canClose: boolean }) {
  const [value, setValue] = useState("");
  const close = () => {
    if (canClose) overlay.value = null;
  };
  const use = (event: Event) => {
    event.preventDefault();
    if (!value.trim()) return;
    setToken(value.trim());
    overlay.value = null;
    reconnect();
  };
  const title = tokenWanted.value === "missing" ? t.token.title : tokenWanted.value === "refused" ? t.token.refused : t.token.change;
  return (
    <Modal label={title} close={close}>
      <form class="form" onSubmit={use}>
        <h2>{title}</h2><p class="muted">{t.token.body}</p>
        <Field label={t.token.label}><input class="input mono" type="password" autocomplete="off" spellcheck={false} placeholder={t.token.placeholder} value={value} onInput={(event) => setValue(event.currentTarget.value)} data-autofocus /></Field>
        {canClose ? null : <><p class="muted">{t.token.create}</p><Command text={COMMANDS.token} /></>}
        <div class="acts">
          {token.value ? <Button onClick={() => (setToken(null), (overlay.value = null), reconnect())}>{t.token.forget}</Button> : null}
          {canClose ? <Button onClick={close}>{t.common.close}</Button> : null}
          <Button kind="btn-primary" type="submit" disabled={!value.trim()}>{t.token.use}</Button>
        </div>
      </form>
    </Modal>
  );
}

const PHONE = ["overview", "jobs", "dead-letters", "workflows"];

function BottomBar() {
  const dead = stats.value?.totals.counts.dead_letter ?? 0;
  return (
    <nav class="tabs-bottom" aria-label={t.nav.phone}>
      {PLACES.filter((place) => PHONE.includes(place.id)).map((place) => (
        <a key={place.id} href={link([place.id])} aria-current={route.value.path[0] === place.id ? "page" : undefined}>
          <Icon name={place.icon} /><span>{place.name}</span>{place.isHot && dead ? <span class="badge">{dead > 999 ? "999+" : dead}</span> : null}
        </a>
      ))}
      <button type="button" class="tab-more" aria-label={t.nav.more} onClick={() => (overlay.value = "more")}><Icon name="more" /><span>{t.nav.more}</span></button>
    </nav>
  );
}

function MoreDialog() {
  const close = () => {
    overlay.value = null;
  };
  const rest = [...PLACES.filter((place) => !PHONE.includes(place.id)), ...ADMIN];
  return (
    <Modal label={t.nav.more} close={close}>
      <nav class="nav" aria-label={t.nav.more}>{rest.map((place) => <a key={place.id} href={link([place.id])} onClick={close}><Icon name={place.icon} /><span>{place.name}</span></a>)}</nav>
      <div class="acts"><Button onClick={toggleTheme} icon="moon">{t.keys.theme}</Button><Button onClick={() => (overlay.value = "token")} icon="tokens">{t.token.label}</Button></div>
    </Modal>
  );
}

function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((item) => (
        <div class="toast" key={item.id} data-kind={item.kind}>
          <svg class={`g ${item.kind === "done" ? "s-completed" : "s-failed"}`} aria-hidden="true"><use href={item.kind === "done" ? "#g-completed" : "#g-failed"} /></svg>
          <span>{item.text}</span>
          <span class="right">
            {item.undo ? <button class="undo" type="button" onClick={() => (item.undo?.run(), dismiss(item.id))}>{item.undo.label}</button> : null}
            <button class="toast-x" type="button" aria-label={t.common.close} onClick={() => dismiss(item.id)}><Icon name="x" /></button>
          </span>
        </div>
      ))}
    </div>
  );
}

export function Shell({ children, isCanvas }: { children: ComponentChildren; isCanvas: boolean }) {
  return (
    <div class={isCanvas ? "rail" : ""}>
      <a class="skip" href="#content" onClick={(event) => (event.preventDefault(), document.getElementById("content")?.focus())}>{t.skip}</a>
      <div class="app">
        <Side />
        <div class="main">
          <Bar />
          <div class="banners"><ClockBanner /><ConnectionBanner /></div>
          {children}
        </div>
      </div>
      <BottomBar />
      <Toasts />
      {tokenWanted.value ? <TokenDialog canClose={false} /> : overlay.value === "token" ? <TokenDialog canClose /> : null}
      {overlay.value === "more" ? <MoreDialog /> : null}
    </div>
  );
}
