#!/bin/sh
# Brings a checkout to where `npm start`, `npm run demo`, `npm test` and `npm run bench` work; done already: returns at once.
#   setup.sh            what Hangar itself needs: npm packages, redis-server, tmux, bubblewrap, git, age
#   setup.sh --test     also the development packages and the agent CLIs that tests drive (pinned, in a cache)
#   setup.sh --bench    also the programs that Hangar is compared with
# It needs Node 20 or newer with npm; Node 26 comes with the npm packages. NO_SYSTEM_PACKAGES=1: never call apt or brew.
set -eu
cd "$(dirname "$0")/.."
want=run
for arg in "$@"; do
  case $arg in
    --test) want=test ;;
    --bench) want=bench ;;
    *) echo "setup: unknown option $arg" >&2; exit 2 ;;
  esac
done

main() {
  npm_packages
  system_packages
  if [ "$want" != run ]; then agent_clis; fi
}

# npm ci replaces node_modules, so it runs only when what is there is not of this lock file, or lacks what is wanted now.
npm_packages() {
  stamp=node_modules/.hangar-setup
  lock=$(cksum <package-lock.json)
  have=$(cat "$stamp" 2>/dev/null || :)
  if [ "$have" = "$lock dev" ]; then return; fi
  if [ "$want" = run ]; then
    if [ "$have" = "$lock run" ]; then return; fi
    kind=run omit=--omit=dev
  else
    kind=dev omit=
  fi
  echo "setup: installing npm packages" >&2
  # Not with the Node that lies in the folder which npm is about to replace.
  PATH=$(printf %s "$PATH" | tr ':' '\n' | grep -v '/node_modules/' | paste -sd: -) \
    npm ci $omit --no-audit --no-fund --loglevel=error >&2 || fail "npm ci failed: see above"
  if [ ! -x node_modules/.bin/node ] && [ "$(node -p 'parseInt(process.versions.node) >= 26')" != true ]; then
    fail "Node 26 is not available as an npm package for this machine: install Node 26"
  fi
  echo "$lock $kind" >"$stamp"
}

system_packages() {
  wanted="redis-server tmux bubblewrap git age"
  if [ "$want" != run ]; then wanted="$wanted procps zstd kubernetes-client"; fi
  if [ "$want" = bench ]; then wanted="$wanted restic borgbackup time"; fi
  missing=$(missing_of "$wanted")
  if [ -z "$missing" ]; then return; fi
  if [ -z "${NO_SYSTEM_PACKAGES:-}" ]; then
    if command -v apt-get >/dev/null; then with_apt $missing
    elif command -v brew >/dev/null; then with_brew $missing
    fi
  fi
  missing=$(missing_of "$wanted")
  if [ -z "$missing" ]; then return; fi
  case $(uname -s) in
    Darwin) how="brew install$(brew_names $missing)" ;;
    *) how="sudo apt-get install$missing" ;;
  esac
  # Without bubblewrap sandboxes are plain folders; without age and tmux only recovery by hand and terminals are gone.
  case "$want $missing " in
    run*" git "* | run*" redis-server "*) fail "please install what is missing, then try again: $how" ;;
    run*) echo "setup: some programs are missing; for all that Hangar can do: $how" >&2 ;;
    *) fail "please install what is missing, then try again: $how" ;;
  esac
}

# Debian names of those packages whose program is not there.
missing_of() {
  for package in $1; do
    case $package in
      bubblewrap) [ "$(uname -s)" = Linux ] || continue; program=bwrap ;;
      borgbackup) program=borg ;;
      procps) program=ps ;;
      kubernetes-client) program=kubectl ;;
      time) [ -x /usr/bin/time ] && continue; program=/usr/bin/time ;;
      *) program=$package ;;
    esac
    command -v "$program" >/dev/null 2>&1 || printf ' %s' "$package"
  done
}

with_apt() {
  if [ "$(id -u)" = 0 ]; then root=
  elif sudo -n true 2>/dev/null; then root="sudo -n"
  else return 0
  fi
  echo "setup: installing with apt: $*" >&2
  # Hangar starts a redis-server of its own: the packaged service is neither started nor enabled.
  policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d}
  if [ ! -e $policy ]; then
    trap '$root rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM HUP
    printf '#!/bin/sh\nexit 101\n' | $root sh -c "cat >$policy && chmod 755 $policy" || :
  fi
  apt_install "$@" || { $root apt-get update -qq >&2 && apt_install "$@"; } || :
  case " $* " in
    *" redis-server "*) if command -v systemctl >/dev/null; then $root systemctl disable -q redis-server 2>/dev/null || :; fi ;;
  esac
}
apt_install() {
  $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

with_brew() {
  echo "setup: installing with brew:$(brew_names "$@")" >&2
  # shellcheck disable=SC2046
  brew install -q $(brew_names "$@") >&2 || :
}
brew_names() {
  for package in "$@"; do
    case $package in
      redis-server) printf ' redis' ;;
      time) printf ' gnu-time' ;;
      kubernetes-client) printf ' kubernetes-cli' ;;
      *) printf ' %s' "$package" ;;
    esac
  done
}

agent_clis() {
  if [ -f test/support/agent-clis.ts ]; then PATH=$PWD/node_modules/.bin:$PATH node test/support/agent-clis.ts >&2; fi
}

fail() {
  echo "setup: $1" >&2
  exit 1
}

main
