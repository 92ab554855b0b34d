/**
 * Archives: tar (ustar + pax, names as raw bytes) inside zstd, read and written as streams; `zstd -d | tar -x` unpacks
 * them. An own reader and writer, since the tar libraries of npm take names for UTF-8 (ADR "Own tar").
 */
export type { ArchiveEntry } from "./tar-header.ts";
export { memberName } from "./tar-header.ts";
export { ArchiveChanged, writeArchive } from "./tar-write.ts";
export { readArchive, type ReadLimits } from "./tar-read.ts";
export { extractArchive, type ExtractOptions } from "./tar-extract.ts";
