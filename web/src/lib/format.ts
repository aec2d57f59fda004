// Numbers and times as people read them.
export const now = (): number => Date.now() / 1000;

const two = (n: number): string => String(n).padStart(2, "0");

/** 14:32:05 today, with the date on other days; – for none. */
export function clock(at: number | null | undefined, seconds = true): string {
  if (at == null || !Number.isFinite(at)) return "–";
  const date = new Date(at * 1000);
  const time = `${two(date.getHours())}:${two(date.getMinutes())}${seconds ? `:${two(date.getSeconds())}` : ""}`;
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time.slice(0, 5)}`;
}

/** 45 s, 12 min, 3.5 h, 2.1 d. */
export function span(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  const s = Math.abs(seconds);
  const sign = seconds < 0 ? "−" : "";
  if (s < 1) return `${sign}${s.toFixed(s === 0 ? 0 : 1)} s`;
  if (s < 100) return `${sign}${Math.round(s)} s`;
  if (s < 5700) return `${sign}${short(s / 60)} min`;
  if (s < 172800) return `${sign}${short(s / 3600)} h`;
  return `${sign}${short(s / 86400)} d`;
}

export const short = (n: number): string =>
  Math.abs(n) >= 100 ? Math.round(n).toLocaleString("en") : Number(n.toPrecision(n >= 10 ? 3 : 2)).toString();

export const count = (n: number | null | undefined): string => (n == null ? "–" : n.toLocaleString("en"));
export const percent = (n: number | null | undefined): string => (n == null ? "–" : `${Math.round(n * 100)} %`);
/** Time of one GPU: 17 GPU-s, 12 GPU-min, 3.5 GPU-h. */
export const gpuTime = (seconds: number): string => span(seconds).replace(/ (\w+)$/, " GPU-$1");

type Ends = {
  ended_s: number | null;
  expected_end_s: number | null;
  expected_end_low_s: number | null;
  expected_end_high_s: number | null;
};

/** When a job ended, or is expected to, with the limits for 9 times of 10. */
export function finish(job: Ends): string {
  if (job.ended_s != null) return clock(job.ended_s);
  if (job.expected_end_s == null) return "–";
  const { expected_end_low_s: low, expected_end_high_s: high } = job;
  if (low == null || high == null) return `≈ ${clock(job.expected_end_s, false)}`;
  const fine = high - low < 600;
  return `≈ ${clock(job.expected_end_s, fine)} (${clock(low, fine)}–${clock(high, fine)})`;
}

export const steps = (job: { step: number | null; total_steps: number | null }): string =>
  job.step == null ? "" : job.total_steps ? `${job.step} / ${job.total_steps}` : String(job.step);

export const ON_GPUS = new Set(["starting", "running", "stopping"]);
export const FINAL = new Set(["succeeded", "failed", "cancelled"]);

/** GPUs as they are named: n0: 0, 1 · n1: 3. */
export const places = (nodes: unknown): string =>
  (nodes as [string, number[]][]).map(([node, gpus]) => `${node}: ${gpus.join(", ")}`).join(" · ") || "–";
