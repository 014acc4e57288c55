// Small parts: icons, states, times, numbers, buttons that copy, empty and failed cards.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ApiError } from "../lib/api";
import { now } from "../lib/app";
import { clock, count, date, relative, shortCount, stateClass } from "../lib/format";
import { link } from "../lib/router";
import { copy, toast } from "../lib/ui";
import { t } from "../strings";

export function Icon({ name, class: extra = "", label }: { name: string; class?: string; label?: string }) {
  return (
    <svg class={`i ${extra}`} {...(label ? { role: "img", "aria-label": label } : { "aria-hidden": true })}>
      {label ? <title>{label}</title> : null}
      <use href={`#i-${name}`} />
    </svg>
  );
}

export function Glyph({ state, large, title }: { state: string; large?: boolean; title?: string }) {
  const name = state.replace("_", "-");
  return (
    <svg class={`g ${large ? "g-lg" : ""} ${stateClass(state)}`} {...(title ? { role: "img", "aria-label": title } : { "aria-hidden": true })}>
      {title ? <title>{title}</title> : null}
      <use href={`#g-${name}`} />
    </svg>
  );
}

export function StateWord({ state, word }: { state: string; word?: string }) {
  return <span class={`state ${stateClass(state)}`}><Glyph state={state} />{word ?? t.state[state] ?? state}</span>;
}

export function Pill({ state, word }: { state: string; word?: string }) {
  return <span class={`pill ${stateClass(state)}`}><Glyph state={state} />{word ?? t.state[state] ?? state}</span>;
}

/** A time in words, with the exact instant in its title. */
export function Time({ at, mode = "relative" }: { at: string | null | undefined; mode?: "relative" | "clock" | "date" }) {
  if (!at) return <span class="faint">{t.time.none}</span>;
  const text = mode === "relative" ? relative(at, now.value) : mode === "clock" ? clock(at) : date(at);
  return <time class="num nowrap" dateTime={at} title={at}>{text}</time>;
}

const INSTANT = /\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z/g;

/** A sentence of the server, as it is; only its instants are written like all times of the page. */
export function Sentence({ text }: { text: string }) {
  const instants = text.match(INSTANT) ?? [];
  if (!instants.length) return <>{text}</>;
  const isToday = (at: string) => Math.abs(now.value - Date.parse(at)) < 43_200_000;
  return <>{text.split(INSTANT).map((part, index) => <span key={index}>{part}{instants[index] ? <Time at={instants[index]} mode={isToday(instants[index]!) ? "clock" : "date"} /> : null}</span>)}</>;
}

/** A count: zero is faint, above a million it is short. */
export function Count({ value, bad }: { value: number | null | undefined; bad?: boolean }) {
  if (value === null || value === undefined) return <span class="zero">{t.time.none}</span>;
  return <span class={value === 0 ? "zero" : bad ? "bad" : ""} title={value >= 1_000_000 ? count(value) : undefined}>{shortCount(value)}</span>;
}

export function CopyButton({ text, label = t.common.copy }: { text: string; label?: string }) {
  const [isCopied, setCopied] = useState(false);
  const run = async () => {
    const done = await copy(text);
    if (!done) toast(t.common.copyFailed, "error");
    setCopied(done);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button class="copy" type="button" title={isCopied ? t.common.copied : label} aria-label={isCopied ? t.common.copied : label} onClick={run}>
      {isCopied ? <svg class="g s-completed" aria-hidden="true"><use href="#g-completed" /></svg> : <Icon name="copy" />}
    </button>
  );
}

export function Command({ text }: { text: string }) {
  return <span class="cmd"><span>{text}</span><CopyButton text={text} /></span>;
}

export function Empty({ icon, title, text, command, children }: { icon: string; title: string; text?: string; command?: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <b>{title}</b>
      {text ? <p>{text}</p> : null}
      {command ? <Command text={command} /> : null}
      {children}
    </div>
  );
}

const RETRY: Record<string, string> = { safe: t.failure.safe, unknown: t.failure.unknown, never: t.failure.never };

/** A failed call inside its card: code, sentence, what was applied, request id. */
export function Failure({ error, what, retry }: { error: ApiError; what: string; retry?: () => void }) {
  if (error.isAbsent) return <Empty icon="info" title={t.failure.absent} text={t.failure.absentText(what)} />;
  return (
    <div class="card-body">
      <div class="err" role="alert">
        <code>{error.code}</code>
        <span>{error.status === 403 ? t.failure.forbidden : error.detail || t.failure.title}</span>
        <span class="faint">{error.retry ? RETRY[error.retry] : null} {error.requestId ? t.failure.request(error.requestId) : null}</span>
        {retry ? <div><button class="btn btn-sm" type="button" onClick={retry}>{t.common.retry}</button></div> : null}
      </div>
    </div>
  );
}

/** Grey bars in the shape of the content, after 200 ms. */
export function Loading() {
  const [isVisible, setVisible] = useState(false);
  useEffect(() => {
    const handle = setTimeout(() => setVisible(true), 200);
    return () => clearTimeout(handle);
  }, []);
  if (!isVisible) return <div class="skel-space" />;
  return <div class="skel" role="status" aria-label={t.common.loading}><i class="w80" /><i class="w60" /><i class="w80" /><i class="w40" /></div>;
}

export function Tag({ name, value }: { name: string; value: string | null }) {
  const text = value === null ? name : `${name}:${value}`;
  return <a class="tag" href={link(["jobs"], { tag: text })} title={text}>{text}</a>;
}

export function Tags({ tags }: { tags: Record<string, string | null> }) {
  const entries = Object.entries(tags);
  if (!entries.length) return <span class="faint">{t.time.none}</span>;
  return <span class="tags">{entries.map(([name, value]) => <Tag key={name} name={name} value={value} />)}</span>;
}

/** The first eight characters of an id, as a link to its job. */
export function JobLink({ id, whole }: { id: string; whole?: boolean }) {
  return <a class="link mono" href={link(["jobs", id])} title={id}>{whole ? id : id.slice(0, 8)}</a>;
}

export function QueueLink({ name }: { name: string }) {
  return <a class="link" href={link(["queues", name])}>{name}</a>;
}

export function Button({ children, kind = "", icon, ...rest }: { children: ComponentChildren; kind?: string; icon?: string; onClick?: () => void; disabled?: boolean; title?: string; type?: "submit" | "button"; "aria-pressed"?: boolean }) {
  return <button class={`btn ${kind}`} type="button" {...rest}>{icon ? <Icon name={icon} /> : null}{children}</button>;
}
