"""The cause of an incident about an agent that was announced and never reported (docs/causes/agent_missing.md)."""

from paritas.records import Finding

__all__ = ["AGENT_MISSING", "agent_missing"]

AGENT_MISSING = "agent_missing"
PAGE = "docs/causes/agent_missing.md"
ADVICE = {
    "absent": "the pod runs without the sidecar, so nothing it serves is observed: check that the injection policy is "
    "installed and was before the pod was created, and that the label stands on the pod template; then recreate the pod",
    "present": "the sidecar is in the pod and none of its records came: read its /readyz and its log for the address "
    "and the credentials of Kafka, and check that its name is the pod's",
    "": "nothing that this agent should observe is observed: check that it runs, that it reaches the event log, and "
    "that its name is the announced one",
}


def agent_missing(name: str, agent: str, sidecar: str) -> Finding:
    """Return the finding; certain, because it is counted and not guessed.

    Parameters
    ----------
    name : str
        The slice.
    sidecar : str
        Whether its place has an agent, as the roster says: ``present`` or ``absent``; else unknown.

    Examples
    --------
    >>> found = agent_missing("agent=pod-7", "pod-7", "absent")
    >>> found.cause, found.facts["sidecar"]
    ('agent_missing', 'absent')
    """
    advice = f"{ADVICE.get(sidecar, ADVICE[''])} ({PAGE})"
    facts = {"agent": agent, "sidecar": sidecar or "unknown"}
    return Finding(AGENT_MISSING, name, 1.0, facts, advice)
