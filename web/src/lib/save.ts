// Files that the reader takes away: a figure as SVG with the colours that it is seen in, its numbers as CSV or JSON.
import { style } from "./colors";

export function save(name: string, kind: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** An SVG file by itself: no style sheet, so variables become the colours that they stand for. */
export function standalone(width: number, height: number, inner: string): string {
  const body = inner.replace(/var\((--[\w-]+)\)/g, (_, name: string) => style(name));
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="12"><rect width="100%" height="100%" fill="${style("--panel")}"/>${body}</svg>\n`;
}
