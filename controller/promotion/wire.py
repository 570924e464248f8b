"""Promotion records to and from their messages; the only place here that knows both."""

from paritas.contracts.model import Stage
from paritas.controller.promotion.model import (
    Blocked,
    Candidate,
    Cause,
    Gate,
    Promotion,
    Standing,
    Transition,
)
from paritas.proto.v1 import promotion_pb2 as pb

__all__ = [
    "blocked_to",
    "candidate_of",
    "candidate_to",
    "promotion_of",
    "promotion_to",
    "transition_of",
    "transition_to",
]


def candidate_to(candidate: Candidate) -> pb.PromotionCandidate:
    """Return the message of a candidate."""
    return pb.PromotionCandidate(
        inference=candidate.inference,
        train=candidate.train,
        reference=candidate.reference,
        weights=candidate.weights,
    )


def candidate_of(message: pb.PromotionCandidate) -> Candidate:
    """Return the candidate of a message."""
    return Candidate(message.inference, message.train, message.reference, message.weights)


def promotion_to(promotion: Promotion, *, revision: int = 0) -> pb.Promotion:
    """Return the message of a promotion; its seed stays here."""
    return pb.Promotion(
        promotion_id=promotion.promotion_id,
        contract=promotion.contract,
        contract_version=promotion.contract_version,
        contract_digest=promotion.contract_digest,
        candidate=candidate_to(promotion.candidate),
        candidate_digest=promotion.candidate_digest,
        standing=str(promotion.standing),
        gate=_gate_to(promotion.gate),
        attempt=promotion.attempt,
        nonce=promotion.nonce,
        stage_ns=promotion.stage_ns,
        gate_ns=promotion.gate_ns,
        window_from_ns=promotion.window_from_ns,
        window_sequences=promotion.window_sequences,
        transitions=promotion.transitions,
        used=promotion.used,
        revision=revision,
    )


def promotion_of(message: pb.Promotion) -> Promotion:
    """Return the promotion of a message."""
    return Promotion(
        promotion_id=message.promotion_id,
        contract=message.contract,
        contract_version=message.contract_version,
        contract_digest=message.contract_digest,
        candidate=candidate_of(message.candidate),
        candidate_digest=message.candidate_digest,
        standing=Standing(message.standing),
        gate=_gate_of(message.gate),
        attempt=message.attempt,
        nonce=message.nonce,
        stage_ns=message.stage_ns,
        gate_ns=message.gate_ns,
        window_from_ns=message.window_from_ns,
        window_sequences=message.window_sequences,
        transitions=message.transitions,
        used=tuple(message.used),
    )


def transition_to(transition: Transition) -> pb.PromotionTransition:
    """Return the message of a transition, without its envelope."""
    return pb.PromotionTransition(
        number=transition.number,
        at_ns=transition.at_ns,
        cause=str(transition.cause),
        before=str(transition.before),
        after=str(transition.after),
        gate_before=_gate_to(transition.gate_before),
        gate_after=_gate_to(transition.gate_after),
        attempt=transition.attempt,
        contract_digest=transition.contract_digest,
        candidate_digest=transition.candidate_digest,
        envelope_digest=transition.envelope,
        actor=transition.actor,
        text=transition.text,
    )


def transition_of(message: pb.PromotionTransition, *, promotion_id: str) -> Transition:
    """Return the transition of a message."""
    return Transition(
        promotion_id=promotion_id,
        number=message.number,
        at_ns=message.at_ns,
        cause=Cause(message.cause),
        before=Standing(message.before),
        after=Standing(message.after),
        gate_before=_gate_of(message.gate_before),
        gate_after=_gate_of(message.gate_after),
        attempt=message.attempt,
        contract_digest=message.contract_digest,
        candidate_digest=message.candidate_digest,
        envelope=message.envelope_digest,
        actor=message.actor,
        text=message.text,
    )


def blocked_to(blocked: Blocked | None) -> pb.PromotionBlock | None:
    """Return the message of a refusal; None if there is none."""
    return None if blocked is None else pb.PromotionBlock(block=str(blocked.block), text=blocked.text)


def _gate_to(gate: Gate) -> pb.PromotionGate:
    return pb.PromotionGate(stage=str(gate.stage), step=gate.step)


def _gate_of(message: pb.PromotionGate) -> Gate:
    return Gate(Stage(message.stage), message.step)
