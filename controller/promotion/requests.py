"""What a request may hold: bounded texts, a contract that can be promoted under, a candidate."""

from dataclasses import asdict

from paritas.contracts.load import load_text
from paritas.contracts.model import Contract
from paritas.controller.promotion.gates import gates
from paritas.controller.promotion.model import Candidate
from paritas.controller.promotion.store import Stored
from paritas.controller.refusals import RefusalError, Refused
from paritas.errors import ContractError

__all__ = ["check_start", "check_text", "contract_of", "same_start"]

MAX_DOCUMENT_BYTES = 1 << 20
MAX_TEXT_BYTES = 4096
MAX_NAME = 200


def contract_of(document: bytes) -> Contract:
    """Return the contract of a document.

    Raises
    ------
    RefusalError
        INVALID when it is none.
    """
    if len(document) > MAX_DOCUMENT_BYTES:
        message = f"contract: at most {MAX_DOCUMENT_BYTES} bytes, got {len(document)}"
        raise RefusalError(message, reason=Refused.INVALID)
    try:
        return load_text(document, "contract")
    except ContractError as error:
        first = error.problems[0]
        raise RefusalError(first[0], reason=Refused.INVALID, hint=first[1]) from error


def check_start(promotion_id: str, contract: Contract, candidate: Candidate) -> None:
    """Refuse what cannot be promoted; raises `RefusalError` with the reason."""
    if not gates(contract):
        message = f"contract {contract.name} declares no gate before full: nothing would be proven"
        raise RefusalError(
            message, reason=Refused.INVALID, hint="declare spec.promotion.offline_ci, shadow or canary"
        )
    if not candidate.inference:
        message = "candidate.inference: must not be empty: it is what is promoted"
        raise RefusalError(message, reason=Refused.INVALID)
    for name, text in (("promotion_id", promotion_id), *asdict(candidate).items()):
        if len(text) > MAX_NAME or not all(c.isascii() and (c.isalnum() or c in "-._:/@+") for c in text):
            message = f"{name}: at most {MAX_NAME} letters, digits and -._:/@+, got {text[:40]!r}"
            raise RefusalError(message, reason=Refused.INVALID)


def check_text(name: str, text: str) -> None:
    """Refuse a text that is too long to keep."""
    if len(text.encode()) > MAX_TEXT_BYTES:
        message = f"{name}: at most {MAX_TEXT_BYTES} bytes, got {len(text.encode())}"
        raise RefusalError(message, reason=Refused.INVALID)


def same_start(found: Stored, contract: Contract, candidate: Candidate) -> Stored:
    """A start that is repeated is the same one, or is refused."""
    promotion = found.promotion
    if (promotion.contract_digest, promotion.candidate) == (contract.digest, candidate):
        return found
    message = f"promotion {promotion.promotion_id!r} is of another contract or candidate"
    raise RefusalError(message, reason=Refused.PRECONDITION, hint="choose another id")
