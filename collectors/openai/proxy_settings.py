"""How a proxy is to behave."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from paritas.collectors.openai.engines import Engine
from paritas.records import LogprobSemantics, Role

__all__ = ["ProxySettings"]


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """How a proxy is to behave.

    Attributes
    ----------
    upstream : str
        Base URL of the engine, without a slash at its end.
    share : float
        Share of the sequences observed whose requests ask for no log-probabilities.
    top_k : int
        Most likely tokens to ask for where the client asked for none.
    engine, semantics : optional
        Declared; None: as probed.
    tls : SSLContext or None
        For an ``https`` upstream; None: the system's authorities.
    body_limit_bytes, answer_limit_bytes : int
        Larger requests pass unobserved; larger answers pass unstripped.
    probe_s : float, seconds
        Between two looks at what the engine is.
    pause_s : float, seconds
        How long nothing is added to a route whose addition the engine refused.
    """

    upstream: str
    run_id: str = "default"
    share: float = 0.05
    top_k: int = 0
    role: Role = Role.INFERENCE
    engine: Engine | None = None
    semantics: LogprobSemantics | None = None
    weights_version: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    body_limit_bytes: int = 8 << 20
    answer_limit_bytes: int = 64 << 20
    probe_s: float = 60.0
    pause_s: float = 60.0
    connect_s: float = 10.0
