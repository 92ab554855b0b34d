/** Errors on their way from one thread to another, which takes their class away. */
import { HangarError, isErrorCode } from "@hangar/shared";
import { Vanished } from "./digest.ts";
import { ArchiveChanged } from "./tar-write.ts";

export interface Failure {
  readonly of: "changed" | "vanished" | "hangar" | "other";
  readonly message: string;
  readonly code: string | null;
  readonly path: Uint8Array | null;
}

export function failureOf(error: unknown): Failure {
  const { message, code } = error as NodeJS.ErrnoException;
  const plain = { message: message ?? String(error), code: typeof code === "string" ? code : null, path: null };
  if (error instanceof ArchiveChanged) return { ...plain, of: "changed", path: error.path };
  if (error instanceof Vanished) return { ...plain, of: "vanished" };
  return { ...plain, of: error instanceof HangarError ? "hangar" : "other" };
}

export function failureFrom({ of, message, code, path }: Failure): Error {
  if (of === "changed") return ArchiveChanged.told(Buffer.from(path ?? []), message);
  if (of === "vanished") return new Vanished(message);
  if (of === "hangar" && code !== null && isErrorCode(code)) return new HangarError(code, message);
  return Object.assign(new Error(message), code === null ? {} : { code });
}
