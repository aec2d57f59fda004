// Light, dark, or as the system says. Only this choice is kept in the browser's storage, where there is one.
import { flushSync } from "svelte";

const NAMES = ["system", "light", "dark"] as const;
type Name = (typeof NAMES)[number];

class Theme {
  name = $state<Name>("system");
  /** Counts up when the colours have changed, for what is drawn on a canvas. */
  version = $state(0);
  printing = $state(false);
  constructor() {
    const kept = stored();
    if (NAMES.includes(kept as Name)) this.name = kept as Name;
    this.apply();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (this.version += 1));
    addEventListener("beforeprint", () => this.print(true));
    addEventListener("afterprint", () => this.print(false));
  }
  get sign(): string {
    return { system: "◐", light: "☀", dark: "☾" }[this.name];
  }
  turn(): void {
    this.name = NAMES[(NAMES.indexOf(this.name) + 1) % NAMES.length]!;
    localStorage.setItem("theme", this.name);
    this.apply();
  }
  /** Paper is light. */
  private print(printing: boolean): void {
    this.printing = printing;
    flushSync(() => this.apply());
  }
  private apply(): void {
    const name = this.printing ? "light" : this.name;
    if (name === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.setAttribute("data-theme", name);
    this.version += 1;
  }
}

/** A report in a sandbox has no storage. */
function stored(): string | null {
  try {
    return localStorage.getItem("theme");
  } catch {
    return null;
  }
}

export const theme = new Theme();
