"""Contracts as objects of a Kubernetes cluster: their definition, and both directions between file and object."""

__all__: list[str] = []
