// Charts as plain data (axes and marks), laid out as shapes: what is drawn as SVG, exported, and hit by the pointer.
// The same data comes from the pages of the window and, as JSON, from the reports of `compare` and `analyze`.
import { scaleBand, scaleLinear, scaleLog } from "d3-scale";
import { area, curveLinear, curveStepAfter, line } from "d3-shape";
import { clock, short, span } from "./format";
import { moments } from "./times";

export type Axis = {
  kind?: "linear" | "log" | "band" | "time";
  title?: string;
  /** How values are said. */
  as?: "number" | "percent" | "span" | "clock";
  unit?: string;
  range?: [number, number];
  zero?: boolean;
  names?: string[];
};
export type Mark = {
  type: "line" | "fill" | "area" | "bar" | "dot" | "box" | "cells";
  name: string;
  color: string;
  /** The policy that it belongs to; hidden with it. */
  of?: number;
  x: number[];
  y: (number | null)[];
  low?: number[]; // of y, or of x where `across`
  high?: number[];
  step?: boolean;
  dash?: string;
  points?: boolean;
  quiet?: boolean; // not said by the pointer
  five?: number[][]; // boxes: 5th, 25th, 50th, 75th, 95th percentile and mean
  z?: (number | null)[][]; // cells, by y and x
};
export type Spec = { x: Axis; y: Axis; marks: Mark[]; across?: boolean; stack?: boolean; legend?: boolean; height?: number; rule?: number };
export type Shape = { d: string; fill?: string; stroke?: string; width?: number; dash?: string; alpha?: number };
export type Word = { text: string; x: number; y: number; anchor: "start" | "middle" | "end"; turn?: number; fill?: string };
export type Target = { x: number; y: number; w: number; h: number; text: string };
export type Drawn = { shapes: Shape[]; words: Word[]; targets: Target[]; box: Box; back: (px: number) => number };
type Box = { left: number; top: number; right: number; bottom: number };
type Scale = { at: (value: number) => number; wide: number; ticks: { at: number; text: string }[]; low: number; high: number };

const SPANS: [number, string][] = [
  [1, "1 s"], [10, "10 s"], [60, "1 min"], [600, "10 min"], [3600, "1 h"], [36000, "10 h"], [86400, "1 d"], [864000, "10 d"], [8640000, "100 d"], [86400000, "1,000 d"],
];
const LETTER = 6.6;
const HEAT = ["#e9f0fb", "#1d4f9e"] as const;

/** A value as people say it. */
export function say(axis: Axis, value: number | null | undefined): string {
  if (value == null) return "–";
  if (axis.kind === "band") return axis.names?.[value] ?? String(value);
  if (axis.as === "percent") return `${(100 * value).toFixed(1).replace(/\.0$/, "")} %`;
  if (axis.as === "span") return span(value);
  if (axis.as === "clock") return clock(value);
  return `${short(value)}${axis.unit ?? ""}`;
}

/** Where each bar of a stack begins. */
function bases(spec: Spec, marks: Mark[]): Map<Mark, number[]> {
  const sums = new Map<number, number>();
  const found = new Map<Mark, number[]>();
  if (!spec.stack) return found;
  for (const mark of marks) {
    if (mark.type !== "bar") continue;
    const [places, sizes] = spec.across ? [mark.y, mark.x] : [mark.x, mark.y];
    found.set(mark, places.map((place, n) => {
      const begin = sums.get(place!) ?? 0;
      sums.set(place!, begin + (sizes[n] ?? 0));
      return begin;
    }));
  }
  return found;
}

function values(spec: Spec, marks: Mark[], which: "x" | "y", base: Map<Mark, number[]>): number[] {
  const found: number[] = [];
  const limits = spec.across ? "x" : "y";
  for (const mark of marks) {
    if (mark.type === "box") {
      if (which === "y") found.push(...mark.five!.flatMap((five) => [five[0]!, five[4]!]));
      continue;
    }
    const begin = base.get(mark);
    for (const [n, value] of mark[which].entries()) if (value != null) found.push(which === limits && begin ? value + begin[n]! : value);
    if (which === limits) found.push(...(mark.low ?? []), ...(mark.high ?? []));
    if (which === limits && mark.type === "bar") found.push(0);
  }
  return found.filter(Number.isFinite);
}

