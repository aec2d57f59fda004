// Bars of who held which GPU when, and sums of them over time.
import type { Schemas } from "./api";

export type Gantt = Schemas["Gantt"];
export type Bar = [gpu: number, job: number, from: number, to: number, kind: number];
export const WORK = 0;
export const START = 1;
export const SUSPENDED = 2;

/** From when on there is something to see: the beginning of a time, or a little before the first bar. */
export function begin(data: Gantt, from: number): number {
  const first = data.bars.reduce((low, bar) => Math.min(low, bar[2]!), data.at_s - 60);
  return Math.max(from, first - 0.03 * (data.at_s - first));
}

/** GPUs held over time by tenant (or whatever `key` says), at `points` moments. A shared GPU counts for each. */
export function useOverTime(
  data: Gantt,
  from: number,
  to: number,
  points: number,
  key: (job: Schemas["GanttJob"]) => string,
): { times: number[]; series: Map<string, number[]> } {
  const step = (to - from) / points;
  const times = Array.from({ length: points }, (_, at) => from + (at + 0.5) * step);
  const series = new Map<string, number[]>();
  for (const [, job, begin, end, kind] of data.bars as unknown as Bar[]) {
    if (kind === SUSPENDED || end <= from || begin >= to) continue;
    const name = key(data.jobs[job]!);
    let sums = series.get(name);
    if (!sums) series.set(name, (sums = new Array<number>(points).fill(0)));
    const first = Math.max(0, Math.floor((begin - from) / step));
    const last = Math.min(points - 1, Math.floor((end - from) / step));
    for (let at = first; at <= last; at++) {
      const low = from + at * step;
      sums[at]! += (Math.min(end, low + step) - Math.max(begin, low)) / step;
    }
  }
  return { times, series };
}
