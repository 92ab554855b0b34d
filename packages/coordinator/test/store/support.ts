/** A volume store in a temporary folder, served on loopback as the coordinator serves it. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { openVault } from "../../src/vault/file-vault.ts";
import { vaultKeyFile } from "../../src/vault/key-file.ts";
import { volumeRoutes } from "../../src/store/volume-http.ts";
import { openVolumeStore, type VolumeStore } from "../../src/store/volume.ts";

export interface ServedVolume {
  readonly store: VolumeStore;
  readonly root: string;
  readonly reported: Error[];
  close(): Promise<void>;
}

export async function serveVolume(options: { now?: () => number; root?: string } = {}): Promise<ServedVolume> {
  const folder = await mkdtemp(join(tmpdir(), "hangar-volume-"));
  const { vault } = await openVault(vaultKeyFile(folder));
  const root = options.root ?? join(folder, "store");
  const app = new Hono();
  const server = await new Promise<ReturnType<typeof serve>>((resolve) => {
    const started = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, () => resolve(started));
  });
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  const store = await openVolumeStore({
    root,
    baseUrl: `http://127.0.0.1:${address.port}`,
    signer: vault,
    ...(options.now && { now: options.now }),
  });
  const reported: Error[] = [];
  const routes = volumeRoutes(store, (error) => reported.push(error));
  app.all(`${routes.prefix}/*`, (c) => routes.handle(c.req.raw));
  return {
    store,
    root,
    reported,
    async close() {
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        if ("closeAllConnections" in server) server.closeAllConnections();
      });
      await rm(folder, { recursive: true, force: true });
    },
  };
}
