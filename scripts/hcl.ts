/** HashiCorp's own HCL parser and formatter, as WebAssembly from npm. Loaded without its types, which bring a browser's with them. */
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);

/** As JSON: kind of block → type → name → its blocks. Rejects with the place and what was expected there. */
export const { parse } = require("@cdktn/hcl2json") as { parse: (name: string, text: string) => Promise<unknown> };
/** What `terraform fmt` makes of it. */
export const { format } = require("@cdktn/hcl-tools") as { format: (text: string) => Promise<string> };
