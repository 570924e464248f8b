"""Who calls: by the token that is shown, else by the certificate."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from paritas.controller.access.grants import Grant, Grants

__all__ = ["Callers", "subjects_of"]


@dataclass(frozen=True, slots=True)
class Callers:
    """Knows callers by the access file; without one only by their certificates."""

    grants: Grants | None = None

    def grant(self, context: Any) -> Grant | None:
        """Return what the caller is granted; a token that is shown decides, also when it is wrong."""
        if self.grants is None:
            return None
        metadata = dict(context.invocation_metadata() or ())
        shown = metadata.get("authorization")
        if shown is None:
            return self.grants.by_subjects(subjects_of(context.auth_context()))
        scheme, _, token = str(shown).partition(" ")
        return self.grants.by_token(token) if scheme.lower() == "bearer" else None

    def name(self, context: Any) -> str:
        """Return the name under which what the caller keeps is its own; "" where none is known."""
        if self.grants is None:
            return next(iter(subjects_of(context.auth_context())), "")
        grant = self.grant(context)
        return "" if grant is None else grant.name


def subjects_of(auth: Mapping[str, Iterable[bytes]]) -> list[str]:
    """Return the names in the caller's certificate, the common name first; none without mutual TLS."""
    fields = ("x509_common_name", "x509_subject_alternative_name")
    return [value.decode("utf-8", "replace") for field in fields for value in auth.get(field, ())]
