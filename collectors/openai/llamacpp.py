"""What only llama.cpp's server does: tokens it does not tell, and its times.

Seen on llama.cpp of October 2026.  Its log-probabilities are those of the untouched logits, whatever
temperature, truncation, penalties, bias or grammar a request has, unless it asks for `post_sampling_probs`.
Three kinds of tokens are counted in ``usage`` and are not among the log-probabilities:

- all but the last token of a character that took several: an emoji of two tokens tells one;
- in a stream the end token; a whole answer tells it, and its own route ``/completion`` always;
- in a whole answer, whatever follows the beginning of a stop text.

The last two miss at the end, and what was told is a whole beginning.  The first may be anywhere.
"""

import math
from collections.abc import Mapping
from typing import Any

from paritas.collectors.openai.plans import Plan, Route
from paritas.collectors.openai.responses import Spoken
from paritas.records import Timings

__all__ = ["hides_tokens", "timings_of_llamacpp"]

MS_PER_S = 1000.0


def hides_tokens(spoken: Spoken, plan: Plan, *, counted: int | None) -> bool:
    """Whether tokens may be missing before the last one that was told.

    Only a character beyond ASCII can take several tokens.  Where there is one, all tokens must be
    accounted for.

    Parameters
    ----------
    counted : int or None
        Tokens the engine counted; None where it did not say.

    Examples
    --------
    >>> from paritas.collectors.openai.responses import Entry
    >>> from paritas.collectors.openai.plans import Route
    >>> plan, two = Plan(Route.CHAT, b"", b""), [Entry(7, -0.5), Entry(8, -0.25)]
    >>> [hides_tokens(Spoken(entries=two, is_wide=wide), plan, counted=3) for wide in (False, True)]
    [False, True]
    """
    if not spoken.entries or (not spoken.is_wide and plan.stops.isascii()):
        return False
    is_of_openai = plan.is_stream and plan.route is not Route.NATIVE
    is_end_untold = is_of_openai and spoken.finish_reason == "stop" and not plan.stops
    return counted is None or counted - len(spoken.entries) != int(is_end_untold)


def timings_of_llamacpp(told: Mapping[str, Any]) -> Timings:
    """Read ``timings``: the time of the prompt without the wait for a slot, and of all tokens after it.

    Examples
    --------
    >>> timings_of_llamacpp({"prompt_ms": 250.0, "predicted_ms": 500.0})
    Timings(queue_s=None, ttft_s=None, prefill_s=0.25, decode_s=0.5)
    """
    return Timings(prefill_s=_seconds(told.get("prompt_ms")), decode_s=_seconds(told.get("predicted_ms")))


def _seconds(told_ms: Any) -> float | None:
    is_number = isinstance(told_ms, int | float) and not isinstance(told_ms, bool)
    return told_ms / MS_PER_S if is_number and math.isfinite(told_ms) and told_ms >= 0 else None
