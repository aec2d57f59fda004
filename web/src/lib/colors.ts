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

/** A colour of the style sheet as it is now, light or dark. */
export function style(name: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.documentElement.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
