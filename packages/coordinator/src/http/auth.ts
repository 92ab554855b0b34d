/**
 * Who may call. The administrator's token opens `/api`; a sandbox's token opens `/agent`; neither opens the other.
 * Tokens are compared in constant time and never logged.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import { HangarError } from "@hangar/shared";

export type CheckAdmin = (authorization: string | null | undefined) => void;

/** Throws HangarError `unauthorized` unless the header carries the administrator's token. */
export function adminCheck(token: string): CheckAdmin {
  const expected = digest(token);
  return (authorization) => {
    if (!timingSafeEqual(digest(bearer(authorization)), expected)) {
      throw new HangarError("unauthorized", "The token is wrong: `hangar up` prints where it is kept");
    }
  };
}

/** The token of `Authorization: Bearer <token>`. HangarError `unauthorized` when there is none. */
export function bearer(authorization: string | null | undefined): string {
  const token = /^Bearer +([\x21-\x7e]{1,4096})$/i.exec(authorization ?? "")?.[1];
  if (token === undefined) throw new HangarError("unauthorized", "Send a token as `Authorization: Bearer <token>`");
  return token;
}

/** Digests have one length, so the comparison tells nothing of the token's. */
const digest = (text: string): Buffer => createHash("sha256").update(text).digest();

export type CheckHost = (host: string | null | undefined, origin: string | null | undefined) => void;

export interface HostRules {
  /** The address listened on. */
  readonly host: string;
  /** This replica's own URL. */
  readonly advertiseUrl: string;
}

/**
 * Refuses a page in the user's browser: where only this machine can connect, a request must name this machine (a name
 * that an attacker rebinds to 127.0.0.1 is not among them); and a request that says it comes from a page of another
 * origin is refused anywhere. Throws HangarError `forbidden`.
 */
export function hostCheck(rules: HostRules): CheckHost {
  const own = new Set(["localhost", "127.0.0.1", "[::1]", urlHost(rules.advertiseUrl), bracketed(rules.host)]);
  const loopback = isLoopback(rules.host);
  return (host, origin) => {
    if (loopback && !own.has(hostname(host ?? ""))) {
      throw new HangarError(
        "forbidden",
        "The Host header names another machine: use the address that `hangar status` shows",
      );
    }
    if (origin && (!URL.canParse(origin) || new URL(origin).host !== host)) {
      throw new HangarError("forbidden", "Requests from pages of other origins are refused");
    }
  };
}

export const isLoopback = (host: string): boolean =>
  host === "localhost" || host === "::1" || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host);

const hostname = (host: string): string => (URL.canParse(`http://${host}`) ? new URL(`http://${host}`).hostname : "");
const urlHost = (url: string): string => new URL(url).hostname;
const bracketed = (host: string): string => (host.includes(":") ? `[${host}]` : host);

/** The administrator's token has one owner; accounts of their own come with a later record. */
export const OWNER = "admin";
