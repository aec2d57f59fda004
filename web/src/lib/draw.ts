// The Gantt chart on a canvas. Bars are sorted once by row and time; a frame draws only what is seen, and of bars
// narrower than a pixel at most one per pixel, so that a hundred thousand pan smoothly.
import { SUSPENDED, START, type Bar } from "./gantt";
import { moments } from "./times";

export type View = { from: number; to: number; top: number };
export type Scene = {
  /** Rows in drawing order; of each its bars by start, with the lane in which each is stacked. */
  rows: { label: string; bars: Float64Array; lanes: number; job: Int32Array; kind: Uint8Array; lane: Uint8Array; longest: number }[];
  colors: string[];
  color: Uint16Array; // by job
  from: number;
  to: number;
  /** Times are since the beginning of a run, not by the clock. */
  since?: boolean;
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

/** What a chart is drawn with: a canvas, or text of an SVG file. Rectangles are four numbers each. */
export interface Pen {
  rects(at: number[], color: string, alpha?: number): void;
  frame(at: number[], color: string): void;
  word(text: string, x: number, y: number, color: string): void;
  clip(x: number, y: number, width: number, height: number): void;
  unclip(): void;
}

export class CanvasPen implements Pen {
  constructor(private g: CanvasRenderingContext2D) {
    g.font = "12px system-ui, sans-serif";
    g.textBaseline = "middle";
  }
  private path(at: number[]): void {
    this.g.beginPath();
    for (let n = 0; n < at.length; n += 4) this.g.rect(at[n]!, at[n + 1]!, at[n + 2]!, at[n + 3]!);
  }
  rects(at: number[], color: string, alpha = 1): void {
    this.path(at);
    this.g.globalAlpha = alpha;
    this.g.fillStyle = color;
    this.g.fill();
    this.g.globalAlpha = 1;
  }
  frame(at: number[], color: string): void {
    this.path(at);
    this.g.strokeStyle = color;
    this.g.lineWidth = 2;
    this.g.stroke();
  }
  word(text: string, x: number, y: number, color: string): void {
    this.g.fillStyle = color;
    this.g.fillText(text, x, y);
  }
  clip(x: number, y: number, width: number, height: number): void {
    this.g.save();
    this.g.beginPath();
    this.g.rect(x, y, width, height);
    this.g.clip();
  }
  unclip(): void {
    this.g.restore();
  }
}

export class SvgPen implements Pen {
  text = "";
  private clips = 0;
  private path(at: number[]): string {
    let d = "";
    for (let n = 0; n < at.length; n += 4) d += `M${at[n]!.toFixed(1)} ${at[n + 1]!.toFixed(1)}h${at[n + 2]!.toFixed(1)}v${at[n + 3]!.toFixed(1)}h${(-at[n + 2]!).toFixed(1)}z`;
    return d;
  }
  rects(at: number[], color: string, alpha = 1): void {
    this.text += `<path d="${this.path(at)}" fill="${color}"${alpha < 1 ? ` opacity="${alpha}"` : ""}/>`;
  }
  frame(at: number[], color: string): void {
    if (at.length) this.text += `<path d="${this.path(at)}" fill="none" stroke="${color}" stroke-width="2"/>`;
  }
  word(text: string, x: number, y: number, color: string): void {
    const safe = text.replace(/[<>&"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
    this.text += `<text x="${x}" y="${y.toFixed(1)}" fill="${color}" dominant-baseline="middle">${safe}</text>`;
  }
  clip(x: number, y: number, width: number, height: number): void {
    const id = `clip${(this.clips += 1)}`;
    this.text += `<clipPath id="${id}"><rect x="${x}" y="${y}" width="${width}" height="${height}"/></clipPath><g clip-path="url(#${id})">`;
  }
  unclip(): void {
    this.text += "</g>";
  }
}

export function draw(pen: Pen, scene: Scene, view: View, width: number, height: number, ink: Ink, picked: number, now: number): void {
  pen.rects([0, 0, width, height], ink.panel);
  const scale = (width - LEFT) / (view.to - view.from);
  const x = (at: number): number => LEFT + (at - view.from) * scale;
  for (const { at, text } of moments(view.from, view.to, width - LEFT, scene.since)) {
    const left = Math.round(x(at));
    pen.rects([left, HEAD - 4, 1, height], ink.line);
    if (left < width - 40) pen.word(text, left + 3, HEAD / 2, ink.soft);
  }
  pen.clip(LEFT, HEAD, width - LEFT, height - HEAD);
  const begin = Math.max(0, Math.floor(view.top / ROW));
  const end = Math.min(scene.rows.length, Math.ceil((view.top + height - HEAD) / ROW));
  // One path per colour and kind: few changes of state, whatever the number of bars.
  const solid = new Map<number, number[]>();
  const pale = new Map<number, number[]>();
  const lines = new Map<number, number[]>();
  const marked: number[] = [];
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
      if (!path) which.set(key, (path = []));
      const w = Math.max(right - left, 1);
      if (kind === SUSPENDED) path.push(left, y + ROW / 2 - 2, w, 2);
      else path.push(left, y + lane * tall, w > 3 ? w - 1 : w, Math.max(tall - (row.lanes > 1 ? 1 : 0), 1));
      if (job === picked) marked.push(left, y, w, ROW - 2);
    }
  }
  for (const [key, path] of solid) pen.rects(path, scene.colors[key]!);
  for (const [key, path] of pale) pen.rects(path, scene.colors[key]!, 0.45);
  for (const [key, path] of lines) pen.rects(path, scene.colors[key]!);
  pen.frame(marked, ink.pick);
  if (now > view.from && now < view.to) pen.rects([x(now), HEAD, 1, height], ink.pick);
  pen.unclip();
  pen.clip(0, HEAD, LEFT - 4, height - HEAD);
  for (let at = begin; at < end; at++) pen.word(scene.rows[at]!.label, 6, HEAD + at * ROW - view.top + ROW / 2, ink.soft);
  pen.unclip();
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
