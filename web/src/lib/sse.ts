// Server-sent events over fetch: unlike EventSource it hears every kind, sees refusals and can go on from a number.
import { ApiError, send, url } from "./api";

export type Sent = { kind: string; id: string; data: unknown };

/** Cuts a stream of text into events; half of one waits for its rest. */
export function splitter(hear: (sent: Sent) => void): (text: string) => void {
  let rest = "";
  return (text) => {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      let kind = "message";
      let id = "";
      let data = "";
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) kind = line.slice(7);
        else if (line.startsWith("id: ")) id = line.slice(4);
        else if (line.startsWith("data: ")) data += line.slice(6);
      }
      if (data) hear({ kind, id, data: JSON.parse(data) as unknown });
    }
  };
}

export type Following = { close: () => void };
type Status = "live" | "waiting" | "over";
type Asked = {
  path: string;
  query: Record<string, string | number | boolean>;
  from: () => string;
  hear: (sent: Sent) => void;
  status: (status: Status) => void;
};

const FIRST_MS = 300;
const MOST_MS = 5000;

/** Follows a stream until it is closed; after a break it goes on from `from()`, later each time. */
export function follow(asked: Asked): Following {
  const ending = new AbortController();
  void (async () => {
    let pause = FIRST_MS;
    while (!ending.signal.aborted) {
      try {
        const last = asked.from();
        const headers: Record<string, string> = last ? { "Last-Event-ID": last } : {};
        const answer = await send("GET", url(asked.path, asked.query), { headers, signal: ending.signal });
        const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
        const take = splitter(asked.hear);
        asked.status("live");
        pause = FIRST_MS;
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          take(value);
        }
      } catch (error) {
        if (error instanceof ApiError && (error.status === 401 || error.status === 404)) {
          asked.status("over");
          return;
        }
      }
      if (ending.signal.aborted) return;
      asked.status("waiting");
      await new Promise((done) => setTimeout(done, pause * (0.75 + Math.random() / 2)));
      pause = Math.min(pause * 1.6, MOST_MS);
    }
  })();
  return { close: () => ending.abort() };
}
