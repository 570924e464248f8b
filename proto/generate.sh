#!/usr/bin/env bash
# Write the Python code of every .proto file; run after changing one (make proto).
set -euo pipefail
cd "$(dirname "$0")/.."
env=.cache/proto-venv
if [ ! -x "$env/bin/python" ]; then
    echo "proto: making the pinned generator environment in $env"
    python3 -m venv "$env"
    "$env/bin/pip" -q install -r proto/gen-requirements.txt
fi
# Through the link, so that descriptors register as paritas/proto/v1/… and import as paritas.proto.v1.
"$env/bin/python" -m grpc_tools.protoc -I src -I "$("$env/bin/python" -c 'import grpc_tools, os; print(os.path.join(os.path.dirname(grpc_tools.__file__), "_proto"))')" \
    --plugin=protoc-gen-mypy="$env/bin/protoc-gen-mypy" --plugin=protoc-gen-mypy_grpc="$env/bin/protoc-gen-mypy_grpc" \
    --python_out=src --mypy_out=src --grpc_python_out=src --mypy_grpc_out=src src/paritas/proto/v1/*.proto
# A file without services gets an empty grpc module; it would only invite an import of grpc.
for f in src/paritas/proto/v1/*_pb2_grpc.py; do
    grep -q 'class ' "$f" || rm -f "$f" "${f%.py}.pyi"
done
