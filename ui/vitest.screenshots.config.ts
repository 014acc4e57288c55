import { defineConfig } from "vitest/config";

export default defineConfig({ test: { include: ["test/screenshots.ts"], environment: "node", testTimeout: 240_000, hookTimeout: 60_000 } });
