"""Contracts, candidates and signed verdicts of the promotion's tests, and recordings judged for real."""

from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from paritas.commands.offline import judge, recorded
from paritas.commands.promote_report import Times, candidate_in, statement_from
from paritas.contracts.attempts import alpha_of_attempt
from paritas.contracts.dump import canonical_json
from paritas.contracts.load import load_text
from paritas.contracts.model import Stage
from paritas.controller.config import ServerConfig
from paritas.controller.promotion.config import PromotionConfig
from paritas.controller.promotion.evidence import sign_statement
from paritas.controller.promotion.gates import declared
from paritas.controller.promotion.model import Candidate, GateVerdict
from paritas.controller.promotion.statement import ClauseVerdict, Statement, Window
from paritas.controller.promotion_client import PromotionClient
from paritas.controller.server import serving
from paritas.records import Reason, State
from paritas.signing import key_id

DATA = Path(__file__).resolve().parents[1] / "src/paritas/data"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEYS = {key_id(KEY.public_key()): KEY.public_key()}
CANDIDATE = Candidate(inference="ab" * 16, train="cd" * 16, reference="ef" * 16, weights="step-900")
T0 = 1_700_000_000 * 10**9
S = 10**9
HOUR = 3600 * S
BAKE = 1800 * S

TEXT = """
apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {{name: rollout, version: {version}}}
spec:
  slices:
    - {{name: all}}
  clauses:
    numerical:
      - {{id: token-tv, statistic: tv, at_most: {tv}}}
    observability:
      - {{id: paired, statistic: pairing_rate, at_least: 0.995, within: 60s}}
      - {{id: finite, statistic: nonfinite_rate, at_most: 0}}
  promotion:
    offline_ci: {{alpha: 0.05, at_least: {{sequences: 40}}, deadline: 1h}}
    shadow: {{share: 0.05, alpha: 0.05, at_least: {{sequences: 40}}, deadline: 6h}}
    canary: {{steps: [0.05, 0.25], alpha: 0.05, bake: 30m, deadline: 24h}}
    full: {{demote_on: [violated, no_data]}}
"""


def contract(tv=0.3, version="1.0.0", text=TEXT):
    """The contract of these tests; a smaller `tv` tightens it."""
    return load_text(text.format(tv=tv, version=version), "rollout.yaml")


CONTRACT = contract()
DOCUMENT = canonical_json(CONTRACT)


def clause(name="token-tv", state=State.CONFORMING, **changes):
    """What one clause says."""
    values = {
        "clause": name,
        "slice": "all",
        "state": state,
        "reason": Reason.CERTIFIED,
        "statistic": "tv",
        "estimate": 0.02,
        "lower": 0.0,
        "upper": 0.2,
        "limit": 0.3,
        "log10_e": 0.0,
        "log10_pass": 3.0,
        "units": 100,
        "tokens": 9000,
    }
    return ClauseVerdict(**{**values, **changes})


def clauses(**states):
    """A verdict of every clause; conforming unless told otherwise."""
    return tuple(clause(c.id, states.get(c.id.replace("-", "_"), State.CONFORMING)) for c in CONTRACT.clauses)


def statement(promotion, now_ns, **changes):
    """A verdict on where a promotion is: PASS, of 100 sequences since the gate began."""
    gate = declared(CONTRACT, promotion.gate.stage)
    values = {
        "promotion_id": promotion.promotion_id,
        "gate": promotion.gate,
        "attempt": promotion.attempt,
        "nonce": promotion.nonce,
        "contract": promotion.contract,
        "contract_version": promotion.contract_version,
        "contract_digest": promotion.contract_digest,
        "candidate": promotion.candidate,
        "verdict": GateVerdict.PASS,
        "alpha": alpha_of_attempt(0.01 if gate is None else gate.alpha, promotion.attempt),
        "window": Window(promotion.gate_ns, now_ns, 100, 9000),
        "clauses": clauses(),
        "issued_ns": now_ns,
        "expires_ns": now_ns + 24 * HOUR,
    }
    return Statement(**{**values, **changes})


def signed(promotion, now_ns, *, key=KEY, **changes):
    """The same in its envelope."""
    return sign_statement(statement(promotion, now_ns, **changes), key)


# A controller, and recordings judged by the real detectors


@contextmanager
def controller(folder, clock, **changes):
    """A served controller that trusts `KEY`; yields a client."""
    config = PromotionConfig(**{"keys": public_file(folder), **changes})
    served = serving(ServerConfig(folder / "log.sqlite", listen="127.0.0.1:0", promotion=config), clock=clock)
    with served as target, PromotionClient(target) as client:
        yield client


def public_file(folder, key=KEY, name="trusted.pem"):
    """The public half in a PEM file."""
    path = folder / name
    told = key.public_key().public_bytes(pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo)
    path.write_bytes(told)
    return path


def private_file(folder, key=KEY, name="signing.pem"):
    """The private half, for its owner only."""
    path = folder / name
    path.write_bytes(key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption()))
    path.chmod(0o600)
    return path


@cache
def recorded_report(name, stage, attempt, tv=0.3, version="1.0.0", lines=None):
    """What `paritas check --json` says of a shipped recording; only the first `lines` of it if told."""
    items = recorded(DATA / f"{name}.serve.jsonl.gz", DATA / f"{name}.train.jsonl.gz")
    traces = [i for i in items if lines is None or int(i.sequence_id.split("-")[-1]) < lines]
    return judge(contract(tv, version), traces, attempt=attempt, stage=stage).as_dict()


def evidence_of(report, promotion, clock, *, key=KEY, begun_ns=None, expires_s=86_400, **changes):
    """A report signed for where a promotion is, its sequences taken since the gate began."""
    now_ns = clock.now_ns()
    begun_ns = promotion.gate_ns if begun_ns is None else begun_ns
    times = Times(now_ns, now_ns + expires_s * S, begun_ns, now_ns)
    return sign_statement(replace(statement_from(report, promotion, times), **changes), key)


def recorded_candidate():
    """The kernels that the shipped healthy recording was made by."""
    return candidate_in(
        recorded_report("healthy", Stage.OFFLINE_CI, 1), reference="ef" * 16, weights="step-900"
    )


def promoted(client, clock, gates_passed):
    """A promotion that real verdicts took over so many gates; returns it."""
    promotion = client.start(DOCUMENT, recorded_candidate(), promotion_id="p1", actor="ann")
    for _ in range(gates_passed):
        clock.advance(seconds=1801)
        report = recorded_report("healthy", promotion.gate.stage, promotion.attempt)
        answer = client.submit("p1", evidence_of(report, promotion, clock))
        assert answer.blocked is None, answer.blocked
        promotion = answer.promotion
    return promotion
