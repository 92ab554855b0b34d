/** `/api/vault`: after a rotation of its key file. */
import type { Resealed } from "@hangar/shared";
import type { Routes } from "./routes.ts";

export interface VaultDeps {
  /** Seals anew what older identities hold, then takes them out of use. May take minutes; may be repeated. */
  reseal(): Promise<Resealed>;
}

export const vaultRoutes = (vault: VaultDeps): Routes => ({
  "/api/vault/reseal": { POST: async (c) => c.json(await vault.reseal()) },
});
