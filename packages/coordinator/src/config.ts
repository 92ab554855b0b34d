/**
 * Every setting of the coordinator, and the only place that reads the environment. `SETTINGS` is also the source of
 * docs/configuration.md. A setting goes by the spec's own name (`session_keep_checkpoints`) and is given as `HANGAR_` and
 * that name in capitals.
 */
import { homedir } from "node:os";
import { delimiter, isAbsolute, join, resolve } from "node:path";
import { HangarError, ImageName } from "@hangar/shared";
import { z } from "zod";

/** Reads settings from `env`. HangarError `invalid_request` names the variable, what it was and what is allowed. */
export function readConfig(env: Readonly<Record<string, string | undefined>>): Config {
  const values = Object.fromEntries(SETTINGS.map((setting) => [setting.name, readOne(setting, env)]));
  const given = values as unknown as Given;
  const dataDir = resolve(given.data_dir ?? defaultDataDir(env));
  return {
    ...given,
    data_dir: dataDir,
    session_store: given.session_store ?? `volume:${join(dataDir, "store")}`,
    port: given.port ?? DEFAULT_PORT,
    port_is_given: given.port !== null,
    s3: readS3(env, given.session_store),
    kubeconfig: given.driver === "kubernetes" ? kubeconfig(env, given.kubernetes_config) : null,
    warnings: unknownVariables(env),
  };
}

export interface Config extends Omit<Given, "data_dir" | "session_store" | "port"> {
  /** Absolute. */
  readonly data_dir: string;
  readonly session_store: string;
  readonly port: number;
  /** False: the default, and where it is taken a free one is used instead. */
  readonly port_is_given: boolean;
  /** How an s3:// store is reached, by the names that every S3 tool uses. */
  readonly s3: S3Access;
  /** Absolute path of the cluster's kubeconfig; none: the service account of the pod that this runs in. */
  readonly kubeconfig: string | null;
  /** Lines for people about variables that look like settings and are none. */
  readonly warnings: readonly string[];
}

const DEFAULT_PORT = 4747;

const whole = (min: number, max: number): z.ZodType<number> =>
  z
    .string()
    .regex(/^[0-9]{1,15}$/)
    .transform(Number)
    .pipe(z.number().min(min).max(max))
    .describe(`a whole number from ${min} to ${max}`);
const amount = (min: number, max: number): z.ZodType<number> =>
  z
    .string()
    .regex(/^[0-9]{1,15}(?:\.[0-9]{1,6})?$/)
    .transform(Number)
    .pipe(z.number().min(min).max(max))
    .describe(`a number from ${min} to ${max}`);
const oneOf = <const T extends [string, ...string[]]>(...values: T): z.ZodType<T[number]> =>
  z.enum(values).describe(values.length === 1 ? `"${values[0]}"` : `one of ${values.join(", ")}`);
