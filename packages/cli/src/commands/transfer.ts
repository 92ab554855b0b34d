/** `hangar session export` and `import`: a session as a folder. Bytes go between the folder and the store; all are checked. */
import { createHash } from "node:crypto";
import { createReadStream, createWriteStream, existsSync, openAsBlob } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import {
  type CarriedIdentity,
  EXPORT_FILE,
  ExportAnswer,
  ExportedSession,
  exportedObjects,
  HangarError,
  ImportAnswer,
  type ImportRequest,
  Session,
  type SignedUrl,
  secretRefs,
} from "@hangar/shared";
import { NOTHING } from "../client.ts";
import type { Context } from "../context.ts";
import { bytes, safe } from "../ui.ts";

/** In an exported folder: its key, where it was not sealed for another Hangar. */
export const PLAIN = "identity.txt";
const SEALED = "identity.age";
const TRIES = 4;

export async function exportSession(
  context: Context,
  name: string,
  options: { out: string; recipient?: string; json?: boolean },
): Promise<void> {
  const { ui } = context;
  const folder = resolve(context.cwd, options.out);
  await refuseFull(folder);
  // Under another name until all of it is there: what bears the name is whole.
  const partial = `${folder}.partial-${process.pid}`;
  let answer: ExportAnswer;
  try {
    answer = await fetchExport(context, name, partial, options.recipient);
    if (existsSync(folder)) await rm(folder, { recursive: true });
    await rename(partial, folder);
  } catch (error) {
    await rm(partial, { recursive: true, force: true });
    throw error;
  }
  const { exported, identity } = answer;
  if (options.json) return ui.json({ folder, checkpoint: exported.checkpoint.id, bytes: exported.checkpoint.bytes });
  ui.out(
    `${exported.session.name} is in ${options.out}: ${exported.checkpoint.id}, ${bytes(exported.checkpoint.bytes)}`,
  );
  if ("plain" in identity)
    ui.note(
      `Whoever has this folder can read the session: ${PLAIN} in it is its key. --recipient AGE1… seals that for one Hangar.`,
    );
  ui.note(`On the other machine: ${ui.prefix} session import ${options.out}`);
}

/** Fills a new folder; what is in it after a failure is the caller's to remove. */
export async function fetchExport(
  context: Context,
  name: string,
  folder: string,
  recipient?: string,
): Promise<ExportAnswer> {
  const { ui } = context;
  ui.progress(`${name}: taking a checkpoint`);
  const request = recipient === undefined ? {} : { recipient };
  const path = `/api/sessions/${encodeURIComponent(name)}/export`;
  const answer = await context
    .client()
    .call("POST", path, ExportAnswer, request)
    .finally(() => ui.done());
  const { exported, identity, downloads } = answer;
  await mkdir(folder, { recursive: true, mode: 0o700 });
  try {
    let received = 0;
    for (const object of exportedObjects(exported)) {
      if (ui.isTerminal || received === 0)
        ui.progress(`${name}: ${bytes(received)} of ${bytes(exported.checkpoint.bytes)}`);
      const url = downloads[`${object.checkpoint}/${object.file}`];
      if (url === undefined) throw new HangarError("internal", `Hangar gave no URL for ${object.file}`);
      await withPatience(() => download(url, join(folder, object.file), object));
      received += object.size;
    }
    await writeIdentity(folder, identity);
    await writeFile(join(folder, EXPORT_FILE), `${JSON.stringify(exported, null, 1)}\n`, { mode: 0o600, flush: true });
  } finally {
    ui.done();
  }
  return answer;
}

export async function importSession(
  context: Context,
  given: string,
  options: { name?: string; repo?: string; json?: boolean },
): Promise<void> {
  const { ui } = context;
  const client = context.client();
  const folder = resolve(context.cwd, given);
  const exported = await readExport(folder, given);
  const objects = exportedObjects(exported);
  // Everything is looked at before anything is made.
  ui.progress(`${exported.session.name}: checking ${bytes(exported.checkpoint.bytes)}`);
  try {
    for (const object of objects) await check(join(folder, object.file), object);
  } finally {
    ui.done();
  }
  const request: ImportRequest = {
    exported,
    identity: await readIdentity(folder, given),
    ...(options.name === undefined ? {} : { name: options.name }),
    ...(options.repo === undefined ? {} : { repo: options.repo }),
  };
  const { session: id, uploads } = await client.call("POST", "/api/imports", ImportAnswer, request);
  let session: Session;
  try {
    let sent = 0;
    for (const object of objects) {
      if (ui.isTerminal || sent === 0)
        ui.progress(`${exported.session.name}: ${bytes(sent)} of ${bytes(exported.checkpoint.bytes)}`);
      const url = uploads[`${object.checkpoint}/${object.file}`];
      if (url === undefined) throw new HangarError("internal", `Hangar gave no URL for ${object.file}`);
      await withPatience(() => upload(url, join(folder, object.file)));
      sent += object.size;
    }
    session = await client.call("POST", `/api/imports/${id}`, Session, request);
  } catch (error) {
    await client.call("DELETE", `/api/imports/${id}`, NOTHING).catch(() => undefined);
    throw error;
  } finally {
    ui.done();
  }
  if (options.json) return ui.json(session);
  ui.out(`${session.name} is here, suspended: ${session.checkpoints.at(-1)?.id ?? ""} holds it`);
  const secrets = secretRefs(exported.environment?.secrets ?? []).map(({ name }) => name);
  if (secrets.length > 0)
    ui.note(`It needs secrets, which never travel: ${secrets.join(", ")} (${ui.prefix} secret set NAME)`);
  ui.note(`next: ${ui.prefix} session open ${session.name}`);
}

