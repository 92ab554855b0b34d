/** Every key in Redis. */
const PREFIX = "hangar:";

export const dueKey = `${PREFIX}due`;
/** Warm pools to be looked at, `owner/environment`, by time. */
export const poolsKey = `${PREFIX}pools`;
export const warmKey = `${PREFIX}warm`;
export const warmSeenKey = `${PREFIX}warm-seen`;
export const allSessionsKey = `${PREFIX}sessions`;
/** Set once Redis has been filled from the store: without it, its data is new or was deleted. */
export const filledKey = `${PREFIX}filled`;
/** URLs of replicas, by when each is taken for gone unless heard of again. */
export const replicasKey = `${PREFIX}replicas`;
export const namesKey = (owner: string): string => `${PREFIX}names:${owner}`;
export const environmentsKey = (owner: string): string => `${PREFIX}environments:${owner}`;
export const environmentSessionsKey = (owner: string, name: string): string =>
  `${PREFIX}environment-sessions:${owner}:${name}`;
export const secretsKey = (owner: string): string => `${PREFIX}secrets:${owner}`;
/** Published on, to wake who waits; carries nothing. */
export const wakeChannel = (topic: string): string => `${PREFIX}wake:${topic}`;

export const sessionKeys = (id: string) => {
  const base = `${PREFIX}session:${id}`;
  return {
    record: base,
    turns: `${base}:turns`,
    turnOrder: `${base}:turn-order`,
    queue: `${base}:queue`,
    checkpoints: `${base}:checkpoints`,
    checkpointOrder: `${base}:checkpoint-order`,
    begins: `${base}:begins`,
    idempotency: `${base}:idempotency`,
    events: `${base}:events`,
  } as const;
};

export const sandboxKeys = (id: string) => {
  const base = `${PREFIX}sandbox:${id}`;
  return {
    commands: `${base}:commands`,
    ids: `${base}:command-ids`,
    result: (command: string): string => `${base}:result:${command}`,
  } as const;
};
