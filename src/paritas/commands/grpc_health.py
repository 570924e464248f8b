"""The standard gRPC health service, asked: by `paritas health --grpc`, and by a detector of its controller."""

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from paritas.clock import Clock
from paritas.closing import Closing
from paritas.commands.detect_health import DetectTrouble, LoopState
from paritas.commands.own_thread import OwnThread
from paritas.commands.reaching import Reach
from paritas.controller.listening import CLIENT_OPTIONS, client_credentials
from paritas.controller.unreached import call_mismatch
from paritas.errors import TransientError
from paritas.proto.v1 import escalation_pb2 as pb

__all__ = ["ControllerProbe", "HealthClient"]

SERVICE: str = pb.DESCRIPTOR.services_by_name["EscalationService"].full_name
PERIOD_S = 5.0
TIMEOUT_S = 5.0


class HealthClient(Closing):
    """One channel to one server; a context manager.

    Raises
    ------
    UsageError
        A file of TLS cannot be read.
    """

    def __init__(self, reach: Reach) -> None:
        self._target, self._tls = reach.target, reach.tls
        if reach.tls is None:
            self._channel: Any = grpc.insecure_channel(reach.target, options=CLIENT_OPTIONS)
        else:
            credentials = client_credentials(reach.tls)
            self._channel = grpc.secure_channel(reach.target, credentials, options=CLIENT_OPTIONS)
        self._stub: Any = health_pb2_grpc.HealthStub(self._channel)

    def close(self) -> None:
        """Close the channel; twice is fine."""
        self._channel.close()

    def status(self, service: str, *, timeout_s: float) -> str:
        """Return ``SERVING``, ``NOT_SERVING`` or what else it says of a service, empty for the whole server.

        Raises
        ------
        TransientError
            Nobody answers, or nobody who knows the question.
        """
        request = health_pb2.HealthCheckRequest(service=service)
        try:
            answer = self._stub.Check(request, timeout=timeout_s)
        except grpc.RpcError as error:
            text = f"{self._target}: {error.code().name}: {error.details() or 'no details'}"
            mistaken = call_mismatch(error, target=self._target, tls=self._tls)
            raise mistaken or TransientError(text) from error
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


class ControllerProbe(OwnThread):
    """Asks a controller every few seconds whether it can take escalations, and writes down what it finds.

    A detector that has nothing to say would else not know that nobody could hear it; until the first answer it is
    still starting.
    """

    def __init__(self, client: HealthClient, state: LoopState, *, clock: Clock) -> None:
        super().__init__(name="paritas-controller-probe")
        self._client, self._state, self._clock = client, state, clock
        state.controller = DetectTrouble.STARTING

    def _run(self) -> None:
        while True:
            self._state.controller = self.found()
            if self._clock.wait(self._stop, timeout_s=PERIOD_S):
                return

    def found(self) -> DetectTrouble | None:
        """Ask once."""
        try:
            status = self._client.status(SERVICE, timeout_s=TIMEOUT_S)
        except TransientError:
            return DetectTrouble.CONTROLLER_UNREACHABLE
        return None if status == "SERVING" else DetectTrouble.CONTROLLER_NOT_SERVING
