// Requests to the service: the cookie goes by itself, writes carry the header that no other page can send.
import type { components } from "./schema";

export type Schemas = components["schemas"];
export type Job = Schemas["Job"];
export type Node = Schemas["Node"];
export type EventRow = Schemas["Event"];
export type SignedIn = Schemas["SignedIn"];

export class ApiError extends Error {
  constructor(
    readonly status: number,
    text: string,
  ) {
    super(text);
  }
}

type Query = Record<string, string | number | boolean | string[] | undefined>;

let lost: () => void = () => {};
/** Whom to tell that the session is over. */
export function onSignedOut(call: () => void): void {
  lost = call;
}

export function url(path: string, query: Query = {}): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const one of value) found.append(name, one);
    else if (value !== undefined && value !== "") found.set(name, String(value));
  }
  const text = found.toString();
  return text ? `${path}?${text}` : path;
}

export async function send(method: string, path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (method !== "GET") headers.set("X-Cotenant-Window", "1");
  const answer = await fetch(path, { ...init, method, headers, credentials: "same-origin", cache: "no-store" }).catch(
    (error: unknown) => {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      throw new ApiError(0, "The service does not answer.");
    },
  );
  if (answer.ok) return answer;
  if (answer.status === 401 && path !== "/v1/session") lost();
  let text = `${answer.status} ${answer.statusText}`;
  try {
    text = ((await answer.json()) as { error?: string }).error ?? text;
  } catch {
    /* not ours: the status says it */
  }
  throw new ApiError(answer.status, text);
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await (await send("GET", url(path, query), { signal })).json()) as T;
}

export async function ask<T>(method: string, path: string, body?: unknown): Promise<T> {
  const init: RequestInit =
    body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const answer = await send(method, path, init);
  return (answer.status === 204 ? undefined : await answer.json()) as T;
}

export const said = (error: unknown): string => (error instanceof Error ? error.message : String(error));
