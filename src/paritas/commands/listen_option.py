"""The type of options that say where a page of health and metrics is served."""

import argparse

from paritas.errors import UsageError

__all__ = ["listen_address"]


def listen_address(text: str) -> str:
    """Return ``HOST:PORT`` as it was written; empty is nowhere.

    Raises
    ------
    argparse.ArgumentTypeError
        It is none; the parser puts the option's name before it.

    Examples
    --------
    >>> listen_address("127.0.0.1:0"), listen_address("")
    ('127.0.0.1:0', '')
    """
    from paritas.agent.config import host_port

    try:
        _ = text and host_port(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(f"{error}; port 0 picks a free one") from error
    return text
