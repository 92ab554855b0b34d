export * from "./activity.ts";
export * from "./api.ts";
export * from "./checkpoint.ts";
export * from "./environment.ts";
export * from "./error.ts";
export * from "./ids.ts";
export * from "./protocol.ts";
export * from "./session.ts";
