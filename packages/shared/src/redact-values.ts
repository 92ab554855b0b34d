/** The spellings in which a secret's value may turn up in a text. */

/** Values shorter than this are too likely to be ordinary words. */
const SHORTEST = 6;
/** Of one line among several, and of a word on it. */
const SHORTEST_LINE = 12;

/** Values that are no secret by themselves, whatever they are stored as: hiding them would hide ordinary text. */
const COMMON = new Set(
  `undefined disabled enabled default development production staging testing localhost localhost:3000 localhost:8080
   127.0.0.1 0.0.0.0 example example.com github.com gitlab.com anthropic openai google claude master
   password secret changeme us-east-1 us-west-2 eu-west-1 eu-central-1 info@example.com application/json`.split(/\s+/),
);

/** Longest first is not promised; every one is at least 6 UTF-16 units long. */
export function spellingsOf(values: Iterable<string>): string[] {
  const all = new Set<string>();
  for (const value of values) {
    const whole = value.trim();
    if (isTelling(whole, SHORTEST))
      for (const spelling of [...escaped(whole), ...base64(value), ...base64(whole)]) all.add(spelling);
    for (const piece of piecesOf(whole)) for (const spelling of escaped(piece)) all.add(spelling);
  }
  return [...all].filter((spelling) => spelling.length >= SHORTEST);
}

/** A key's lines, and the words of a file that look like a token, each by itself. */
function piecesOf(whole: string): string[] {
  const lines = whole.includes("\n") ? whole.split(/\r?\n/) : [];
  const words = whole.split(/[\s"'`,;={}[\]()<>|]+/).filter((word) => word !== whole && isToken(word));
  return [...lines.map((line) => line.trim()).filter(isTellingLine), ...words];
}

const isTelling = (text: string, shortest: number): boolean =>
  text.length >= shortest && !COMMON.has(text.toLowerCase()) && new Set(text.slice(0, 64)).size > 2;
const isTellingLine = (line: string): boolean =>
  isTelling(line, SHORTEST_LINE) &&
  !/^-----(?:BEGIN|END) /.test(line) &&
  !/[:=]\s*["']?(?:true|false|null|none|\d{1,5}|[{[])["']?[,;]?$/i.test(line);
const isToken = (word: string): boolean =>
  isTelling(word, SHORTEST_LINE) && /\d/.test(word) && /[A-Za-z]/.test(word) && !/^[a-z]+:\/\//.test(word);

/** As it is, and as URLs, forms, JSON (once, and inside a string of JSON) and shells write it. */
function escaped(text: string): string[] {
  const inJson = JSON.stringify(text).slice(1, -1);
  const url = percent(text);
  return [
    text,
    inJson,
    JSON.stringify(inJson).slice(1, -1),
    inJson.replace(/[\u0080-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`),
    url,
    url.replaceAll("%20", "+"),
    url.replace(/%[0-9A-F]{2}/g, (hex) => hex.toLowerCase()),
    encodeURIPath(text),
    text.replaceAll("'", `'\\''`),
  ];
}

const wellFormed = (text: string): string => (text.isWellFormed() ? text : text.toWellFormed());
const percent = (text: string): string => encodeURIComponent(wellFormed(text));
const encodeURIPath = (text: string): string => encodeURI(wellFormed(text));

/**
 * In base64, standard and for URLs, wherever in the encoded bytes it begins: what stands for its own bytes alone. Also the
 * lines into which `base64` and PEM break it.
 */
function base64(text: string): string[] {
  const bytes = new TextEncoder().encode(text);
  const spellings: string[] = [];
  for (let shift = 0; shift < 3; shift++) {
    const encoded = encode(bytes, shift);
    const own = encoded.slice(Math.ceil((shift * 8) / 6), Math.floor(((shift + bytes.length) * 8) / 6));
    spellings.push(own, own.replaceAll("+", "-").replaceAll("/", "_"));
    if (shift > 0) continue;
    for (const width of [64, 76]) {
      if (own.length <= width) continue;
      for (let at = 0; at + SHORTEST_LINE <= own.length; at += width) spellings.push(own.slice(at, at + width));
    }
  }
  return spellings;
}

function encode(bytes: Uint8Array, shift: number): string {
  let binary = "\0".repeat(shift);
  for (let at = 0; at < bytes.length; at += 8192) binary += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(binary);
}
