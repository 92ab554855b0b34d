/** Names that environments, secrets and harnesses go by. */
import { z } from "zod";

export const HarnessName = z
  .string()
  .regex(/^[a-z][a-z0-9-]{0,39}$/, "a harness is named by lower-case letters, digits and dashes");

/** A variable's or secret's name, as a shell takes it. */
export const VariableName = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/, "use letters, digits and _, not starting with a digit");
