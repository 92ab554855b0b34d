/** The daemon's log: JSON lines on stderr. Holds no secrets and no content of the workspace; what an error quotes passes `redact`. */
import type { Redact } from "@hangar/shared";
import { pino } from "pino";

export interface Log {
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

export function newLog(sandbox: string, redact: Redact): Log {
  const destination = pino.destination({ dest: 2, sync: true });
  // A full disk or a closed stream must not end the daemon.
  destination.on("error", () => undefined);
  const logger = pino(
    { base: { sandbox }, timestamp: pino.stdTimeFunctions.isoTime, messageKey: "message" },
    destination,
  );
  return {
    info: (message) => logger.info(redact(message)),
    warn: (message) => logger.warn(redact(message)),
    error: (message) => logger.error(redact(message)),
  };
}
