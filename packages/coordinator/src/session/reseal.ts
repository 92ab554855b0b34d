/**
 * After the vault's rotation: seals anew what is sealed to older identities, then takes those out of use. Each object is
 * replaced in one step by one that says the same, so it may be cut off anywhere and done again, also by two at once.
 *
 * Parts are not rewritten: they are sealed to their session's identity too, and that is what is sealed anew.
 */
import type { Resealed } from "@hangar/shared";
import { identityKey, MARKER_FILE } from "../store/store.ts";
import { remakeMarker } from "./marker.ts";
import type { Deps } from "./ports.ts";

export async function reseal(
  deps: Pick<Deps, "store" | "vault" | "secrets" | "clock" | "log">,
  owner: string,
): Promise<Resealed> {
  await deps.vault.refresh();
  const done = { identities: 0, markers: 0, secrets: 0 };
  // What another replica sealed while it did not know of the rotation yet shows in the next round.
  for (let before = -1; before !== sum(done);) {
    before = sum(done);
    done.secrets += await resealSecrets(deps, owner);
    for await (const key of deps.store.list("sessions/")) {
      const [, session = "", checkpoint = ""] = key.split("/");
      if (key === identityKey(session)) done.identities += await resealIdentity(deps, key);
      else if (key.endsWith(`/${MARKER_FILE}`)) done.markers += await resealMarker(deps, key, session, checkpoint);
    }
  }
  return { ...done, recipient: deps.vault.recipient, retired: await deps.vault.retire(new Date(deps.clock())) };
}

const sum = (done: Readonly<Record<string, number>>): number => Object.values(done).reduce((a, b) => a + b, 0);

async function resealSecrets({ secrets, vault }: Pick<Deps, "secrets" | "vault">, owner: string): Promise<number> {
  let count = 0;
  for (const key of await secrets.list(owner)) {
    const kept = await secrets.get(owner, key);
    const sealed = kept && (await vault.reseal(kept.sealed));
    if (!sealed) continue;
    await secrets.put(owner, key, { ...kept, sealed });
    count++;
  }
  return count;
}

async function resealIdentity({ store, vault }: Pick<Deps, "store" | "vault">, key: string): Promise<number> {
  const sealed = await store.read(key);
  const anew = sealed && (await vault.reseal(sealed));
  if (!anew) return 0;
  await store.replace(key, anew);
  return 1;
}

/** A marker that is damaged or forged stays what it is: it counts for nothing under any identity. */
async function resealMarker(
  deps: Pick<Deps, "store" | "vault" | "log">,
  key: string,
  session: string,
  checkpoint: string,
): Promise<number> {
  const bytes = await deps.store.read(key);
  if (bytes === null) return 0;
  const anew = await remakeMarker(deps.vault, bytes, { session, checkpoint });
  if (anew === "forged")
    deps.log.warn({ session, checkpoint }, "a marker that is damaged or forged is not sealed anew");
  if (anew === null || anew === "forged") return 0;
  await deps.store.replace(key, anew);
  return 1;
}
