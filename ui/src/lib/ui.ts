// State of the interface itself: theme, toasts, dialogs, shortcuts.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

export const theme = signal<"light" | "dark" | null>(readTheme());

function readTheme(): "light" | "dark" | null {
  try {
    const value = localStorage.getItem("longshore.theme");
    return value === "light" || value === "dark" ? value : null;
  } catch {
    return null;
  }
}

/** Applies the theme of the user, or that of the system. */
export function applyTheme(): void {
  if (theme.value) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
}

/** Whether the page is dark now. */
export function isDark(): boolean {
  return theme.value ? theme.value === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function toggleTheme(): void {
  theme.value = isDark() ? "light" : "dark";
  applyTheme();
  store("longshore.theme", theme.value);
}

/** Keeps a value in this browser; a browser without storage forgets it. */
export function store(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Private windows may refuse.
  }
}

export function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export interface Toast { id: number; text: string; kind: "done" | "error"; undo?: { label: string; run: () => void } }
export const toasts = signal<Toast[]>([]);
let nextToast = 1;

export function toast(text: string, kind: Toast["kind"] = "done", undo?: Toast["undo"]): void {
  const id = nextToast++;
  toasts.value = [...toasts.value.slice(-2), undo ? { id, text, kind, undo } : { id, text, kind }];
  setTimeout(() => dismiss(id), undo ? 300_000 : kind === "error" ? 12_000 : 5_000);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((item) => item.id !== id);
}

export interface Question {
  title: string;
  body: ComponentChildren;
  keep: string;
  act: string;
  isDanger?: boolean;
  /** Text to type before the action is possible. */
  typed?: string;
  run: () => Promise<void> | void;
}
export const question = signal<Question | null>(null);
/** Asks before an action that cannot be taken back or touches many jobs. */
export function ask(value: Question): void {
  question.value = value;
}

export const overlay = signal<null | "palette" | "keys" | "token" | "more">(null);

/** Copies a text; works over plain HTTP too, where the clipboard API is missing. */
export async function copy(text: string): Promise<boolean> {
  if (navigator.clipboard && isSecureContext) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Falls through to the older way.
    }
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.setAttribute("readonly", "");
  area.className = "sr";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
