// Records of the journal in words.
import type { EventRow } from "./api";
import { clock, places, span } from "./format";

type Data = Record<string, any>;

const WORDS: Record<string, (data: Data) => string> = {
  submit: (d) => `submitted${d.user ? ` by ${d.user}` : ""}`,
  launch: (d) => `launched on ${places(d.gpus ?? [])}`,
  ahead: (d) => `started ahead of its GPUs (${places(d.gpus ?? [])})`,
  started: () => "runs",
  ready: () => "made its first steps",
  exit: (d) => `ended: ${d.why ?? ""}${d.to ? ` → ${d.to}` : ""}`,
  stop: (d) => `asked to stop (${d.why})`,
  rung: (d) => `${d.rung} (next rung of the ladder)`,
  suspended: () => "suspended",
  continue: () => "is to go on",
  continued: (d) => `goes on after ${span(d.seconds)}`,
  hold: () => "held",
  resume: () => "released",
  set: (d) => `changed: ${Object.entries(d).map(([k, v]) => `${k} = ${JSON.stringify(v)}`).join(", ")}`,
  resize: (d) => `shall have ${d.gpus} GPUs`,
  reject: (d) => `ended without a start: ${d.why}`,
  aside: (d) => (d.why ? `set aside: ${d.why}` : "back in the queue"),
  deadline: (d) => `deadline ${d.verdict}: ${d.text}`,
  forecast: (d) => `expected to end at ${clock(d.expected_end_s)} (told at ${d.at})`,
  policy: (d) => `policy is now ${d.policy}`,
  drain: (d) => `${d.node} ${d.undo ? "takes jobs again" : "is drained"}`,
  window: (d) => `${d.window?.kind ?? "window"} planned`,
  "window-removed": (d) => `window removed ${d.why ?? ""}`,
  power: (d) => [...(d.asleep ?? []).map((n: string) => `${n} sleeps`), ...(d.woken ?? []).map((n: string) => `${n} wakes`)].join(", "),
  forget: (d) => `${d.jobs?.length ?? 0} old jobs are forgotten`,
  clock: () => "the clock was looked at",
  pause: () => "paused",
  split: (d) => `steps are cut into ${2 ** (d.level ?? 0)}`,
  try: () => "is tried with others",
};

export const tell = (event: EventRow): string => {
  const data = event.data as Data;
  return (data.text as string | undefined) ?? WORDS[event.kind]?.(data) ?? event.kind;
};

const NOISE = new Set(["clock", "memory", "barrier", "forecast", "once"]);
export const matters = (event: EventRow): boolean => !NOISE.has(event.kind);
