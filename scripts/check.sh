#!/bin/sh
# Every check that needs no running: format, lint with types (and the layers), types, unused code, Terraform.
set -u
cd "$(dirname "$0")/.."
export PATH=$PWD/node_modules/.bin:$PATH NO_COLOR=1
failed=
check() {
  if "$@" >"$out" 2>&1; then echo "ok    $*"; else echo "FAILS $*"; cat "$out"; failed=1; fi
}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
check oxfmt --check .
check oxlint --type-aware --deny-warnings
check tsc
check knip --no-progress
check node scripts/check-terraform.ts
# Where Terraform itself is at hand, it is asked too.
if command -v terraform >/dev/null; then check terraform fmt -check -recursive terraform; fi
[ -z "$failed" ]
