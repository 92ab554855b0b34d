/**
 * A sandbox that waits: it clones and sets up, fetches now and then, and goes on as a session's once it is claimed. The claim
 * is on disk before it counts, so that a daemon that is killed goes on as what it has become.
 */
import { join } from "node:path";
import { HangarError, redactor, SandboxId, START_WORDS } from "@hangar/shared";
import type { WarmBoot, WarmState } from "@hangar/shared";
import { z } from "zod";
import { pause } from "../backoff.ts";
import type { Config } from "../config.ts";
import { readJson, replaceFile } from "../durable.ts";
import { makeHarnesses } from "../harness/registry.ts";
import { newLog } from "../log.ts";
import { prepareEnvironment } from "../sandbox-env.ts";
import { tmuxFolder } from "../terminal/tmux.ts";
import { WarmLink } from "./link.ts";
import { rehearse } from "./rehearse.ts";
import { followRemote, hasWarmWorkspace, madeOf, makeWarmWorkspace, type WarmWorkspaceDeps } from "./workspace.ts";

const Claim = z.strictObject({ sandbox: SandboxId, token: z.string().min(1) });

/** The configuration to go on with; none: it is wanted no more, or told to end. */
export async function waitForSession(config: Config, stop: AbortSignal): Promise<Config | null> {
  const path = join(config.state, "claim.json");
  const before = readJson(path, Claim);
  if (before) return { ...config, ...before };
  const waiting = new Waiting(config, stop);
  const claim = await waiting.run();
  if (claim === null) return null;
  replaceFile(path, JSON.stringify(claim));
  return { ...config, ...claim };
}

type Claim = z.infer<typeof Claim>;

class Waiting {
  readonly #config: Config;
  readonly #ending = new AbortController();
  readonly #outcome = Promise.withResolvers<Claim | null>();
  readonly #redact;
  readonly #log;
  readonly #link: WarmLink;
  #state: { state: WarmState; detail: string | null } = { state: "busy", detail: START_WORDS.starting };
  #working: Promise<void> | null = null;

  constructor(config: Config, stop: AbortSignal) {
    this.#config = config;
    this.#redact = redactor([config.token]);
    this.#log = newLog(config.sandbox, this.#redact);
    stop.addEventListener("abort", () => this.#outcome.resolve(null));
    if (stop.aborted) this.#outcome.resolve(null);
    this.#link = new WarmLink({
      urls: config.urls,
      token: config.token,
      warm: config.sandbox,
      log: this.#log,
      state: () => this.#state,
      onBoot: (boot) => void (this.#working ??= this.#work(boot)),
      onClaimed: (claim) => this.#outcome.resolve(claim),
      onRetired: () => this.#outcome.resolve(null),
    });
  }

  async run(): Promise<Claim | null> {
    this.#link.start();
    const claim = await this.#outcome.promise;
    this.#log.info(claim === null ? "not wanted any more: ending" : `claimed as ${claim.sandbox}`);
    this.#ending.abort();
    await this.#link.close();
    await this.#working;
    return claim;
  }

  /** Until it is claimed. What is half done then is for the session's start to see. */
  async #work(boot: WarmBoot): Promise<void> {
    const { signal } = this.#ending;
    try {
      const deps = await this.#deps(boot);
      const say = (doing: string): void => this.#say("busy", doing);
      if (!hasWarmWorkspace(this.#config.state, deps.made)) await makeWarmWorkspace(deps, say);
      this.#say("ready", null);
      await this.#rehearse();
      for (;;) {
        await pause(boot.fetch_seconds * 1000, signal);
        if (signal.aborted) return;
        await this.#follow(deps, say);
      }
    } catch (error) {
      if (signal.aborted) return;
      const line = error instanceof Error ? error.message : String(error);
      this.#log.error(`it cannot wait: ${line}`);
      this.#say("failed", line.slice(0, 2000));
    }
  }

  /** What goes wrong is not in the way of a session, whose own restore says what it lacks. */
  async #rehearse(): Promise<void> {
    try {
      await rehearse(this.#config.state, this.#ending.signal);
    } catch (error) {
      if (this.#ending.signal.aborted) return;
      this.#log.warn(`no restore could be rehearsed: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  /** A remote that is away for a moment says nothing about the clone. */
  async #follow(deps: WarmWorkspaceDeps, say: (doing: string) => void): Promise<void> {
    try {
      await followRemote(deps, say);
      this.#say("ready", null);
    } catch (error) {
      if (this.#ending.signal.aborted) return;
      const line = error instanceof HangarError ? error.message : String(error);
      this.#log.warn(`the clone cannot follow its remote: ${line}`);
      if (hasWarmWorkspace(this.#config.state, deps.made)) return;
      this.#say("stale", line.slice(0, 2000));
    }
  }

  async #deps(boot: WarmBoot): Promise<WarmWorkspaceDeps> {
    const config = this.#config;
    if (!boot.cwd.startsWith(`${config.workspace}/`) || boot.cwd.split("/").includes("..")) {
      throw new HangarError("internal", `The repo's folder ${boot.cwd} is not inside ${config.workspace}`);
    }
    const env = await prepareEnvironment({
      config,
      boot: { session: config.sandbox, secrets: {}, ...boot },
      harness: makeHarnesses(boot.harnesses)(boot.harness),
      agent: [process.execPath, process.argv[1] ?? ""],
      tmuxFolder: tmuxFolder(config.state, config.sandbox),
    });
    return { made: madeOf(boot), env, state: config.state, redact: this.#redact, signal: this.#ending.signal };
  }

  #say(state: WarmState, detail: string | null): void {
    this.#state = { state, detail: detail === null ? null : this.#redact(detail) };
    this.#link.say();
  }
}
