// Data of a page: fetched when the page opens, and again after each live update. The old figures
// stay while new ones load.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, tokenWanted } from "./api";
import { revision } from "./live";

export interface Resource<T> {
  data: T | null;
  error: ApiError | null;
  /** Whether nothing has arrived yet. */
  isLoading: boolean;
  reload: () => void;
}

/** How long a live update waits, so that two loads are at least `every` apart. */
export function delayOf(every: number, sinceLoad: number): number {
  return Math.max(0, every - sinceLoad);
}

/**
 * Loads `load` for `key`. A new key drops the old data. `every` is the least time between two
 * loads that live updates cause; `null` loads once. An update that comes sooner is not lost: it
 * loads when the time has passed.
 */
export function useResource<T>(key: string | null, load: (signal: AbortSignal) => Promise<T>, every: number | null = 0): Resource<T> {
  const [result, setResult] = useState<{ key: string | null; data: T | null; error: ApiError | null }>({ key, data: null, error: null });
  const [round, setRound] = useState(0);
  const running = useRef(false);
  const again = useRef(false);
  const lastLoad = useRef(0);
  const loader = useRef(load);
  loader.current = load;
  const present = useRef(key);
  present.current = key;

  const fetchNow = () => {
    if (present.current === null) return;
    if (running.current) {
      again.current = true;
      return;
    }
    running.current = true;
    lastLoad.current = Date.now();
    const of = present.current;
    loader.current(new AbortController().signal).then(
      (data) => present.current === of && setResult({ key: of, data, error: null }),
      (error: unknown) => {
        const failure = error instanceof ApiError ? error : new ApiError(0, "page_error", String(error));
        if (present.current === of) setResult((old) => ({ key: of, data: old.key === of ? old.data : null, error: failure }));
      },
    ).finally(() => {
      running.current = false;
      if (again.current || present.current !== of) {
        again.current = false;
        fetchNow();
      }
    });
  };

  useEffect(() => {
    fetchNow();
  }, [key, round]);

  useEffect(() => {
    if (every === null) return;
    let first = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const update = () => {
      timer = undefined;
      if (!tokenWanted.value) fetchNow();
    };
    const stop = revision.subscribe(() => {
      if (first) {
        first = false;
        return;
      }
      const delay = delayOf(every, Date.now() - lastLoad.current);
      if (delay === 0) update();
      else timer ??= setTimeout(update, delay);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [every]);

  const isPresent = result.key === key;
  const data = isPresent ? result.data : null;
  const error = isPresent ? result.error : null;
  return { data, error, isLoading: data === null && error === null, reload: () => setRound((value) => value + 1) };
}
