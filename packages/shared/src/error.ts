/** The one table of errors: REST answers them as RFC 9457 problems; MCP, WebSocket and CLI carry the same code. */

interface ErrorKind {
  readonly title: string;
  readonly status: number;
  readonly retryable: boolean;
}
const kind = (status: number, title: string, retryable = false): ErrorKind => ({ title, status, retryable });

export const ERRORS = {
  invalid_request: kind(400, "The request is not valid"),
  malformed_json: kind(400, "The body is not valid JSON"),
  unauthorized: kind(401, "A token is missing or wrong"),
  forbidden: kind(403, "This token may not do that"),
  not_found: kind(404, "There is no such page"),
  session_not_found: kind(404, "There is no such session"),
  environment_not_found: kind(404, "There is no such environment"),
  checkpoint_not_found: kind(404, "There is no such checkpoint"),
  sandbox_not_found: kind(404, "There is no such sandbox"),
  secret_not_found: kind(404, "There is no such secret"),
  turn_not_found: kind(404, "There is no such turn"),
  method_not_allowed: kind(405, "That method is not offered here"),
  name_taken: kind(409, "That name is taken"),
  would_lose: kind(409, "Files that no checkpoint holds would be lost"),
  wrong_state: kind(409, "The session's state does not allow that"),
  session_archived: kind(409, "The session is archived"),
  environment_in_use: kind(409, "Sessions still use that environment"),
  stale_generation: kind(409, "A newer sandbox owns this session"),
  object_exists: kind(409, "That object exists and is never overwritten"),
  checkpoint_failed: kind(409, "No checkpoint could be committed"),
  workspace_has_work: kind(409, "The target holds commits that its remote lacks"),
  url_expired: kind(410, "That URL has expired", true),
  body_too_large: kind(413, "The body is over its limit"),
  digest_mismatch: kind(422, "The bytes are not the ones announced"),
  checkpoint_invalid: kind(422, "The checkpoint is damaged or forged"),
  clone_failed: kind(422, "The repository could not be cloned"),
  branch_not_found: kind(422, "The base branch is not there"),
  setup_failed: kind(422, "The environment's setup script failed"),
  missing_cli: kind(422, "A program that is needed is not installed"),
  missing_secret: kind(422, "A secret that the environment names is not set"),
  conversation_lost: kind(422, "The harness began a new conversation"),
  harness_failed: kind(422, "The agent failed"),
  image_pull_failed: kind(422, "The sandbox's image cannot be pulled"),
  image_building: kind(503, "The sandbox's image is being built", true),
  image_build_failed: kind(422, "The environment's image cannot be built"),
  sandbox_crashed: kind(422, "The sandbox's daemon does not stay up"),
  cluster_refused: kind(422, "The cluster refuses the sandbox's pod"),
  quota_exhausted: kind(503, "A quota is exhausted", true),
  cluster_unavailable: kind(503, "The cluster cannot be reached", true),
  sandbox_lost: kind(502, "The sandbox is gone", true),
  start_timeout: kind(504, "The sandbox did not start in time", true),
  timeout: kind(504, "That took too long", true),
  redis_unavailable: kind(503, "Redis cannot be reached", true),
  store_unavailable: kind(503, "The checkpoint store cannot be reached", true),
  disk_full: kind(507, "The disk is full"),
  not_running: kind(503, "Hangar is not running"),
  in_use: kind(409, "Another Hangar uses this data folder"),
  internal: kind(500, "Something went wrong inside Hangar"),
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof ERRORS;
export const isErrorCode = (code: string): code is ErrorCode => Object.hasOwn(ERRORS, code);

/**
 * The one error class. `message` is one line for a person: what is wrong and what to do. It must not hold secrets.
 * Thrown or returned anywhere; logged once, at the edge.
 */
export class HangarError extends Error {
  readonly code: ErrorCode;
  constructor(code: ErrorCode, message?: string, options?: ErrorOptions) {
    super(message ?? ERRORS[code].title, options);
    this.name = "HangarError";
    this.code = code;
  }
  get status(): number {
    return ERRORS[this.code].status;
  }
  get retryable(): boolean {
    return ERRORS[this.code].retryable;
  }
}
