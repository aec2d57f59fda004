// What of a report is seen: the policies that are not hidden, the cell of a sweep, the policy of the schedule.
import { SvelteSet } from "svelte/reactivity";
import type { Spec } from "../lib/plot";

/** Bars of one policy, as columns; `job` counts the names in `jobs`, `row` the first GPU of `tall` neighbours. */
export type Bars = { jobs: string[]; size: number[]; gpus: number[]; job: number[]; row: number[]; tall: number[]; start: number[]; end: number[] };
export type Schedule = { rows: string[]; from: number; to: number; note: string; lines: Bars[] };
export type Cell = { label: string; charts: Record<string, Spec>; schedule: Schedule | null };
export type Report = { charts: Record<string, Spec>; cells: Cell[]; sizes: [name: string, color: string][] };

class Shown {
  report = $state.raw<Report>({ charts: {}, cells: [], sizes: [] });
  hidden = new SvelteSet<number>();
  cell = $state(0);
  policy = $state(0);
  chart(slug: string): Spec | undefined {
    return this.report.charts[slug] ?? this.report.cells[this.cell]?.charts[slug];
  }
  get schedule(): Schedule | null {
    return this.report.cells[this.cell]?.schedule ?? null;
  }
}

export const shown = new Shown();
