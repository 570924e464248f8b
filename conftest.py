"""Examples in README.md, docs/ and the docstrings of the package are tests (`tests/document_examples.py`)."""

from document_examples import pytest_collect_file

__all__ = ["pytest_collect_file"]
