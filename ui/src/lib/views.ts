// Saved views: a name and the filters of the page of jobs, kept in this browser.

import { signal } from "@preact/signals";
import { store, stored } from "./ui";

export interface View { name: string; query: string }

const KEY = "longshore.views";

function read(): View[] {
  try {
    const value = JSON.parse(stored(KEY) ?? "[]") as unknown;
    if (!Array.isArray(value)) return [];
    return value.filter((view): view is View => typeof view?.name === "string" && typeof view?.query === "string");
  } catch {
    return [];
  }
}

export const savedViews = signal<View[]>(typeof localStorage === "undefined" ? [] : read());

function write(views: View[]): void {
  savedViews.value = views;
  store(KEY, JSON.stringify(views));
}

/** Saves a view; one of the same name is replaced. */
export function saveView(view: View): void {
  write([...savedViews.value.filter((other) => other.name !== view.name), view]);
}

/** The link to a view. It has the name, so that the link alone is enough in another browser. */
export function viewLink(view: View): string {
  const parameters = new URLSearchParams(view.query);
  parameters.set("view", view.name);
  return `#/jobs?${parameters.toString()}`;
}

export function removeView(name: string): void {
  write(savedViews.value.filter((view) => view.name !== name));
}
