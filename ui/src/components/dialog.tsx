// Dialogs: they hold the focus, Escape closes them, the focus returns to where it was.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../lib/api";
import { question } from "../lib/ui";
import { t } from "../strings";

const FOCUSABLE = "a[href],button:not([disabled]),input:not([disabled]),select:not([disabled]),textarea:not([disabled]),[tabindex='0']";

export function Modal({ label, close, class: extra = "dialog", children }: { label: string; close: () => void; class?: string; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    const first = box.current?.querySelector<HTMLElement>("[data-autofocus]") ?? box.current?.querySelector<HTMLElement>(FOCUSABLE);
    first?.focus();
    document.body.classList.add("has-overlay");
    return () => {
      document.body.classList.remove("has-overlay");
      before?.focus?.();
    };
  }, []);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    }
    if (event.key !== "Tab" || !box.current) return;
    const all = [...box.current.querySelectorAll<HTMLElement>(FOCUSABLE)];
    const [first, last] = [all[0], all[all.length - 1]];
    if (event.shiftKey && document.activeElement === first) (event.preventDefault(), last?.focus());
    else if (!event.shiftKey && document.activeElement === last) (event.preventDefault(), first?.focus());
  };
  return (
    <div class="overlay" onMouseDown={(event) => event.target === event.currentTarget && close()}>
      <div class={extra} role="dialog" aria-modal="true" aria-label={label} ref={box} onKeyDown={onKeyDown} tabIndex={-1}>{children}</div>
    </div>
  );
}

/** The text of an error for people. */
export function errorText(error: unknown): string {
  return error instanceof ApiError ? error.detail || error.code : String(error);
}

/** The question of the moment: asked before what cannot be taken back. */
export function QuestionDialog() {
  const asked = question.value;
  const [typed, setTyped] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<string | null>(null);
  useEffect(() => {
    setTyped("");
    setFailure(null);
    setBusy(false);
  }, [asked]);
  if (!asked) return null;
  const close = () => {
    question.value = null;
  };
  const act = async () => {
    setBusy(true);
    try {
      await asked.run();
      if (question.value === asked) close();
    } catch (error) {
      setFailure(errorText(error));
      setBusy(false);
    }
  };
  return (
    <Modal label={asked.title} close={close}>
      <h2>{asked.title}</h2>
      <div class="muted">{asked.body}</div>
      {asked.typed ? (
        <label class="field"><span>{t.jobsPage.typed(asked.typed)}</span>
          <input class="input" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} data-autofocus />
        </label>
      ) : null}
      {failure ? <div class="err" role="alert">{failure}</div> : null}
      <div class="acts">
        <button class="btn" type="button" onClick={close} {...(asked.typed ? {} : { "data-autofocus": true })}>{asked.keep}</button>
        <button class={`btn ${asked.isDanger ? "btn-danger-solid" : "btn-primary"}`} type="button" disabled={isBusy || (!!asked.typed && typed.replace(/[, ]/g, "") !== asked.typed.replace(/[, ]/g, ""))} onClick={act}>{asked.act}</button>
      </div>
    </Modal>
  );
}

export function Field({ label, hint, error, children }: { label: string; hint?: string; error?: string | null; children: ComponentChildren }) {
  return (
    <label class={`field ${error ? "has-error" : ""}`}>
      <span class="field-l">{label}</span>
      {children}
      {error ? <span class="field-e" role="alert">{error}</span> : hint ? <span class="field-h">{hint}</span> : null}
    </label>
  );
}
