// The Gantt chart on a canvas. Bars are sorted once by row and time; a frame draws only what is seen, and of bars
// narrower than a pixel at most one per pixel, so that a hundred thousand pan smoothly.
import { SUSPENDED, START, type Bar } from "./gantt";

export type View = { from: number; to: number; top: number };
export type Scene = {
  /** Rows in drawing order; of each its bars by start, with the lane in which each is stacked. */
  rows: { label: string; bars: Float64Array; lanes: number; job: Int32Array; kind: Uint8Array; lane: Uint8Array; longest: number }[];
  colors: string[];
  color: Uint16Array; // by job
  from: number;
  to: number;
};

export const ROW = 20;
export const HEAD = 26;
export const LEFT = 96;

/** Bars as columns, row by row, overlapping ones in lanes of their own. */
export function prepare(labels: string[], bars: Bar[], colorOf: (job: number) => string, jobs: number): Scene {
  const byRow: Bar[][] = labels.map(() => []);
  for (const bar of bars) byRow[bar[0]]?.push(bar);
  const known = new Map<string, number>();
  const color = new Uint16Array(jobs);
  for (let job = 0; job < jobs; job++) {
    const name = colorOf(job);
    if (!known.has(name)) known.set(name, known.size);
    color[job] = known.get(name)!;
  }
  let from = Infinity;
  let to = -Infinity;
  const rows = byRow.map((mine, at) => {
    mine.sort((a, b) => a[2] - b[2] || a[4] - b[4]);
    const times = new Float64Array(2 * mine.length);
    const job = new Int32Array(mine.length);
    const kind = new Uint8Array(mine.length);
    const lane = new Uint8Array(mine.length);
    const ends: number[] = [];
    const laneOf = new Map<number, number>();
    let longest = 0;
    mine.forEach((bar, n) => {
      times[2 * n] = bar[2];
      times[2 * n + 1] = bar[3];
      job[n] = bar[1];
      kind[n] = bar[4];
      longest = Math.max(longest, bar[3] - bar[2]);
      from = Math.min(from, bar[2]);
      to = Math.max(to, bar[3]);
      if (bar[4] === SUSPENDED) return; // a thin line over the whole row: it holds nothing
      let free = laneOf.get(bar[1]) ?? -1;
      if (free < 0 || ends[free]! > bar[2] + 1e-3) free = ends.findIndex((end) => end <= bar[2] + 1e-3);
      if (free < 0) free = ends.length;
      ends[free] = bar[3];
      laneOf.set(bar[1], free);
      lane[n] = Math.min(free, 7);
    });
    return { label: labels[at]!, bars: times, lanes: Math.min(Math.max(ends.length, 1), 8), job, kind, lane, longest };
  });
  return { rows, colors: [...known.keys()], color, from, to };
}

/** The first bar that may reach into what begins at `from`. */
function first(row: Scene["rows"][number], from: number): number {
  let low = 0;
  let high = row.job.length;
  const least = from - row.longest;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.bars[2 * middle]! < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

export type Ink = { text: string; line: string; panel: string; soft: string; pick: string };

const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];
const two = (n: number): string => String(n).padStart(2, "0");

