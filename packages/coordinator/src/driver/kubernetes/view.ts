/** Of what the API server says, the part that is read here: small, and the same from a list and from a watch. */
import { z } from "zod";

/** ms since 1970. The client library makes dates of a list's times and leaves a watch's as they are. */
const Time = z
  .union([z.string(), z.date()])
  .nullish()
  .transform((time) => (time === null || time === undefined ? null : new Date(time).getTime()));
const text = z
  .string()
  .nullish()
  .transform((value) => value ?? "");

const Ended = z.object({ reason: text, message: text, exitCode: z.number().default(0) });
const ContainerState = z.object({
  waiting: z.object({ reason: text, message: text }).nullish(),
  running: z.object({}).nullish(),
  terminated: Ended.nullish(),
});
const list = <T extends z.ZodType>(item: T) =>
  z
    .array(item)
    .nullish()
    .transform((items) => items ?? []);

export const PodView = z.object({
  metadata: z.object({
    name: z.string(),
    uid: z.string(),
    labels: z.record(z.string(), z.string()).default({}),
    creationTimestamp: Time,
    /** When it is to be gone: the grace period is over. */
    deletionTimestamp: Time,
  }),
  spec: z.object({ nodeName: text }).default({ nodeName: "" }),
  status: z
    .object({
      phase: text,
      reason: text,
      message: text,
      conditions: list(
        z.object({ type: z.string(), status: z.string(), reason: text, message: text, lastTransitionTime: Time }),
      ),
      containerStatuses: list(
        z.object({
          restartCount: z.number().default(0),
          state: ContainerState.nullish(),
          lastState: ContainerState.nullish(),
        }),
      ),
    })
    .default({ phase: "", reason: "", message: "", conditions: [], containerStatuses: [] }),
});
export type Container = PodView["status"]["containerStatuses"][number];
export type PodView = z.infer<typeof PodView>;

export const EventView = z.object({
  metadata: z.object({ name: z.string() }),
  involvedObject: z.object({ kind: text, name: text, uid: text }),
  reason: text,
  message: text,
  firstTimestamp: Time,
  lastTimestamp: Time,
  eventTime: Time,
});
export type EventView = z.infer<typeof EventView>;

export const timeOf = (event: EventView): number => event.lastTimestamp ?? event.eventTime ?? event.firstTimestamp ?? 0;

/** What was said of one pod by others than its own status: the newest message of each reason. */
export type Said = ReadonlyMap<string, { readonly message: string; readonly at: number }>;

/** Of a long one the middle is left out: what failed stands at its end. */
export function oneLine(text: string): string {
  const line = text
    .replace(/rpc error: code = \w+ desc = /g, "")
    .replace(/\s+/g, " ")
    .trim();
  return line.length <= 300 ? line : `${line.slice(0, 110)} … ${line.slice(-187)}`;
}
export const lastLine = (text: string): string => oneLine(text.trim().split("\n").at(-1) ?? "");
