#!/bin/bash
# Flink's Kubernetes integration starts its processes through /docker-entrypoint.sh; there is nothing to prepare here.
exec "$@"
