"""Promotion: offline_ci -> shadow -> canary (steps) -> full, each gate by signed evidence (docs/promotion.md).

Imports nothing, so that the pure parts stay free of gRPC, SQLite and cryptography.
"""
