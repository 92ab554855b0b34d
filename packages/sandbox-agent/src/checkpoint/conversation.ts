/**
 * Conversations: which files they are (`scan`), what of them is new (`capture`), and back into a home (`restore`).
 * Their bytes are kept as they are, also where they are torn, and travel whatever their size.
 */
export {
  CONVERSATION_ROOTS,
  scanConversations,
  type ConversationFile,
  type ConversationRoot,
} from "./conversation-scan.ts";
export { captureConversations, type Capture, type CaptureOptions } from "./conversation-capture.ts";
export { restoreConversations, type RestoreConversationOptions } from "./conversation-restore.ts";
export { conversationDigest, ConversationRecord, RecordedFile } from "./conversation-record.ts";
export { decodePath, encodePath } from "./path-text.ts";
