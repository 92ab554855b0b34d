/** `hangar secret …`. */
import type { Command } from "commander";
import { listSecrets, removeSecret, setSecret } from "./commands/secret.ts";
import type { Context } from "./context.ts";
import { examples, json } from "./program-parts.ts";

export function secrets(secret: Command, context: Context): void {
  secret
    .command("set <name>")
    .description("set one; its value comes from standard input, or is asked for")
    .option("--from-env [variable]", "take the value from a variable (without a name: of the same name)")
    .option("--file <file>", "take the value from a file, of UTF-8 text")
    .option(
      "--as <path>",
      "in the sandbox it is a file, byte for byte, and no variable: ~/PATH, or one inside the repo",
    )
    .option("--mode <mode>", "of that file, for its owner alone (0600)")
    .option("--env <environment>", "for that environment alone; it goes before the one for all")
    .addOption(json())
    .addHelpText(
      "after",
      examples(
        "hangar secret set ANTHROPIC_API_KEY",
        "hangar secret set NPM_TOKEN < token.txt",
        "hangar secret set ANTHROPIC_API_KEY --from-env",
        "hangar secret set KUBECONFIG_DEV --file ~/.kube/dev.yaml --as '~/.kube/config'",
        "hangar secret set NPM_TOKEN --env app < token.txt",
      ),
    )
    .action((name, options) => setSecret(context, name, options));
  secret
    .command("list")
    .description("their names; values are never shown")
    .addOption(json())
    .addHelpText("after", examples("hangar secret list"))
    .action((options) => listSecrets(context, options));
  secret
    .command("rm <name>")
    .description("remove one")
    .option("--env <environment>", "the one for that environment alone")
    .addHelpText("after", examples("hangar secret rm NPM_TOKEN", "hangar secret rm NPM_TOKEN --env app"))
    .action((name, options) => removeSecret(context, name, options));
}
