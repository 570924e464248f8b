#!/usr/bin/env bash
# Build Jaeger's page into .cache/otel/jaeger-ui/, for the picture in the documentation.
#
# Jaeger's Go module carries only a placeholder page; the real one is a repository of its own, at the same
# version.  Jaeger's release archives contain it, so whoever runs a released Jaeger does not need this.
# JAEGER_UI_REPOSITORY may name a local clone.
set -euo pipefail

JAEGER_VERSION=v1.76.0
root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${PARITAS_CACHE:-$root/.cache}/otel
source=$cache/jaeger-ui.src
page=$cache/jaeger-ui
repository=${JAEGER_UI_REPOSITORY:-https://github.com/jaegertracing/jaeger-ui.git}
log=$cache/jaeger-ui.log

say() { printf 'otel: %s\n' "$*" >&2; }

[[ -f $page/index.html ]] && exit 0
mkdir -p "$cache"
trap 'say "the build of the page failed; its log is $log"; tail -n 3 "$log" >&2' ERR
say "building the page of Jaeger $JAEGER_VERSION (minutes, once)"
rm -rf "$source"
git clone -q --depth 1 --branch "$JAEGER_VERSION" "$repository" "$source" >"$log" 2>&1
# Its package.json asks for Node 24 for its own checks; the build itself is content with 20.
(cd "$source" && HUSKY=0 npm ci --engine-strict=false --ignore-scripts --no-audit --no-fund &&
  npm run --workspace packages/plexus build && npm run --workspace packages/jaeger-ui build) >>"$log" 2>&1
rm -rf "$page"
mv "$source/packages/jaeger-ui/build" "$page"
rm -rf "$source"
