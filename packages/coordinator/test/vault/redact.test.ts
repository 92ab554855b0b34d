import { expect, it } from "vitest";
import { redactor } from "../../src/vault/redact.ts";

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
