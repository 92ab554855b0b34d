/** Environments' images: with Cloud Build and a registry stood in for, and BuildKit's Job held to Kubernetes' schema and API. */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ApiException } from "@kubernetes/client-node";
import { KubernetesPod } from "@hangar/shared";
import { objections } from "../../../../test/manifests/manifests.ts";
import type { Driver, SandboxSpec } from "../../src/driver/driver.ts";
import { imageRequest } from "../../src/images/builder.ts";
import { buildingDriver, ensureImage, type Images } from "../../src/images/building-driver.ts";
import { buildKit, jobOf } from "../../src/images/buildkit.ts";
import { cloudBuild } from "../../src/images/cloud-build.ts";
import { prebuild } from "../../src/images/prebuild.ts";
import { PARENT, standIns, type StandIns, TOKEN } from "./stand-ins.ts";

const BASE = "registry.example/hangar-sandbox:1";
const SERVICE_ACCOUNT = "build@acme.iam.gserviceaccount.com";
const block = (build: unknown, more: object = {}) => KubernetesPod.parse({ build, ...more });
const SCRIPT = block({ script: "apt-get install -y 'ripgrep' # $HOME $(x)" });

describe("what is built", () => {
  const where = { registry: "registry.example/hangar", base: BASE };

  test("a tag goes by the content: script, Dockerfile, and what it is built on", () => {
    const tags = [
      imageRequest(SCRIPT, where),
      imageRequest(block({ script: "true" }), where),
      imageRequest(block({ dockerfile: "FROM x" }), where),
      imageRequest(SCRIPT, { ...where, base: "other:2" }),
    ].map((request) => request?.tag);
    expect(new Set(tags).size).toBe(4);
    expect(imageRequest(structuredClone(SCRIPT), where)).toEqual(imageRequest(SCRIPT, where));
    expect(imageRequest(SCRIPT, where)?.name).toBe(`registry.example/hangar/hangar-environment:${tags[0]}`);
    expect(imageRequest(block(null), where)).toBeNull();
  });

  test("a script runs as root, whatever is in it, and the image's user is the sandbox's again", () => {
    const { dockerfile } = imageRequest(SCRIPT, where)!;
    const encoded = /echo (\S+) \| base64 -d/.exec(dockerfile)?.[1] ?? "";
    expect(Buffer.from(encoded, "base64").toString()).toBe("apt-get install -y 'ripgrep' # $HOME $(x)");
    expect(dockerfile.trimEnd().split("\n").at(-1)).toBe("USER 1000:1000");
  });

  test("without anything to build it on, or a builder, the session is told what to set", async () => {
    expect(() => imageRequest(SCRIPT, { ...where, base: null })).toThrow("set HANGAR_SANDBOX_IMAGE");
    await expect(ensureImage({ builder: null, ...where }, SCRIPT)).rejects.toThrow("set HANGAR_IMAGE_BUILDER");
    expect(await ensureImage({ builder: null, ...where }, block(null))).toEqual(block(null));
  });
});

