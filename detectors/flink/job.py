"""The job: Kafka → pairing keyed by trace id → evaluation keyed by contract → Kafka."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyflink
from pyflink.common import Configuration, Duration, Encoder, Row, Types
from pyflink.common.serialization import ByteArraySchema
from pyflink.common.watermark_strategy import WatermarkStrategy
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors import DeliveryGuarantee
from pyflink.datastream.connectors.file_system import FileSink
from pyflink.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from pyflink.java_gateway import get_gateway
from pyflink.table import Schema, StreamTableEnvironment

from paritas.contracts.model import Contract
from paritas.detectors.flink.events import Beat
from paritas.detectors.flink.operators import VERDICTS, EvaluationOperator, PairingOperator
from paritas.records import Escalation

__all__ = ["JobSettings", "build"]

SOURCE = "paritas_spans"
END_SQL = """SELECT COUNT(*) AS records
    FROM TABLE(TUMBLE(TABLE paritas_seen, DESCRIPTOR(rowtime), INTERVAL '999999' DAY(6)))
    GROUP BY window_start, window_end"""
SECONDS_SQL = """CREATE TEMPORARY TABLE paritas_seconds (number BIGINT) WITH (
    'connector' = 'datagen', 'rows-per-second' = '1', 'scan.parallelism' = '1')"""
TRANSACTION_MS = 900_000  # the longest a broker allows by default; a checkpoint must be finished in it


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Where the job reads and writes, and how it is spread.

    Attributes
    ----------
    bootstrap : str
        Kafka brokers.
    topic, escalations : str
        What is read, and what is written to.
    parallelism : int
        Pairing operators; the evaluation of a contract is one.
    bounded : bool
        Stop at the end the topic has now; what is alone then is unmatched.
    idle_s : float, seconds
        A partition without a record for so long holds back no other; then too a live log is looked at.
        Longer than Flink holds records for Python (a second): word of idleness does not wait for them.
    verdicts : str
        Folder (any file system of Flink) for the verdicts at the end of a bounded input.
    kafka, flink : mapping
        Further settings of the Kafka clients, and of Flink.
    """

    bootstrap: str
    topic: str = "otlp_spans"
    escalations: str = "paritas.escalations"
    group: str = "paritas-detect"
    deployment: str = ""
    parallelism: int = 1
    bounded: bool = False
    checkpoint_s: float = 10.0
    idle_s: float = 5.0
    verdicts: str = ""
    jars: tuple[str, ...] = ()
    kafka: Mapping[str, str] = field(default_factory=dict)
    flink: Mapping[str, str] = field(default_factory=dict)


def build(
    contract: Contract, settings: JobSettings, *, encode: Callable[[Escalation], bytes]
) -> StreamExecutionEnvironment:
    """Return the environment with the job; `encode` makes records of escalations, importable by name."""
    environment = _environment(settings)
    tables = StreamTableEnvironment.create(environment)
    records = _records(tables, settings)
    events = (
        records.key_by(_key, key_type=Types.STRING())
        .process(PairingOperator(contract), output_type=Types.PICKLED_BYTE_ARRAY())
        .name("pairing")
        .uid("pairing")
    )
    judged = (
        events.union(_beats(tables, records, settings))
        .key_by(_one_key(contract.digest), key_type=Types.STRING())
        .process(
            EvaluationOperator(
                contract,
                deployment=settings.deployment,
                encode=encode,
                idle_s=0.0 if settings.bounded else settings.idle_s,
            ),
            output_type=Types.PRIMITIVE_ARRAY(Types.BYTE()),
        )
        .set_parallelism(1)
        .name(f"evaluation of {contract.name}")
        .uid("evaluation")
    )
    judged.sink_to(_sink(contract, settings)).set_parallelism(1).name("escalations").uid("escalations")
    if settings.verdicts:
        told = judged.get_side_output(VERDICTS)
        sink = FileSink.for_row_format(settings.verdicts, Encoder.simple_string_encoder()).build()
        told.sink_to(sink).set_parallelism(1).name("verdicts").uid("verdicts")
    return environment


def _environment(settings: JobSettings) -> StreamExecutionEnvironment:
    configuration = Configuration()
    if not settings.bounded:  # a partition read to its end is no idle one, and one not read yet still less
        configuration.set_string("table.exec.source.idle-timeout", f"{round(settings.idle_s * 1000)} ms")
    for name, value in {"execution.attached": "true", **settings.flink}.items():
        configuration.set_string(name, value)
    remote = "execution.target" in settings.flink
    environment = _submitting(configuration) if remote else _inside(configuration)
    jars = (*settings.jars, *(_python_jars() if remote else ()))
    if jars:
        environment.add_jars(*jars)
    environment.set_parallelism(settings.parallelism)
    environment.enable_checkpointing(round(settings.checkpoint_s * 1000))
    return environment


