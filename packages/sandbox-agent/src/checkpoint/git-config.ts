/** Local git configuration: what travels (an allow-list), what is only reported, and how a configuration file is written. */
import { bytesOf, rawOf, type Raw } from "./raw.ts";

export type ConfigEntry = readonly [key: Raw, value: Raw | null];

/** A remote has promised objects that were not fetched yet: how a partial clone notes it, now and in git before 2.24. */
export const isPartialClone = (config: readonly ConfigEntry[]): boolean =>
  config.some(
    ([key, value]) =>
      key === "extensions.partialclone" || (/^remote\..*\.promisor$/s.test(key) && value?.toLowerCase() !== "false"),
  );

/** `git config --list -z`: `key\nvalue\0`, the value left out with its newline where there is none. */
export function parseConfigList(output: Buffer): ConfigEntry[] {
  return rawOf(output)
    .split("\0")
    .filter((piece) => piece !== "")
    .map((piece) => {
      const newline = piece.indexOf("\n");
      return newline < 0 ? [piece, null] : [piece.slice(0, newline), piece.slice(newline + 1)];
    });
}

// What runs a program, sends a credential, or reads another file is not here.
const ALLOWED = [
  /^user\.(name|email|signingkey|useconfigonly)$/,
  /^(author|committer)\.(name|email)$/,
  /^core\.(autocrlf|eol|safecrlf|filemode|symlinks|ignorecase|precomposeunicode|quotepath|whitespace|abbrev|logallrefupdates|sparsecheckout|sparsecheckoutcone|checkstat|trustctime|commentchar|commentstring|preferredencoding|bigfilethreshold|compression|loosecompression|notesref|preloadindex|splitindex|untrackedcache|warnambiguousrefs|multipackindex|commitgraph|deltabasecachelimit)$/,
  /^index\.(sparse|version|threads|recordendofindexentries|recordoffsettable|skiphash)$/,
  /^extensions\.worktreeconfig$/,
  /^branch\..*\.(remote|merge|rebase|pushremote|description|mergeoptions|vscode-merge-base|gh-merge-base|gk-merge-base)$/s,
  /^branch\.(autosetupmerge|autosetuprebase|sort)$/,
  /^remote\..*\.(url|pushurl|fetch|push|tagopt|prune|prunetags|mirror|skipdefaultupdate|skipfetchall|promisor|partialclonefilter|gh-resolved)$/s,
  /^remote\.(pushdefault|default)$/,
  /^submodule\..*\.(url|active|branch|ignore|fetchrecursesubmodules|shallow)$/s,
  /^submodule\..*\.update$/s,
  /^submodule\.(recurse|active|fetchjobs|propagatebranches|alternatelocation|alternateerrorstrategy)$/,
  /^(push|pull|fetch|status|color|advice|rerere|log|format|commit|tag|merge|rebase|diff|apply|am|blame|grep|i18n|init|column|clean|checkout|stash|notes|versionsort|pack|gc|feature|transfer|stash|worktree|sparse|showbranch|help|interactive|gui|lfs|gitflow|flow|http)\..*$/s,
];
const REFUSED = [
  /^(merge|diff|filter)\..+\.(driver|command|textconv|cmd|clean|smudge|process|path|tool)$/s,
  /^diff\.(external|tool|guitool|orderfile)$/,
  /^merge\.(tool|guitool)$/,
  /^(commit|format|rebase|fetch|log|tag)\..*(template|signature|signaturefile|instructionformat|program|mailmap|output|outputdirectory|attach|editor)$/s,
  /^commit\.template$/,
  /^interactive\.difffilter$/,
  /^(difftool|mergetool|guitool|pager|alias|credential|url|include|includeif|gpg|ssh|sendemail|imap|smtp|instaweb|man|web|browser|core\.(editor|pager|sshcommand|askpass|hookspath|fsmonitor|gitproxy|attributesfile|excludesfile|worktree|alternaterefscommand))/,
  /^http\./,
  /^lfs\..*(path|cmd|args|transfer|customtransfer|url|standalone|pushurl|concurrent|storage|extension|ext\.)/s,
  /^lfs\.(?!.*\.(access|locksverify)$|repositoryformatversion$)/s,
  /^gui\.|^guitool\./,
  /^transfer\.(hide|credentials)/,
  /^submodule\..*\.update$/s,
  /^help\.browser/,
  /^rebase\.(editor|instructionformat)$/,
  /^fetch\.(negotiation.*|bundle.*)$/,
];

/** Entries that a checkpoint carries, and the keys of those that it names only. Values that leak or run are refused too. */
export function sortConfig(entries: readonly ConfigEntry[]): { allowed: [Raw, Raw][]; refused: Raw[] } {
  const allowed: [Raw, Raw][] = [];
  const refused = new Set<Raw>();
  for (const [key, value] of entries) {
    if (IGNORED.some((rule) => rule.test(key))) continue;
    if (ALLOWED.some((rule) => rule.test(key)) && !isRefused(key, value)) allowed.push([key, value ?? "true"]);
    else refused.add(key);
  }
  return { allowed, refused: [...refused] };
}

/** What the clone itself decides. */
const IGNORED = [
  /^core\.(repositoryformatversion|bare|worktree)$/,
  /^extensions\.(objectformat|partialclone|noop|compatobjectformat|refstorage|preciousobjects)$/,
  /^hangar\./,
];

function isRefused(key: Raw, value: Raw | null): boolean {
  if (/^submodule\..*\.update$/s.test(key)) return value?.startsWith("!") ?? true;
  if (REFUSED.some((rule) => rule.test(key))) return true;
  if (/^(remote|submodule)\..*\.(url|pushurl)$/s.test(key)) return !safeUrl(value ?? "");
  return false;
}

/** A remote that names no program to run and holds no password or token. */
export function safeUrl(url: Raw): boolean {
  if (/^[a-z][a-z0-9+.-]*::/i.test(url) || url.startsWith("-")) return false;
  const userinfo = /^[a-z][a-z0-9+.-]*:\/\/([^/@]*)@/i.exec(url)?.[1];
  if (userinfo === undefined) return true;
  return /^ssh:/i.test(url) ? !userinfo.includes(":") : false;
}

/** The URL without user and password. */
export const withoutCredentials = (url: Raw): Raw => url.replace(/^([a-z][a-z0-9+.-]*:\/\/)[^/@]*@/i, "$1");

/** A whole configuration file with these entries, in their order. */
export function writeConfig(entries: readonly ConfigEntry[]): Buffer {
  let text = "";
  let section = "";
  for (const [key, value] of entries) {
    const first = key.indexOf(".");
    const last = key.lastIndexOf(".");
    const head =
      first === last
        ? `[${key.slice(0, first)}]`
        : `[${key.slice(0, first)} "${key.slice(first + 1, last).replace(/[\\"]/g, "\\$&")}"]`;
    if (head !== section) text += `${head}\n`;
    section = head;
    text += value === null ? `\t${key.slice(last + 1)}\n` : `\t${key.slice(last + 1)} = ${quote(value)}\n`;
  }
  return bytesOf(text);
}

const quote = (value: Raw): Raw =>
  `"${value.replace(/[\\"]/g, "\\$&").replace(/\n/g, "\\n").replace(/\t/g, "\\t").replace(/[\b]/g, "\\b")}"`;
