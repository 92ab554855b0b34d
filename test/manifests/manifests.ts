/** The manifests of terraform/manifests, as kubectl renders them, and what current Kubernetes says of each. */
import { execFile } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import * as models from "@kubernetes/client-node";
import { parseAllDocuments } from "yaml";
import { z } from "zod";

const load = createRequire(import.meta.url);
type Schema = new (data: unknown) => { validate(): void };

export const folder = (name: string): string =>
  fileURLToPath(new URL(`../../terraform/manifests/${name}`, import.meta.url));

export const Manifest = z.looseObject({
  apiVersion: z.string(),
  kind: z.string(),
  metadata: z.looseObject({ name: z.string(), namespace: z.string().optional() }),
});
export type Manifest = z.infer<typeof Manifest>;

/** Throws with what kubectl said where it cannot render. */
export const render = (name: string): Promise<Manifest[]> => renderAt(folder(name));

export async function renderAt(path: string): Promise<Manifest[]> {
  const { stdout } = await promisify(execFile)("kubectl", ["kustomize", path]);
  return z.array(Manifest).parse(parseAllDocuments(stdout).map((document): unknown => document.toJS()));
}

/**
 * Why current Kubernetes would not take it; empty: it would. The values are checked by the JSON schemas of `kubernetes-models`,
 * which let unknown fields pass; those are found by the official client's models.
 */
export async function objections(manifest: Manifest): Promise<string[]> {
  const { apiVersion, kind } = manifest;
  const module = load(`kubernetes-models/${apiVersion}/${kind}`) as Record<string, Schema | undefined>;
  const Known = module[kind];
  if (!Known) return [`there is no ${apiVersion} ${kind}`];
  const unknown = unknownFields(manifest, `V${versionOf(apiVersion)}${kind}`, kind);
  try {
    new Known(manifest).validate();
    return unknown;
  } catch (error) {
    return [...unknown, (error as Error).message];
  }
}

const versionOf = (apiVersion: string): string => /v([^/]+)$/.exec(apiVersion)?.[1] ?? "";

interface Model {
  getAttributeTypeMap(): readonly { readonly baseName: string; readonly type: string }[];
}

function unknownFields(value: unknown, type: string, at: string): string[] {
  const inArray = /^Array<(.+)>$/.exec(type)?.[1];
  if (inArray !== undefined) {
    return Array.isArray(value) ? value.flatMap((item, i) => unknownFields(item, inArray, `${at}[${i}]`)) : [];
  }
  const model = (models as unknown as Record<string, Partial<Model>>)[type]?.getAttributeTypeMap?.();
  // A string, a number, or a map with keys of its own.
  if (model === undefined || typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => {
    const known = model.find(({ baseName }) => baseName === key);
    return known ? unknownFields(inner, known.type, `${at}.${key}`) : [`${at}.${key} is no field of ${type}`];
  });
}
