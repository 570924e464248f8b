#!/usr/bin/env bash
# Build the OpenTelemetry Collector and Jaeger from their released Go modules into .cache/otel/.
# Each is built once; a change of builder.yaml or of a version builds that one again.
#
#   build.sh [collector] [jaeger]        (both when none is named)
set -Eeuo pipefail

COLLECTOR_VERSION=v0.155.0
JAEGER_VERSION=v1.76.0 # the Go module of Jaeger 2.13 kept its major version 1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${PARITAS_CACHE:-$root/.cache}/otel
log=

say() { printf 'otel: %s\n' "$*" >&2; }

failed() { say "the build failed; its log is $log"; tail -n 3 "$log" >&2; }

announce() { # what is built, how long it takes, its size
  command -v go >/dev/null || { say "needs Go 1.25 or newer on PATH to build $1"; exit 1; }
  say "building $1 ($2 on two quiet cores, $3, once)"
}

is_built() { # program, recipe
  [[ -x $cache/$1 && -f $cache/$1.recipe && $(<"$cache/$1.recipe") == "$2" ]]
}

keep() { # built file, program, recipe: the recipe last, so that a killed build is not taken for a whole one
  mv "$1" "$cache/$2"
  printf '%s\n' "$3" >"$cache/$2.recipe"
}

build_collector() {
  local recipe
  recipe="$COLLECTOR_VERSION $(sha256sum <"$here/builder.yaml")"
  if is_built otelcol "$recipe"; then return; fi
  log=$cache/otelcol.log
  announce "the OpenTelemetry Collector $COLLECTOR_VERSION" "2 minutes" "47 MB"
  GOBIN=$cache/bin go install "go.opentelemetry.io/collector/cmd/builder@$COLLECTOR_VERSION" >"$log" 2>&1
  (cd "$cache" && rm -rf otelcol.src && bin/builder --config "$here/builder.yaml") >>"$log" 2>&1
  keep "$cache/otelcol.src/otelcol" otelcol "$recipe"
  rm -rf "$cache/otelcol.src"
}

build_jaeger() {
  if is_built jaeger "$JAEGER_VERSION"; then return; fi
  log=$cache/jaeger.log
  announce "Jaeger $JAEGER_VERSION" "3 minutes" "121 MB"
  rm -rf "$cache/jaeger.src" && mkdir "$cache/jaeger.src"
  # In a module of its own: `go install …@version` refuses Jaeger's replace directives.
  (cd "$cache/jaeger.src" && go mod init jaegerbuild &&
    go get -tool "github.com/jaegertracing/jaeger/cmd/jaeger@$JAEGER_VERSION" &&
    go build -o jaeger github.com/jaegertracing/jaeger/cmd/jaeger) >"$log" 2>&1
  keep "$cache/jaeger.src/jaeger" jaeger "$JAEGER_VERSION"
  rm -rf "$cache/jaeger.src"
}

[[ $# -gt 0 ]] || set -- collector jaeger
mkdir -p "$cache"
trap failed ERR
for part in "$@"; do
  case $part in collector | jaeger) ;; *) say "knows collector and jaeger, not $part"; exit 2 ;; esac
  exec 9>"$cache/$part.lock" # two callers build one part once
  flock 9
  "build_$part"
done
