import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// The page is served under a strict content-security policy: nothing inline, no data: scripts, files of its own only.
export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: "../src/cotenant/api/web_dist",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
  },
});
