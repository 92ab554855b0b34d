/** The server's file of declared harnesses (`HANGAR_HARNESSES`). */
import { readFile } from "node:fs/promises";
import { HangarError, HarnessDefinitions } from "@hangar/shared";
import type { HarnessDefinition } from "@hangar/shared";

/** @throws HangarError `invalid_request` naming the file and the field. */
export async function readDeclaredHarnesses(path: string | null): Promise<HarnessDefinition[]> {
  if (path === null) return [];
  const refuse = (why: string, cause?: unknown): HangarError =>
    new HangarError("invalid_request", `HANGAR_HARNESSES (${path}): ${why}`, { cause });
  let document: unknown;
  try {
    const { parse } = await import("yaml");
    document = parse(await readFile(path, "utf8"));
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw refuse(code === "ENOENT" ? "there is no such file" : (message.split("\n")[0] ?? "it cannot be read"), error);
  }
  const parsed = HarnessDefinitions.safeParse(document);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw refuse(`${issue?.path.join(".") || "the list"}: ${issue?.message ?? "not valid"}`, parsed.error);
}
