import { describe, expect, it } from "vitest";
import { readConfig, SETTINGS } from "../src/config.ts";

const HOME = { HOME: "/home/someone" };

describe("readConfig", () => {
  it("has the spec's defaults", () => {
    expect(readConfig(HOME)).toMatchObject({
      data_dir: "/home/someone/.local/share/hangar",
      session_store: "volume:/home/someone/.local/share/hangar/store",
      redis_url: null,
      host: "127.0.0.1",
      port: 4747,
      port_is_given: false,
      session_keep_checkpoints: 5,
      session_checkpoint_minutes: 10,
      session_max_untracked_mb: 50,
      session_max_part_mb: 100,
      session_retention_days: 0,
      idle_minutes: 30,
      start_timeout_minutes: 15,
      warnings: [],
    });
  });

  it("takes every setting from HANGAR_ and its name in capitals", () => {
    for (const setting of SETTINGS) expect(setting.env).toBe(`HANGAR_${setting.name.toUpperCase()}`);
    const config = readConfig({
      ...HOME,
      XDG_DATA_HOME: "/data",
      HANGAR_SESSION_KEEP_CHECKPOINTS: "7",
      HANGAR_SESSION_STORE: "volume:/srv/store",
      HANGAR_REDIS_URL: "redis://:pw@host:1/2",
      HANGAR_PORT: "0",
      HANGAR_IDLE_MINUTES: "0.5",
      HANGAR_ADVERTISE_URL: "https://hangar.example/",
    });
    expect(config).toMatchObject({
      data_dir: "/data/hangar",
      session_keep_checkpoints: 7,
      session_store: "volume:/srv/store",
      redis_url: "redis://:pw@host:1/2",
      port: 0,
      port_is_given: true,
      idle_minutes: 0.5,
      advertise_url: "https://hangar.example",
    });
  });

  it("lets an empty variable count as unset", () => {
    expect(readConfig({ ...HOME, HANGAR_PORT: "", HANGAR_REDIS_URL: " " })).toMatchObject({
      port: 4747,
      redis_url: null,
    });
  });

  it.each([
    ["HANGAR_PORT", "abc", 'HANGAR_PORT is "abc": give a whole number from 0 to 65535'],
    ["HANGAR_PORT", "65536", 'HANGAR_PORT is "65536": give a whole number from 0 to 65535'],
    ["HANGAR_DATA_DIR", "relative", 'HANGAR_DATA_DIR is "relative": give an absolute path'],
    [
      "HANGAR_SESSION_KEEP_CHECKPOINTS",
      "0",
      'HANGAR_SESSION_KEEP_CHECKPOINTS is "0": give a whole number from 1 to 1000',
    ],
    ["HANGAR_SESSION_CHECKPOINT_MINUTES", "-1", /^HANGAR_SESSION_CHECKPOINT_MINUTES is "-1": give a number from 0 to/],
    ["HANGAR_IDLE_MINUTES", "1e3", /^HANGAR_IDLE_MINUTES is "1e3": give a number/],
    ["HANGAR_DRIVER", "docker", 'HANGAR_DRIVER is "docker": give one of local, kubernetes'],
    ["HANGAR_SESSION_STORE", "ftp://x", /^HANGAR_SESSION_STORE is "ftp:\/\/x": give volume:/],
    ["HANGAR_ADVERTISE_URL", "http://h/path", /^HANGAR_ADVERTISE_URL is "http:\/\/h\/path": give http/],
  ])("refuses %s=%s in one line that says what is allowed", (name, value, line) => {
    expect(() => readConfig({ ...HOME, [name]: value })).toThrow(line);
  });

  it("takes GitHub repos and environments, however they are set apart", () => {
    const config = readConfig({
      ...HOME,
      HANGAR_GITHUB_REPOS: " acme/web=web, acme/.github=web,\n octo_cat/A.b-c=api ,",
      HANGAR_PREBUILD_ENVIRONMENTS: "web,api",
    });
    expect(config.github_repos).toEqual({ "acme/web": "web", "acme/.github": "web", "octo_cat/A.b-c": "api" });
    expect(config.prebuild_environments).toEqual(["web", "api"]);
    expect(readConfig({ ...HOME, HANGAR_GITHUB_REPOS: "acme/constructor=web" }).github_repos).toEqual({
      "acme/constructor": "web",
    });
  });

  it.each([
    ["acme/web", '"acme/web" is not one'],
    ["a/b=c,acme=web", '"acme=web" is not one'],
    ["https://github.com/acme/web=web", '"https://github.com/acme/web=web" is not one'],
    ["acme/web=Web", '"acme/web=Web" is not one'],
    ["acme/web=web=api", '"acme/web=web=api" is not one'],
    ["acme/..=web", '"acme/..=web" is not one'],
    ["../web=web", '"../web=web" is not one'],
    ["acme/web=../../etc", '"acme/web=../../etc" is not one'],
    ["acme/w\u0000eb=web", String.raw`"acme/w\u0000eb=web" is not one`],
    ["acme/wéb=web", '"acme/wéb=web" is not one'],
    ["acme/web=a,Acme/Web=b", '"acme/web" is there twice'],
    ["=", '"=" is not one'],
    [`acme/${"x".repeat(100_000)}=web`, "is not one"],
  ])("refuses the GitHub repos %j, and says which is wrong", (value, why) => {
    const read = () => readConfig({ ...HOME, HANGAR_GITHUB_REPOS: value });
    expect(read).toThrow(/^HANGAR_GITHUB_REPOS is ".*; give OWNER\/REPO=ENVIRONMENT, several with commas between$/);
    expect(read).toThrow(why);
    expect(read).toThrow(/^.{1,600}$/);
  });

  it("finds the cluster's configuration as kubectl does, where pods are asked for", () => {
    const env = { ...HOME, HANGAR_DRIVER: "kubernetes" };
    expect(readConfig(HOME).kubeconfig).toBeNull();
    expect(readConfig(env).kubeconfig).toBe(`${HOME.HOME}/.kube/config`);
    expect(readConfig({ ...env, KUBERNETES_SERVICE_HOST: "10.0.0.1" }).kubeconfig).toBeNull();
    expect(readConfig({ ...env, KUBECONFIG: "/a:/b", KUBERNETES_SERVICE_HOST: "10.0.0.1" }).kubeconfig).toBe("/a");
    expect(readConfig({ ...env, KUBECONFIG: "/a", HANGAR_KUBERNETES_CONFIG: "/c" }).kubeconfig).toBe("/c");
  });

  it("reaches an s3:// store by the names that every S3 tool uses, and says when they are missing", () => {
    const env = { ...HOME, HANGAR_SESSION_STORE: "s3://bucket/some/prefix", AWS_ENDPOINT_URL: "http://127.0.0.1:9000" };
    expect(() => readConfig(env)).toThrow("HANGAR_SESSION_STORE is an s3:// bucket: set AWS_ACCESS_KEY_ID and");
    expect(readConfig({ ...env, AWS_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "key" })).toMatchObject({
      session_store: "s3://bucket/some/prefix",
      s3: {
        region: "us-east-1",
        endpoint: "http://127.0.0.1:9000",
        credentials: { accessKeyId: "id", secretAccessKey: "key" },
      },
    });
  });

  it.each(["HANGAR_TOKEN", "HANGAR_REDIS_URL"])("does not show what a bad %s was", (name) => {
    const read = (): unknown => readConfig({ ...HOME, [name]: "s3cr3t value" });
    expect(read).toThrow(`${name} is not valid: give`);
    expect(read).not.toThrow("s3cr3t");
  });

  it("warns of a name that is no setting, and not of other programs' ones", () => {
    const { warnings } = readConfig({
      ...HOME,
      HANGAR_SESION_STORE: "x",
      HANGAR_AGENT_TOKEN: "y",
      HANGAR_K8S_RIG: "z",
    });
    expect(warnings).toEqual(["HANGAR_SESION_STORE is no setting of Hangar and has no effect"]);
  });
});

it("is documented: docs/configuration.md says what the table says (npx vitest -u writes it)", async () => {
  await expect(document()).toMatchFileSnapshot("../../../docs/configuration.md");
});

function document(): string {
  const rows = SETTINGS.map((s) => {
    const allowed = (s.schema.description ?? "").replaceAll("|", "\\|");
    return `| \`${s.name}\` | \`${s.env}\` | ${s.defaultText} | ${allowed}${s.unit === null ? "" : `; ${s.unit}`} | ${s.what} |`;
  });
  return [
    "# Settings of the coordinator",
    "",
    "Every setting is an environment variable of `hangar up` (and of `hangar-coordinator`). An empty one counts as unset. A",
    "value that is not allowed stops the start with one line that names the variable. This page is made from `SETTINGS` in",
    "`packages/coordinator/src/config.ts` and checked by its test.",
    "",
    "| setting | variable | default | allowed | what for |",
    "|---|---|---|---|---|",
    ...rows,
    "",
  ].join("\n");
}
