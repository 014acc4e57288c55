import { defineConfig } from "vitest/config";

export default defineConfig({ test: { include: ["test/scale.ts"], environment: "node", testTimeout: 240_000, hookTimeout: 900_000 } });
