/** The commands of `hangar vault`. */
import type { Command } from "commander";
import { exportVault, initVault, resealVault, rotateVault } from "./commands/vault.ts";
import type { Context } from "./context.ts";
import { examples, json } from "./program-parts.ts";

export function vault(command: Command, context: Context): void {
  command
    .command("init")
    .description("make the key where there is none; `hangar up` does so too")
    .addOption(json())
    .addHelpText("after", examples("hangar vault init"))
    .action((options) => initVault(context, options));
  command
    .command("export")
    .description("the key, for a backup: to a new file, or to a pipe")
    .option("--out <file>", "write it there, readable by you alone")
    .option("-y, --yes", "show it on the screen")
    .addHelpText(
      "after",
      examples("hangar vault export --out vault-backup.txt", "hangar vault export | pass insert -m hangar"),
    )
    .action((options) => exportVault(context, options));
  command
    .command("rotate")
    .description("take a new key for what is sealed from now on; the older one stays in use for what is there")
    .option("--reseal", "also seal anew what is there, then take the older key out of use; Hangar must be running")
    .addOption(json())
    .addHelpText("after", examples("hangar vault rotate", "hangar vault rotate --reseal"))
    .action((options) => rotateVault(context, options));
  command
    .command("reseal")
    .description("the second half of `rotate --reseal`, also after one that was cut off")
    .addOption(json())
    .addHelpText("after", examples("hangar vault reseal"))
    .action((options) => resealVault(context, options));
}
