#!/bin/sh
# gke.sh: the spec's acceptance (§8), live: a real GKE cluster, real pods, the real Claude Code and its real model. It costs money.
# Nobody has run it for this repository yet: it needs a cluster and a key. What it does is done on one node with a stand-in model by
# test/kubernetes/ and test/e2e/claude.test.ts.
set -eu

usage() {
  cat <<'END'
usage: test/live/gke.sh [--keep]

Checks, on the cluster that Hangar runs its sandboxes in:
  1, 2  a turn's commit, change and untracked file are there again in another pod, in the same conversation
  3     a pod that is told to end leaves a checkpoint that it took before
  4     an idle session suspends by itself
  5     the resumed agent answers a question about what was said only in the first turn
and, for the cluster's own: the deny-ingress NetworkPolicy is enforced.

It needs
  HANGAR_URL, HANGAR_TOKEN   of a Hangar with HANGAR_DRIVER=kubernetes and HANGAR_SESSION_STORE=gs://…
  ANTHROPIC_API_KEY          of the account that pays; it becomes a secret of one environment, and is removed at the end
  kubectl                    whose current context is that cluster
  NAMESPACE                  of the sandboxes (default: sandboxes)
  SANDBOX_IMAGE              an image with Claude Code in it; none: Hangar's own
  REPO                       a repository that the pods can clone (default: a small public one)

  --keep   leaves the session and its environment for a look

examples:
  HANGAR_URL=https://hangar.example HANGAR_TOKEN=… ANTHROPIC_API_KEY=… test/live/gke.sh
  NAMESPACE=boxes SANDBOX_IMAGE=europe-docker.pkg.dev/acme/hangar/sandbox:1.0 … test/live/gke.sh --keep
END
}

keep=
case "${1:-}" in
-h | --help) usage; exit 0 ;;
--keep) keep=1 ;;
'') ;;
*) usage >&2; exit 2 ;;
esac

for name in HANGAR_URL HANGAR_TOKEN ANTHROPIC_API_KEY; do
  eval "value=\${$name:-}"
  [ -n "$value" ] || { echo "gke.sh: $name is not set: see test/live/gke.sh --help" >&2; exit 2; }
done
export HANGAR_URL HANGAR_TOKEN
namespace=${NAMESPACE:-sandboxes}
repo=${REPO:-https://github.com/octocat/Hello-World}
root=$(cd "$(dirname "$0")/../.." && pwd)
hangar() { node "$root/packages/cli/bin/hangar.mjs" "$@"; }
# field NAME EXPRESSION: of the session, as JavaScript of `s`.
field() { hangar session get "$1" --json | node -pe "const s = JSON.parse(require('fs').readFileSync(0, 'utf8')); $2"; }
pods() { kubectl -n "$namespace" get pods -l "hangar.dev/session=$1" -o name; }

command -v kubectl >/dev/null || { echo "gke.sh: kubectl is not installed" >&2; exit 2; }
driver=$(hangar status --json | node -pe "JSON.parse(require('fs').readFileSync(0, 'utf8')).driver")
[ "$driver" = kubernetes ] || { echo "gke.sh: $HANGAR_URL runs its sandboxes with the driver \"$driver\", not kubernetes" >&2; exit 2; }

name=gke-live-$$ failed=0
work=$(mktemp -d)
finish() {
  rm -rf "$work"
  [ -z "$keep" ] || return 0
  hangar session rm "$name" --force >/dev/null 2>&1 || :
  hangar secret rm ANTHROPIC_API_KEY --env "$name" >/dev/null 2>&1 || :
  hangar env rm "$name" >/dev/null 2>&1 || :
}
trap finish EXIT
trap 'exit 130' INT TERM

check() { # check WHAT COMMAND…
  what=$1
  shift
  if "$@"; then echo "ok    $what"; else echo "FAILS $what"; failed=1; fi
}
is() { [ "$1" = "$2" ] || { echo "      it is \"$1\", not \"$2\""; return 1; }; }
has() { case $1 in *"$2"*) ;; *) echo "      there is no \"$2\" in: $1"; return 1 ;; esac; }
# within SECONDS COMMAND…: until it succeeds.
within() {
  left=$1
  shift
  until "$@" >/dev/null 2>&1; do
    left=$((left - 2))
    [ "$left" -gt 0 ] || return 1
    sleep 2
  done
}
is_state() { [ "$(field "$name" s.state)" = "$1" ]; }
no_pods() { [ -z "$(pods "$id")" ]; }

{
  echo "name: $name"
  echo "repo: $repo"
  echo "harness: claude"
  echo "secrets: [ANTHROPIC_API_KEY]"
  [ -z "${SANDBOX_IMAGE:-}" ] || printf 'kubernetes: { image: "%s" }\n' "$SANDBOX_IMAGE"
} >"$work/env.yaml"
hangar env apply -f "$work/env.yaml"
printf %s "$ANTHROPIC_API_KEY" | hangar secret set ANTHROPIC_API_KEY --env "$name"

echo "first turn …"
hangar session new "$name" --env "$name" --wait \
  "Remember the word heliotrope; do not write it to any file. Then: write one.txt holding 1 and commit it; write two.txt holding 2, git add it and do not commit; write three.txt holding 3 and leave it untracked."
id=$(field "$name" s.id)
first=$(field "$name" s.harness_session)
look='git log -1 --format=%s; git status --porcelain; cat one.txt two.txt three.txt'
before=$(hangar sb exec "$name" -- sh -c "$look")

hangar session suspend "$name" --wait
check "1: suspended, its pod is gone" within 120 no_pods

echo "second turn, in another pod …"
answer=$(hangar session send "$name" --wait "Which word did I ask you to remember? Answer with the word alone.")
check "5: the agent knows what was said only in the first turn" has "$answer" heliotrope
check "2: commit, change and untracked file are there" is "$(hangar sb exec "$name" -- sh -c "$look")" "$before"
check "2: the conversation is the same one" is "$(field "$name" s.harness_session)" "$first"
check "2: the restore was verified" is "$(field "$name" 's.restored_from.verified')" true

pod=$(pods "$id" | head -n 1)
address=$(kubectl -n "$namespace" get "$pod" -o 'jsonpath={.status.podIP}')
hangar sb exec "$name" -- sh -c 'nohup node -e "require(\"http\").createServer((q, s) => s.end(\"in\")).listen(8099)" >/dev/null 2>&1 &'
kubectl -n default delete pod gke-live-probe --ignore-not-found >/dev/null
probe=$(kubectl -n default run gke-live-probe --rm -i --restart=Never --image=busybox:1.36 -- \
  sh -c "wget -q -T 5 -O - http://$address:8099 && echo reached || echo refused" 2>/dev/null || :)
check "nobody connects to a sandbox (NetworkPolicy)" has "$probe" refused

echo "the pod is told to end …"
hangar sb exec "$name" -- sh -c 'echo 4 > four.txt'
kubectl -n "$namespace" delete "$pod" --wait=false
check "3: suspended by the end of its pod" within 180 is_state SUSPENDED
check "3: it took a checkpoint before" is "$(field "$name" 's.checkpoints.at(-1).reason')" destroy
hangar session open "$name" --wait
check "3: what was there at its end is there" is "$(hangar sb exec "$name" -- cat four.txt)" 4

echo "idle …"
hangar session keep "$name" --idle 1
check "4: it suspends by itself" within 300 is_state SUSPENDED

[ "$failed" = 0 ] && echo "all of it holds" || { echo "some of it does not hold"; exit 1; }
