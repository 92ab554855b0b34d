/** One line of the table. */
export interface Row {
  readonly size: string;
  readonly what: string;
  readonly ours: string;
  readonly theirs: string;
  readonly ratio: string;
  readonly bar: string;
  readonly met: boolean;
}

export const ms = (value: number): string =>
  value >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${value.toFixed(0)} ms`;
