"""A judgement as JUnit XML: one test case a clause and slice.

Green means exit code 0 and nothing else does: a violated clause is a ``failure``; one that is
undecided, or has no data, is an ``error`` (the test could not tell).  Not ``skipped``: CI systems
show skipped cases as passed, and no data is never a pass.  Elements and attributes are those of
the schema that Jenkins holds reports against (junit-10.xsd of its xUnit plugin).
"""

import re
from math import isfinite
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from paritas.commands.offline import Judgement
from paritas.commands.report import number
from paritas.records import State, Verdict

__all__ = ["junit_xml"]

TAGS = {State.VIOLATED: "failure", State.UNDECIDED: "error", State.NO_DATA: "error"}
# What XML 1.0 cannot hold, even escaped; slices are named by the data.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(judgement: Judgement) -> bytes:
    """Return the document, UTF-8."""
    cases = [_case(verdict, judgement) for verdict in judgement.verdicts]
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(v.state is State.VIOLATED for v in judgement.verdicts)),
        "errors": str(sum(TAGS.get(v.state) == "error" for v in judgement.verdicts)),
    }
    root = Element("testsuites", {"name": "paritas certify", **counts})
    name = f"{judgement.contract.name} {judgement.contract.version}"
    suite = SubElement(root, "testsuite", {"name": _clean(name), **counts, "skipped": "0"})
    _add_properties(suite, judgement)
    suite.extend(cases)
    indent(root)
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _add_properties(suite: Element, judgement: Judgement) -> None:
    told = {"contract.digest": judgement.contract.digest, "exit_code": str(int(judgement.exit_code))}
    told |= {f"sequences.{reason}": str(n) for reason, n in judgement.pairs.items() if n}
    properties = SubElement(suite, "properties")
    for name, value in told.items():
        SubElement(properties, "property", {"name": name, "value": _clean(value)})


def _case(verdict: Verdict, judgement: Judgement) -> Element:
    names = {"classname": f"{judgement.contract.name}.{verdict.family}"}
    names |= {"name": f"{verdict.clause} [{verdict.slice}]"}
    case = Element("testcase", {key: _clean(value) for key, value in names.items()})
    tag = TAGS.get(verdict.state)
    if tag is not None:
        about = {
            "type": f"{verdict.state.value}.{verdict.reason.value}",
            "message": _clean(_message(verdict)),
        }
        SubElement(case, tag, about).text = _clean(_causes(verdict, judgement)) or None
    return case


def _message(verdict: Verdict) -> str:
    numbers = f"estimate {number(verdict.estimate)}, limit {number(verdict.limit)}"
    told = [f"{verdict.statistic} {verdict.state.value}: {verdict.reason.value.replace('_', ' ')}", numbers]
    told.append(f"{verdict.units} units, {verdict.tokens} tokens")
    if isfinite(verdict.log10_e) and isfinite(verdict.threshold_log10):
        told.append(f"log10 e {verdict.log10_e:.1f} of {verdict.threshold_log10:.1f}")
    if verdict.needed_units > verdict.units:
        told.append(f"about {verdict.needed_units - verdict.units} more units for a pass")
    return "; ".join(told)


def _causes(verdict: Verdict, judgement: Judgement) -> str:
    """The causes found in the slice of a violated clause, one a line."""
    if verdict.state is not State.VIOLATED:
        return ""
    found = [f for f in judgement.diagnosis if f.slice == verdict.slice]
    return "\n".join(f"{f.cause} ({f.confidence:.0%}): {f.advice}" for f in found)


def _clean(text: str) -> str:
    return FORBIDDEN.sub("\ufffd", text)
