#!/usr/bin/env node
import { launch } from "@hangar/shared/launch";

// The home is the sandbox's: what is in it belongs to its user, and is looked at by checkpoints' tests. The daemon's own
// folder may hold compiled code; the offline commands keep none.
const state = process.env.HANGAR_AGENT_STATE;
await launch(new URL("../src/main.ts", import.meta.url), state ? `${state}/compiled` : null);
