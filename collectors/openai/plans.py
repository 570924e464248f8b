"""What is to be done with one request: what is sent, what the answer holds for it, or why it passes unobserved."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from paritas.records import Sampling

__all__ = ["ROUTES", "PassedError", "Plan", "Route", "Strip", "Unobserved", "without_observation"]


class Route(StrEnum):
    """The requests that give tokens."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    GENERATE = "generate"  # SGLang's own
    TOKENS = "tokens"  # vLLM's token-in, token-out
    NATIVE = "native"  # llama.cpp's own


ROUTES: Mapping[str, Route] = {
    "/v1/chat/completions": Route.CHAT,
    "/v1/completions": Route.COMPLETIONS,
    "/generate": Route.GENERATE,
    "/inference/v1/generate": Route.TOKENS,
    "/completion": Route.NATIVE,
    "/completions": Route.NATIVE,
}


class Unobserved(StrEnum):
    """Why a request passed without being observed; the label of a counter."""

    NOT_IN_SHARE = "not_in_share"  # the declared share left it out
    ENGINE_UNKNOWN = "engine_unknown"  # nothing is known of the engine yet
    BODY_TOO_LARGE = "body_too_large"
    BODY_ENCODED = "body_encoded"  # compressed by the client
    NOT_JSON = "not_json"
    NO_TOKEN_IDS = "no_token_ids"  # noqa: S105 -- this engine does not tell them here, or shall not
    LOGITS = "logits"  # the engine reports logits, not log-probabilities
    ECHO = "echo"  # asking would make the engine score the prompt, or leave it out of the answer
    BEAM_SEARCH = "beam_search"
    CONFLICT = "conflict"  # fields that do not go together: the engine shall say so
    PAUSED = "paused"  # the engine refused such a request a moment ago


@dataclass(frozen=True, slots=True)
class Strip:
    """What the client did not ask for, by where it stands and what an engine writes in its place.

    `is_native`: the answer is llama.cpp's own, see `paritas.collectors.openai.native`.
    """

    null_in_choice: tuple[str, ...] = ()
    drop_in_choice: tuple[str, ...] = ()
    null_at_top: tuple[str, ...] = ()
    drop_in_meta: tuple[str, ...] = ()
    is_native: bool = False

    def __bool__(self) -> bool:
        named = self.null_in_choice or self.drop_in_choice or self.null_at_top or self.drop_in_meta
        return bool(named) or self.is_native


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with one request.

    Attributes
    ----------
    body : bytes
        What to send; `original` where nothing was added.
    original : bytes
        What the client sent.
    unobserved : Unobserved or None
        Why nothing is to be observed.
    is_stream : bool
        The client asked for server-sent events.
    is_many : bool
        More than one choice may come.
    echo : bool
        The log-probabilities of the prompt come first.
    top_k : int
        Most likely tokens a position that are sure to be there, see `paritas.collectors.openai.columns`.
    user : str
        The client's ``user`` field.
    stops : str
        The client's stop texts, joined; an engine may not tell the tokens of such an end.
    """

    route: Route
    body: bytes
    original: bytes
    sampling: Sampling = Sampling()
    strip: Strip = Strip()
    unobserved: Unobserved | None = None
    is_stream: bool = False
    is_many: bool = False
    echo: bool = False
    top_k: int = 0
    user: str = ""
    stops: str = ""

    @property
    def is_changed(self) -> bool:
        """Whether something was added."""
        return self.body is not self.original


class PassedError(Exception):
    """Ends the planning: pass the request as it is."""

    def __init__(self, reason: Unobserved) -> None:
        super().__init__(reason)
        self.reason = reason


def without_observation(route: Route, body: bytes, reason: Unobserved) -> Plan:
    """Return the plan to send a request as it came."""
    return Plan(route, body, body, unobserved=reason)