const httpUrl = z
  .string()
  .regex(/^https?:\/\/[^\s/?#@]+\/?$/)
  .transform((url) => url.replace(/\/$/, ""))
  .describe("http://host:port or https://host:port, nothing behind it");

const objectName = z
  .string()
  .regex(/^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/)
  .describe("a name as Kubernetes takes it");
/** With commas or white space between; `sameAs`: what no two items may share. Says which item is wrong. */
const listOf = (pattern: RegExp, sameAs: ((item: string) => string) | null = null) =>
  z
    .string()
    .transform((text) => text.split(/[\s,]+/).filter((item) => item !== ""))
    .superRefine((items, context) => {
      const refuse = (item: string, why: string): void =>
        context.addIssue({ code: "custom", params: { why: `${JSON.stringify(item.slice(0, 200))} ${why}` } });
      const seen = new Set<string>();
      for (const item of items) {
        if (!pattern.test(item)) return refuse(item, "is not one");
        const same = sameAs?.(item);
        if (same === undefined) continue;
        if (seen.has(same)) return refuse(same, "is there twice");
        seen.add(same);
      }
    });
const names = listOf(/^[a-z0-9][a-z0-9-]{0,62}$/).describe("names of environments, with commas between");
/** To environments, by `owner/repo`, which GitHub takes in any case. */
const REPO = /^(?![-.])[\w.-]{1,100}\/(?!\.{1,2}=)[\w.-]{1,100}=[a-z0-9][a-z0-9-]{0,62}$/;
const repos = listOf(REPO, (pair) => pair.replace(/=.*/, "").toLowerCase())
  .transform((pairs) => Object.fromEntries(pairs.map((pair) => pair.split("=") as [string, string])))
  .describe("OWNER/REPO=ENVIRONMENT, several with commas between");

const MAX_MINUTES = 525_600;

/** name, schema of what is given, default (null: see `defaultText`), unit, and what it is for. */
export const SETTINGS = [
  setting("data_dir", z.string().refine(isAbsolute).describe("an absolute path"), null, {
    defaultText: "`$XDG_DATA_HOME/hangar`, else `~/.local/share/hangar`",
    what: "The folder that holds everything: keys, the volume store, embedded Redis, local sandboxes, `hangar.json`. Back up `vault/identity.txt` of it.",
  }),
  setting(
    "host",
    z
      .string()
      .regex(/^[\w.:-]+$/)
      .describe("a host name or an address"),
    "127.0.0.1",
    {
      what: "The address to listen on.",
    },
  ),
  setting("port", whole(0, 65_535), null, {
    defaultText: "4747; a free one where that is taken",
    what: "The port to listen on; 0 takes a free one. A port that is given and taken is an error.",
  }),
  setting("advertise_url", httpUrl, null, {
    defaultText: "`http://host:port` as listened on",
    what: "How sandboxes and other replicas reach this replica.",
  }),
  setting(
    "token",
    z
      .string()
      .regex(/^[\x21-\x7e]{16,512}$/)
      .describe("16 to 512 visible ASCII characters"),
    null,
    {
      secret: true,
      defaultText: "made at the first start, kept in `<data_dir>/hangar.json`",
      what: "The administrator's token, sent as `Authorization: Bearer`.",
    },
  ),
  setting(
    "redis_url",
    z
      .string()
      .regex(/^(?:rediss?|unix):\/\/\S+$/)
      .describe("redis://…, rediss://… or unix://…"),
    null,
    {
      secret: true,
      defaultText: "none: an embedded `redis-server` of its own",
      what: "The Redis that holds sessions. Replicas share one.",
    },
  ),
  setting(
    "session_store",
    z
      .string()
      .regex(/^(?:volume:\/\S.*|(?:gs|s3):\/\/[a-z0-9][a-z0-9._-]{1,221}(?:\/[A-Za-z0-9._/-]*)?)$/)
      .describe("volume:/absolute/path, gs://bucket[/prefix] or s3://bucket[/prefix]"),
    null,
    {
      defaultText: "`volume:<data_dir>/store`",
      what: "Where checkpoints lie. An s3:// bucket is reached with `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION` and, where it is not Amazon's, `AWS_ENDPOINT_URL_S3`; a gs:// bucket by Workload Identity.",
    },
  ),
  setting("driver", oneOf("local", "kubernetes"), "local", {
    what: "What sandboxes are: `local` processes on this machine, or pods of a `kubernetes` cluster.",
  }),
  setting("sandbox_url", httpUrl, null, {
    defaultText: "every replica's `advertise_url`",
    what: "How sandboxes reach Hangar, and its volume store, where replicas come and go: a Service's or load balancer's URL.",
  }),
  setting("sandbox_image", ImageName.describe("the name of a container image"), null, {
    defaultText: "none: every environment must name one",
    what: "The image of a `kubernetes` sandbox whose environment names none.",
  }),
  setting("kubernetes_config", z.string().refine(isAbsolute).describe("an absolute path"), null, {
    defaultText: "`KUBECONFIG`, else the pod's service account, else `~/.kube/config`",
    what: "The kubeconfig file of the cluster.",
  }),
  setting("kubernetes_context", z.string().max(500).describe("a context of the kubeconfig"), null, {
    defaultText: "the kubeconfig's current one",
    what: "The kubeconfig's context.",
  }),
  setting(
    "kubernetes_namespace",
    z
      .string()
      .regex(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/)
      .describe("the name of a namespace"),
    null,
    {
      defaultText: "the context's, or the pod's own",
      what: "The namespace that sandboxes are made in; better one of their own.",
    },
  ),
  setting(
    "kubernetes_instance",
    z
      .string()
      .regex(/^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$/)
      .describe("1 to 32 lower-case letters, digits and dashes"),
    "hangar",
    { what: "Sets this Hangar's sandboxes apart from another's in the same namespace. All replicas have the same." },
  ),
  setting(
    "kubernetes_snapshots",
    z
      .string()
      .regex(/^[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?$/)
      .describe("the name of a PodSnapshotStorageConfig"),
    null,
    {
      defaultText: "none: a suspend keeps no memory",
      what: "Where GKE Pod Snapshots lie, for environments with `hot_resume`: see kubernetes.md. They hold secrets.",
    },
  ),
  setting("image_builder", oneOf("off", "buildkit", "cloudbuild"), "off", {
    what: "What builds the images of environments with a `build`: a BuildKit Job in the cluster, or Google Cloud Build.",
  }),
  setting("image_registry", ImageName.describe("a registry and a path in it"), null, {
    defaultText: "none: no images are built",
    what: "Where built images are pushed to and pulled from, as `hangar-environment:TAG` below it.",
  }),
  setting("image_build_namespace", objectName, "hangar-builds", {
    what: "The namespace of BuildKit's Jobs.",
  }),
  setting("image_push_secret", objectName, null, {
    defaultText: "none",
    what: "A Secret there, of type kubernetes.io/dockerconfigjson, with which BuildKit pushes.",
  }),
  setting(
    "cloud_build",
    z
      .string()
      .regex(/^projects\/[a-z0-9:.-]+\/locations\/[a-z0-9-]+$/)
      .describe("projects/PROJECT/locations/LOCATION"),
    null,
    { defaultText: "none", what: "Where Cloud Build builds." },
  ),
  setting("cloud_build_service_account", z.email().describe("a service account's address"), null, {
    defaultText: "none",
    what: "Who Cloud Build's builds run as: an identity that cannot reach the checkpoint bucket.",
  }),
  setting("prebuild_environments", names, null, {
    defaultText: "none",
    what: "Environments whose images are built when Hangar starts.",
  }),
  setting("github_repos", repos, null, {
    defaultText: "none",
    what: "Which environment a GitHub repo's work runs in, one for each repo; their images are built when Hangar starts, too.",
  }),
  setting("isolation", oneOf("auto", "plain"), "auto", {
    what: "`auto`: local sandboxes are kept apart with bubblewrap where it works; `plain`: they are plain folders.",
  }),
  setting("git_credentials", oneOf("host", "off"), "host", {
    what: "`host`: a local sandbox may ask this machine's git credential helpers, for its session's own remote only.",
  }),
  setting("harnesses", z.string().refine(isAbsolute).describe("an absolute path"), null, {
    defaultText: "none",
    what: "A YAML or JSON file with a list of harnesses that every environment may use ([harnesses.md](harnesses.md)).",
  }),
  setting("log_level", oneOf("trace", "debug", "info", "warn", "error", "silent"), "info", {
    what: "The least level that is logged. Logs are JSON lines on standard error.",
  }),
  setting("session_keep_checkpoints", whole(1, 1000), 5, {
    unit: "checkpoints",
    what: "How many checkpoints of a session are kept; those taken at intervals are counted apart from the others.",
  }),
  setting("session_checkpoint_minutes", amount(0, MAX_MINUTES), 10, {
    unit: "minutes",
    what: "A live session is checkpointed this often when something changed; 0: only after turns, at suspend and on demand.",
  }),
  setting("session_max_untracked_mb", amount(0, 1_000_000), 50, {
    unit: "MB (1,000,000 bytes)",
    what: "Bound of the untracked files of a checkpoint. The largest are left out until the rest fits; each is named.",
  }),
  setting("session_max_part_mb", amount(0, 1_000_000), 100, {
    unit: "MB (1,000,000 bytes)",
    what: "A part of a checkpoint over this is sent all the same, with a warning.",
  }),
  setting("session_retention_days", amount(0, 36_500), 0, {
    unit: "days",
    what: "Checkpoints of a suspended session are dropped after this long; 0: never.",
  }),
  setting("idle_minutes", amount(0, MAX_MINUTES), 30, {
    unit: "minutes",
    what: "A session without activity for this long suspends, where neither it nor its environment says otherwise; 0: stays up.",
  }),
  setting("ttl_minutes", amount(0, MAX_MINUTES), 1440, {
    unit: "minutes",
    what: "A sandbox's hard limit, extended while it is used; 0: none.",
  }),
  setting("left_out_hold_hours", amount(0, 8760), 24, {
    unit: "hours",
    what: "A session whose newest checkpoint left files out is not suspended for idleness for this long; 0: suspend at once.",
  }),
  setting("start_timeout_minutes", amount(0.05, MAX_MINUTES), 15, {
    unit: "minutes",
    what: "A sandbox that is not ready after this long has failed to start.",
  }),
  setting("heartbeat_seconds", amount(0.05, 3600), 10, {
    unit: "seconds",
    what: "How often a daemon reports its activity.",
  }),
  setting("lease_seconds", amount(0.2, 86_400), 60, {
    unit: "seconds",
    what: "A sandbox cut off for longer stops its turn and takes a local checkpoint; a successor starts only after a longer wait.",
  }),
  setting("idle_pass_seconds", amount(0.05, 3600), 60, {
    unit: "seconds",
    what: "A live session is looked at no less often than this: for idleness, due checkpoints and its sandbox's limits.",
  }),
  setting("warm_fetch_seconds", amount(1, 86_400), 180, {
    unit: "seconds",
    what: "How often a sandbox that waits in an environment's warm pool fetches what is new at its remote.",
  }),
  setting("use_keeps_awake_seconds", amount(0, 86_400), 90, {
    unit: "seconds",
    what: "How long one use of a sandbox (a keystroke, exec, files, MCP) keeps its session awake.",
  }),
  setting("signed_url_minutes", amount(0.02, 10_080), 60, {
    unit: "minutes",
    what: "How long a URL for one object of the store holds; an expired one is renewed.",
  }),
  setting("claim_seconds", amount(0.2, 3600), 30, {
    unit: "seconds",
    what: "How long a replica holds the work it took on before another may take it over.",
  }),
  setting("session_keep_events", whole(100, 10_000_000), 10_000, {
    unit: "events",
    what: "About how many events are kept of a session.",
  }),
] as const satisfies readonly Setting[];

/** What programs of this machine that Hangar starts for itself may know: all but its own settings, which hold secrets. */
export const hostEnvironment = (
  env: Readonly<Record<string, string | undefined>>,
): Record<string, string | undefined> =>
  Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith("HANGAR_")));

interface Setting {
  readonly name: string;
  /** `HANGAR_…` */
  readonly env: string;
  readonly schema: z.ZodType;
  /** None: optional, or worked out; `defaultText` says how. */
  readonly default: string | number | null;
  readonly defaultText: string;
  readonly unit: string | null;
  readonly what: string;
  /** Its value is never shown. */
  readonly secret: boolean;
}

type Given = {
  readonly [S in (typeof SETTINGS)[number] as S["name"]]: S["default"] extends null
    ? z.output<S["schema"]> | null
    : z.output<S["schema"]>;
};

function setting<const N extends string, S extends z.ZodType, const D extends string | number | null>(
  name: N,
  schema: S,
  fallback: D,
  more: { what: string; unit?: string; defaultText?: string; secret?: boolean },
): Setting & { readonly name: N; readonly schema: S; readonly default: D } {
  return {
    name,
    env: `HANGAR_${name.toUpperCase()}`,
    schema,
    default: fallback,
    defaultText: more.defaultText ?? `\`${String(fallback)}\``,
    unit: more.unit ?? null,
    what: more.what,
    secret: more.secret ?? false,
  };
}

/** An empty variable counts as unset, as shells and compose files leave it. */
function readOne(setting: Setting, env: Readonly<Record<string, string | undefined>>): unknown {
  const text = env[setting.env]?.trim() ?? "";
  if (text === "") return setting.default;
  const parsed = setting.schema.safeParse(text);
  if (parsed.success) return parsed.data;
  const was = setting.secret ? "not valid" : JSON.stringify(text.slice(0, 200));
  const why = parsed.error.issues.map((issue) => (issue.code === "custom" ? issue.params?.["why"] : undefined))[0];
  const which = typeof why === "string" ? `${why}; ` : "";
  throw new HangarError("invalid_request", `${setting.env} is ${was}: ${which}give ${setting.schema.description}`);
}

const defaultDataDir = (env: Readonly<Record<string, string | undefined>>): string => {
  const xdg = env["XDG_DATA_HOME"] ?? "";
  return isAbsolute(xdg) ? join(xdg, "hangar") : join(env["HOME"] || homedir(), ".local", "share", "hangar");
};

export interface S3Access {
  readonly region: string;
  /** Another server than Amazon's. */
  readonly endpoint: string | null;
  readonly credentials: {
    readonly accessKeyId: string;
    readonly secretAccessKey: string;
    readonly sessionToken?: string;
  };
}

function readS3(env: Readonly<Record<string, string | undefined>>, store: string | null): S3Access {
  const get = (name: string): string => env[name]?.trim() ?? "";
  const [accessKeyId, secretAccessKey] = [get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY")];
  if (store?.startsWith("s3:") && (accessKeyId === "" || secretAccessKey === "")) {
    const line = "HANGAR_SESSION_STORE is an s3:// bucket: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    throw new HangarError("invalid_request", line);
  }
  const endpoint = get("AWS_ENDPOINT_URL_S3") || get("AWS_ENDPOINT_URL");
  if (endpoint !== "" && !httpUrl.safeParse(endpoint).success) {
    throw new HangarError("invalid_request", `AWS_ENDPOINT_URL is not valid: give ${httpUrl.description ?? "a URL"}`);
  }
  const sessionToken = get("AWS_SESSION_TOKEN");
  return {
    region: get("AWS_REGION") || get("AWS_DEFAULT_REGION") || "us-east-1",
    endpoint: endpoint === "" ? null : endpoint,
    credentials: { accessKeyId, secretAccessKey, ...(sessionToken !== "" && { sessionToken }) },
  };
}

/** As kubectl finds it; of several files in KUBECONFIG, the first. */
function kubeconfig(env: Readonly<Record<string, string | undefined>>, given: string | null): string | null {
  if (given !== null) return given;
  const first = (env["KUBECONFIG"] ?? "").split(delimiter).find((path) => path !== "");
  if (first !== undefined) return resolve(first);
  if (env["KUBERNETES_SERVICE_HOST"]) return null;
  return join(env["HOME"] || homedir(), ".kube", "config");
}

/** A mistyped name would otherwise silently leave the default in force. Other programs' prefixes are theirs. */
function unknownVariables(env: Readonly<Record<string, string | undefined>>): string[] {
  const known = new Set<string>(SETTINGS.map((setting) => setting.env));
  return Object.keys(env)
    .filter((name) => name.startsWith("HANGAR_") && !/^HANGAR_(?:AGENT|CLI|DEMO|TEST|K8S|BENCH)(?:_|$)/.test(name))
    .filter((name) => !known.has(name) && !OTHERS.has(name))
    .sort()
    .map((name) => `${name} is no setting of Hangar and has no effect`);
}
/** Read by the CLI. */
const OTHERS = new Set(["HANGAR_URL"]);
