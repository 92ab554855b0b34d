/** Keeps secrets and credentials out of what people are shown. */

export type Redact = (text: string) => string;

/** Values shorter than this are too likely to be ordinary words. */
const SHORTEST = 6;

/** Hides every given value, and user and password in any URL. */
export function redactor(secrets: Iterable<string>): Redact {
  const whole = [...secrets];
  // A secret of several lines, such as a key, must not show up line by line either.
  const values = whole
    .flatMap((value) => value.split("\n"))
    .concat(whole)
    .map((value) => value.trim())
    .filter((value) => value.length >= SHORTEST)
    .sort((a, b) => b.length - a.length);
  return (text) => {
    let safe = text.replace(/([a-z][a-z0-9+.-]*:\/\/)[^/\s@'"]+@/gi, "$1***@");
    for (const value of values) safe = safe.replaceAll(value, "***");
    return safe;
  };
}
