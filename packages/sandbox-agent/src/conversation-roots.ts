/** Where conversations are: those of the harnesses that Hangar knows, and of those that are declared. */
import { type HarnessDefinition, nameMatches } from "@hangar/shared";
import { CONVERSATION_ROOTS, type ConversationRoot } from "./checkpoint/conversation.ts";

export const rootsWith = (definitions: readonly HarnessDefinition[]): readonly ConversationRoot[] => [
  ...CONVERSATION_ROOTS,
  ...definitions.flatMap(({ name, conversation }) =>
    (conversation?.roots ?? []).map((folder) => ({
      harness: name,
      folder,
      only: (file: string) => (conversation?.files ?? []).some((pattern) => nameMatches(pattern, file)),
    })),
  ),
];
