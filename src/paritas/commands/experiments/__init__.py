"""Experiments: the claims of this project, run again with a seed (docs/experiments.md).

Each experiment is a pure function of a `Setting`; it returns tables, figures as numbers, and claims
with whether they held.  `writing` is the only sink.  They stand here, in the composition root,
because they bring together bounds, tests and readers.
"""
