"""Tables about collectors: the variables they obey, and the answers of engines they read."""

from paritas.collectors import settings
from paritas.collectors.openai import responses

__all__ = ["answer_table", "variable_table"]


def variable_table() -> str:
    """Every `PARITAS_*` variable."""
    return _table_in(settings.__doc__)


def answer_table() -> str:
    """Every shape of an answer that is read."""
    return _table_in(responses.__doc__)


def _table_in(docstring: str | None) -> str:
    """Return the table of a module's docstring, as Markdown writes code."""
    assert docstring is not None
    return "\n".join(line for line in docstring.replace("``", "`").splitlines() if line.startswith("|"))
