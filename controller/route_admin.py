"""What people do with routes from a program: look, override, read the audit log.

::

    with RouteAdmin("127.0.0.1:4320") as routes:
        for state in routes.states(): ...
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from paritas.controller.access.bearing import bearing
from paritas.controller.config import TlsFiles
from paritas.controller.reach import Reach
from paritas.controller.route_wire import entry_of, override_of, override_to, resolution_of
from paritas.controller.routing.audit import AuditEntry
from paritas.controller.routing.override import Override
from paritas.controller.routing.table import Resolution
from paritas.controller.unreached import call_error
from paritas.proto.v1 import route_pb2 as pb
from paritas.proto.v1 import route_pb2_grpc as pb_grpc

__all__ = ["RouteAdmin"]


class RouteAdmin:
    """What people do with routes: look, override, read the audit log; a context manager.

    Raises
    ------
    TransientError
        From any call: the controller cannot be reached, or cannot do it now.
    RefusalError
        From any call: it will never take this request.
    """

    def __init__(
        self,
        target: str,
        *,
        tls: TlsFiles | None = None,
        token_file: Path | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        self._target, self._tls, self._timeout_s = target, tls, timeout_s
        self._channel = Reach(target, tls, token_file).channel()
        self._stub: Any = pb_grpc.RouteServiceStub(bearing(self._channel, token_file))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def states(self, policy: str = "") -> list[pb.RouteState]:
        """Return what is wanted and what is so, of one policy or of all."""
        return list(self._call(self._stub.Get, pb.GetRoutesRequest(policy=policy)).states)

    def resolve(self, policy: str, attributes: Mapping[str, str], sticky_key: str = "") -> Resolution:
        """Ask the controller for the kernel of one request."""
        request = pb.ResolveRequest(policy=policy, attributes=attributes, sticky_key=sticky_key)
        return resolution_of(self._call(self._stub.Resolve, request))

    def override(self, override: Override) -> Override:
        """Begin an override; its id comes back."""
        request = pb.OverrideRequest(override=override_to(override))
        return override_of(self._call(self._stub.Override, request).override)

    def expire(self, override_id: str, *, author: str) -> Override:
        """End an override now."""
        request = pb.ExpireOverrideRequest(override_id=override_id, author=author)
        return override_of(self._call(self._stub.ExpireOverride, request).override)

    def overrides(self, policy: str = "", *, include_ended: bool = False) -> list[Override]:
        """Return the overrides by end."""
        request = pb.ListOverridesRequest(policy=policy, include_ended=include_ended)
        return [override_of(o) for o in self._call(self._stub.ListOverrides, request).overrides]

    def audit(self, policy: str = "", *, limit: int = 100) -> Iterator[AuditEntry]:
        """Yield up to `limit` lines of the audit log, newest first; pages are fetched as needed."""
        before, left = 0, limit
        while left > 0:
            size = min(left, 1000)
            request = pb.AuditRequest(policy=policy, before=before, page_size=size)
            answer = self._call(self._stub.Audit, request)
            yield from map(entry_of, answer.entries)
            before, left = answer.next_before, left - size
            if not before:
                return

    def _call(self, method: Any, request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise call_error(error, target=self._target, tls=self._tls) from error
