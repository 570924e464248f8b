#!/bin/sh
# Build stage, last step: /opt/paritas from the lock file, its SBOM, and everything an image needs in /root-of-image.
#
#   install.sh agent|full|flink
set -eu
target=$1
root=/root-of-image
here=deploy/image
venv=/opt/paritas
doc=$root/usr/share/doc/paritas
pip="/build/bin/python -m pip --python $venv/bin/python install -q --no-compile --no-deps"
flink=$venv/lib/python3.11/site-packages/pyflink

install_distributions() {
  python3 -m venv --without-pip "$venv"
  if [ "$target" = flink ]; then
    # Four libraries come as source only; their hashes were checked when build.sh made wheels of them.
    awk -f "$here/only.awk" -v names="$(cat "$here/source-only.txt")" -v kept=0 "$here/requirements-flink.txt" >/locked.txt
    awk -f "$here/only.awk" -v names="$(cat "$here/source-only.txt")" -v kept=1 "$here/requirements-flink.txt" |
      sed -n 's/^\([a-z0-9-]*==[^ ]*\).*/\1/p' >/made.txt
    $pip --no-index -r /made.txt
  else
    cp "$here/requirements-$target.txt" /locked.txt
  fi
  $pip --require-hashes -r /locked.txt
  $pip --no-index /own/paritas-*.whl
  find "$venv/bin" -mindepth 1 ! -name 'python*' ! -name paritas -exec rm -rf {} +
  # Tests of numeric libraries are a quarter of them, and no program here imports them.
  find "$venv/lib" -type d -name tests -path '*/site-packages/*' -prune -exec rm -rf {} +
}

gather_root() { # Python, libraries and certificates for an image without a base
  python3 "$here/assemble.py" "$venv" "$root"
  : >/jars.txt
}

gather_flink() { # what is laid over a base with Java: Flink, its jars and our code
  command -v java >/dev/null || { echo "the flink image needs a base with Java 17: see flink-base.Containerfile" >&2; exit 1; }
  cp "$here"/wheels/*.jar "$flink/lib/"
  chmod 0755 "$flink"/bin/*.sh "$flink/bin/flink"
  mkdir -p "$flink/log" "$root/opt" "$root/run/paritas" "$root/var/lib/paritas" "$root/etc/paritas"
  cp -a "$venv" "$root/opt/paritas"
  ln -s "$flink" "$root/opt/flink"
  install -m 0755 "$here/flink-entrypoint.sh" "$root/docker-entrypoint.sh"
  chown 65532:65532 "$root$flink/log" "$root/run/paritas" "$root/var/lib/paritas"
  dpkg-query -W -f='${Package}\t${Version}\t${Architecture}\n' >/debian.tsv
  cp "$here/jars-flink.txt" /jars.txt
}

write_sbom() {
  mkdir -p "$doc"
  cp LICENSE "$doc/LICENSE"
  /build/bin/cyclonedx-py environment --sv 1.6 --output-reproducible -o /sbom.json "$venv/bin/python"
  python3 "$here/sbom.py" /sbom.json /debian.tsv /jars.txt "$target" >"$doc/sbom.cdx.json"
  chmod 0644 "$doc/sbom.cdx.json"
}

compile() { # never checked against the source: the root is read-only, and dates do not matter to it
  for folder in "$venv/lib" "$@"; do
    python3 -m compileall -q --invalidation-mode unchecked-hash -s "$root" -p / "$root$folder"
  done
}

install_distributions
mkdir "$root"
if [ "$target" = flink ]; then gather_flink; else gather_root; fi
write_sbom
if [ "$target" = flink ]; then compile
else compile "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"; fi
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
