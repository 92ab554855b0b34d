/** What a sandbox says, with its secrets hidden: every field of an event that holds words is named here. */
import type { AgentEvent, TurnOutput, TurnResult } from "./protocol.ts";
import type { Redact, Redactor } from "./redact.ts";

export function redactEvent(event: AgentEvent, redact: Redactor): AgentEvent {
  switch (event.type) {
    case "phase":
      return { ...event, detail: orNone(event.detail, redact) };
    case "restored":
      return {
        ...event,
        missing: event.missing.map(redact),
        warnings: event.warnings.map(redact),
        bad: event.bad.map(({ checkpoint, why }) => ({ checkpoint, why: redact(why) })),
      };
    case "turn_output":
      return { ...event, output: redactOutput(event.output, redact) };
    case "turn_finished":
      return { ...event, result: redactResult(event.result, redact) };
    case "turn_settled":
    case "checkpoint_failed":
    case "start_failed":
      return { ...event, error: orNone(event.error, redact) } as AgentEvent;
    case "notice":
      return { ...event, text: redact(event.text) };
    case "turn_started":
      return event;
    default:
      return event satisfies never;
  }
}

export function redactOutput(output: TurnOutput, redact: Redact): TurnOutput {
  switch (output.kind) {
    case "text":
    case "stderr":
      return { ...output, text: redact(output.text) };
    case "tool_call":
      return { ...output, name: redact(output.name), input: redact(output.input) };
    case "tool_result":
      return { ...output, name: redact(output.name), output: redact(output.output) };
    case "retry":
      return output;
    default:
      return output satisfies never;
  }
}

/** Summaries and errors are cut to a length, perhaps in the middle of a value. */
export const redactResult = (result: TurnResult, redact: Redactor): TurnResult => ({
  ...result,
  summary: orNone(result.summary, redact.excerpt),
  error: orNone(result.error, redact.excerpt),
});

const orNone = (text: string | null, redact: Redact): string | null => (text === null ? null : redact(text));

/** Hides what the output of one turn says as it comes, also what is split over two of its events. */
export interface OutputRedactor {
  /** What may be shown now; none, one or, where something had to wait, more. */
  push(output: TurnOutput): TurnOutput[];
  flush(): TurnOutput[];
}

export function redactOutputs(redact: Redactor): OutputRedactor {
  const streams = { text: redact.stream(), stderr: redact.stream() };
  const rest = (kind: "text" | "stderr"): TurnOutput[] => {
    const text = streams[kind].flush();
    return text === "" ? [] : [{ kind, text }];
  };
  return {
    push(output) {
      // What the agent said before it used a tool is said; its standard error goes on beside it.
      if (output.kind !== "text" && output.kind !== "stderr") return [...rest("text"), redactOutput(output, redact)];
      const text = streams[output.kind].push(output.text);
      return text === "" ? [] : [{ kind: output.kind, text }];
    },
    flush: () => [...rest("text"), ...rest("stderr")],
  };
}
