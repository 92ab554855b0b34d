/** When warm pools are kept: weekdays, midnight, several windows, and clocks that jump either way. */
import { Environment } from "@hangar/shared";
import { describe, expect, it } from "vitest";
import { hoursAt } from "../../src/warm/hours.ts";

const at = (hours: string | null, time: string) => {
  const { open, changesAt } = hoursAt(hours, Date.parse(time));
  return { open, until: changesAt === null ? null : new Date(changesAt).toISOString().replace(".000Z", "Z") };
};

describe("hours of a warm pool", () => {
  it("are always where none are given", () => {
    expect(at(null, "2026-12-01T03:00:00Z")).toEqual({ open: true, until: null });
  });

  it("are the working hours of a zone, and say when they begin and end", () => {
    const hours = "Mon-Fri 08:00-20:00 America/New_York";
    expect(at(hours, "2026-12-01T12:59:59Z")).toEqual({ open: false, until: "2026-12-01T13:00:00Z" });
    expect(at(hours, "2026-12-01T13:00:00Z")).toEqual({ open: true, until: "2026-12-02T01:00:00Z" });
    expect(at(hours, "2026-12-05T15:00:00Z")).toEqual({ open: false, until: "2026-12-07T13:00:00Z" });
    // The same wall clock, an hour earlier in summer.
    expect(at(hours, "2026-07-01T12:00:00Z")).toEqual({ open: true, until: "2026-07-02T00:00:00Z" });
  });

  it("may reach over midnight, also into a day that is not named", () => {
    const hours = "Fri 22:00-06:00 Europe/Berlin";
    expect(at(hours, "2026-12-04T20:59:00Z").open).toBe(false);
    expect(at(hours, "2026-12-04T23:30:00Z")).toEqual({ open: true, until: "2026-12-05T05:00:00Z" });
    expect(at(hours, "2026-12-05T05:00:00Z")).toEqual({ open: false, until: "2026-12-11T21:00:00Z" });
  });

  it("are several windows, of several zones; what touches is one", () => {
    const hours = "Mon 08:00-12:00,13:00-17:00 UTC; Mon 17:00-18:00 UTC; Sat,Sun 10:00-11:00 Asia/Kathmandu";
    expect(at(hours, "2026-12-07T12:30:00Z")).toEqual({ open: false, until: "2026-12-07T13:00:00Z" });
    expect(at(hours, "2026-12-07T16:00:00Z")).toEqual({ open: true, until: "2026-12-07T18:00:00Z" });
    expect(at(hours, "2026-12-05T04:15:00Z")).toEqual({ open: true, until: "2026-12-05T05:15:00Z" });
  });

  it("of every whole day never end", () => {
    expect(at("daily 00:00-24:00 Pacific/Apia", "2026-12-01T03:00:00Z")).toEqual({ open: true, until: null });
  });

  it("begin when the clock jumps over their beginning (spring)", () => {
    const hours = "Sun 02:30-06:00 America/New_York";
    expect(at(hours, "2026-03-08T06:59:59Z")).toEqual({ open: false, until: "2026-03-08T07:00:00Z" });
    expect(at(hours, "2026-03-08T07:00:00Z")).toEqual({ open: true, until: "2026-03-08T10:00:00Z" });
  });

  it("end when the clock jumps over their end, and are none where it jumps over all of them", () => {
    expect(at("Sun 00:00-02:30 America/New_York", "2026-03-08T06:30:00Z")).toEqual({
      open: true,
      until: "2026-03-08T07:00:00Z",
    });
    expect(at("Sun 02:10-02:50 America/New_York", "2026-03-08T07:00:00Z")).toEqual({
      open: false,
      until: "2026-03-15T06:10:00Z",
    });
  });

  it("go on through an hour that the clock shows twice (autumn)", () => {
    const ends = "Sun 00:00-01:30 America/New_York";
    expect(at(ends, "2026-11-01T05:40:00Z")).toEqual({ open: true, until: "2026-11-01T06:30:00Z" });
    const begins = "Sun 01:30-03:00 America/New_York";
    expect(at(begins, "2026-11-01T05:29:59Z")).toEqual({ open: false, until: "2026-11-01T05:30:00Z" });
    expect(at(begins, "2026-11-01T06:10:00Z")).toEqual({ open: true, until: "2026-11-01T08:00:00Z" });
  });

  it("stand a day that a zone leaves out", () => {
    // Samoa had no 30 December 2011, a Friday.
    expect(at("Fri 08:00-20:00 Pacific/Apia", "2011-12-30T10:00:00Z").open).toBe(false);
    expect(at("Thu 20:00-08:00 Pacific/Apia", "2011-12-30T09:59:00Z")).toEqual({
      open: true,
      until: "2011-12-30T10:00:00Z",
    });
  });

  it.each([
    ["Mon-Fri 08:00-20:00", "no window"],
    ["Mon-Fri 8-20 UTC", "no span of a day"],
    ["Mon-Fri 08:00-25:00 UTC", "no span of a day"],
    ["Mon-Fri 08:00-08:00 UTC", "00:00-24:00"],
    ["Mo-Fr 08:00-20:00 UTC", "names no days"],
    ["Mon 08:00-20:00 Mars/Olympus", "no time zone"],
    ["Mon 08:00-20:00 +02:00", "no time zone"],
  ])("refuse %s", (warm_pool_hours, why) => {
    const parsed = Environment.safeParse({ name: "x", warm_pool: 1, warm_pool_hours });
    expect(parsed.error?.issues[0]?.message).toContain(why);
  });

  it("may be written as a list", () => {
    const hours = ["Mon-Fri 08:00-20:00 UTC", "Sat 10:00-12:00 UTC"];
    const parsed = Environment.parse({ name: "x", warm_pool_hours: hours });
    expect(at(parsed.warm_pool_hours, "2026-12-05T11:00:00Z").open).toBe(true);
  });
});
