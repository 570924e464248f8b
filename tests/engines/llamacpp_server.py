"""llama.cpp's own HTTP server in a process of its own: it says its address and ends when its input ends.

python tests/engines/llamacpp_server.py FILE.gguf SLOTS
"""

import sys


def serve(file, slots):
    """Serve a GGUF file on a free port of this machine."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = file
    params.model_alias = {"smol"}
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx = int(slots), 512 * int(slots)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    del server


if __name__ == "__main__":
    serve(*sys.argv[1:])