def _inside(configuration: Configuration) -> StreamExecutionEnvironment:
    """A cluster inside this process."""
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def _submitting(configuration: Configuration) -> StreamExecutionEnvironment:
    """The environment that the settings name.

    The Python way to an environment heeds `execution.target` only under ``flink run``; the
    constructor of the Java class always does.
    """
    java = get_gateway().jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
    return StreamExecutionEnvironment(java(configuration._j_configuration))  # noqa: SLF001 -- no public name


def _python_jars() -> list[str]:
    """What runs Python on the cluster; ``flink run`` would bring it along."""
    return [jar.as_uri() for jar in Path(pyflink.__file__).parent.glob("opt/flink-python-*.jar")]


def _records(tables: StreamTableEnvironment, settings: JobSettings) -> DataStream:
    """Read the topic with each record's place, headers and time; watermarks follow the log's time."""
    tables.execute_sql(_source_sql(settings))
    return tables.to_data_stream(tables.from_path(SOURCE))


def _beats(tables: StreamTableEnvironment, records: DataStream, settings: JobSettings) -> DataStream:
    """One beat at the end of a bounded input, one a second of a live one.

    Timers that Python sets in the last bundle before a checkpoint are not in it.  These beats come from
    Flink's own operators, so that neither the end nor a silence is missed after a failure.
    """
    told = _end_of(tables, records) if settings.bounded else _seconds(tables)
    beats = told.rebalance().map(_to_beat, output_type=Types.PICKLED_BYTE_ARRAY())
    return beats.name("beats").uid("beats")


def _end_of(tables: StreamTableEnvironment, records: DataStream) -> DataStream:
    """A window that no record is later than: it tells its count when the input has ended."""
    time = Schema.new_builder().column_by_metadata("rowtime", "TIMESTAMP_LTZ(3)")
    tables.create_temporary_view(
        "paritas_seen", records, time.watermark("rowtime", "SOURCE_WATERMARK()").build()
    )
    return tables.to_data_stream(tables.sql_query(END_SQL))


def _seconds(tables: StreamTableEnvironment) -> DataStream:
    """A row a second; its watermarks hold back nothing, as it is idle as soon as it has spoken."""
    tables.execute_sql(SECONDS_SQL)
    idle = WatermarkStrategy.no_watermarks().with_idleness(Duration.of_millis(100))
    rows = tables.to_data_stream(tables.from_path("paritas_seconds"))
    return rows.assign_timestamps_and_watermarks(idle).set_parallelism(1)


def _to_beat(_: Row) -> Beat:
    return Beat()


def _source_sql(settings: JobSettings) -> str:
    """Return the table of the topic.

    The SQL source is the KafkaSource; unlike its Python builder it can hand out keys, headers,
    offsets and times.  Records of one millisecond stay together: the watermark stays one behind.
    """
    options = {
        "connector": "kafka",
        "topic": settings.topic,
        "properties.bootstrap.servers": settings.bootstrap,
        "properties.group.id": settings.group,
        "scan.startup.mode": "earliest-offset",
        **({"scan.bounded.mode": "latest-offset"} if settings.bounded else {}),
        "key.format": "raw",
        "key.fields": "record_key",
        "value.format": "raw",
        "value.fields-include": "EXCEPT_KEY",
        **{f"properties.{name}": value for name, value in settings.kafka.items()},
    }
    return f"""CREATE TEMPORARY TABLE {SOURCE} (
        record_key BYTES,
        record_value BYTES,
        headers MAP<STRING, BYTES> METADATA VIRTUAL,
        record_partition INT METADATA FROM 'partition' VIRTUAL,
        record_offset BIGINT METADATA FROM 'offset' VIRTUAL,
        record_time TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL,
        WATERMARK FOR record_time AS record_time - INTERVAL '0.001' SECOND
    ) WITH ({", ".join(f"{_quoted(k)} = {_quoted(v)}" for k, v in options.items())})"""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _key(row: Row) -> str:
    """The trace id, as it is the record's key."""
    return bytes(row[0] or b"").decode(errors="replace")


def _one_key(digest: str) -> Callable[[Any], str]:
    return lambda _: digest


def _sink(contract: Contract, settings: JobSettings) -> KafkaSink:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(settings.escalations)
        .set_value_serialization_schema(ByteArraySchema())
        .build()
    )
    builder = (
        KafkaSink.builder()
        .set_bootstrap_servers(settings.bootstrap)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(f"paritas-{contract.digest[:16]}-{settings.deployment}")
        .set_property("transaction.timeout.ms", str(TRANSACTION_MS))
    )
    for name, value in settings.kafka.items():
        builder.set_property(name, value)
    return builder.build()
