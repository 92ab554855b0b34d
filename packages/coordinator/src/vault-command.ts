/**
 * `hangar-coordinator vault init|rotate`: what concerns the key file alone, whether or not a coordinator runs. Prints one JSON
 * object; a failure is one line on standard error and exit code 1.
 */
import { HangarError } from "@hangar/shared";
import { addKey, makeKeyFile, readKeys, vaultKeyFile } from "./vault/key-file.ts";

export async function vaultCommand(what: string | undefined, dataDir: string): Promise<void> {
  const file = vaultKeyFile(dataDir);
  try {
    if (what === "init") {
      const created = (await readKeys(file)) === null && (await makeKeyFile(file));
      const keys = await readKeys(file);
      console.log(JSON.stringify({ file, created, recipient: keys?.[0].recipient }));
    } else if (what === "rotate") {
      const { recipient } = await addKey(file);
      const keys = await readKeys(file);
      console.log(JSON.stringify({ file, recipient, older: (keys?.length ?? 1) - 1 }));
    } else throw new HangarError("invalid_request", "usage: hangar-coordinator vault init|rotate");
  } catch (error) {
    console.error(`hangar: ${error instanceof Error ? error.message : String(error)}`);
    process.exit(1);
  }
}
