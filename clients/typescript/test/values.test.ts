import assert from "node:assert/strict";
import { test } from "node:test";

import { RawJson, parseJson, stringifyJson } from "longshore";

import { fromMilliseconds, toMilliseconds } from "#internal/duration.js";
import { payloadTexts } from "#internal/json.js";

test("durations have units or are seconds", () => {
  assert.equal(toMilliseconds("1h15m5s"), 4_505_000);
  assert.equal(toMilliseconds("3w 2d"), 23 * 86_400_000);
  assert.equal(toMilliseconds("500ms"), 500);
  assert.equal(toMilliseconds(1.5), 1_500);
  assert.equal(fromMilliseconds(1_500), "1500ms");
  for (const wrong of ["", "5", "5x", "m5", "-5s", -1, NaN]) assert.throws(() => toMilliseconds(wrong), RangeError);
});

test("integers beyond 2^53 - 1 become bigint, and no other value changes", () => {
  const text =
    '{"id":9223372036854775807,"safe":9007199254740991,"minus":-9007199254740993,"f":1.2345678901234567,"e":1e30,"s":"9223372036854775807","a":[18446744073709551615,null,true]}';
  assert.deepEqual(parseJson(text), {
    id: 9223372036854775807n,
    safe: 9007199254740991,
    minus: -9007199254740993n,
    f: 1.2345678901234567,
    e: 1e30,
    s: "9223372036854775807",
    a: [18446744073709551615n, null, true],
  });
  assert.equal(stringifyJson(parseJson(text)), text.replace("1e30", "1e+30"));
});

test("the exact parser agrees with JSON.parse where numbers are small", () => {
  const values = [
    {},
    [],
    "",
    '\\"\u2028😀',
    [[{ 'a"}': [1, -2.5e-7, { b: [] }] }]],
    { __proto__x: 1, "": null, n: 12345678901234 },
  ];
  for (const value of values) {
    for (const text of [
      JSON.stringify([value, "1234567890123456"]),
      JSON.stringify([value, "1234567890123456"], null, 2),
    ]) {
      assert.deepEqual(parseJson(text), JSON.parse(text));
    }
  }
  assert.throws(() => parseJson('{"a":12345678901234567890,}'), SyntaxError);
  assert.deepEqual(Object.keys(parseJson('{"__proto__":12345678901234567890}') as object), ["__proto__"]);
});

test("raw JSON is written as it is", () => {
  assert.equal(
    stringifyJson({ a: new RawJson("[1.0, 2]"), b: 5n, d: new Date(0) }),
    '{"a":[1.0, 2],"b":5,"d":"1970-01-01T00:00:00.000Z"}',
  );
  assert.throws(() => new RawJson("{"), SyntaxError);
  const circle: unknown[] = [];
  circle.push(circle);
  assert.throws(() => stringifyJson(circle), Error);
});

test("payload texts come from the answer byte for byte", () => {
  const answer =
    '{"now":"x","jobs":[{"id":"a","payload":{"n": 1.0, "s":"}\\"]"},"x":[{"payload":1}]},{"id":"b"},{"payload":12345678901234567890}]}';
  assert.deepEqual(payloadTexts(answer), ['{"n": 1.0, "s":"}\\"]"}', undefined, "12345678901234567890"]);
});
