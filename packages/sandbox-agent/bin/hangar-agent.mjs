#!/usr/bin/env node
import { launch } from "@hangar/shared/launch";

// The home is the sandbox's: what is in it belongs to its user, and is looked at by checkpoints' tests. So compiled code is
// kept where the driver says (there it is ready before the first start), or nowhere.
await launch(new URL("../src/main.ts", import.meta.url), process.env.HANGAR_AGENT_CODE || null);
