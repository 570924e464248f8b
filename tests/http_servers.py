"""Real HTTP servers that stand in for an engine or a receiver."""

import contextlib
import http.server
import threading


@contextlib.contextmanager
def serving(handler):
    """Give the URL of a server whose requests `handler` answers."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
