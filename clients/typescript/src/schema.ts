import { PayloadError } from "./errors.js";
import type { PayloadIssue } from "./errors.js";

/**
 * The part of Standard Schema (https://standardschema.dev) that is used here. Zod, Valibot, ArkType
 * and others implement it.
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** Result of a validation: a value, or issues. */
export type SchemaResult<Output> =
  { readonly value: Output; readonly issues?: undefined } | { readonly issues: readonly SchemaIssue[] };

/** An issue as schemas report it. */
export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** What a schema accepts. */
export type SchemaInput<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["input"];
/** What a schema returns. */
export type SchemaOutput<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["output"];

/** Returns the validated value; throws a PayloadError. A synchronous schema gives a plain value. */
export function validate<Output>(
  schema: StandardSchema<unknown, Output>,
  type: string,
  value: unknown,
): Output | Promise<Output> {
  const result = schema["~standard"].validate(value);
  return result instanceof Promise ? result.then((settled) => unwrap(type, settled)) : unwrap(type, result);
}

function unwrap<Output>(type: string, result: SchemaResult<Output>): Output {
  if (result.issues) throw new PayloadError(type, result.issues.map(toIssue));
  return result.value;
}

function toIssue(issue: SchemaIssue): PayloadIssue {
  const path = issue.path?.map((segment) => (typeof segment === "object" ? segment.key : segment));
  return path ? { message: issue.message, path } : { message: issue.message };
}
