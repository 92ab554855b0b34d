/** A person's terminal, for tests: a real tmux server of its own, whose panes run commands and can be typed into and read. */
import { run, sleep } from "./hangar.ts";

export interface Pane {
  /** tmux's names for keys (`Enter`, `C-c`), or text. */
  keys(...keys: string[]): Promise<void>;
  type(text: string): Promise<void>;
  resize(cols: number, rows: number): Promise<void>;
  /** What is on the screen now. */
  screen(): Promise<string>;
  /** The screen, once it is as asked; fails with what it was last. */
  until(what: string, is: (screen: string) => boolean, seconds?: number): Promise<string>;
}

export interface Terminals extends AsyncDisposable {
  open(argv: readonly string[], size?: { cols: number; rows: number }): Promise<Pane>;
}

export function startTmux(folder: string, env: Record<string, string>): Terminals {
  const socket = `${folder}/outer-tmux`;
  const tmux = async (...args: string[]): Promise<string> => {
    const ran = await run("tmux", ["-u", "-S", socket, "-f", "/dev/null", ...args], {
      cwd: folder,
      env: { ...env, TERM: "xterm-256color", LANG: "C.UTF-8" },
    });
    if (ran.code !== 0) throw new Error(`tmux ${args.join(" ")}: ${ran.stderr}`);
    return ran.stdout;
  };
  let count = 0;
  return {
    async open(argv, { cols, rows } = { cols: 110, rows: 36 }) {
      const name = `p${++count}`;
      const command = argv.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(" ");
      const size = ["-x", String(cols), "-y", String(rows)];
      // It stays when its command has ended, so that its last words can be read.
      await tmux("new-session", "-d", "-s", name, ...size, `${command}; echo "[exit $?]"; exec sleep 1000`);
      const screen = (): Promise<string> => tmux("capture-pane", "-p", "-t", name);
      return {
        keys: async (...keys) => void (await tmux("send-keys", "-t", name, ...keys)),
        type: async (text) => void (await tmux("send-keys", "-t", name, "-l", text)),
        resize: async (cols, rows) =>
          void (await tmux("resize-window", "-t", name, "-x", String(cols), "-y", String(rows))),
        screen,
        async until(what, is, seconds = 60) {
          let last = "";
          for (let i = 0; i < seconds * 5; i++) {
            last = await screen();
            if (is(last)) return last;
            await sleep(200);
          }
          throw new Error(`the screen never showed ${what}:\n${last}`);
        },
      };
    },
    [Symbol.asyncDispose]: async () => void (await tmux("kill-server").catch(() => "")),
  };
}