export function draw(g: CanvasRenderingContext2D, scene: Scene, view: View, width: number, height: number, ink: Ink, picked: number, now: number): void {
  g.fillStyle = ink.panel;
  g.fillRect(0, 0, width, height);
  const scale = (width - LEFT) / (view.to - view.from);
  const x = (at: number): number => LEFT + (at - view.from) * scale;
  drawTimes(g, view, scale, x, width, height, ink);
  g.save();
  g.beginPath();
  g.rect(LEFT, HEAD, width - LEFT, height - HEAD);
  g.clip();
  const begin = Math.max(0, Math.floor(view.top / ROW));
  const end = Math.min(scene.rows.length, Math.ceil((view.top + height - HEAD) / ROW));
  // One path per colour and kind: few changes of state, whatever the number of bars.
  const solid = new Map<number, Path2D>();
  const pale = new Map<number, Path2D>();
  const lines = new Map<number, Path2D>();
  const marked = new Path2D();
  for (let at = begin; at < end; at++) {
    const row = scene.rows[at]!;
    const y = HEAD + at * ROW - view.top + 1;
    const tall = (ROW - 2) / row.lanes;
    const edge = new Float64Array(row.lanes + 1).fill(-1);
    for (let n = first(row, view.from); n < row.job.length; n++) {
      const a = row.bars[2 * n]!;
      if (a >= view.to) break;
      const b = row.bars[2 * n + 1]!;
      if (b <= view.from) continue;
      const left = Math.max(x(a), LEFT - 2);
      const right = Math.min(x(b), width + 2);
      const job = row.job[n]!;
      const kind = row.kind[n]!;
      const lane = kind === SUSPENDED ? row.lanes : row.lane[n]!;
      if (right <= edge[lane]! && job !== picked) continue; // the pixel is painted already
      edge[lane] = Math.max(Math.ceil(left), right - 0.5);
      const which = kind === SUSPENDED ? lines : kind === START ? pale : solid;
      const key = scene.color[job]!;
      let path = which.get(key);
      if (!path) which.set(key, (path = new Path2D()));
      const w = Math.max(right - left, 1);
      if (kind === SUSPENDED) path.rect(left, y + ROW / 2 - 2, w, 2);
      else path.rect(left, y + lane * tall, w > 3 ? w - 1 : w, Math.max(tall - (row.lanes > 1 ? 1 : 0), 1));
      if (job === picked) marked.rect(left, y, w, ROW - 2);
    }
  }
  for (const [key, path] of solid) {
    g.fillStyle = scene.colors[key]!;
    g.fill(path);
  }
  g.globalAlpha = 0.45;
  for (const [key, path] of pale) {
    g.fillStyle = scene.colors[key]!;
    g.fill(path);
  }
  g.globalAlpha = 1;
  for (const [key, path] of lines) {
    g.fillStyle = scene.colors[key]!;
    g.fill(path);
  }
  g.strokeStyle = ink.pick;
  g.lineWidth = 2;
  g.stroke(marked);
  if (now > view.from && now < view.to) {
    g.fillStyle = ink.pick;
    g.fillRect(x(now), HEAD, 1, height);
  }
  g.restore();
  g.fillStyle = ink.soft;
  g.font = "12px system-ui, sans-serif";
  g.textBaseline = "middle";
  g.save();
  g.beginPath();
  g.rect(0, HEAD, LEFT - 4, height - HEAD);
  g.clip();
  for (let at = begin; at < end; at++) g.fillText(scene.rows[at]!.label, 6, HEAD + at * ROW - view.top + ROW / 2);
  g.restore();
}

function drawTimes(g: CanvasRenderingContext2D, view: View, scale: number, x: (at: number) => number, width: number, height: number, ink: Ink): void {
  const step = STEPS.find((one) => one * scale > 90) ?? 2592000;
  const zone = new Date(view.from * 1000).getTimezoneOffset() * 60;
  g.font = "12px system-ui, sans-serif";
  g.textBaseline = "middle";
  for (let at = Math.ceil((view.from - zone) / step) * step + zone; at < view.to; at += step) {
    const left = Math.round(x(at));
    if (left < LEFT) continue;
    g.fillStyle = ink.line;
    g.fillRect(left, HEAD - 4, 1, height);
    const date = new Date(at * 1000);
    const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    const time = `${two(date.getHours())}:${two(date.getMinutes())}${step < 60 ? `:${two(date.getSeconds())}` : ""}`;
    const text = step >= 86400 ? day : date.getHours() === 0 && date.getMinutes() === 0 ? `${day} ${time}` : time;
    g.fillStyle = ink.soft;
    if (left < width - 40) g.fillText(text, left + 3, HEAD / 2);
  }
}

/** Which bar is at a place, if any: [row, bar]. */
export function hit(scene: Scene, view: View, px: number, py: number, width: number): [number, number] | null {
  const at = Math.floor((py - HEAD + view.top) / ROW);
  const row = scene.rows[at];
  if (px < LEFT || py < HEAD || !row) return null;
  const time = view.from + ((px - LEFT) / (width - LEFT)) * (view.to - view.from);
  const slack = (1.5 * (view.to - view.from)) / (width - LEFT);
  const lane = Math.floor((((py - HEAD + view.top) % ROW) / ROW) * row.lanes);
  let found: [number, number] | null = null;
  for (let n = first(row, time - slack); n < row.job.length && row.bars[2 * n]! <= time + slack; n++) {
    if (row.bars[2 * n + 1]! < time - slack) continue;
    if (row.kind[n] !== SUSPENDED && row.lane[n] === lane) return [at, n];
    found ??= [at, n];
  }
  return found;
}
