#!/usr/bin/env bash
# Write the lock files of the images: every distribution with its version and the hashes of its files.
# Run it when pyproject.toml changes what the images hold; then look at the difference.
#
#   lock.sh [agent] [full] [flink] [build]     (all when none is named; needs uv on PATH, or UV=…)
set -Eeuo pipefail

PYTHON_VERSION=3.11 # the minor version of ARG BASE: wheels are for one
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
uv=${UV:-uv}
declare -A extras=([agent]="agent kafka" [full]="agent control detect kafka operator sign" [flink]="flink")

say() { printf 'lock: %s\n' "$*" >&2; }

compile() { # name, input, further words
  local name=$1 input=$2
  shift 2
  say "resolving requirements-$name.txt for Python $PYTHON_VERSION on Linux"
  # No index of this machine gets into the file, and no local wheel into its hashes.
  env -u PIP_FIND_LINKS -u UV_FIND_LINKS "$uv" pip compile -q "$input" "$@" --generate-hashes \
    --python-version "$PYTHON_VERSION" --python-platform x86_64-manylinux_2_28 \
    --custom-compile-command "deploy/image/lock.sh $name" --output-file "$here/requirements-$name.txt"
}

command -v "$uv" >/dev/null || { say "needs uv: python -m pip install uv"; exit 1; }
[[ $# -gt 0 ]] || set -- agent full flink build
for name in "$@"; do
  case $name in
    agent | full | flink)
      words=()
      for extra in ${extras[$name]}; do
        grep -q "^$extra = \[" "$root/pyproject.toml" || { say "pyproject.toml has no extra $extra"; exit 1; }
        words+=(--extra "$extra")
      done
      # Some libraries that Flink's needs come as source only; all else is taken as wheels.
      [[ $name == flink ]] || words+=(--only-binary :all:)
      compile "$name" "$root/pyproject.toml" "${words[@]}"
      ;;
    build) compile build "$here/requirements-build.in" --only-binary :all: ;;
    *) say "knows agent, full, flink and build, not $name"; exit 2 ;;
  esac
done
