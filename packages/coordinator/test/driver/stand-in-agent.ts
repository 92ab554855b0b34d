/** A daemon's stand-in: runs the script in SCRIPT, says it is done, and stays. A mark of its own in tmux-like fashion: a child in a session of its own. */
export const AGENT = `
import { execFileSync, spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
if (process.argv[2] === "warm") process.exit(0);
const state = process.env.HANGAR_AGENT_STATE;
spawn("/bin/sleep", ["1000"], { detached: true, stdio: "ignore" }).unref();
let out = "";
try { out = execFileSync("/bin/bash", ["-c", process.env.SCRIPT ?? ":"], { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] }); }
catch (error) { out = "FAILED " + error.message; }
writeFileSync(state + "/out", out);
writeFileSync(state + "/done", process.argv.slice(2).join(" "));
if (process.env.EXIT) { console.log("last words"); process.exit(Number(process.env.EXIT)); }
setInterval(() => {}, 1000);
`;
