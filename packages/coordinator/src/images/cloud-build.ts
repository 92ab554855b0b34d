/**
 * Builds by Google Cloud Build. A Dockerfile may be anybody's, so a build runs as a service account of its own, which can push
 * images and cannot reach the checkpoint bucket (terraform/identities.tf). Nothing is uploaded: the Dockerfile is the build's
 * only file and travels in its step.
 */
import { HangarError } from "@hangar/shared";
import { z } from "zod";
import type { ImageBuilder, ImageRequest } from "./builder.ts";
import { hasImage } from "./registry.ts";

export interface CloudBuildOptions {
  /** `projects/P/locations/L`. */
  readonly parent: string;
  /** The address of who builds run as. */
  readonly serviceAccount: string;
  /** An OAuth token of the coordinator's own. */
  readonly token: () => Promise<string>;
  readonly clock?: () => number;
  readonly endpoint?: string;
}

const DOCKER = "gcr.io/cloud-builders/docker:24.0.9";
const BUILD_SECONDS = 1800;
/** A build that failed is told to those who wait for it; who asks later has it tried again. */
const FAILURE_TOLD_MS = 60_000;
/** An argument of a step may have 10,000 characters. */
const CHUNK = 8000;
const TIMEOUT_MS = 15_000;

const Build = z.object({
  status: z.string(),
  statusDetail: z.string().optional(),
  failureInfo: z.object({ type: z.string().optional(), detail: z.string().optional() }).optional(),
  finishTime: z.string().optional(),
  logUrl: z.string().optional(),
});
const Builds = z.object({ builds: z.array(Build).default([]) });

export function cloudBuild(options: CloudBuildOptions): ImageBuilder {
  const { parent, serviceAccount, token, clock = Date.now } = options;
  const project = /^projects\/([^/]+)\//.exec(parent)?.[1] ?? "";
  const url = `${options.endpoint ?? "https://cloudbuild.googleapis.com"}/v1/${parent}/builds`;

  return {
    async ensure(request) {
      if (await hasImage(request.name, await token())) return "ready";
      const query = new URLSearchParams({ filter: `tags="${tagOf(request)}"`, pageSize: "1" });
      const [last] = Builds.parse(await ask(`${url}?${query.toString()}`)).builds;
      if (last && ["PENDING", "QUEUED", "WORKING"].includes(last.status)) return "building";
      if (last && last.status !== "SUCCESS" && clock() - Date.parse(last.finishTime ?? "") < FAILURE_TOLD_MS) {
        return { failed: whyFailed(last) };
      }
      await ask(url, { method: "POST", body: JSON.stringify(buildOf(request, project, serviceAccount)) });
      return "building";
    },
  };

  async function ask(at: string, init: { method?: string; body?: string } = {}): Promise<unknown> {
    const headers = { authorization: `Bearer ${await token()}`, "content-type": "application/json" };
    let answer: Response;
    let said: string;
    try {
      answer = await fetch(at, { ...init, headers, redirect: "error", signal: AbortSignal.timeout(TIMEOUT_MS) });
      said = await answer.text();
    } catch (cause) {
      throw new HangarError("cluster_unavailable", "Cloud Build cannot be reached; tried again", { cause });
    }
    if (answer.ok) return JSON.parse(said || "{}");
    const why = /"message":\s*"((?:[^"\\]|\\.)*)"/.exec(said)?.[1] ?? "no reason given";
    const isTransient = answer.status >= 500 || answer.status === 429;
    const line = `Cloud Build refuses the image's build (HTTP ${answer.status}): ${why.slice(0, 300)}`;
    throw new HangarError(isTransient ? "cluster_unavailable" : "image_build_failed", line);
  }
}

const tagOf = ({ tag }: ImageRequest): string => `hangar-${tag}`;

function buildOf(request: ImageRequest, project: string, serviceAccount: string): object {
  const encoded = Buffer.from(request.dockerfile).toString("base64");
  const chunks = encoded.match(new RegExp(`.{1,${CHUNK}}`, "g")) ?? [];
  return {
    // `$$`: Cloud Build would take a single one for a substitution of its own.
    steps: [
      { name: DOCKER, entrypoint: "sh", args: ["-euc", 'printf %s "$$@" | base64 -d >Dockerfile', "-", ...chunks] },
      {
        name: DOCKER,
        args: ["build", "--build-arg", `HANGAR_SANDBOX_IMAGE=${request.base}`, "--tag", request.name, "."],
      },
    ],
    images: [request.name],
    tags: ["hangar", tagOf(request)],
    serviceAccount: `projects/${project}/serviceAccounts/${serviceAccount}`,
    timeout: `${BUILD_SECONDS}s`,
    options: { logging: "CLOUD_LOGGING_ONLY" },
  };
}

function whyFailed(build: z.infer<typeof Build>): string {
  const why = build.failureInfo?.detail ?? build.statusDetail ?? build.status.toLowerCase();
  return build.logUrl ? `${why} (${build.logUrl})` : why;
}
