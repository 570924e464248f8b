"""Plain values → YAML that every reader takes for the same: YAML 1.1 of Kubernetes' tools, 1.2 of our loader.

Needs PyYAML.
"""

from typing import Any

import yaml

from paritas.contracts.core_schema import resolve_plain

__all__ = ["yaml_text"]

WIDTH = 110  # columns


class _Dumper(yaml.SafeDumper):
    """Quotes what some reader takes for no text, and never writes an alias."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 -- the name is PyYAML's
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """PyYAML leaves `1e-3` and `y` bare: a number and a flag to others."""
    is_bare = len(text) > 1 and resolve_plain(text) == text
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=None if is_bare else '"')


_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(str, _text)  # names of an enum


def yaml_text(value: object) -> str:
    r"""Return the YAML text of plain values, keys in their order.

    Examples
    --------
    >>> yaml_text({"values": ["1e-3", "y", "on", "math"], "at_most": 1e-7})
    'values:\n- "1e-3"\n- "y"\n- \'on\'\n- math\nat_most: 1.0e-07\n'
    """
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
