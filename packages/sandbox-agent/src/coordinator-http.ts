/** What the daemon asks the coordinator over plain HTTP (`AgentHttp` of the protocol). Every request may be repeated. */
import {
  BeginAnswer,
  BootSpec,
  CommitAnswer,
  DownloadAnswer,
  GitCredentialAnswer,
  HangarError,
  isErrorCode,
  Successor,
} from "@hangar/shared";
import type {
  BeginCheckpoint,
  CommitCheckpoint,
  DownloadRequest,
  GitCredentialRequest,
  ErrorCode,
} from "@hangar/shared";
import { z } from "zod";
import { backoff, pause } from "./backoff.ts";

export interface Coordinator {
  /** Waits for a coordinator for as long as it takes, until aborted. Rejects with HangarError for what is final. */
  boot(signal: AbortSignal): Promise<BootSpec>;
  /** Of a sandbox that owns its session no more. */
  successor(signal: AbortSignal): Promise<Successor>;
  begin(request: BeginCheckpoint, signal: AbortSignal): Promise<BeginAnswer>;
  renew(checkpoint: string, files: string[], signal: AbortSignal): Promise<BeginAnswer>;
  commit(checkpoint: string, request: CommitCheckpoint, signal: AbortSignal): Promise<CommitAnswer>;
  downloads(request: DownloadRequest, signal: AbortSignal): Promise<DownloadAnswer>;
  gitCredential(request: GitCredentialRequest, signal: AbortSignal): Promise<GitCredentialAnswer>;
}

const Problem = z.object({ code: z.string(), detail: z.string().optional(), title: z.string().optional() });

/** Tries of one request, other than `boot`, over which a coordinator that restarts is waited for: about a minute. */
const TRIES = 12;

export function coordinatorHttp(urls: readonly string[], token: string, tries = TRIES): Coordinator {
  const ask = <T>(method: "GET" | "POST", path: string, body: unknown, answer: z.ZodType<T>, options: AskOptions) =>
    request({ urls, token, method, path, body, answer, ...options });
  return {
    boot: (signal) => ask("GET", "/agent/boot", undefined, BootSpec, { signal, tries: Infinity }),
    successor: (signal) => ask("POST", "/agent/successor", {}, Successor, { signal, tries: 3 }),
    begin: (body, signal) => ask("POST", "/agent/checkpoints", body, BeginAnswer, { signal, tries }),
    renew: (id, files, signal) =>
      ask("POST", `/agent/checkpoints/${id}/urls`, { files }, BeginAnswer, { signal, tries }),
    commit: (id, body, signal) =>
      ask("POST", `/agent/checkpoints/${id}/commit`, body, CommitAnswer, { signal, tries, timeoutMs: 300_000 }),
    downloads: (body, signal) => ask("POST", "/agent/downloads", body, DownloadAnswer, { signal, tries }),
    gitCredential: (body, signal) =>
      ask("POST", "/agent/git-credential", body, GitCredentialAnswer, { signal, tries: 3 }),
  };
}

interface AskOptions {
  readonly signal: AbortSignal;
  readonly tries: number;
  readonly timeoutMs?: number;
}

interface Asked<T> extends AskOptions {
  readonly urls: readonly string[];
  readonly token: string;
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly body: unknown;
  readonly answer: z.ZodType<T>;
}

async function request<T>(asked: Asked<T>): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await once(asked, asked.urls[attempt % asked.urls.length]!);
    } catch (error) {
      asked.signal.throwIfAborted();
      const failure = error instanceof AskFailure ? error : unreachable(error);
      if (!failure.passing || attempt + 1 >= asked.tries) throw failure;
      await pause(backoff(Math.floor(attempt / asked.urls.length)), asked.signal);
      asked.signal.throwIfAborted();
    }
  }
}

async function once<T>(asked: Asked<T>, url: string): Promise<T> {
  const response = await fetch(url + asked.path, {
    method: asked.method,
    headers: {
      authorization: `Bearer ${asked.token}`,
      ...(asked.body === undefined ? {} : { "content-type": "application/json" }),
    },
    body: asked.body === undefined ? null : JSON.stringify(asked.body),
    redirect: "error",
    signal: AbortSignal.any([asked.signal, AbortSignal.timeout(asked.timeoutMs ?? 30_000)]),
  });
  const text = await response.text();
  if (!response.ok) throw problem(asked.path, response.status, text);
  const parsed = asked.answer.safeParse(json(text));
  if (parsed.success) return parsed.data;
  const line = `The coordinator's answer to ${asked.path} is not what the protocol says`;
  throw new AskFailure("internal", line, false, { cause: parsed.error });
}

/** `passing`: asked again, it may be answered. */
class AskFailure extends HangarError {
  readonly passing: boolean;
  constructor(code: ErrorCode, message: string, passing: boolean, options?: ErrorOptions) {
    super(code, message, options);
    this.passing = passing;
  }
}

function problem(path: string, status: number, text: string): AskFailure {
  const parsed = Problem.safeParse(json(text));
  const said = parsed.success ? (parsed.data.detail ?? parsed.data.title ?? parsed.data.code) : null;
  const line = said ?? `The coordinator answered ${path} with ${status}`;
  const passing = status >= 500 || status === 429 || status === 408;
  if (parsed.success && isErrorCode(parsed.data.code)) return new AskFailure(parsed.data.code, line, passing);
  if (passing) return new AskFailure("store_unavailable", line, true);
  return new AskFailure(status === 401 || status === 403 ? "unauthorized" : "invalid_request", line, false);
}

function unreachable(error: unknown): AskFailure {
  const why = error instanceof Error && error.cause instanceof Error ? error.cause.message : String(error);
  return new AskFailure("store_unavailable", `The coordinator cannot be reached: ${why}`, true, { cause: error });
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
