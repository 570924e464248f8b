"""The page of promotions names everything a user meets."""

from pathlib import Path

import pytest

from paritas.controller.promotion.flagger import Hook
from paritas.controller.promotion.model import Block, Cause, GateVerdict, Standing

PAGE = Path(__file__).resolve().parents[3] / "docs/promotion.md"
NAMES = sorted(
    {str(n) for n in (*Block, *(c for c in Cause if c is not Cause.STARTED), *Standing, *GateVerdict, *Hook)}
)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_explained(name):
    assert f"`{name}`" in PAGE.read_text("utf-8") or f"`{name}`s" in PAGE.read_text("utf-8")