function scaled(axis: Axis, seen: number[], from: number, to: number, zoom: [number, number] | null): Scale {
  const room = Math.abs(to - from);
  if (axis.kind === "band") {
    const names = axis.names ?? [];
    const band = scaleBand<number>(names.map((_, n) => n), [Math.min(from, to), Math.max(from, to)]).padding(0.18);
    const middle = (n: number): number => (band(n) ?? 0) + band.bandwidth() / 2;
    return { at: middle, wide: band.bandwidth(), ticks: names.map((text, n) => ({ at: middle(n), text })), low: 0, high: names.length };
  }
  let low = axis.range?.[0] ?? seen.reduce((a, b) => Math.min(a, b), Infinity);
  let high = axis.range?.[1] ?? seen.reduce((a, b) => Math.max(a, b), -Infinity);
  if (zoom) [low, high] = zoom;
  else if (axis.zero) low = Math.min(0, low);
  if (!Number.isFinite(low) || !Number.isFinite(high)) [low, high] = [0, 1];
  if (axis.kind === "log") {
    low = Math.max(low, 1e-9);
    if (high <= low) high = low * 10;
    const scale = scaleLog([low, high], [from, to]);
    const spans = axis.as === "span" ? SPANS.filter(([at]) => at >= low / 1.001 && at <= high * 1.001) : [];
    const steps: [number, string][] = spans.length > 1 ? spans : powers(low, high).map((at) => [at, say(axis, at)]);
    return { at: (v) => scale(Math.max(v, low * 1e-3)), wide: 0, low, high, ticks: steps.map(([at, text]) => ({ at: scale(at), text })) };
  }
  if (high <= low) high = low + 1;
  const scale = scaleLinear([low, high], [from, to]);
  if (!axis.range && !zoom && axis.kind !== "time") scale.nice(room / 70);
  [low, high] = scale.domain() as [number, number];
  if (axis.kind === "time") return { at: scale, wide: 0, low, high, ticks: moments(low, high, room, axis.as === "span", 80).map(({ at, text }) => ({ at: scale(at), text })) };
  return { at: scale, wide: 0, low, high, ticks: scale.ticks(Math.max(2, room / 70)).map((at) => ({ at: scale(at), text: say(axis, at) })) };
}

function powers(low: number, high: number): number[] {
  const steps = high / low > 2000 ? [1] : [1, 2, 5];
  const found: number[] = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
    for (const step of steps) if (step * 10 ** e >= low / 1.001 && step * 10 ** e <= high * 1.001) found.push(step * 10 ** e);
  return found;
}

/** Names below an axis are turned where they would run into each other. */
const turned = (axis: Axis, room: number): boolean =>
  axis.kind === "band" && (axis.names ?? []).some((name) => name.length * LETTER > room / (axis.names?.length ?? 1));

export function lay(spec: Spec, width: number, height: number, hidden: ReadonlySet<number> = new Set(), zoom: [number, number] | null = null): Drawn {
  const marks = spec.marks.filter((mark) => mark.of === undefined || !hidden.has(mark.of));
  const base = bases(spec, marks);
  const ys = values(spec, marks, "y", base);
  const top = 10;
  // The left margin follows the longest label, which needs a scale first.
  const guess = scaled(spec.y, ys, height - 40, top, null);
  const left = Math.min(Math.max(...guess.ticks.map((tick) => tick.text.length * LETTER), 20), 0.4 * width) + 12 + (spec.y.title ? 18 : 0);
  const turn = turned(spec.x, width - left - 14);
  const longest = Math.max(0, ...(spec.x.names ?? []).map((name) => name.length));
  const below = (turn ? Math.min(16 + longest * LETTER * 0.5, 110) : 22) + (spec.x.title ? 18 : 0);
  const box: Box = { left, top, right: width - 14, bottom: height - below };
  const x = scaled(spec.x, values(spec, marks, "x", base), box.left, box.right, zoom);
  const y = scaled(spec.y, ys, ...(spec.y.kind === "band" ? [box.top, box.bottom] as const : [box.bottom, box.top] as const), null);
  const drawn: Drawn = { shapes: [], words: [], targets: [], box, back: (px) => (spec.x.kind === "log" ? x.low * (x.high / x.low) ** ((px - box.left) / (box.right - box.left)) : x.low + ((px - box.left) / (box.right - box.left)) * (x.high - x.low)) };
  axes(spec, drawn, x, y, turn, width, height);
  const beside = marks.filter((mark) => mark.type === "bar" || mark.type === "box" || mark.type === "dot");
  for (const mark of marks) put(spec, drawn, mark, x, y, base.get(mark), beside.indexOf(mark), beside.length);
  return drawn;
}

