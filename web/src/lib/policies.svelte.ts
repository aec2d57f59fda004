// Policies that are registered, read once.
import { get, type Schemas } from "./api";

class Policies {
  all = $state.raw<Schemas["KnownPolicy"][]>([]);
  private asked = false;
  use(): void {
    if (this.asked) return;
    this.asked = true;
    get<Schemas["KnownPolicies"]>("/v1/policies")
      .then((found) => (this.all = found.policies))
      .catch(() => (this.asked = false));
  }
}

export const policies = new Policies();
