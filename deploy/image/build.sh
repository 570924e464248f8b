#!/usr/bin/env bash
# Build an image of Paritas: download the wheels of its lock file, build from them without a network, copy the SBOM out.
#
#   build.sh [--target agent|full|flink] [--base IMAGE] [--tag NAME] [--wheels FOLDER] [--sbom FILE]
#
# --target  agent, full (default) or flink
# --base    image to build on instead of the pinned one; the same minor version of Python as lock.sh names
# --tag     name of the image (default: localhost/paritas[-TARGET]:VERSION)
# --wheels  where wheels are kept (default: deploy/wheels in the cache); what is there is not downloaded again
# --sbom    where to write the SBOM (default: not written; it is in the image anyway)
#
# BUILDER names the program: buildah, podman or docker; without it the first of them that is there.
set -Eeuo pipefail

PYTHON_VERSION=3.11
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=full base='' tag='' sbom=''
wheels=${PARITAS_CACHE:-$root/.cache}/deploy/wheels
context='' scratch=''

say() { printf 'image: %s\n' "$*" >&2; }

die() { say "$1"; exit "${2:-1}"; }

usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }

builder() {
  local name
  for name in ${BUILDER:-buildah podman docker}; do
    if command -v "$name" >/dev/null; then echo "$name"; return; fi
  done
  die "needs buildah, podman or docker on PATH to build an image (Debian: apt-get install buildah)"
}

version() { sed -n 's/^version = "\(.*\)"$/\1/p' "$root/pyproject.toml"; }

epoch() { # the date of the last commit, so that two builds of one commit are the same
  echo "${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}"
}

download() { # name, file (default: its lock file): wheels for this machine's processor, whatever Python runs pip here
  local platform platforms=() machine
  machine=$(uname -m)
  for platform in manylinux_2_28 manylinux_2_27 manylinux_2_26 manylinux_2_24 manylinux_2_17 manylinux2014 \
    manylinux_2_12 manylinux2010 manylinux_2_5 manylinux1 linux; do
    platforms+=(--platform "${platform}_$machine")
  done
  env -u PIP_FIND_LINKS "${PYTHON:-python3}" -m pip download -q --disable-pip-version-check --no-deps \
    --require-hashes --only-binary :all: "${platforms[@]}" --implementation cp --python-version "$PYTHON_VERSION" \
    --abi "cp${PYTHON_VERSION/./}" --abi abi3 --abi none -d "$wheels" -r "${2:-$here/requirements-$1.txt}" ||
    die "the wheels of requirements-$1.txt cannot be had: is there a network?"
}

download_flink() { # its lock file but for what comes as source only: wheels of that are made here; and the jars
  local names artifact sha256 name made
  names=$(cat "$here/source-only.txt")
  awk -f "$here/only.awk" -v names="$names" -v kept=0 "$here/requirements-flink.txt" >"$scratch/wheels.txt"
  awk -f "$here/only.awk" -v names="$names" -v kept=1 "$here/requirements-flink.txt" >"$scratch/sources.txt"
  download flink "$scratch/wheels.txt"
  made=$wheels/sources-$(sha256sum <"$scratch/sources.txt" | cut -c1-12)
  if [[ ! -f $made ]]; then # a wheel made here has no hash to be known by
    env -u PIP_FIND_LINKS "${PYTHON:-python3}" -m pip wheel -q --disable-pip-version-check --no-deps --require-hashes \
      --no-binary :all: -w "$wheels" -r "$scratch/sources.txt" || die "no wheels of ${names//$'\n'/, }: is there a C compiler?"
    touch "$made"
  fi
  while read -r artifact sha256; do
    [[ $artifact != \#* ]] || continue
    name=$(cut -d: -f2,3 --output-delimiter=- <<<"$artifact").jar
    [[ -f $wheels/$name ]] || mvn -q -B dependency:copy "-Dartifact=$artifact" "-DoutputDirectory=$wheels" >&2 ||
      die "$artifact cannot be had: it needs Maven and a network"
    echo "$sha256  $wheels/$name" | sha256sum --check --quiet || die "$name is not the file of jars-flink.txt"
  done <"$here/jars-flink.txt"
}

gather() { # the build context: our code, the lock files, the wheels; links instead of copies where possible
  context=$scratch/context
  mkdir "$context"
  (cd "$root" && tar --exclude=__pycache__ --exclude='*.egg-info' -cf - pyproject.toml README.md LICENSE src agent \
    collectors contracts controller detectors proto deploy/image) | tar -C "$context" -xf -
  local at=$context/deploy/image/wheels
  rm -f "$at"/*.whl "$at"/*.jar
  cp -l "$wheels"/*.whl "$at/" 2>/dev/null || cp "$wheels"/*.whl "$at/"
  [[ $target != flink ]] || cp "$wheels"/*.jar "$at/"
}

build() { # program
  local date words=()
  date=$(epoch)
  [[ -z $base ]] || words+=(--build-arg "BASE=$base")
  words+=(--build-arg "VERSION=$(version)" --build-arg "REVISION=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)")
  words+=(--build-arg "SOURCE_DATE_EPOCH=$date" --target "$target" --tag "$tag" --file "$context/deploy/image/Containerfile")
  # HEALTHCHECK is a field of Docker's format; --timestamp dates layers and configuration alike.
  if [[ $1 == docker ]]; then "$1" build "${words[@]}" "$context" >&2
  else "$1" build --format docker --timestamp "$date" --pull=missing --layers=false "${words[@]}" "$context" >&2; fi
}

copy_sbom() { # program: without running anything of the image
  local at=usr/share/doc/paritas/sbom.cdx.json container
  if [[ $1 == buildah ]]; then
    container=$(buildah from --pull-never "$tag")
    cp "$(buildah mount "$container")/$at" "$sbom"
    buildah rm "$container" >/dev/null
  else
    container=$("$1" create "$tag")
    "$1" cp "$container:/$at" "$sbom"
    "$1" rm "$container" >/dev/null
  fi
}

while [[ $# -gt 0 ]]; do
  case $1 in
    --target | --base | --tag | --wheels | --sbom)
      [[ $# -gt 1 ]] || usage
      printf -v "${1#--}" %s "$2"
      shift 2
      ;;
    *) usage ;;
  esac
done
case $target in agent | full | flink) ;; *) die "knows the targets agent, full and flink, not $target" 2 ;; esac
program=$(builder)
suffix=$([[ $target == full ]] || echo "-$target")
tag=${tag:-localhost/paritas$suffix:$(version)}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/paritas-image.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$wheels/$target"
wheels=$(cd "$wheels/$target" && pwd)
say "downloading the wheels of $target into $wheels (once)"
download build
if [[ $target == flink ]]; then download_flink; else download "$target"; fi
gather
say "building $tag with $program (a minute)"
build "$program"
if [[ -n $sbom ]]; then copy_sbom "$program"; say "its SBOM: $sbom"; fi
say "built $tag"
echo "$tag"