function axes(spec: Spec, drawn: Drawn, x: Scale, y: Scale, turn: boolean, width: number, height: number): void {
  const { left, top, right, bottom } = drawn.box;
  let grid = "";
  for (const tick of y.ticks) {
    if (spec.y.kind !== "band") grid += `M${left} ${round(tick.at)}H${right}`;
    drawn.words.push({ text: cut(tick.text, 0.4 * width), x: left - 7, y: tick.at + 4, anchor: "end" });
  }
  let last = -Infinity;
  for (const tick of x.ticks) {
    if (spec.x.kind !== "band") grid += `M${round(tick.at)} ${top}V${bottom}`;
    const wide = tick.text.length * LETTER;
    if (turn) drawn.words.push({ text: cut(tick.text, 170), x: tick.at, y: bottom + 14, anchor: "end", turn: -30 });
    const middle = Math.min(tick.at, right + 12 - wide / 2);
    if (turn || middle - wide / 2 < last + 6) continue;
    drawn.words.push({ text: tick.text, x: middle, y: bottom + 16, anchor: "middle" });
    last = middle + wide / 2;
  }
  drawn.shapes.push({ d: grid, stroke: "var(--line)", width: 1 }, { d: `M${left} ${top}V${bottom}H${right}`, stroke: "var(--soft)", width: 1 });
  if (spec.rule !== undefined) drawn.shapes.push({ d: `M${round(x.at(spec.rule))} ${top}V${bottom}`, stroke: "var(--soft)", width: 2 });
  if (spec.x.title) drawn.words.push({ text: spec.x.title, x: (left + right) / 2, y: height - 5, anchor: "middle" });
  if (spec.y.title) drawn.words.push({ text: spec.y.title, x: 12, y: (top + bottom) / 2, anchor: "middle", turn: -90 });
}