async function refuseFull(folder: string): Promise<void> {
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return [];
    throw new HangarError("invalid_request", `${folder} cannot be written into (${error.code})`, { cause: error });
  });
  if (names.length > 0) throw new HangarError("invalid_request", `${folder} is not empty: name a new folder`);
}

async function writeIdentity(folder: string, identity: CarriedIdentity): Promise<void> {
  const isPlain = "plain" in identity;
  const content = isPlain ? `${identity.plain}\n` : Buffer.from(identity.sealed, "base64");
  await writeFile(join(folder, isPlain ? PLAIN : SEALED), content, { mode: 0o600, flush: true });
}

async function readIdentity(folder: string, given: string): Promise<CarriedIdentity> {
  const sealed = await readFile(join(folder, SEALED)).catch(() => null);
  if (sealed !== null) return { sealed: sealed.toString("base64") };
  const text = await readFile(join(folder, PLAIN), "utf8").catch(() => "");
  const plain = text.split("\n").find((line) => line.startsWith("AGE-SECRET-KEY-1"));
  if (plain !== undefined) return { plain: plain.trim() };
  throw new HangarError("invalid_request", `${given} holds no key (${PLAIN} or ${SEALED}): export the session again`);
}

async function readExport(folder: string, given: string): Promise<ExportedSession> {
  const text = await readFile(join(folder, EXPORT_FILE), "utf8").catch((cause: unknown) => {
    throw new HangarError("invalid_request", `${given} is no exported session: it has no ${EXPORT_FILE}`, { cause });
  });
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw new HangarError("invalid_request", `${given}/${EXPORT_FILE} is damaged: it is not JSON`, { cause });
  }
  const parsed = ExportedSession.safeParse(json);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const what = `${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""}`;
  throw new HangarError("invalid_request", `${given}/${EXPORT_FILE} is not one of this version: ${safe(what)}`);
}

interface Expected {
  readonly file: string;
  readonly size: number;
  readonly sha256: string;
}

async function check(path: string, expected: Expected): Promise<void> {
  const measure = new Measure();
  await pipeline(createReadStream(path), measure.through, async (rest: AsyncIterable<Buffer>) => {
    for await (const _ of rest);
  }).catch((cause: unknown) => {
    throw new HangarError("checkpoint_invalid", `${expected.file} of the export cannot be read: nothing was imported`, {
      cause,
    });
  });
  if (!measure.is(expected))
    throw new HangarError("checkpoint_invalid", `${expected.file} of the export is damaged: nothing was imported`);
}

async function download(url: SignedUrl, path: string, expected: Expected): Promise<void> {
  const answer = await fetch(url.url, { headers: url.headers });
  if (!answer.ok || answer.body === null) throw new StoreFailed(answer.status);
  const measure = new Measure();
  await pipeline(Readable.fromWeb(answer.body), measure.through, createWriteStream(path, { mode: 0o600, flush: true }));
  if (!measure.is(expected)) throw new StoreFailed(0);
}

/** Create-only: that it is there already says that a try before came through; the commit looks at what it is. */
async function upload(url: SignedUrl, path: string): Promise<void> {
  const answer = await fetch(url.url, { method: "PUT", headers: url.headers, body: await openAsBlob(path) });
  await answer.body?.cancel();
  if (!answer.ok && answer.status !== 409 && answer.status !== 412) throw new StoreFailed(answer.status);
}

class StoreFailed extends Error {
  readonly status: number;
  constructor(status: number) {
    super(status === 0 ? "its bytes are not the ones that were recorded" : `HTTP ${status}`);
    this.status = status;
  }
}

/** A network that comes back is waited for; a refusal is not. */
async function withPatience(work: () => Promise<void>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      const refused = error instanceof StoreFailed && error.status >= 400 && error.status < 500;
      const isDisk = ["ENOSPC", "EDQUOT", "EACCES"].includes((error as NodeJS.ErrnoException).code ?? "");
      if (isDisk) throw new HangarError("disk_full", `The folder cannot be written: ${(error as Error).message}`);
      if (refused || attempt === TRIES)
        throw new HangarError("store_unavailable", `The checkpoint store failed: ${(error as Error).message}`, {
          cause: error,
        });
      await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** attempt));
    }
  }
}

class Measure {
  #hash = createHash("sha256");
  #size = 0;
  readonly through = async function* (this: Measure, source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const piece of source) {
      this.#hash.update(piece);
      this.#size += piece.length;
      yield piece;
    }
  }.bind(this);
  is({ size, sha256 }: Expected): boolean {
    return this.#size === size && this.#hash.digest("hex") === sha256;
  }
}
