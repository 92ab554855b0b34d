/** Everything that a warm sandbox is made of: a session may have one only where its own would be made of the same. */
import { createHash } from "node:crypto";
import type { EnvironmentRecord } from "@hangar/shared";
import type { Driver } from "../driver/driver.ts";

export function fingerprintOf(driver: Driver, environment: EnvironmentRecord): string {
  const { repo, base_branch, setup, variables, kubernetes } = environment;
  const made = [
    repo,
    base_branch,
    setup,
    Object.entries(variables).toSorted(([a], [b]) => (a < b ? -1 : 1)),
    kubernetes,
    driver.madeOf(kubernetes),
  ];
  return createHash("sha256").update(JSON.stringify(made)).digest("hex").slice(0, 16);
}
