import type { Context } from "../context.ts";
export async function demo(_context: Context): Promise<void> {
  await Promise.reject(new Error("not there yet"));
}
