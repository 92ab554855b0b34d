/**
 * When a warm pool is kept: the instants of its windows, by Temporal, which is in Node and knows every IANA zone. Pure.
 *
 * A window begins and ends by the local clock. An end that the clock shows twice (autumn) counts at its second time and a
 * beginning at its first, so that nothing is drained and filled again within the hour; what the clock skips (spring) is the
 * moment at which it jumps.
 */
import { parseWarmHours } from "@hangar/shared";
import type { WarmWindow } from "@hangar/shared";

export interface Hours {
  readonly open: boolean;
  /** When that changes, ms since 1970; none: not within the next week, which is never. */
  readonly changesAt: number | null;
}

/** `hours` as the environment has them; none: always open. */
export function hoursAt(hours: string | null, now: number): Hours {
  if (hours === null) return { open: true, changesAt: null };
  const spans = merged(parseWarmHours(hours).flatMap((window) => spansOf(window, now)));
  const current = spans.find(({ from, to }) => from <= now && now < to);
  const horizon = now + 8 * 86_400_000;
  if (current) return { open: true, changesAt: current.to >= horizon ? null : current.to };
  return { open: false, changesAt: spans.find(({ from }) => from > now)?.from ?? null };
}

interface Span {
  readonly from: number;
  readonly to: number;
}

/** From two days ago, since one may reach over midnight, to a good week ahead. */
function spansOf({ days, from, to, zone }: WarmWindow, now: number): Span[] {
  const today = Temporal.Instant.fromEpochMilliseconds(now).toZonedDateTimeISO(zone).toPlainDate();
  const spans: Span[] = [];
  for (let offset = -2; offset <= 9; offset++) {
    const date = today.add({ days: offset });
    if (!days.includes(date.dayOfWeek)) continue;
    const end = date.add({ days: to <= from ? 1 : 0 });
    const span = { from: instantOf(date, from, zone, "earlier"), to: instantOf(end, to, zone, "later") };
    if (span.to > span.from) spans.push(span);
  }
  return spans;
}

function instantOf(date: Temporal.PlainDate, minutes: number, zone: string, which: "earlier" | "later"): number {
  const local = date.toPlainDateTime().add({ minutes });
  const zoned = local.toZonedDateTime(zone, { disambiguation: which });
  if (zoned.toPlainDateTime().equals(local)) return zoned.epochMilliseconds;
  const before = local.toZonedDateTime(zone, { disambiguation: "earlier" });
  return (before.getTimeZoneTransition("next") ?? zoned).epochMilliseconds;
}

/** Windows that touch or overlap are one. */
function merged(spans: readonly Span[]): Span[] {
  const all: Span[] = [];
  for (const span of spans.toSorted((a, b) => a.from - b.from)) {
    const last = all.at(-1);
    if (last && span.from <= last.to) all[all.length - 1] = { from: last.from, to: Math.max(last.to, span.to) };
    else all.push(span);
  }
  return all;
}
