#!/usr/bin/env node
import { launch } from "@hangar/shared/launch";

await launch(new URL("../src/main.ts", import.meta.url));
