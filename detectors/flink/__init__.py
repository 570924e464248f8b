"""Detection on Apache Flink: the same stages as keyed operators.

Import the module you need.  `events`, `pairing` and `evaluation` are pure and need no Flink;
`operators` and `job` need ``apache-flink``, which has a virtual environment of its own.
"""

__all__: list[str] = []
