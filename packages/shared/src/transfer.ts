/** A session on its way to another installation: what `hangar session export` writes and `import` reads. */
import { z } from "zod";
import { Checkpoint, Part, PartFile, Sha256 } from "./checkpoint.ts";
import { BranchName, Environment, RepoUrl } from "./environment.ts";
import { HarnessName } from "./environment-names.ts";
import { SessionId, Slug } from "./ids.ts";
import { SignedUrl } from "./protocol.ts";
import { CheckResult, Turn, Usage } from "./session.ts";

export const EXPORT_VERSION = 1;
/** The file beside the parts that says what they are. Written last: a folder without it is no export. */
export const EXPORT_FILE = "session.json";

/** `session.json`. It names objects with their digests; their content is sealed to the session's identity. */
export const ExportedSession = z.strictObject({
  version: z.literal(EXPORT_VERSION),
  /** ISO 8601, UTC. */
  exported_at: z.iso.datetime(),
  session: z.strictObject({
    id: SessionId,
    name: Slug,
    title: z.string().max(200),
    harness: HarnessName,
    model: z.string().max(200).nullable(),
    repo: RepoUrl.nullable(),
    base_branch: BranchName.nullable(),
    branch: BranchName,
    harness_session: z.string().max(200).nullable(),
    idle_minutes: z.number().nonnegative(),
    ttl_minutes: z.number().nonnegative(),
    last_summary: z.string().nullable(),
    /** None: it was never run, or on later work than the checkpoint's. Exports before this was carried have none. */
    last_check: CheckResult.nullable().default(null),
    usage: Usage.nullable(),
    created_at: z.iso.datetime(),
  }),
  /** Names of secrets, never their values. */
  environment: Environment.nullable(),
  /** The newest ones, cut short. */
  turns: z.array(Turn).max(200),
  checkpoint: Checkpoint,
  meta: z.strictObject({ file: PartFile, size: z.number().int().nonnegative(), sha256: Sha256 }),
});
export type ExportedSession = z.infer<typeof ExportedSession>;

/** `recipient`: whom the session's identity is sealed to (`age1…`); without one it comes as it is. */
export const ExportRequest = z.strictObject({
  recipient: z
    .string()
    .regex(/^age1[0-9a-z]{20,200}$/, "give an age recipient: age1…")
    .optional(),
});
export type ExportRequest = z.infer<typeof ExportRequest>;

/** An age identity, or an age file that holds one, base64. */
export const CarriedIdentity = z.union([
  z.strictObject({ plain: z.string().regex(/^AGE-SECRET-KEY-1[0-9A-Z]{20,200}$/, "that is no age identity") }),
  z.strictObject({ sealed: z.base64().max(16_384) }),
]);
export type CarriedIdentity = z.infer<typeof CarriedIdentity>;

export const ExportAnswer = z.strictObject({
  exported: ExportedSession,
  identity: CarriedIdentity,
  /** Key: `<checkpoint>/<file>`. */
  downloads: z.record(z.string(), SignedUrl),
});
export type ExportAnswer = z.infer<typeof ExportAnswer>;

export const ImportRequest = z.strictObject({
  exported: ExportedSession,
  identity: CarriedIdentity,
  /** Other than the exported ones, where given. */
  name: Slug.optional(),
  repo: RepoUrl.optional(),
});
export type ImportRequest = z.infer<typeof ImportRequest>;

/** `POST /api/imports`: where the objects go. Not committed within a day, it is removed again. */
export const ImportAnswer = z.strictObject({
  session: SessionId,
  /** Key: `<checkpoint>/<file>`. */
  uploads: z.record(z.string(), SignedUrl),
});
export type ImportAnswer = z.infer<typeof ImportAnswer>;

/** Every object of an export, by the folder that it lies in in a store. */
export const exportedObjects = ({
  checkpoint,
  meta,
}: Pick<ExportedSession, "checkpoint" | "meta">): {
  checkpoint: string;
  file: string;
  size: number;
  sha256: string;
}[] => [
  ...checkpoint.parts.map(({ file, size, sha256, from }: Part) => ({
    checkpoint: from ?? checkpoint.id,
    file,
    size,
    sha256,
  })),
  { checkpoint: checkpoint.id, ...meta },
];
