// Round moments for axes of time: by the clock, or since the beginning of a run.
const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800, 1209600, 2592000];
const two = (n: number): string => String(n).padStart(2, "0");

/** Moments at least so many pixels apart, with what to write at each. */
export function moments(from: number, to: number, pixels: number, since = false, apart = 90): { at: number; text: string }[] {
  const step = STEPS.find((one) => (one * pixels) / (to - from) > apart) ?? Math.ceil((apart * (to - from)) / pixels / 2592000) * 2592000;
  const zone = since ? 0 : new Date(from * 1000).getTimezoneOffset() * 60;
  const found: { at: number; text: string }[] = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at < to; at += step) found.push({ at, text: since ? passed(at, step) : clocked(at, step) });
  return found;
}

function clocked(at: number, step: number): string {
  const date = new Date(at * 1000);
  const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}${step < 60 ? `:${two(date.getSeconds())}` : ""}`;
  return step >= 86400 ? day : date.getHours() === 0 && date.getMinutes() === 0 ? `${day} ${time}` : time;
}

/** Time since the beginning: 40 s, 12:30 (hours and minutes), 3 d, 3 d 06:00. */
export function passed(at: number, step = 60): string {
  const days = Math.floor(at / 86400);
  const rest = at - days * 86400;
  const time = `${two(Math.floor(rest / 3600))}:${two(Math.floor((rest % 3600) / 60))}${step < 60 ? `:${two(Math.floor(rest % 60))}` : ""}`;
  if (!days) return at < 3600 && step < 60 ? `${Math.round(at)} s` : time;
  return rest < 1 ? `${days} d` : step >= 86400 ? `${days} d` : `${days} d ${time}`;
}
