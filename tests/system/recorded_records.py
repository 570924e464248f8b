"""Real recordings of the package as records of a real topic, each kernel's process under a name of its own."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from importlib.resources import as_file, files

from paritas.collectors.dumps import ReadOptions, read_dump
from paritas.records import Role, TokenTrace
from paritas.tokens import TokenHasher
from paritas.wire import Origin, WireRecord, encode, stamp

PAIRS = {
    "healthy": ("healthy.serve", "healthy.train"),
    "stale": ("healthy.serve", "stale.train"),
    "top-p": ("top_p.serve", "top_p.train"),
}
SERVICES = {Role.INFERENCE: "vllm", Role.TRAIN: "trainer"}
AGENT = "pod-7"
PARTITIONS = 3


def recorded_traces(run_id: str, *, base_ns: int) -> Iterator[TokenTrace]:
    """Yield the traces of one pair of recordings, the serving side first."""
    options = ReadOptions(TokenHasher(bytes(32)), run_id=run_id, base_ns=base_ns, step_ns=10_000_000)
    with ExitStack() as stack:
        for name in PAIRS[run_id]:
            path = stack.enter_context(as_file(files("paritas") / "data" / f"{name}.jsonl.gz"))
            for item in read_dump(path, options):
                assert isinstance(item, TokenTrace), item
                yield item


def records_of(traces: "list[TokenTrace]") -> list[WireRecord]:
    """Encode traces as the agent would ship them: with the process's resource and its own headers."""
    encoded = [
        record
        for trace in traces
        for record in encode([trace], resource={"service.name": SERVICES[trace.kernel.role]})
    ]
    return [stamp(record, Origin(AGENT, 1, seq)) for seq, record in enumerate(encoded)]


def filled_topic(bootstrap: str, name: str, records: list[WireRecord], before: Sequence[bytes] = ()) -> str:
    """Create a topic, write the records to it under their trace ids, and return its name.

    `before` are values that each partition holds before the first record.
    """
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.admin import NewTopic

    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])
    with closing(KafkaProducer(bootstrap_servers=bootstrap, compression_type="zstd", acks="all")) as producer:
        sent = [producer.send(name, value, partition=p) for p in range(PARTITIONS) for value in before]
        sent += [producer.send(name, r.value, key=r.key, headers=list(r.headers)) for r in records]
        for future in sent:
            future.get(timeout=60)
    return name
