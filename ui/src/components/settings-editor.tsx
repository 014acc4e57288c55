// The settings of a queue: what is set on the queue, what the profile gives, what the profile locks.

import { Fragment } from "preact";
import { useState } from "preact/hooks";
import { call, mayOffer, segment } from "../lib/api";
import { refresh } from "../lib/live";
import { flatten, isUnder, overridesAfter, type Changes, type Setting } from "../lib/settings";
import type { Json, Queue } from "../lib/types";
import { toast } from "../lib/ui";
import { PROFILES, t } from "../strings";
import { Button, Icon } from "./basic";
import { errorText } from "./dialog";

/** Fields whose values come from a closed set; the server checks them again. */
const CHOICES: Record<string, string[]> = {
  "retry.counts": ["starts", "failures", "retries"], "retry.backoff.kind": ["constant", "linear", "exponential", "list"], "retry.jitter.kind": ["none", "symmetric", "full"], "retry.on_permanent": ["failed", "dead_letter", "retry"],
  "retry.on_exhausted": ["dead_letter", "failed"], "retry.on_timeout": ["retry", "final"], "retry.on_system": ["retry", "final"], on_lease_expiry: ["reclaim_counted", "reclaim_free", "fail_timeout", "fail_retryable"], reclaim: ["eager", "lazy"],
  fencing: ["required", "optional"], "idempotency.scope": ["type", "queue", "global", "off"], requeue_order: ["submission", "tail"], submit: ["auto", "explicit"], manual_requeue: ["in_place", "clone"], cancel_running: ["cooperative", "immediate"],
};

/** The groups of the editor, by the first word of a path; the rest is about the queue. */
const GROUPS: [name: string, words: string[]][] = [
  [t.queues.groups.queue, []], [t.queues.groups.retry, ["retry"]], [t.queues.groups.running, ["execution_timeout", "lease", "on_lease_expiry", "max_reclaims", "reclaim", "fencing", "cancel_running"]],
  [t.queues.groups.identity, ["idempotency", "external_ids"]], [t.queues.groups.keeping, ["retention", "lifetime"]],
];

function inGroups(settings: Setting[]): [name: string, settings: Setting[]][] {
  const groupOf = ({ path }: Setting) => GROUPS.find(([, words]) => words.includes(path.split(".")[0]!))?.[0] ?? t.queues.groups.queue;
  return GROUPS.map(([name]) => [name, settings.filter((setting) => groupOf(setting) === name)] as [string, Setting[]]).filter(([, own]) => own.length);
}

interface FieldProps { path: string; text: string; change: string | null | undefined; isLocked: boolean; isOverride: boolean; may: boolean; setChange: (value: string | null | undefined) => void }

function SettingField({ path, text, change, isLocked, isOverride, may, setChange }: FieldProps) {
  const choices = CHOICES[path] ?? (text === "true" || text === "false" ? ["true", "false"] : null);
  const common = { id: `set-${path}`, class: "input mono", disabled: !may || isLocked || change === null, title: isLocked ? t.queues.locked : undefined };
  const value = change ?? text;
  const edit = (event: { currentTarget: { value: string } }) => setChange(event.currentTarget.value === text ? undefined : event.currentTarget.value);
  return (
    <div class={`setting ${change !== undefined ? "is-changed" : ""} ${isLocked ? "is-locked" : ""} ${isOverride ? "is-override" : ""}`}>
      <div class="setting-head"><label for={`set-${path}`}><code>{path}</code></label>
        {isLocked ? <span class="faint">{t.queues.locked}</span> : isOverride && may ? <button class="link plain" type="button" onClick={() => setChange(change === null ? undefined : null)}>{change === null ? t.common.undo : t.queues.useProfile}</button> : null}
      </div>
      {choices ? <select {...common} value={value} onChange={edit}>{choices.map((choice) => <option key={choice}>{choice}</option>)}</select> : <input {...common} value={change === null ? t.queues.ofProfile : value} onInput={edit} />}
    </div>
  );
}

export function SettingsEditor({ queue }: { queue: Queue }) {
  const [changes, setChanges] = useState<Changes>({});
  const [profile, setProfile] = useState(queue.profile);
  const [failure, setFailure] = useState<string | null>(null);
  const may = mayOffer("PUT", "v1/queues/q");
  const isNewProfile = profile !== queue.profile;
  const changed = Object.keys(changes).length + (isNewProfile ? 1 : 0);
  const overridden = flatten(queue.overrides as Json).map((setting) => setting.path);
  const save = async (event: Event) => {
    event.preventDefault();
    // A new profile starts without the overrides of the old one.
    const settings = overridesAfter(isNewProfile ? {} : queue.overrides, queue.settings as Json, changes);
    try {
      await call("PUT", `v1/queues/${segment(queue.name)}`, { body: isNewProfile ? { profile, settings } : { settings } });
      setChanges({});
      setFailure(null);
      toast(t.queues.saved(queue.name));
      refresh();
    } catch (error) {
      setFailure(errorText(error));
    }
  };
  const setChange = (path: string) => (value: string | null | undefined) => setChanges((old) => {
    const { [path]: _, ...others } = old;
    return value === undefined ? others : { ...others, [path]: value };
  });
  return (
    <form class="card" onSubmit={save}>
      <div class="card-head line"><h2>{t.queues.settings}</h2><div class="right hide-sm">{t.queues.jobsKeep}</div></div>
      <div class="settings-profile"><label for="profile">{t.queues.profile}</label><select id="profile" class="input" value={profile} disabled={!may} onChange={(event) => setProfile(event.currentTarget.value)}>{PROFILES.map((name) => <option key={name}>{name}</option>)}</select><span class="faint">{t.queues.profileHint}</span></div>
      <div class="settings">
        {inGroups(flatten(queue.settings as Json)).map(([group, settings]) => (
          <Fragment key={group}>
            <h3 class="settings-group">{group}</h3>
            {settings.map(({ path, text }) => <SettingField key={path} path={path} text={text} change={changes[path]} isLocked={queue.locked.some((locked) => isUnder(path, locked))} isOverride={overridden.includes(path)} may={may} setChange={setChange(path)} />)}
          </Fragment>
        ))}
      </div>
      {failure ? <div class="card-body"><div class="err" role="alert">{failure}</div></div> : null}
      {may ? (
        <div class="foot-acts"><span class="faint"><Icon name="info" />{t.queues.overridesHint(overridden.length)}</span><span class="grow" />
          {changed ? <Button onClick={() => (setChanges({}), setProfile(queue.profile), setFailure(null))}>{t.queues.reset}</Button> : null}
          <Button kind={changed ? "btn-primary" : ""} type="submit" disabled={!changed}>{t.common.save}{changed ? ` ${t.queues.changed(changed)}` : ""}</Button>
        </div>
      ) : null}
    </form>
  );
}
