"""Every field of the agent's configuration file, once; read with the contracts' reader.

It stands here and not in the agent's room, which may import neither YAML nor contracts.
"""

from paritas.contracts.shapes import (
    Choice,
    Duration,
    Field,
    Flag,
    Listing,
    Number,
    Record,
    Tagged,
    Text,
    Whole,
)

__all__ = ["FILE"]

PATH = Text(r"^[^\x00-\x1f\x7f]{1,4096}$", "a path")
ADDRESS = Text(r"^[A-Za-z0-9_.\[\]:-]{3,255}$", "HOST:PORT, such as 127.0.0.1:4318")
NAME = Text(r"^[A-Za-z0-9_.-]{1,128}$", "letters, digits, '.', '_' and '-'")
TOPIC = Text(r"^[a-zA-Z0-9._-]{1,249}$", "letters, digits, '.', '_' and '-'")
TEXT = Text()
BYTES = Whole(1, 1 << 50)
RATE = Number(0)

SPOOL = Record(
    "spool",
    (
        Field("path", PATH, "directory of the spool", is_required=True),
        Field("limit_bytes", BYTES, "most bytes on disk (default 1 GiB)"),
        Field("segment_bytes", Whole(4096, 1 << 40), "size of one file (default 32 MiB); at least two fit"),
        Field("max_age", Duration(), "age at which records are given up as expired (default 7d)"),
        Field(
            "when_full",
            Choice(("drop_oldest", "refuse")),
            "what happens at limit_bytes (default drop_oldest)",
        ),
        Field(
            "sync", Choice(("none", "interval", "always")), "when appends are made durable (default interval)"
        ),
        Field("sync_interval", Duration(), "longest time between two syncs (default 500ms)"),
        Field("memory_bytes", BYTES, "what is kept in memory while the disk refuses (default 16 MiB)"),
    ),
)
UNIX = Record(
    "unix",
    (
        Field("path", PATH, "OTLP/HTTP on this Unix socket", is_required=True),
        Field(
            "uids",
            Listing(Whole(0, (1 << 32) - 2), is_set=True),
            "users that may send, beside the agent's own",
        ),
        Field(
            "any_user",
            Flag(),
            "whether everyone who reaches the socket may send: for a volume of one pod (default false)",
        ),
    ),
)
LISTEN = Record(
    "listen", (Field("listen", ADDRESS, "loopback HOST:PORT; port 0 picks one", is_required=True),)
)
RECEIVERS = Record(
    "receivers",
    (
        Field("unix", UNIX, "OTLP/HTTP on a Unix socket"),
        Field("http", LISTEN, "OTLP/HTTP on localhost"),
        Field("grpc", LISTEN, "OTLP/gRPC on localhost"),
        Field("max_body_bytes", BYTES, "largest request, unpacked too (default 16 MiB)"),
        Field("max_pending_bytes", BYTES, "requests being worked on at once (default 32 MiB)"),
    ),
)
EMBEDDED = Record(
    "embedded",
    (
        Field("path", PATH, "directory of the event log", is_required=True),
        Field("partitions", Whole(1, 1024), "fixed when the log is made (default 4)"),
        Field("limit_bytes", BYTES, "most bytes of all partitions (default 1 GiB)"),
        Field("segment_bytes", Whole(4096, 1 << 40), "size of one file (default 32 MiB)"),
    ),
)
TLS = Record(
    "tls",
    (
        Field("ca_file", PATH, "certificate authorities to trust, PEM"),
        Field("certificate_file", PATH, "certificate of this client, PEM"),
        Field("key_file", PATH, "its key, PEM"),
        Field("check_hostname", Flag(), "whether the certificate must name the host (default true)"),
    ),
)
SASL = Record(
    "sasl",
    (
        Field(
            "mechanism",
            Choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")),
            "how this client says who it is",
            is_required=True,
        ),
        Field("username", TEXT, "for PLAIN and SCRAM"),
        Field("password_file", PATH, "file with the password, for PLAIN and SCRAM"),
        Field("token_file", PATH, "file with the bearer token, for OAUTHBEARER; read at each connection"),
    ),
)
KAFKA = Record(
    "kafka",
    (
        Field("bootstrap", Listing(ADDRESS, at_least=1, at_most=50), "brokers, HOST:PORT", is_required=True),
        Field("topic", TOPIC, "default otlp_spans"),
        Field("client_id", NAME, "name in the broker's logs (default the agent's name)"),
        Field("compression", Choice(("none", "gzip", "zstd")), "default zstd"),
        Field("tls", TLS, "encrypt; {} trusts the machine's authorities"),
        Field("sasl", SASL, "authenticate"),
        Field("in_flight_bytes", BYTES, "most bytes not yet acknowledged (default 32 MiB)"),
        Field("record_limit_bytes", BYTES, "largest record (default 1000000)"),
        Field("connect_timeout", Duration(), "default 10s"),
        Field("request_timeout", Duration(), "default 10s"),
        Field("delivery_timeout", Duration(), "of one record with all its retries (default 30s)"),
    ),
)
SHIPPING = Record(
    "shipping",
    (
        Field("batch_records", Whole(1, 100_000), "most records in flight (default 512)"),
        Field("batch_bytes", BYTES, "most bytes in flight (default 8 MiB)"),
        Field("max_records_per_s", RATE, "cap; 0 is none (default 0)"),
        Field("max_bytes_per_s", RATE, "cap; 0 is none (default 0)"),
        Field("retry_first", Duration(), "bound of the first wait after a failure (default 500ms)"),
        Field("retry_most", Duration(), "bound of every later wait (default 30s)"),
        Field("gather", Duration(), "wait for a fuller batch while few records wait (default 50ms)"),
        Field("commit", Duration(), "longest time between two saves of the position (default 1s)"),
    ),
)
HEALTH = Record(
    "health",
    (
        Field("listen", ADDRESS, "HOST:PORT of /healthz, /readyz, /metrics (default 127.0.0.1:4319)"),
        Field("stall", Duration(), "records wait so long without one acknowledged: not ready (default 30s)"),
        Field("report", Duration(), "time between two health spans; 0s for none (default 60s)"),
    ),
)
FILE = Record(
    "agent configuration",
    (
        Field(
            "name", NAME, "name in the headers of every record (default PARITAS_AGENT_NAME, else the host's)"
        ),
        Field("spool", SPOOL, "what is kept until it is delivered", is_required=True),
        Field("receivers", RECEIVERS, "where spans come in", is_required=True),
        Field("destination", Tagged((EMBEDDED, KAFKA)), "where records go", is_required=True),
        Field("shipping", SHIPPING, "how fast records leave"),
        Field("health", HEALTH, "where health and metrics are served"),
        Field("grace", Duration(), "how long SIGTERM lets it go on shipping (default 10s)"),
    ),
)
