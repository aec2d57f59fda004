// One stream of events per page. Who needs more than news of a job asks the service again when it hears of it.
import { get, type EventRow } from "./api";
import { follow, type Following } from "./sse";

type Hear = (events: EventRow[]) => void;
const KEPT = 300;
const TOGETHER_MS = 150;
const HIDDEN_MS = 20_000;

class Live {
  status = $state<"live" | "waiting" | "over">("waiting");
  /** The newest events, newest first. */
  recent = $state.raw<EventRow[]>([]);
  seq = 0;
  /** Events heard and repeated ones that were dropped, for whoever checks that none is lost. */
  heard = 0;
  repeated = 0;
  private listeners = new Set<Hear>();
  private stream: Following | null = null;
  private batch: EventRow[] = [];
  private timer = 0;
  private hiding = 0;

  async start(): Promise<void> {
    if (this.seq === 0) this.seq = (await get<{ next: number }>("/v1/events", { after: -1 })).next;
    this.open();
    document.addEventListener("visibilitychange", () => this.seen());
  }

  /** A page that nobody looks at gives its connection back after a while, and catches up when it is seen again. */
  private seen(): void {
    clearTimeout(this.hiding);
    if (!document.hidden) this.open();
    else
      this.hiding = window.setTimeout(() => {
        this.stream?.close();
        this.stream = null;
      }, HIDDEN_MS);
  }

  private open(): void {
    if (this.stream) return;
    this.stream = follow({
      path: "/v1/events/stream",
      query: { after: this.seq },
      from: () => String(this.seq),
      hear: (sent) => this.take(sent.data as EventRow),
      status: (status) => (this.status = status),
    });
  }

  private take(event: EventRow): void {
    if (typeof event.seq !== "number") return; // an error told in the stream; it ends and is opened again
    if (event.seq <= this.seq) {
      this.repeated += 1;
      return;
    }
    this.seq = event.seq;
    this.heard += 1;
    this.batch.push(event);
    this.timer ||= window.setTimeout(() => {
      const some = this.batch;
      this.batch = [];
      this.timer = 0;
      this.recent = [...some.toReversed(), ...this.recent].slice(0, KEPT);
      for (const hear of this.listeners) hear(some);
    }, TOGETHER_MS);
  }

  hear(call: Hear): () => void {
    this.listeners.add(call);
    return () => this.listeners.delete(call);
  }
}

export const live = new Live();
Object.assign(window, { cotenantLive: live });

/** Calls `load` now, when events that matter come (at most every `least` ms), and every `every` ms if that is given. */
export function refreshed(
  load: () => Promise<void>,
  { matters = () => true, least = 1000, every = 0 }: { matters?: (e: EventRow) => boolean; least?: number; every?: number } = {},
): () => void {
  let busy = false;
  let again = false;
  let last = 0;
  let timer = 0;
  const run = async (): Promise<void> => {
    clearTimeout(timer);
    timer = 0;
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    last = performance.now();
    await load().catch(() => {});
    busy = false;
    if (again) {
      again = false;
      soon();
    }
  };
  const soon = (): void => {
    timer ||= window.setTimeout(run, Math.max(0, last + least - performance.now()));
  };
  const off = live.hear((events) => {
    if (events.some(matters)) soon();
  });
  const ticking = every ? window.setInterval(() => !document.hidden && live.status === "live" && soon(), every) : 0;
  void run();
  return () => {
    off();
    clearInterval(ticking);
    clearTimeout(timer);
  };
}
