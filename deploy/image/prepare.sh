#!/bin/sh
# Build stage, first step: pip and the tools of requirements-build.txt in /build. With wheels in wheels/ no network is used.
set -eu
python3 -m venv /build
found=$(find deploy/image/wheels -name '*.whl' | head -n 1)
if [ -n "$found" ]; then printf '[global]\nno-index = true\nfind-links = /src/deploy/image/wheels\n' >/etc/pip.conf; fi
/build/bin/python -m pip install -q --no-compile --require-hashes -r deploy/image/requirements-build.txt
