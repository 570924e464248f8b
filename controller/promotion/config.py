"""What the promotions of a controller are told: whom to trust, and where to answer rollout controllers."""

from dataclasses import dataclass
from pathlib import Path

from paritas.errors import UsageError

__all__ = ["PromotionConfig"]


@dataclass(frozen=True, slots=True)
class PromotionConfig:
    """Everything the promotions need besides the log.

    Attributes
    ----------
    keys : Path or None
        Public key in PEM, or a folder of ``*.pem``: who may sign verdicts.  None: nobody.
    http : str
        ``host:port`` of verdicts and hooks over HTTP; empty: none.
    hook_token : Path or None
        File with the bearer token of the hooks; without one they are refused.
    tick_s : float
        How often deadlines are looked at.
    """

    keys: Path | None = None
    http: str = ""
    hook_token: Path | None = None
    tick_s: float = 5.0

    def __post_init__(self) -> None:
        """Refuse what cannot work, before anything is bound."""
        if not self.tick_s > 0:
            raise UsageError(f"tick_s: must be positive, got {self.tick_s!r}")
