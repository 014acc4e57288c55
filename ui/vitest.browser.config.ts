import { defineConfig } from "vitest/config";

// Tests in a real browser against the real server. One file after the other: they share two cores.
export default defineConfig({ test: { include: ["test/**/*.test.ts"], environment: "node", fileParallelism: false, testTimeout: 30_000, hookTimeout: 30_000 } });
