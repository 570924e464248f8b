"""Examples in Markdown and docstrings as tests: one item a file, so that examples run in their order.

The root `conftest.py` hands `pytest_collect_file` to pytest.  One item a file, not one an example:
tests run in random order on several workers, and an example may use names of the one before it.
"""

from pathlib import Path

import pytest
from sybil import Sybil
from sybil.document import PythonDocStringDocument
from sybil.example import SybilFailure
from sybil.parsers.markdown import PythonCodeBlockParser
from sybil.parsers.rest import DocTestParser

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src/paritas"

MARKDOWN = Sybil(parsers=[PythonCodeBlockParser()], path=str(ROOT))
DOCSTRINGS = Sybil(parsers=[DocTestParser()], path=str(ROOT), document_types={".py": PythonDocStringDocument})


def sybil_of(path: Path) -> Sybil | None:
    """Return who reads the examples of a file; None for a file without any."""
    if path.suffix == ".md" and (path.parent == ROOT / "docs" or path == ROOT / "README.md"):
        return MARKDOWN
    ours = path.suffix == ".py" and PACKAGE in path.parents and not path.stem.endswith(("_pb2", "_pb2_grpc"))
    return DOCSTRINGS if ours and ">>>" in path.read_text("utf-8") else None


class ExampleFile(pytest.File):
    """A file whose examples are one test."""

    def collect(self):
        """Yield the one item."""
        yield ExampleItem.from_parent(self, name="examples")


class ExampleItem(pytest.Item):
    """All examples of one file, in their order."""

    def runtest(self):
        """Run them; the first that fails says its file and line."""
        for example in sybil_of(self.path).parse(self.path).examples():
            example.evaluate()

    def repr_failure(self, excinfo, style=None):
        """Say what was expected and what came, without the way there."""
        if isinstance(excinfo.value, SybilFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        """Say which file it is."""
        return self.path, 0, f"{self.path.name}: examples"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ExampleFile | None:
    """Collect a file that holds examples."""
    return ExampleFile.from_parent(parent, path=file_path) if sybil_of(file_path) else None
