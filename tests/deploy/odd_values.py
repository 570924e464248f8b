"""Values that a cluster takes as they are and that YAML, left bare, reads as numbers, flags, nothing or comments."""

from collections.abc import Mapping
from typing import Any

ODD: Mapping[str, Any] = {
    "kafka": {
        "bootstrap": ["kafka:9092"],
        "topic": "123",
        "tls": {"enabled": True, "secretName": "123", "caKey": "ca: #1"},
        "sasl": {"mechanism": "PLAIN", "username": "on", "secretName": "on", "secretKey": "null"},
    },
    "contracts": {"70": "preset: dense-bf16", "on": "preset: dense-bf16", "null": "preset: dense-bf16"},
    "controller": {
        "routes": "routes: []",
        "tls": {"mode": "secret", "secretName": "12"},
        "access": {"mode": "secret", "secretName": "off", "key": "7"},
        "labelDriver": {"enabled": True, "namespaces": ["123", "no"]},
        "notify": {"secretName": "1", "key": "2"},
        "promotion": {"keys": {"configMap": "3"}, "hookToken": {"secretName": "4", "key": "yes"}},
        "persistence": {"size": 1073741824, "storageClassName": "5"},
        "priorityClassName": "6",
        "serviceAccount": {"name": "9"},
    },
    "detectors": {
        "deployment": "prod: eu #1",
        "floors": {"configMap": "8", "names": ["a #b", "c: d"]},
        "token": {"secretName": "10", "key": "11"},
        "metrics": {"otlp": "http://otel:4317/ #x"},
        "terminationGracePeriodSeconds": 3000000,
    },
    "roster": {"enabled": True, "namespaces": ["123", "off"]},
    "networkPolicy": {"enabled": True},
    "sidecar": {"namespaces": ["123"], "configMap": {"name": "1"}, "tokenKey": {"secretName": "2"}},
}
