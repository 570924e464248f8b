"""Detectors: decode → pair → evidence → evaluate → escalate, each a pure stage."""