describe("by Cloud Build, stood in for", () => {
  let google: StandIns;
  let images: Images;
  let now: number;
  beforeEach(async () => {
    google = await standIns();
    now = Date.parse("2026-01-01T00:00:00Z");
    const token = () => Promise.resolve(TOKEN);
    const options = { parent: PARENT, serviceAccount: SERVICE_ACCOUNT, token, endpoint: google.endpoint };
    images = { builder: cloudBuild({ ...options, clock: () => now }), registry: google.registry, base: BASE };
  });
  afterEach(() => google.close());

  const finish = (status: string, failureInfo?: { detail: string }) => {
    const build = google.builds.at(-1)!;
    Object.assign(build, { status, finishTime: new Date(now).toISOString(), ...(failureInfo && { failureInfo }) });
    if (status === "SUCCESS") for (const image of build.images) google.pushed.add(image);
  };

  test("one build for all who ask, as the build's own identity; then the image's name is the pod's", async () => {
    for (let i = 0; i < 3; i++) {
      await expect(ensureImage(images, SCRIPT)).rejects.toMatchObject({ code: "image_building", retryable: true });
    }
    expect(google.builds).toHaveLength(1);
    expect(google.builds[0]).toMatchObject({
      serviceAccount: `projects/acme/serviceAccounts/${SERVICE_ACCOUNT}`,
      options: { logging: "CLOUD_LOGGING_ONLY" },
    });
    finish("SUCCESS");
    const made = await ensureImage(images, SCRIPT);
    expect(made).toMatchObject({ build: null, image: google.builds[0]!.images[0] });
    expect(google.builds).toHaveLength(1);
  });

  test("a long Dockerfile arrives whole, in arguments that Cloud Build takes", async () => {
    const dockerfile = `FROM x\n${"RUN echo é $(x) ${y}\n".repeat(2500)}`;
    await expect(ensureImage(images, block({ dockerfile }))).rejects.toThrow("building the image");
    const [, script, , ...chunks] = google.builds[0]!.steps[0]!.args;
    expect(script).toBe('printf %s "$$@" | base64 -d >Dockerfile');
    expect(Math.max(...chunks.map((chunk) => chunk.length))).toBeLessThanOrEqual(10_000);
    expect(Buffer.from(chunks.join(""), "base64").toString()).toBe(dockerfile);
  });

  test("a build that fails says why to those who wait, and is tried again by who asks later", async () => {
    await expect(ensureImage(images, SCRIPT)).rejects.toThrow("building the image");
    finish("FAILURE", { detail: "apt-get: unable to locate package ripgerp" });
    await expect(ensureImage(images, SCRIPT)).rejects.toMatchObject({
      code: "image_build_failed",
      retryable: false,
      message: "The image cannot be built: apt-get: unable to locate package ripgerp",
    });
    now += 61_000;
    await expect(ensureImage(images, SCRIPT)).rejects.toMatchObject({ code: "image_building" });
    expect(google.builds).toHaveLength(2);
  });

  test("a refusal fails the start with Google's words; a moment's trouble is waited out", async () => {
    google.refuse = { status: 403, message: "Permission cloudbuild.builds.create denied" };
    await expect(ensureImage(images, SCRIPT)).rejects.toMatchObject({
      code: "image_build_failed",
      message: expect.stringContaining("cloudbuild.builds.create denied"),
    });
    google.refuse = { status: 503, message: "try later" };
    await expect(ensureImage(images, SCRIPT)).rejects.toMatchObject({ retryable: true });
  });

  test("at start-up the named environments are built; one that is not there, or fails, holds nothing up", async () => {
    const blocks: Record<string, KubernetesPod | null> = { web: SCRIPT, plain: null, bad: block({ script: "false" }) };
    const get = (_owner: string, name: string) =>
      Promise.resolve(name in blocks ? ({ name, kubernetes: blocks[name] } as never) : null);
    const log = { info: vi.fn(), warn: vi.fn() };
    const names = ["web", "plain", "bad", "web", "gone"];
    const signal = AbortSignal.timeout(20_000);
    const done = prebuild({ environments: { get }, images, owner: "admin", names, log, signal, everyMs: 10 });
    await expect.poll(() => google.builds.length).toBe(2);
    for (const build of google.builds) {
      const isBad = build.images[0] === imageRequest(blocks["bad"]!, { registry: google.registry, base: BASE })?.name;
      Object.assign(build, { status: isBad ? "FAILURE" : "SUCCESS", finishTime: new Date(now).toISOString() });
      if (!isBad) for (const image of build.images) google.pushed.add(image);
    }
    await done;
    expect(log.info).toHaveBeenCalledWith({ environment: "web" }, "an environment's image is built");
    expect(log.warn.mock.calls.map(([{ environment }]) => environment as string).toSorted()).toEqual(["bad", "gone"]);
  });

  test("a sandbox is made of its image once that is there, and not before", async () => {
    const create = vi.fn((_spec: SandboxSpec) => Promise.resolve({ adopted: false }));
    const driver = buildingDriver({ create, warm: null } as unknown as Driver, images);
    const spec = { id: "sbx-1", kubernetes: SCRIPT } as SandboxSpec;
    await expect(driver.create(spec)).rejects.toThrow("building the image");
    expect(create).not.toHaveBeenCalled();
    finish("SUCCESS");
    await driver.create(spec);
    expect(create.mock.calls[0]?.[0].kubernetes?.image).toBe(google.builds[0]!.images[0]);
  });
});

describe("by BuildKit, in a cluster whose API is stood in for", () => {
  const request = imageRequest(SCRIPT, { registry: "registry.example/hangar", base: BASE })!;

  test("its Job is one that current Kubernetes takes: not root, no token, the Dockerfile whole", async () => {
    const options = { core: {}, batch: {}, namespace: "hangar-builds", pushSecret: "push" } as never;
    const job = jobOf(request, "hangar-build-x", options);
    expect(await objections(job as never)).toEqual([]);
    const pod = job.spec?.template.spec;
    expect(pod).toMatchObject({ automountServiceAccountToken: false, securityContext: { runAsNonRoot: true } });
    const value = pod?.containers[0]?.env?.find(({ name }) => name === "DOCKERFILE")?.value ?? "";
    expect(Buffer.from(value, "base64").toString()).toBe(request.dockerfile);
    expect(pod?.containers[0]?.args).toContain(`--output=type=image,name=${request.name},push=true`);
  });

  test("two replicas make one Job; done, the image is ready; failed, its last words are told and the next try is new", async () => {
    let job: { status?: { conditions: { type: string; status: string; message?: string }[] } } | null = null;
    let made = 0;
    const refusal = (code: number) => new ApiException(code, "", {}, {});
    const batch = {
      readNamespacedJob: () => (job === null ? Promise.reject(refusal(404)) : Promise.resolve(job)),
      createNamespacedJob: () => {
        if (made++ > 0 && job !== null) return Promise.reject(refusal(409));
        return Promise.resolve((job = {}));
      },
      deleteNamespacedJob: () => Promise.resolve((job = null)),
    };
    const core = {
      listNamespacedPod: () => Promise.resolve({ items: [{ metadata: { name: "p" } }] }),
      readNamespacedPodLog: () => Promise.resolve("#5 ERROR\nerror: failed to solve: exit code: 100\n"),
    };
    const make = () => buildKit({ core, batch, namespace: "hangar-builds", pushSecret: null } as never);
    expect(await Promise.all([make().ensure(request), make().ensure(request)])).toEqual(["building", "building"]);
    expect(await make().ensure(request)).toBe("building");
    job = { status: { conditions: [{ type: "Failed", status: "True", message: "BackoffLimitExceeded" }] } };
    expect(await make().ensure(request)).toEqual({ failed: "error: failed to solve: exit code: 100" });
    expect(await make().ensure(request)).toBe("building");
    job = { status: { conditions: [{ type: "Complete", status: "True" }] } };
    expect(await make().ensure(request)).toBe("ready");
  });
});
