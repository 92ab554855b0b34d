/**
 * What terraform/ promises, read with HashiCorp's parser. The provider cannot be had here, so its schema is not asked
 * (`terraform validate` is not run): names of resources' arguments are as its documentation has them.
 */
import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";
import { parse } from "../../scripts/hcl.ts";
import { run } from "../support/hangar.ts";

const at = (path: string): string => fileURLToPath(new URL(`../../${path}`, import.meta.url));

/** kind of block → type or name → … → the blocks of that name. */
type Blocks = Record<string, Record<string, unknown>>;
interface Config {
  readonly resource: Record<string, Record<string, readonly Record<string, unknown>[]>>;
  readonly variable: Record<string, readonly { default?: unknown; description: string }[]>;
  readonly output: Record<string, readonly { value: unknown }[]>;
  readonly terraform: readonly { required_providers: Record<string, { source: string; version: string }>[] }[];
  readonly text: string;
}
let config: Config;

beforeAll(async () => {
  const merged: Blocks = {};
  let text = "";
  for (const name of await readdir(at("terraform"))) {
    if (!name.endsWith(".tf")) continue;
    const source = await readFile(at(`terraform/${name}`), "utf8");
    text += source;
    const file = (await parse(name, source)) as Record<string, Record<string, unknown>>;
    for (const [kind, blocks] of Object.entries(file)) {
      const into = (merged[kind] ??= {});
      for (const [type, inner] of Object.entries(blocks)) {
        into[type] = Array.isArray(inner) ? inner : { ...(into[type] as object | undefined), ...(inner as object) };
      }
    }
  }
  config = { ...merged, text } as unknown as Config;
});

const resource = (type: string, name: string) => config.resource[type]?.[name]?.[0];

test("the checkpoint bucket: uniform access, no versions, nothing deleted unless asked, and its name is an output", () => {
  expect(resource("google_storage_bucket", "sessions")).toMatchObject({
    uniform_bucket_level_access: true,
    public_access_prevention: "enforced",
    versioning: [{ enabled: false }],
    dynamic: {
      lifecycle_rule: [{ for_each: "${var.session_retention_days > 0 ? [var.session_retention_days] : []}" }],
    },
  });
  expect(config.variable["session_retention_days"]?.[0]).toMatchObject({ default: 0 });
  expect(config.variable["session_retention_days"]?.[0]?.description).toContain(
    "A suspended session's newest checkpoint is its only copy",
  );
  expect(config.output["session_bucket"]?.[0]?.value).toBe("${google_storage_bucket.sessions.name}");
});

test("two pools, of which the sandboxes' shrinks to none; streaming and disk stay the provider's unless set", () => {
  expect(resource("google_container_node_pool", "coordinator")).toMatchObject({ node_count: 2 });
  expect(resource("google_container_node_pool", "sandbox")).toMatchObject({
    initial_node_count: 0,
    autoscaling: [{ min_node_count: 0, max_node_count: "${var.sandbox_max_nodes}" }],
    node_config: [{ disk_size_gb: "${var.sandbox_disk_gb}", gcfs_config: [{ enabled: "${var.image_streaming}" }] }],
  });
  expect(config.variable["image_streaming"]?.[0]).toMatchObject({ default: false });
  expect(config.variable["sandbox_disk_gb"]?.[0]).toMatchObject({ default: null });
  expect(config.variable["sandbox_disk_gb"]?.[0]?.description).toContain("100 is the advice");
});

test("what only the beta provider knows is asked of it", () => {
  const pools = Object.values(config.resource["google_container_node_pool"] ?? {}).map(([pool]) => pool);
  const isBeta = pools.filter((pool) => JSON.stringify(pool).includes("sandbox_config"));
  expect(isBeta).toEqual([expect.objectContaining({ provider: "${google-beta}" })]);
  // GKE asks for it by name where sandboxes are gVisor's.
  expect(isBeta[0]).toMatchObject({ node_config: [{ image_type: "COS_CONTAINERD" }] });
  expect(config.terraform[0]?.required_providers[0]).toMatchObject({
    google: { source: "hashicorp/google" },
    "google-beta": {
      source: "hashicorp/google-beta",
      version: config.terraform[0]?.required_providers[0]?.["google"]?.version,
    },
  });
});

