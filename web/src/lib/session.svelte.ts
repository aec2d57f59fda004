// Who is signed in. The secret is a cookie that this script cannot read.
import { router } from "./router.svelte";
import { ask, get, onSignedOut, type SignedIn } from "./api";

class Session {
  user = $state<SignedIn | null>(null);
  checked = $state(false);
  notice = $state("");

  constructor() {
    onSignedOut(() => void this.check("You were signed out: the session or its token has ended."));
  }

  get isAdmin(): boolean {
    return this.user?.role === "admin";
  }
  get mayWrite(): boolean {
    return this.user !== null && this.user.role !== "viewer";
  }

  /** Look who the cookie says we are; a code in the address is exchanged first, and gone from it at once. */
  async begin(): Promise<void> {
    const code = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
    if (code) {
      history.replaceState(null, "", "/");
      router.read();
      await this.signIn({ code }).catch((error: unknown) => (this.notice = String((error as Error).message)));
    }
    if (!this.user) await this.check();
    this.checked = true;
  }

  async signIn(given: { token: string } | { code: string }): Promise<void> {
    this.user = await ask<SignedIn>("POST", "/v1/session", given);
    this.notice = "";
  }

  async signOut(): Promise<void> {
    await ask("DELETE", "/v1/session");
    location.reload();
  }

  private async check(notice = ""): Promise<void> {
    try {
      this.user = (await get<{ user: SignedIn | null }>("/v1/session")).user;
      if (!this.user) this.notice = notice || this.notice;
    } catch (error) {
      if (!this.user) this.notice = (error as Error).message;
    }
  }
}

export const session = new Session();
