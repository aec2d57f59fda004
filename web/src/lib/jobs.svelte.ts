// All jobs that the reader may see, up to a bound: the first screenful at once, the rest behind it, then only changes.
import { get, type EventRow, type Job, type Schemas } from "./api";
import { FINAL } from "./format";
import { live } from "./live.svelte";

const FIRST = 200;
const MOST = 10_000;
const MANY = 200; // changed jobs from which on all are read again
const LEAST_MS = 500;
const STALE_MS = 15_000;

class Jobs {
  all = $state.raw<Job[]>([]);
  leftOut = $state(0);
  loaded = $state<"none" | "some" | "all">("none");
  error = $state("");
  private byId = new Map<string, Job>();
  private changed = new Set<string>();
  private timer = 0;
  private users = 0;
  private off: (() => void) | null = null;
  private ticking = 0;

  /** Keeps the listing up to date as long as somebody shows it. */
  use(): () => void {
    this.users += 1;
    if (this.users === 1) {
      this.off = live.hear((events) => this.hear(events));
      this.ticking = window.setInterval(() => this.renew(), STALE_MS);
      void this.load();
    }
    return () => {
      this.users -= 1;
      if (this.users > 0) return;
      this.off?.();
      clearInterval(this.ticking);
    };
  }

  async load(): Promise<void> {
    try {
      if (this.loaded === "none") {
        this.take(await get<Schemas["Jobs"]>("/v1/jobs", { limit: FIRST }), true);
        this.loaded = "some";
      }
      if (this.leftOut > 0 || this.loaded === "all") {
        this.take(await get<Schemas["Jobs"]>("/v1/jobs", { limit: MOST }), true);
      }
      this.loaded = "all";
      this.error = "";
    } catch (error) {
      this.error = (error as Error).message;
    }
  }

  private take(found: Schemas["Jobs"], whole: boolean): void {
    if (whole) {
      this.byId = new Map(found.jobs.map((job) => [job.id, job]));
      this.leftOut = found.left_out;
    } else for (const job of found.jobs) this.byId.set(job.id, job);
    this.all = [...this.byId.values()];
  }

  private hear(events: EventRow[]): void {
    for (const event of events) {
      if (event.kind === "forget") for (const id of (event.data["jobs"] as string[]) ?? []) this.byId.delete(id);
      else if (event.job) this.changed.add(event.job);
    }
    if (this.changed.size) this.timer ||= window.setTimeout(() => void this.fetchChanged(), LEAST_MS);
  }

  /** Reasons and expected ends change without an event: those of unfinished jobs are read again now and then. */
  private renew(): void {
    if (document.hidden || live.status !== "live" || this.changed.size) return;
    const open = this.all.filter((job) => !FINAL.has(job.state)).slice(0, MANY);
    for (const job of open) this.changed.add(job.id);
    if (open.length) void this.fetchChanged();
  }

  private async fetchChanged(): Promise<void> {
    const ids = [...this.changed];
    this.changed.clear();
    try {
      if (ids.length > MANY) await this.load();
      else this.take(await get<Schemas["Jobs"]>("/v1/jobs", { id: ids, limit: MOST }), false);
    } catch {
      await this.load();
    }
    this.timer = 0;
    if (this.changed.size) this.timer = window.setTimeout(() => void this.fetchChanged(), 4 * LEAST_MS);
  }
}

export const jobs = new Jobs();
