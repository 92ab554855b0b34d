/** What a cluster's API server says of the manifests: each is sent to it as it would be applied, and nothing is kept. */
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { VersionApi, KubeConfig } from "@kubernetes/client-node";
import { describe, expect, test } from "vitest";
import { render } from "../manifests/manifests.ts";
import { findCluster, withNamespaces } from "./cluster.ts";

const found = await findCluster();

describe.skipIf(found === null)("on a cluster", { timeout: 300_000 }, () => {
  test("it takes all that it knows of", async () => {
    const config = new KubeConfig();
    config.loadFromFile(found!.kubeconfig);
    const { minor } = await config.makeApiClient(VersionApi).getCode();
    const all = (await Promise.all(["base", "buildkit", "pod-snapshots"].map(render))).flat();
    // policy/v1 came with 1.21: there the schema has to do (test/manifests).
    const sent = all.filter(({ apiVersion }) => apiVersion !== "policy/v1" || Number.parseInt(minor, 10) >= 21);
    const text = JSON.stringify({ apiVersion: "v1", kind: "List", items: sent });
    const said = await withNamespaces(found!, ["hangar", "hangar-sandboxes", "hangar-builds"], async (dir) => {
      await writeFile(join(dir, "all.json"), text);
      const args = ["--kubeconfig", found!.kubeconfig, "apply", "--dry-run=server", "-f", join(dir, "all.json")];
      const { stdout } = await promisify(execFile)("kubectl", args);
      return stdout.trim().split("\n");
    });
    expect(said).toHaveLength(sent.length);
    for (const line of said) expect(line).toMatch(/ \(server dry run\)$/);
    expect(said.some((line) => line.startsWith("deployment.apps/hangar created"))).toBe(true);
  });
});