const round = (value: number): number => Math.round(value * 10) / 10;
const cut = (text: string, room: number): string => (text.length * LETTER > room ? `${text.slice(0, Math.max(3, Math.floor(room / LETTER) - 1))}…` : text);
const rect = (x: number, y: number, w: number, h: number): string => `M${round(x)} ${round(y)}h${round(w)}v${round(h)}h${round(-w)}z`;
const disc = (x: number, y: number, r: number): string => `M${round(x - r)} ${round(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;

function put(spec: Spec, drawn: Drawn, mark: Mark, x: Scale, y: Scale, base: number[] | undefined, at: number, of: number): void {
  const { shapes, targets } = drawn;
  const told = (n: number): string => {
    const limits = mark.low && mark.high ? ` (${say(spec.across ? spec.x : spec.y, mark.low[n])} to ${say(spec.across ? spec.x : spec.y, mark.high[n])})` : "";
    const [place, value] = spec.across ? [say(spec.y, mark.y[n]), say(spec.x, mark.x[n])] : [say(spec.x, mark.x[n]), say(spec.y, mark.y[n])];
    return `${mark.name ? `${mark.name} · ` : ""}${place}: ${value}${limits}`;
  };
  // Bars, boxes and dots of several policies stand side by side in their band.
  const bands = spec.across ? y : x;
  const wide = bands.wide / (spec.stack ? 1 : Math.max(of, 1));
  const aside = bands.wide && !spec.stack ? (at - (of - 1) / 2) * wide : 0;
  const points = mark.x.map((value, n) => ({ n, x: x.at(value) + (spec.across ? 0 : aside), y: mark.y[n] == null ? null : y.at(mark.y[n]!) + (spec.across ? aside : 0) }));
  if (mark.type === "line") {
    const path = line<(typeof points)[number]>((p) => round(p.x), (p) => round(p.y!)).defined((p) => p.y != null).curve(mark.step ? curveStepAfter : curveLinear)(points);
    shapes.push({ d: path ?? "", stroke: mark.color, width: 2, dash: mark.dash });
    if (mark.points) shapes.push({ d: points.map((p) => (p.y == null ? "" : disc(p.x, p.y, 3.5))).join(""), fill: mark.color });
  } else if (mark.type === "fill") {
    shapes.push({ d: `M${points.map((p) => `${round(p.x)} ${round(p.y!)}`).join("L")}z`, fill: mark.color, alpha: 0.15 });
  } else if (mark.type === "area") {
    const path = area<(typeof points)[number]>((p) => round(p.x), (p) => round(y.at(mark.low![p.n]!)), (p) => round(y.at(mark.high![p.n]!)))(points);
    shapes.push({ d: path ?? "", fill: mark.color, stroke: mark.color, width: 0.5, alpha: 0.85 });
  } else if (mark.type === "bar") {
    let path = "";
    for (const p of points) {
      if (p.y == null) continue;
      const begin = base?.[p.n] ?? 0;
      const thick = Math.max(wide * 0.92, 1);
      const [a, b] = spec.across ? [x.at(begin), x.at(begin + mark.x[p.n]!)] : [y.at(begin), y.at(begin + mark.y[p.n]!)];
      const [px, py, w, h] = spec.across ? [Math.min(a, b), p.y - thick / 2, Math.abs(b - a), thick] : [p.x - thick / 2, Math.min(a, b), thick, Math.abs(b - a)];
      path += rect(px, py, w, h);
      targets.push({ x: px, y: py, w, h: Math.max(h, 2), text: told(p.n) });
    }
    shapes.push({ d: path, fill: mark.color });
  } else if (mark.type === "dot") {
    shapes.push({ d: points.map((p) => (p.y == null ? "" : disc(p.x, p.y, 4))).join(""), fill: mark.color });
  } else if (mark.type === "box") boxes(drawn, mark, points, y, wide, spec);
  else cells(spec, drawn, mark, x, y);
  if (mark.low && mark.high && mark.type !== "area") whiskers(drawn, mark, points, spec.across ? x : y, spec.across ?? false);
  if (["line", "area", "dot"].includes(mark.type) && !mark.quiet)
    for (const p of points) {
      const py = mark.type === "area" ? y.at(mark.high![p.n]!) : p.y;
      if (py != null) targets.push({ x: p.x, y: py, w: 0, h: 0, text: told(p.n) });
    }
}

type Point = { n: number; x: number; y: number | null };

function whiskers(drawn: Drawn, mark: Mark, points: Point[], scale: Scale, across: boolean): void {
  let path = "";
  for (const p of points) {
    if (p.y == null || mark.high![p.n]! - mark.low![p.n]! <= 0) continue;
    const [a, b] = [round(scale.at(mark.low![p.n]!)), round(scale.at(mark.high![p.n]!))];
    path += across ? `M${a} ${round(p.y)}H${b}M${a} ${round(p.y - 4)}v8M${b} ${round(p.y - 4)}v8` : `M${round(p.x)} ${a}V${b}M${round(p.x - 4)} ${a}h8M${round(p.x - 4)} ${b}h8`;
  }
  drawn.shapes.push({ d: path, stroke: mark.type === "bar" ? "var(--ink)" : mark.color, width: 1.4 });
}

function boxes(drawn: Drawn, mark: Mark, points: Point[], y: Scale, wide: number, spec: Spec): void {
  const half = Math.max(wide * 0.4, 1);
  let edge = "";
  let body = "";
  let mean = "";
  for (const p of points) {
    const five = mark.five![p.n]!;
    const [low, q1, middle, q3, high, average] = five.map((value) => round(y.at(value))) as [number, number, number, number, number, number];
    const [a, b] = [round(p.x - half), round(p.x + half)];
    body += rect(a, q3, b - a, q1 - q3);
    edge += `M${p.x} ${low}V${q1}M${p.x} ${q3}V${high}M${round(p.x - half / 2)} ${low}h${half}M${round(p.x - half / 2)} ${high}h${half}M${a} ${middle}H${b}${rect(a, q3, b - a, q1 - q3)}`;
    mean += `M${a} ${average}H${b}`;
    const text = `${mark.name} · ${say(spec.x, mark.x[p.n])}: median ${say(spec.y, five[2])}, quartiles ${say(spec.y, five[1])} to ${say(spec.y, five[3])}, mean ${say(spec.y, five[5])}`;
    drawn.targets.push({ x: a, y: Math.min(q3, average), w: b - a, h: Math.max(Math.abs(q1 - q3), 4), text });
  }
  drawn.shapes.push({ d: body, fill: mark.color, alpha: 0.4 }, { d: edge, stroke: mark.color, width: 1.4 }, { d: mean, stroke: mark.color, width: 1.4, dash: "3 2" });
}

function cells(spec: Spec, drawn: Drawn, mark: Mark, x: Scale, y: Scale): void {
  const known = mark.z!.flat().filter((value): value is number => value != null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const shade = scaleLinear<string>([low, high > low ? high : low + 1], [...HEAT]);
  mark.z!.forEach((row, at) =>
    row.forEach((value, n) => {
      if (value == null) return;
      const [px, py, w, h] = [x.at(n) - x.wide / 2, y.at(at) - y.wide / 2, x.wide, y.wide];
      drawn.shapes.push({ d: rect(px, py, w, h), fill: shade(value) });
      const text = `${short(value)}${spec.y.unit ?? ""}`;
      if (text.length * LETTER < w) drawn.words.push({ text, x: x.at(n), y: y.at(at) + 4, anchor: "middle", fill: value > (low + high) / 2 ? "#ffffff" : "#101820" });
      drawn.targets.push({ x: px, y: py, w, h, text: `${say(spec.y, at)}, ${say(spec.x, n)}: ${text}` });
    }),
  );
}

/** What is nearest to the pointer: a bar or cell around it, else a point not far from it. */
export function nearest(targets: Target[], px: number, py: number): Target | null {
  let found: Target | null = null;
  let least = 30 ** 2;
  for (const one of targets) {
    const dx = Math.max(one.x - px, 0, px - one.x - one.w);
    const dy = Math.max(one.y - py, 0, py - one.y - one.h);
    const far = dx * dx + dy * dy;
    if (far < least || (far === 0 && one.w > 0)) [found, least] = [one, far];
  }
  return found;
}

/** The figure's numbers as CSV: one row per mark and point. */
export function table(spec: Spec): string {
  const quoted = (value: unknown): string => (/[",\n]/.test(String(value ?? "")) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? ""));
  const named = (axis: Axis, value: number | null | undefined): unknown => (axis.kind === "band" && value != null ? axis.names?.[value] : value);
  const rows: unknown[][] = [];
  for (const mark of spec.marks) {
    if (mark.z) mark.z.forEach((row, at) => row.forEach((value, n) => rows.push([mark.name, named(spec.x, n), named(spec.y, at), value])));
    else mark.x.forEach((value, n) => rows.push([mark.name, named(spec.x, value), named(spec.y, mark.y[n]), ...(mark.five?.[n] ?? [mark.low?.[n], mark.high?.[n]])]));
  }
  const box = spec.marks.some((mark) => mark.five);
  const head = ["series", "x", "y", ...(box ? ["p5", "p25", "p50", "p75", "p95", "mean"] : spec.marks.some((mark) => mark.z) ? ["value"] : ["low", "high"])];
  return [head, ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
}
