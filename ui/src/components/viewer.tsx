// Viewers that keep what a job carries exactly: JSON with all digits, binary as hex.

import { useMemo, useState } from "preact/hooks";
import { hideSecrets, isRounded, lines, parseExact, type Piece } from "../lib/exact-json";
import { bytes, count } from "../lib/format";
import { t } from "../strings";
import { CopyButton } from "./basic";

const KIND: Record<Piece["kind"], string> = { key: "k0", string: "k1", number: "k2", literal: "k3", mark: "k4", space: "", hidden: "redact" };
const LINES_MAX = 2_000;
const CHARACTERS_MAX = 400_000;

function Row({ pieces }: { pieces: Piece[] }) {
  return <span class="row">{pieces.map((piece, index) => <span key={index} class={`${KIND[piece.kind]} ${piece.exact ? "exact" : ""}`} title={piece.exact ? t.job.exact : undefined}>{piece.text}</span>)}{"\n"}</span>;
}

/** A JSON text: formatted without a rounded digit, or byte for byte. */
export function JsonView({ text }: { text: string }) {
  const [isRaw, setRaw] = useState(false);
  const [isShown, setShown] = useState(false);
  const parsed = useMemo(() => {
    if (text.length > CHARACTERS_MAX) return null;
    try {
      const { node, hidden } = hideSecrets(parseExact(text));
      const all = lines(isShown ? parseExact(text) : node);
      return { hidden, rows: all.slice(0, LINES_MAX), isCut: all.length > LINES_MAX, hasExact: all.some((row) => row.some((piece) => piece.exact)) };
    } catch {
      return null;
    }
  }, [text, isShown]);
  const size = new TextEncoder().encode(text).length;
  return (
    <>
      <pre class={`code ${isRaw || !parsed ? "plain" : ""}`} tabIndex={0} aria-label={t.job.payload}>{isRaw || !parsed ? text.slice(0, CHARACTERS_MAX) : parsed.rows.map((pieces, index) => <Row key={index} pieces={pieces} />)}</pre>
      <div class="viewer-foot">
        <span>{bytes(size)}</span>{parsed?.hasExact ? <span>{t.job.digits}</span> : null}{parsed?.isCut || text.length > CHARACTERS_MAX ? <span>{t.job.tooLarge(bytes(size))}</span> : null}
        {parsed?.hidden ? <span title={t.job.hiddenWhy}>{isShown ? t.job.secretsShown(parsed.hidden) : t.job.secretsHidden(parsed.hidden)} <button class="link plain" type="button" onClick={() => setShown(!isShown)}>{isShown ? t.job.hide : t.job.show}</button></span> : null}
        <span class="grow" />
        {parsed ? <button class="link plain" type="button" onClick={() => setRaw(!isRaw)}>{isRaw ? t.job.tree : t.job.raw}</button> : null}
        <CopyButton text={text} />
      </div>
    </>
  );
}

const HEX_MAX = 16_384;

/** Rows of a hex dump: offset, bytes, printable characters. */
export function hexRows(data: Uint8Array): string[] {
  const rows: string[] = [];
  for (let at = 0; at < Math.min(data.length, HEX_MAX); at += 16) {
    const part = [...data.subarray(at, at + 16)];
    const hex = part.map((value) => value.toString(16).padStart(2, "0")).join(" ").padEnd(47, " ");
    const text = part.map((value) => (value >= 32 && value < 127 ? String.fromCharCode(value) : ".")).join("");
    rows.push(`${at.toString(16).padStart(8, "0")}  ${hex}  ${text}`);
  }
  return rows;
}

/** The bytes as UTF-8, or `null` if they are not. */
export function asText(data: Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(data);
  } catch {
    return null;
  }
}

export function BinaryView({ data }: { data: Uint8Array }) {
  const text = useMemo(() => asText(data), [data]);
  const [isText, setText] = useState(false);
  const hex = useMemo(() => [...data].map((value) => value.toString(16).padStart(2, "0")).join(""), [data]);
  const download = () => {
    const url = URL.createObjectURL(new Blob([data as BlobPart], { type: "application/octet-stream" }));
    const anchor = Object.assign(document.createElement("a"), { href: url, download: "payload.bin" });
    anchor.click();
    URL.revokeObjectURL(url);
  };
  return (
    <>
      <pre class="code plain" tabIndex={0} aria-label={t.job.binary}>{isText && text !== null ? text.slice(0, CHARACTERS_MAX) : hexRows(data).join("\n")}</pre>
      <div class="viewer-foot">
        <span>{t.job.binary}, {bytes(data.length)}</span>{data.length > HEX_MAX ? <span>{t.job.tooLarge(bytes(data.length))}</span> : null}<span class="grow" />
        {text !== null ? <button class="link plain" type="button" onClick={() => setText(!isText)}>{isText ? t.job.hex : t.job.text}</button> : null}
        <button class="link plain" type="button" onClick={download}>{t.job.download}</button><CopyButton text={isText && text !== null ? text : hex} />
      </div>
    </>
  );
}

/** A number of a record that a double would round is marked. */
export function ExactNumber({ raw }: { raw: string }) {
  return <span class={isRounded(raw) ? "exact" : ""}>{/^\d+$/.test(raw) && raw.length < 16 ? count(Number(raw)) : raw}</span>;
}
