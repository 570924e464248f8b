"""The operator of `KernelContract` objects; optional.  Only `watching` and `cluster_api` need kopf."""

__all__: list[str] = []
