import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// Browsers that know light-dark(), as of 2024.
const cssTarget = ["chrome123", "firefox120", "safari17.5"];

// The page is served under a strict content-security policy: nothing inline, no data: scripts, files of its own only.
const page = {
  outDir: "../src/cotenant/api/web_dist",
  emptyOutDir: true,
  assetsInlineLimit: 0,
  modulePreload: { polyfill: false },
  target: "es2022",
  cssTarget,
};

// Reports take the same charts with them: one script and one style sheet, put into every file (`--mode report`).
const report = {
  outDir: "../src/cotenant/report/web_dist",
  emptyOutDir: true,
  copyPublicDir: false,
  target: "es2022",
  cssTarget,
  lib: { entry: "src/report/main.ts", name: "report", formats: ["iife" as const], fileName: () => "report.js", cssFileName: "report" },
};

export default defineConfig(({ mode }) => ({ plugins: [svelte()], build: mode === "report" ? report : page, define: { "process.env.NODE_ENV": '"production"' } }));
