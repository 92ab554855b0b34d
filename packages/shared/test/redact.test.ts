import { expect, it } from "vitest";
import { redactor } from "../src/redact.ts";

const hide = redactor(["s3cret-value", "short", "line one of key\nline two of key", 'with "quotes" in it']);

it.each([
  ["the value s3cret-value here", "the value *** here"],
  ["one line: line two of key.", "one line: ***."],
  ["as a URL: s3cret%2Dvalue stays, with%20%22quotes%22%20in%20it goes", "as a URL: s3cret%2Dvalue stays, *** goes"],
  [JSON.stringify({ a: 'with "quotes" in it' }), '{"a":"***"}'],
  [`basic ${Buffer.from("s3cret-value").toString("base64")}`, "basic ***"],
  ["short words stay", "short words stay"],
  ["clone https://user:pa55@example.com/x.git failed", "clone https://***@example.com/x.git failed"],
  ["ssh://git@example.com/x", "ssh://***@example.com/x"],
  ["write to someone@example.com", "write to someone@example.com"],
  [`key sk-ant-api03-${"a1".repeat(20)}`, "key ***"],
  [`key sk-proj-${"b2".repeat(20)} and more`, "key *** and more"],
  [`ghp_${"c".repeat(36)} github_pat_${"d".repeat(40)}`, "*** ***"],
  ["AKIAABCDEFGHIJKLMNOP", "***"],
  ["xoxb-1234567890-abcdef", "***"],
  [`AGE-SECRET-KEY-1${"Q".repeat(58)}`, "***"],
  ["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "***"],
  ["http://h/store/k?size=1&sig=abcdef&x=1", "http://h/store/k?size=1&sig=***&x=1"],
  ["-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\nrest", "***\nrest"],
  [
    "the task-manager asked about risk-analysis-and-mitigation",
    "the task-manager asked about risk-analysis-and-mitigation",
  ],
])("%s", (text, safe) => {
  expect(hide(text)).toBe(safe);
});

const HEADS = `sk- ghp_ ghs_ github_pat_ glpat- xoxb xapp- AKI AIz ya29. npm_ AGE-SECRET-KEY eyJ -----B`.split(" ");

it.each([
  ["Anthropic", `sk-ant-api03-${"aB3_".repeat(20)}AA`],
  ["Anthropic OAuth", `sk-ant-oat01-${"aB3-".repeat(20)}AA`],
  ["OpenAI", `sk-${"T3BlbkFJ".repeat(6)}`],
  ["OpenAI project", `sk-proj-${"x9Y_".repeat(20)}`],
  ["GitHub classic", `ghp_${"a1B2".repeat(9)}`],
  ["GitHub app", `ghs_${"a1B2".repeat(9)}`],
  ["GitHub fine-grained", `github_pat_11ABCDE0_${"a1B2".repeat(12)}`],
  ["GitLab", `glpat-${"x1_Y".repeat(5)}`],
  ["Slack", ["xoxb", "1234567890", "abcdefABCDEF"].join("-")],
  ["Slack app", ["xapp", "1", "A0123", "4567890abc"].join("-")],
  ["AWS key id", "AKIAIOSFODNN7EXAMPLE"],
  ["GCP API key", ["AIza", "SyA-1234567890abcdefghijklmnopqrstu"].join("")],
  ["Google OAuth", `ya29.${"a0AfH6SM".repeat(4)}`],
  ["npm", `npm_${"a1B2".repeat(9)}`],
  ["age identity", `AGE-SECRET-KEY-1${"QPZRY9X8".repeat(7)}QP`],
  ["JWT", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.c2lnbmF0dXJlLWhlcmU"],
  ["PEM", `-----BEGIN RSA PRIVATE KEY-----\n${"MIIEowIBAAKCAQEA1234\n".repeat(4)}-----END RSA PRIVATE KEY-----`],
  [
    "PEM in JSON",
    `-----BEGIN PRIVATE KEY-----\\n${"MIIEvQIBADANBg\\n".repeat(4)}-----END PRIVATE KEY-----\\n`.slice(0, -2),
  ],
])("knows %s by its shape, whole or in pieces", (_, token) => {
  const plain = redactor([]);
  const text = `before ${token} after`;
  expect(plain(text)).toBe("before *** after");
  for (let at = 1; at < text.length; at++) {
    const stream = plain.stream();
    const shown = stream.push(text.slice(0, at)) + stream.push(text.slice(at)) + stream.flush();
    const visible = /^before (.*?)(?:\*\*\*)+ after$/s.exec(shown)?.[1];
    // What is told before it can be known is its kind, not its content.
    expect(
      HEADS.some((head) => head.startsWith(visible ?? "?")),
      `split at ${at}: ${shown}`,
    ).toBe(true);
  }
});

it("hides what a header, a signed URL or a credentials file gives away", () => {
  const plain = redactor([]);
  expect(plain("Authorization: Basic dXNlcjpwYXNzd29yZA==")).toBe("Authorization: Basic ***");
  expect(plain("authorization: Bearer abc123def456ghi789")).toBe("authorization: Bearer ***");
  expect(plain(`aws_secret_access_key = ${"wJalrXUt/K7MDENG+bPx".repeat(2)}`)).toBe("aws_secret_access_key = ***");
  expect(plain("git clone https://x-access-token:hunter2@github.com/a/b")).toBe("git clone https://***@github.com/a/b");
});

it("leaves ordinary text alone, whatever is stored as a secret", () => {
  const ordinary = redactor(["true", "1", "production", "localhost", "aaaaaaaa", "------", "main"]);
  const text = "true: in production, localhost answers 1; aaaaaaaa ------ on main; see https://example.com/a?b=c";
  expect(ordinary(text)).toBe(text);
});

const VALUE = "pä\"ss\\w0rd 'quoted' with 32 bytes";
it.each([
  ["plain", VALUE],
  ["JSON", JSON.stringify(VALUE).slice(1, -1)],
  ["JSON in JSON", JSON.stringify(JSON.stringify(VALUE)).slice(3, -3)],
  ["a URL", encodeURIComponent(VALUE)],
  ["a form", new URLSearchParams({ a: VALUE }).toString().slice(2).replaceAll("%27", "'")],
  ["base64", Buffer.from(VALUE).toString("base64").replace(/.=*$/, "")],
  ["a shell", VALUE.replaceAll("'", `'\\''`)],
])("knows a value as %s writes it", (_, spelled) => {
  expect(redactor([VALUE])(`<${spelled}>`)).toMatch(/^<\*\*\*.?>$/);
});

it.each([0, 1, 2])("knows a value inside of base64, %i bytes in", (shift) => {
  const encoded = Buffer.from(`${"u".repeat(shift)}${VALUE}:more`).toString("base64url");
  const shown = redactor([VALUE])(encoded);
  expect(shown).toContain("***");
  expect(shown.length).toBeLessThan(16);
});

it("hides values that overlap whole", () => {
  expect(redactor(["abcdef-123", "123-xyzzy9"])("see abcdef-123-xyzzy9.")).toBe("see ***.");
});

const KEY = Array.from({ length: 40 }, (_, i) => Buffer.from(`${i} line of a key ${i}`).toString("base64")).join("\n");
it("hides each line of a long value, and a value split anywhere over two pieces", () => {
  const key = redactor([KEY, "single-line-canary-77"]);
  for (const line of KEY.split("\n")) expect(key(`> ${line} <`)).toBe("> *** <");
  const text = `a single-line-canary-77 b\n${KEY}\nend`;
  for (let at = 0; at < text.length; at += 3) {
    const stream = key.stream();
    const shown = stream.push(text.slice(0, at)) + stream.push(text.slice(at)) + stream.flush();
    expect(shown).not.toMatch(/canary|-line|[A-Za-z0-9+/]{12}/);
    expect(shown.endsWith("\nend")).toBe(true);
  }
});

it("hides a value that comes one character at a time, and waits with nothing else", () => {
  const stream = redactor(["s3cret-value"]).stream();
  const shown = "say s3cret-value, or s3crets; done"
    .split("")
    .map((piece) => stream.push(piece))
    .join("");
  expect(shown + stream.flush()).toMatch(/^say (?:s3c)?(?:\*\*\*)+, or s3crets; done$/);
  expect(redactor(["s3cret-value"]).stream().push("All tests pass.")).toBe("All tests pass.");
});

it("hides what a cut has left of a value at either end", () => {
  const cut = redactor(["s3cret-value-of-some-length"]).excerpt;
  expect(cut("lue-of-some-length was printed; then s3cret-val")).toBe("*** was printed; then ***");
});

it("hides a whole megabyte in good time, and bytes that are no text in any way", () => {
  const long = Array.from({ length: 20_000 }, (_, i) => `row ${i} ${(i * 2654435761) % 4294967296}`).join("\n");
  const shown = redactor([long, "lone \ud800 surrogate"])(`x ${long} y lone \ud800 surrogate`);
  expect(shown).toBe("x *** y ***");
});

it.each([
  "a.b+c-d",
  "sk-sk-",
  "eyJ-aaaaaaaa",
  "eyJaaaaaaaaaa.eyJbbbbbbbbbb-",
  "-----BEGIN PRIVATE KEY-----!",
  "-----BEGIN ",
  "Bearer ",
  "authorization: ",
  "://a",
  "ghp_",
])("is not made slow by much of %s", (piece) => {
  const hostile = piece.repeat(Math.ceil(2_000_000 / piece.length));
  const hide = redactor(["s3cret-value"]);
  expect(hide(`${hostile} s3cret-value`)).not.toContain("s3cret");
  const stream = hide.stream();
  expect(stream.push(hostile) + stream.push(" s3cret-value") + stream.flush()).not.toContain("s3cret");
});
