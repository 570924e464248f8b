"""What each kind of receiver is sent, as bytes; pure."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from paritas.clock import NS_PER_S
from paritas.controller.notify.model import Entry, Notice, NoticeReason, Receiver, ReceiverKind
from paritas.records import Finding

__all__ = ["rendered", "says"]

_LINES = 10  # of one message; people stop reading sooner
_VERSION = 1
_CLOCKS_APART_NS = 5 * NS_PER_S


def rendered(receiver: Receiver, notice: Notice, *, now_ns: int) -> bytes:
    """Return the body of one message."""
    render = {
        ReceiverKind.WEBHOOK: _webhook,
        ReceiverKind.SLACK: _slack,
        ReceiverKind.ALERTMANAGER: _alertmanager,
    }[receiver.kind]
    return json.dumps(render(receiver, notice, now_ns), ensure_ascii=False, sort_keys=True).encode()


def says(notice: Notice) -> str:
    """Return the notice in words, worst first, at most ten incidents."""
    lines = [_headline(notice), *(_line(entry) for entry in (*notice.firing, *notice.resolved)[:_LINES])]
    if (more := len(notice.firing) + len(notice.resolved) - _LINES) > 0:
        lines.append(f"and {more} more")
    if notice.silenced or notice.inhibited:
        lines.append(f"not told: {notice.silenced} silenced, {notice.inhibited} inhibited")
    return "\n".join(lines)


def _headline(notice: Notice) -> str:
    subject = " ".join(value for _, value in notice.group if value) or "all contracts"
    if notice.reason is NoticeReason.ALL_RESOLVED:
        return f"[resolved] {subject}"
    again = " (still)" if notice.reason is NoticeReason.REPEAT else ""
    return f"[{len(notice.firing)} firing, {len(notice.resolved)} resolved] {subject}{again}"


def _line(entry: Entry) -> str:
    """One incident: how bad, what it says, what it likely is."""
    state = entry.peak.value if entry.is_open else "resolved"
    causes = entry.current.diagnosis
    likely = (
        f"; looks like {causes[0].cause} ({causes[0].confidence:.0%})" if causes and entry.is_open else ""
    )
    return f"- {state}: {entry.current.summary}{likely}"


def _webhook(receiver: Receiver, notice: Notice, now_ns: int) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "receiver": receiver.name,
        "reason": notice.reason.value,
        "group": dict(notice.group),
        "text": says(notice),
        "firing": [_record(entry) for entry in notice.firing],
        "resolved": [_record(entry) for entry in notice.resolved],
        "silenced": notice.silenced,
        "inhibited": notice.inhibited,
        "sent_ns": now_ns,
    }


def _record(entry: Entry) -> dict[str, Any]:
    e = entry.current
    return {
        "incident_id": e.incident_id,
        "transition": e.transition,
        **_labels(entry),
        "phase": e.after.value,
        "summary": e.summary,
        "causes": [_cause(finding) for finding in e.diagnosis],
        "issued_ns": e.issued_ns,
        "valid_until_ns": e.valid_until_ns,
    }


def _cause(finding: Finding) -> dict[str, Any]:
    """NaN and infinity are no JSON."""
    confidence = finding.confidence if isfinite(finding.confidence) else None
    return {"cause": finding.cause, "confidence": confidence, "advice": finding.advice}


def _slack(_receiver: Receiver, notice: Notice, _now_ns: int) -> dict[str, Any]:
    """Three characters are markup in Slack's text; nothing of a contract may become a link or a mention."""
    text = says(notice)
    for plain, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(plain, escaped)
    return {"text": text}


def _alertmanager(receiver: Receiver, notice: Notice, now_ns: int) -> list[dict[str, Any]]:
    """Alerts that end by themselves unless they are told again (API v2, POST /alerts).

    An end that is not in the past by Alertmanager's own clock is none to it, and the later end of before holds;
    hence it lies back by more than clocks are apart.
    """
    told_every_s = max(receiver.grouping.repeat_s, receiver.grouping.interval_s)
    lease_ns = now_ns + round(3 * told_every_s * NS_PER_S)
    ended = (*notice.resolved, *notice.outgrown)
    return [
        *(_alert(entry, ends_ns=lease_ns) for entry in notice.firing),
        *(_alert(entry, ends_ns=now_ns - _CLOCKS_APART_NS) for entry in ended),
    ]


def _alert(entry: Entry, *, ends_ns: int) -> dict[str, Any]:
    causes: Sequence[Any] = entry.current.diagnosis
    annotations = {"summary": entry.current.summary}
    if causes:
        annotations |= {"cause": causes[0].cause, "advice": causes[0].advice}
    # Two incidents may be alike but for their ids, as a violation and the lack of data are; they end by themselves.
    labels = {"incident_id": entry.current.incident_id, **_labels(entry)}
    starts_ns = min(entry.opened_ns or entry.current.issued_ns, ends_ns)  # else refused: a clock may be ahead
    return {
        "labels": {"alertname": "ParitasClause", **{k: v for k, v in labels.items() if v}},
        "annotations": annotations,
        "startsAt": _rfc3339(starts_ns),
        "endsAt": _rfc3339(ends_ns),
    }


def _labels(entry: Entry) -> dict[str, str]:
    """What an incident is of; all but the severity is constant over its life."""
    e = entry.current
    return {
        "contract": e.contract,
        "policy": e.policy,
        "clause": e.clause,
        "slice": e.slice,
        "weights_version": e.weights_version,
        "severity": entry.peak.value,
    }


def _rfc3339(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / NS_PER_S, tz=UTC).isoformat(timespec="milliseconds")
