#!/bin/sh
# Builds Hangar's container images with podman or docker.
#
#   images/build.sh                                 both, without agent CLIs
#   images/build.sh --harness claude sandbox        one, with Claude Code in it
#   images/build.sh --registry ghcr.io/acme --tag 1.2.0 --push
#
#   --engine NAME     podman or docker; else what is there, podman first
#   --base IMAGE      the Debian image to build on; give it by digest to pin it wholly
#   --harness NAME    claude, codex or pi, at the version below, or an npm package with its version; may be repeated
#   --registry NAME   in front of the images' names
#   --tag TAG         else Hangar's version
#   --platform NAME   linux/amd64 or linux/arm64; else this machine's
#   --option OPTION   handed to the engine's `build` as it is; may be repeated
#   --push            push what was built
# It needs node_modules (scripts/setup.sh --test). For the CLIs, `~/.npmrc` and the certificates that NODE_EXTRA_CA_CERTS names
# (behind a proxy that has its own) are used, and are in no layer.
set -eu

CLAUDE=@anthropic-ai/claude-code@2.1.332
CODEX=@openai/codex@0.171.0
PI=@earendil-works/pi-coding-agent@1.6.0
NPM=11.6.2

root=$(cd "$(dirname "$0")/.." && pwd)
engine= base= harnesses= registry= tag= platform= push= targets=
fail() { echo "images/build.sh: $1" >&2; exit "${2:-1}"; }

options=
while [ $# -gt 0 ]; do
  case $1 in
    --help|-h) sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --push) push=1; shift; continue ;;
    --engine|--base|--harness|--registry|--tag|--platform|--option)
      [ $# -ge 2 ] || fail "$1 needs a value" 2 ;;
    coordinator|sandbox) targets="$targets $1"; shift; continue ;;
    *) fail "unknown argument $1: see --help" 2 ;;
  esac
  case $1 in
    --engine) engine=$2 ;;
    --base) base=$2 ;;
    --registry) registry=${2%/}/ ;;
    --tag) tag=$2 ;;
    --platform) platform=$2 ;;
    --option) options="$options $2" ;;
    --harness)
      case $2 in
        claude) harnesses="$harnesses $CLAUDE" ;;
        codex) harnesses="$harnesses $CODEX" ;;
        pi) harnesses="$harnesses $PI" ;;
        ?*@?*) harnesses="$harnesses $2" ;;
        *) fail "unknown harness $2: give claude, codex, pi, or an npm package with its version" 2 ;;
      esac ;;
  esac
  shift 2
done

if [ -z "$engine" ]; then
  if command -v podman >/dev/null; then engine=podman
  elif command -v docker >/dev/null; then engine=docker
  else fail "neither podman nor docker is here: apt-get install podman"
  fi
fi
command -v "$engine" >/dev/null || fail "$engine is not here"
PATH=$root/node_modules/.bin:$PATH
command -v esbuild >/dev/null || fail "node_modules is not there: run sh scripts/setup.sh --test"
case ${platform:-linux/$(uname -m)} in
  linux/amd64|linux/x86_64) cpu=x64 ;;
  linux/arm64|linux/aarch64) cpu=arm64 ;;
  *) fail "unknown platform $platform: give linux/amd64 or linux/arm64" 2 ;;
esac
[ -n "$tag" ] || tag=$(node -p "require('$root/package.json').version")

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
trap 'exit 130' INT TERM HUP

# npm_package NAME FOLDER: from node_modules, else, of another platform, at the version that the lock file pins.
npm_package() {
  mkdir -p "$2"
  if [ -d "$root/node_modules/$1" ]; then cp -RL "$root/node_modules/$1/." "$2/"; return; fi
  version=$(node -p "require('$root/package-lock.json').packages['node_modules/$1'].version") || fail "$1 is not in package-lock.json"
  fetch "$1@$version" "$2"
}
fetch() {
  (cd "$context" && tarball=$(npm pack "$1" --silent) && tar -xzf "$tarball" -C "$2" --strip-components=1 && rm "$tarball") || fail "$1 cannot be had from npm"
}

node "$root/scripts/build.ts" "$context/dist" >/dev/null
mkdir -p "$context/hangar" "$context/node/bin" "$context/npm"
mv "$context"/dist/*.mjs "$context"/dist/*.lua "$context"/dist/*.txt "$context/dist/bin" "$context/dist/package.json" "$context/dist/LICENSE" "$context/hangar/"
rm -rf "$context/dist"
npm_package @lydell/node-pty "$context/hangar/node_modules/@lydell/node-pty"
npm_package "@lydell/node-pty-linux-$cpu" "$context/hangar/node_modules/@lydell/node-pty-linux-$cpu"
npm_package "node-linux-$cpu" "$context/node-package"
cp "$context/node-package/bin/node" "$context/node/bin/node"
rm -rf "$context/node-package"
if [ -n "$harnesses" ]; then fetch "npm@$NPM" "$context/npm"; fi
# Readable by every user of the image, whatever this user's umask.
chmod -R u=rwX,go=rX "$context"

secrets=$(mktemp -d)
trap 'rm -rf "$context" "$secrets"' EXIT
cat "$HOME/.npmrc" >"$secrets/npmrc" 2>/dev/null || :
cat "${NODE_EXTRA_CA_CERTS:-/dev/null}" >"$secrets/ca"
for target in ${targets:-coordinator sandbox}; do
  name=${registry}hangar-$target:$tag
  DOCKER_BUILDKIT=1 "$engine" build --file "$root/images/Dockerfile" --target "$target" --tag "$name" \
    ${base:+--build-arg "BASE=$base"} ${platform:+--platform "$platform"} --build-arg "HARNESSES=${harnesses# }" \
    --secret "id=npmrc,src=$secrets/npmrc" --secret "id=ca,src=$secrets/ca" $options "$context" >&2 || fail "$name cannot be built: see above"
  if [ -n "$push" ]; then "$engine" push "$name" >&2 || fail "$name cannot be pushed: see above"; fi
  echo "$name"
done
