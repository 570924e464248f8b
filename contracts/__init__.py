"""Kernel contracts: the DSL, its catalogue, bounds and budgets."""
