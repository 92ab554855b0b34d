/** What the engine remembers between calls on one workspace, in the process only. */
export interface Memory {
  readonly kind: "memory";
}
export const createMemory = (): Memory => ({ kind: "memory" });
