// One colour per name, the same on every page; neighbours in the list are easy to tell apart, in light and dark.
const HUES = ["#3b78d8", "#e08a1e", "#2f9e6b", "#c2528b", "#8a6fd1", "#b5483a", "#3aa6b9", "#9a8a2c", "#6b7a8f", "#d46a9f"];
const known = new Map<string, string>();

export function color(name: string): string {
  let found = known.get(name);
  if (!found) {
    found = HUES[known.size % HUES.length]!;
    known.set(name, found);
  }
  return found;
}

/** The value of a custom property of the style sheet. */
export const style = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
