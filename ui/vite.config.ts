import { defineConfig } from "vite";

// Relative URLs everywhere: the dashboard also works below a path prefix of a reverse proxy.
export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "dist",
    assetsDir: "ui",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    cssCodeSplit: false,
    reportCompressedSize: false,
  },
  worker: { format: "es" },
  server: { proxy: { "/v1": "http://127.0.0.1:7070", "/metrics": "http://127.0.0.1:7070" } },
});
