"""Servers that answer every connection with the same bytes, HTTP or not."""

import contextlib
import socket
import threading

# What an HTTP client has no answer in: another protocol, and one that breaks off.
NO_HTTP = (b"SSH-2.0-somewhere\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n")


@contextlib.contextmanager
def speaking(words):
    """Give the address of a server that says `words` and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_speak, args=(listening, words))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _speak(listening, words):
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(words)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1 << 16)  # until the peer has read it all
