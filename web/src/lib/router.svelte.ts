// Where the page is: the part of the address after '#', which never reaches the service.
export class Router {
  path = $state("");
  constructor() {
    this.read();
    addEventListener("hashchange", () => this.read());
  }
  /** Look where the address says that we are. */
  read(): void {
    this.path = location.hash.replace(/^#\/?/, "");
  }
  get page(): string {
    return this.path.split(/[/?]/)[0] || "overview";
  }
  get argument(): string {
    const [, rest = ""] = this.path.split("?")[0]!.split(/\/(.*)/);
    return decodeURIComponent(rest);
  }
  get query(): URLSearchParams {
    return new URLSearchParams(this.path.split("?")[1] ?? "");
  }
}

export const router = new Router();
export const go = (path: string): void => {
  location.hash = `#/${path}`;
};
export const jobLink = (id: string): string => `#/job/${encodeURIComponent(id)}`;
