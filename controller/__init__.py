"""The control side: escalation log and stream, and what acts on them.

Import the module you need (`paritas.controller.server`, `paritas.controller.client`); this
package imports nothing, so that the pure parts stay free of gRPC.
"""

__all__: list[str] = []
