// What-if questions that may take a while: asked again until the answer is there.
import { get, send, type Schemas } from "./api";

export type TrialAnswer = Schemas["TrialAnswer"];
type Later = { id: string; progress: { policy: string; done: number; jobs: number } };

export async function trial(
  asked: Partial<Omit<Schemas["TrialQuestion"], "jobs">> & { jobs?: Record<string, unknown>[] },
  progress: (text: string) => void = () => {},
  signal?: AbortSignal,
): Promise<TrialAnswer> {
  const answer = await send("POST", "/v1/trials", {
    body: JSON.stringify({ ...asked, later: true }),
    headers: { "Content-Type": "application/json" },
    signal,
  });
  let found = (await answer.json()) as TrialAnswer | Later;
  while ("progress" in found) {
    const { policy, done, jobs } = found.progress;
    progress(`${policy || "preparing"}: ${done} of ${jobs} jobs played`);
    found = await get<TrialAnswer | Later>(`/v1/whatif/${found.id}`, { wait: 2 }, signal);
  }
  return found;
}

