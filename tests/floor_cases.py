"""Floors, keys and contracts with limits relative to a floor, in a few words."""

from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from paritas.contracts.floors import FloorValue, MeasuredFloor
from paritas.contracts.load import load_text
from paritas.records import Role

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
CONTRACT = """apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: mine, version: 1.0.0}
spec:
  policy: small
  kernels:
    train: {engine: torch, dtype: float32, batch_invariant: false}
  clauses:
    numerical:
      - {id: token-tv, statistic: tv, at_most: {floor: aa, times: 1.5, ceiling: 0.04}}
    statistical:
      - {id: tail, statistic: ratio_tail, above: 2.0, at_most: {floor: aa, times: 2, ceiling: 0.01}}
      - {id: bias, statistic: gradient_bias, cap: 3.0, at_most: {floor: aa, times: 2, ceiling: 0.5}}
"""
VALUES = (
    FloorValue("tv", {}, 0.008, 0.01, 2000, 90_000),
    FloorValue("ratio_tail", {"above": 2.0}, 0.0, 0.02, 2000, 90_000),
    FloorValue("gradient_bias", {"cap": 3.0, "estimator": "tis"}, 0.001, 0.05, 2000, 90_000),
)


def contract(text=CONTRACT):
    """Return the contract of that text."""
    return load_text(text, "mine.yaml")


def floor(**more):
    """Return a floor of the contract's trainer."""
    known = {
        "name": "aa",
        "role": Role.TRAIN,
        "kernel": {"engine": "torch", "dtype": "float32", "batch_invariant": False},
        "digest": "d" * 32,
        "varied": {"extra.micro_batch": ("1", "8")},
        "recordings": ("a" * 32, "b" * 32),
        "model": "small",
        "measured_at": "2026-01-02T03:04:05+00:00",
        "seed": 7,
        "alpha": 0.05,
        "values": VALUES,
    }
    return replace(MeasuredFloor(**known), **more)