test("Redis evicts nothing and asks for a password; the coordinator has its identity without a key file", () => {
  expect(resource("google_redis_instance", "hangar")).toMatchObject({
    auth_enabled: true,
    redis_configs: { "maxmemory-policy": "noeviction" },
  });
  expect(resource("google_service_account_iam_member", "workload_identity")).toMatchObject({
    service_account_id: "${google_service_account.coordinator.name}",
    role: "roles/iam.workloadIdentityUser",
    member: "serviceAccount:${var.project}.svc.id.goog[hangar/hangar-coordinator]",
  });
  expect(config.resource).not.toHaveProperty("google_service_account_key");
});

test("what a build may do: push images and write logs; it has no right to checkpoints or secrets", () => {
  const rights: Record<string, unknown>[] = [];
  for (const [type, all] of Object.entries(config.resource)) {
    if (!/_iam_(?:member|binding|policy)$/.test(type)) continue;
    for (const [one] of Object.values(all)) rights.push({ type, ...one });
  }
  const ofBuild = rights.filter(({ member }) => member === "${google_service_account.build.member}");
  expect(ofBuild.map(({ type, role, bucket, repository }) => [type, role, bucket ?? repository])).toEqual([
    [
      "google_artifact_registry_repository_iam_member",
      "roles/artifactregistry.writer",
      "${google_artifact_registry_repository.images.name}",
    ],
    ["google_project_iam_member", "roles/logging.logWriter", undefined],
  ]);
  const toCheckpoints = rights.filter(({ bucket }) => bucket === "${google_storage_bucket.sessions.name}");
  expect(toCheckpoints.map(({ member }) => member)).toEqual(["${google_service_account.coordinator.member}"]);
  // A right over the project's storage would reach the bucket all the same.
  const overProject = rights.filter(({ type }) => type === "google_project_iam_member").map(({ role }) => String(role));
  expect(overProject.filter((role) => /storage|owner|editor$/.test(role))).toEqual(["roles/cloudbuild.builds.editor"]);
});

test("the vault's key and the token have places whose values Terraform never sees", () => {
  expect(Object.keys(config.resource["google_secret_manager_secret"] ?? {})).toEqual(["token", "vault_key"]);
  expect(config.resource).not.toHaveProperty("google_secret_manager_secret_version");
});

test("every reference leads somewhere, and every variable and identity is used", () => {
  const used = config.text.replaceAll(/^\s*#.*$|description\s*=.*$/gm, "");
  for (const [, type, name] of used.matchAll(/\b(google_[a-z_]+)\.([a-z_]+)\b/g)) {
    expect(config.resource, `${type}.${name}`).toHaveProperty([type!, name!]);
  }
  for (const [, name] of used.matchAll(/\bvar\.([a-z_]+)/g)) expect(config.variable).toHaveProperty(name!);
  for (const name of Object.keys(config.variable)) expect(used, name).toContain(`var.${name}`);
  for (const name of Object.keys(config.resource["google_service_account"] ?? {})) {
    expect(used).toContain(`google_service_account.${name}.member`);
  }
});

test("the check finds a file that does not parse and one that is not formatted", async () => {
  const dir = await mkdtemp(join(tmpdir(), "hangar-terraform-"));
  const check = (...more: string[]) =>
    run(process.execPath, [at("scripts/check-terraform.ts"), dir, ...more], {
      env: process.env as Record<string, string>,
    });
  try {
    await writeFile(join(dir, "bad.tf"), "a = {");
    expect(await check()).toMatchObject({ code: 1, stderr: expect.stringContaining("bad.tf does not parse") });
    await writeFile(join(dir, "bad.tf"), "a  = 1\n\nb =   2\n");
    expect(await check()).toMatchObject({ code: 1, stderr: expect.stringContaining("bad.tf is not formatted") });
    expect(await check("--write")).toMatchObject({ code: 0 });
    expect(await readFile(join(dir, "bad.tf"), "utf8")).toBe("a = 1\n\nb = 2\n");
    await promisify(execFile)(process.execPath, [at("scripts/check-terraform.ts"), dir]);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
