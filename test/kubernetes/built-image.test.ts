/** The sandbox image as images/Dockerfile builds it, in a real pod with a read-only root: a session works, suspends and resumes. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BUILD_SCRIPT, ON_TEST_BASE, openPodman, type Podman, whyNoPodman } from "../images/podman.ts";
import { run, type TestHangar } from "../support/hangar.ts";
import { ctr, findCluster, importImage, openCluster, type TestCluster } from "./cluster.ts";

const found = await findCluster();
const why = found?.isRig === true ? whyNoPodman() : "an image can be put onto the rig's node alone";
if (found !== null && why !== null) console.error(`skipped, the sandbox image is not built: ${why}`);

describe.skipIf(why !== null)("the built sandbox image", { timeout: 300_000 }, () => {
  const image = `localhost/hangar-sandbox:rig-${process.pid}`;
  let dir: string;
  let podman: Podman;
  let cluster: TestCluster;
  let hangar: TestHangar;
  let remote: string;

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "hangar-built-"));
    podman = await openPodman(dir);
    const args = [...ON_TEST_BASE, "--tag", `rig-${process.pid}`, "sandbox"];
    const built = await run("sh", [BUILD_SCRIPT, ...args], { env: podman.env });
    expect(built.code, built.stderr).toBe(0);
    await podman.ok("save", "--quiet", "--output", join(dir, "image.tar"), image);
    await importImage(join(dir, "image.tar"));
    cluster = await openCluster(found!);
    ({ hangar, remote } = await cluster.hangar({ HANGAR_SANDBOX_IMAGE: image }));
  }, 600_000);
  afterAll(async () => {
    await cluster?.close();
    await ctr("images", "rm", image).catch(() => undefined);
    await podman?.podman("rmi", "--force", image);
    await rm(dir, { recursive: true, force: true });
  }, 180_000);

  test("a session works in it, suspends, and has all of it in the next pod", async () => {
    await hangar.api("POST", "/api/sessions", { name: "a", repo: remote, harness: "script" });
    expect(await hangar.turn("a", "id -u; echo kept > kept.txt; git add kept.txt", 180)).toMatchObject({
      exit_code: 0,
    });
    expect((await hangar.exec("a", "sh", "-c", "id -u; touch /usr/x; tmux -V; age --version")).stdout).toMatch(
      /^1000\ntmux /,
    );
    await hangar.api("POST", "/api/sessions/a/suspend", {});
    await hangar.until("a", "suspended", (s) => s.state === "SUSPENDED", 120);
    await hangar.turn("a", "true", 180);
    expect((await hangar.session("a")).restored_from).toMatchObject({ verified: true });
    expect((await hangar.exec("a", "git", "status", "--short")).stdout).toBe("A  kept.txt\n");
  });
});
