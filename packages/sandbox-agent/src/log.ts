/** The daemon's log: JSON lines on stderr. Holds no secrets and no content of the workspace. */
import { pino } from "pino";

export interface Log {
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

export function newLog(sandbox: string): Log {
  const destination = pino.destination({ dest: 2, sync: true });
  // A full disk or a closed stream must not end the daemon.
  destination.on("error", () => undefined);
  const logger = pino(
    { base: { sandbox }, timestamp: pino.stdTimeFunctions.isoTime, messageKey: "message" },
    destination,
  );
  return {
    info: (message) => logger.info(message),
    warn: (message) => logger.warn(message),
    error: (message) => logger.error(message),
  };
}
