/** `warm_pool_hours`: when a warm pool is kept, as people write it. Which instants that are is the coordinator's to say. */
import { z } from "zod";

/** One daily span on certain weekdays of one time zone. */
export interface WarmWindow {
  /** ISO weekdays on which it begins, 1 (Monday) to 7. */
  readonly days: readonly number[];
  /** Minutes after midnight, local. */
  readonly from: number;
  /** At most 1440; not above `from`: on the next day. */
  readonly to: number;
  /** IANA. */
  readonly zone: string;
}

const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const SHAPE = "write DAYS FROM-TO ZONE, such as Mon-Fri 08:00-20:00 America/New_York; more windows follow a semicolon";

/** Throws Error with one line that names what is wrong. */
export function parseWarmHours(text: string): WarmWindow[] {
  return text.split(";").flatMap((part) => {
    const [days = "", times = "", zone = "", ...rest] = part.trim().split(/\s+/);
    if (zone === "" || rest.length > 0) throw new Error(`"${part.trim()}" is no window: ${SHAPE}`);
    checkZone(zone);
    const on = parseDays(days);
    return times.split(",").map((span) => parseSpan(span, on, zone));
  });
}

function parseDays(text: string): number[] {
  if (text.toLowerCase() === "daily") return [1, 2, 3, 4, 5, 6, 7];
  const days = text.split(",").flatMap((range) => {
    const [first, last] = range.split("-").map((day) => DAYS.indexOf(day.toLowerCase()));
    if (first === undefined || first < 0 || last === -1 || range.split("-").length > 2) {
      throw new Error(`"${text}" names no days: write Mon-Fri, or Mon,Wed, or daily`);
    }
    const length = last === undefined ? 1 : ((last - first + 7) % 7) + 1;
    return Array.from({ length }, (_, i) => ((first + i) % 7) + 1);
  });
  return [...new Set(days)].sort((a, b) => a - b);
}

function parseSpan(span: string, days: number[], zone: string): WarmWindow {
  const [, from, to] = /^([0-9:]+)-([0-9:]+)$/.exec(span) ?? [];
  const [a, b] = [minutesOf(from), minutesOf(to)];
  if (a === null || b === null || a === 1440) throw new Error(`"${span}" is no span of a day: write 08:00-20:00`);
  if (a === b) throw new Error(`"${span}" begins as it ends: for the whole day write 00:00-24:00`);
  return { days, from: a, to: b, zone };
}

function minutesOf(text: string | undefined): number | null {
  const [, hours, minutes] = /^([0-2]?[0-9]):([0-5][0-9])$/.exec(text ?? "") ?? [];
  const total = Number(hours) * 60 + Number(minutes);
  return total <= 1440 ? total : null;
}

/** Offsets such as +02:00 have no daylight saving, which is seldom what is meant. */
function checkZone(zone: string): void {
  try {
    if (/^[A-Za-z]/.test(zone)) return void new Intl.DateTimeFormat("en", { timeZone: zone });
  } catch {
    // said below
  }
  throw new Error(`"${zone}" is no time zone: write an IANA name, such as Europe/Berlin or UTC`);
}

/** A list of them is one text with a semicolon between. */
export const WarmHours = z
  .union([z.string(), z.array(z.string()).min(1)])
  .transform((given) => (typeof given === "string" ? given : given.join("; ")))
  .pipe(z.string().max(2000))
  .superRefine((text, context) => {
    try {
      parseWarmHours(text);
    } catch (error) {
      context.addIssue({ code: "custom", message: error instanceof Error ? error.message : String(error) });
    }
  });
