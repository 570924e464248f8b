"""Collecting beside an OpenAI-compatible server: the pure parts.

Requests are planned (`plan_of`), answers are read (`Observation`) and stripped (`strip`) by
functions of values; `paritas.collectors.openai.proxy` puts sockets around them and needs
aiohttp (``pip install 'paritas[proxy]'``).
"""

from paritas.collectors.openai.columns import Columns, Doubt, columns_of
from paritas.collectors.openai.engines import Engine, EngineFacts, facts_of
from paritas.collectors.openai.observation import Context, Observation, Seen
from paritas.collectors.openai.plans import ROUTES, Plan, Route, Strip, Unobserved
from paritas.collectors.openai.requests import plan_of
from paritas.collectors.openai.responses import Entry, Spoken, read_prompt_logprobs
from paritas.collectors.openai.strip import strip

__all__ = [
    "ROUTES",
    "Columns",
    "Context",
    "Doubt",
    "Engine",
    "EngineFacts",
    "Entry",
    "Observation",
    "Plan",
    "Route",
    "Seen",
    "Spoken",
    "Strip",
    "Unobserved",
    "columns_of",
    "facts_of",
    "plan_of",
    "read_prompt_logprobs",
    "strip",
]
