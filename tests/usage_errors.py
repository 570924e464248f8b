"""What a call that a user got wrong says."""

import pytest

from paritas.errors import UsageError


def failing(call):
    """Message and hint of the usage error that the call ends with."""
    with pytest.raises(UsageError) as caught:
        call()
    return str(caught.value), caught.value.hint
