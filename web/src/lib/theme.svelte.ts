// Light, dark, or as the system says. Only this choice is kept in the browser's storage.
const NAMES = ["system", "light", "dark"] as const;
type Name = (typeof NAMES)[number];

class Theme {
  name = $state<Name>("system");
  /** Counts up when the colours have changed, for what is drawn on a canvas. */
  version = $state(0);
  constructor() {
    const kept = localStorage.getItem("theme");
    if (NAMES.includes(kept as Name)) this.name = kept as Name;
    this.apply();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (this.version += 1));
  }
  get sign(): string {
    return { system: "◐", light: "☀", dark: "☾" }[this.name];
  }
  turn(): void {
    this.name = NAMES[(NAMES.indexOf(this.name) + 1) % NAMES.length]!;
    localStorage.setItem("theme", this.name);
    this.apply();
  }
  private apply(): void {
    if (this.name === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.setAttribute("data-theme", this.name);
    this.version += 1;
  }
}

export const theme = new Theme();
