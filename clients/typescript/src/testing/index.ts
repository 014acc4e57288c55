export { perform } from "./perform.js";
export type { PerformOptions, Performed } from "./perform.js";
export { TestQueue } from "./queue.js";
export type { DrainOptions, SubmittedJob } from "./queue.js";
export { TestServer } from "./server.js";
export type { TestServerOptions } from "./server.js";
