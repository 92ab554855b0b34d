/** Tests that need a cluster: a namespace and a Hangar for one file of them, and what every such file does with both. */
import type { Session } from "@hangar/shared";
import { afterAll, beforeAll, describe } from "vitest";
import type { TestHangar } from "../support/hangar.ts";
import { findCluster, type Found, openCluster, type TestCluster } from "./cluster.ts";

/** There from the first `beforeAll` of the tests on. */
export interface OnCluster {
  readonly found: Found;
  /** Known before. */
  readonly isRig: boolean;
  readonly cluster: TestCluster;
  readonly hangar: TestHangar;
  /** A repository that pods can clone. */
  readonly remote: string;
  /** A session of an environment of its own, small enough for many on one node. */
  make(name: string, kubernetes?: object): Promise<void>;
  idle(name: string): Promise<Session>;
  /** Pods of the session that were made for it. */
  podsOf(name: string): Promise<string[]>;
}

interface Options {
  /** What this machine must be able to do to the node; none: any cluster does. */
  readonly rigOnly?: string;
  readonly timeout?: number;
  /** Of terraform/manifests, beside the base: what they allow the coordinator. */
  readonly manifests?: readonly string[];
  readonly settings?: (on: Pick<OnCluster, "found" | "cluster">) => Record<string, string>;
}

/** Skipped, saying so, where there is no cluster. To be awaited by the file. */
export async function onCluster(options: Options, tests: (on: OnCluster) => void): Promise<void> {
  const found = await findCluster();
  const isOther = options.rigOnly !== undefined && found?.isRig === false;
  if (isOther) console.error(`skipped: ${options.rigOnly} on the rig's node alone`);
  const isSkipped = found === null || isOther;
  describe.skipIf(isSkipped)("on a cluster", { timeout: options.timeout ?? 240_000 }, () => {
    let cluster: TestCluster | undefined;
    let made: { hangar: TestHangar; remote: string } | undefined;
    beforeAll(async () => {
      cluster = await openCluster(found!, options.manifests);
      made = await cluster.hangar(options.settings?.({ found: found!, cluster }));
    }, 300_000);
    afterAll(() => cluster?.close(), 120_000);

    tests({
      get found() {
        return found!;
      },
      isRig: found?.isRig === true,
      get cluster() {
        return cluster!;
      },
      get hangar() {
        return made!.hangar;
      },
      get remote() {
        return made!.remote;
      },
      async make(name, kubernetes = {}) {
        const requests = { cpu: "20m", memory: "64Mi" };
        const environment = { name, repo: this.remote, harness: "script", kubernetes: { requests, ...kubernetes } };
        await this.hangar.api("PUT", `/api/environments/${name}`, environment);
        await this.hangar.api("POST", "/api/sessions", { name, environment: name });
      },
      idle(name) {
        return this.hangar.until(name, "idle", (s) => s.state === "IDLE", 120);
      },
      async podsOf(name) {
        const { id } = await this.hangar.session(name);
        return (await this.cluster.podNames()).filter((pod) => pod.startsWith(`sbx-${id.slice(4)}-`));
      },
    });
  });
}
