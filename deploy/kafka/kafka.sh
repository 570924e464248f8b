#!/usr/bin/env bash
# A single Apache Kafka node (KRaft, no ZooKeeper) from Maven Central, with the machine's Java.
#
#   kafka.sh fetch    copy the jars into .cache/kafka/lib (once; says so)
#   kafka.sh run      serve in the foreground until interrupted; the process becomes the broker's
#   kafka.sh start    serve in the background; returns when the port answers
#   kafka.sh stop     end what start began
#
# Options:  --ephemeral   keep the data in a new directory under TMPDIR (stop deletes it)
# Settings: KAFKA_PORT (9092), KAFKA_CONTROLLER_PORT (9093), KAFKA_DATA, KAFKA_LOGS,
#           KAFKA_PROPERTIES (a file with further broker settings; the last one of a name counts),
#           KAFKA_FORMAT_OPTIONS (further options of the storage tool), KAFKA_HEAP (512m),
#           KAFKA_JAVA_OPTIONS (further options of Java), KAFKA_CACHE
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${KAFKA_CACHE:-$(cd "$here/../.." && pwd)/.cache/kafka}
port=${KAFKA_PORT:-9092}
controller_port=${KAFKA_CONTROLLER_PORT:-9093}
logs=${KAFKA_LOGS:-$cache/logs}
data=${KAFKA_DATA:-$cache/data}
heap=${KAFKA_HEAP:-512m}
lib=$cache/lib

say() { echo "kafka: $*" >&2; }
fail() { say "$*"; exit 1; }

need() { command -v "$1" >/dev/null || fail "$1 is not installed; $2"; }

complete() { [ -f "$lib/.complete-$(cksum <"$here/pom.xml" | cut -d' ' -f1)" ]; }

copy_jars() {
    local work; work=$(mktemp -d "$cache/fetch.XXXXXX")
    cp "$here/pom.xml" "$work"
    (cd "$work" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib -DincludeScope=runtime) >&2
    touch "$work/lib/.complete-$(cksum <"$here/pom.xml" | cut -d' ' -f1)"
    rm -rf "$lib"
    mv "$work/lib" "$lib"
    rm -rf "$work"
}

fetch() {
    ! complete || return 0
    need mvn "Maven copies the jars from Maven Central"
    mkdir -p "$cache"
    ( # One at a time: several test workers may come here together.
        flock 9
        ! complete || exit 0
        say "copying Apache Kafka and what it needs into $lib (43 MB, once)"
        copy_jars
    ) 9>"$cache/fetch.lock"
}

# The two broker timeouts are short, because a node that was killed waits for its own old session to end.
write_properties() {
    cat <<END
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$controller_port
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller_port
advertised.listeners=PLAINTEXT://127.0.0.1:$port
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL
inter.broker.listener.name=PLAINTEXT
log.dirs=$data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
END
    [ -z "${KAFKA_PROPERTIES:-}" ] || cat "$KAFKA_PROPERTIES"
}

# shellcheck disable=SC2206 # the options are words
java=(java "-Xmx$heap" ${KAFKA_JAVA_OPTIONS:-} "-Dlog4j2.configurationFile=$here/log4j2.properties" -cp "$lib/*")

prepare() {
    need java "Kafka 4 runs on Java 17 or newer"
    fetch
    mkdir -p "$data" "$logs"
    properties=$logs/server-$port.properties
    write_properties >"$properties"
    [ -f "$data/meta.properties" ] || format
}

# A cluster id is 16 random bytes in URL-safe base64 that do not look like an option.
random_id() { head -c 16 /dev/urandom | base64 | tr '+/' '-_' | tr -d = | sed 's/^-/A/'; }

format() {
    # shellcheck disable=SC2086 # the options are words
    "${java[@]}" kafka.tools.StorageTool format --standalone -t "$(random_id)" -c "$properties" \
        ${KAFKA_FORMAT_OPTIONS:-} >"$logs/format-$port.log" 2>&1 ||
        { cat "$logs/format-$port.log" >&2; fail "the storage in $data could not be formatted"; }
}

run() {
    prepare
    exec "${java[@]}" kafka.Kafka "$properties"
}

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }

start() {
    pid_file=$logs/kafka-$port.pid
    ! answers || fail "something serves on port $port already"
    prepare
    KAFKA_DATA=$data nohup "$0" run >"$logs/kafka-$port.log" 2>&1 &
    echo "$! $data" >"$pid_file"
    for _ in $(seq 300); do
        answers && { say "serves on 127.0.0.1:$port; log in $logs/kafka-$port.log"; return; }
        kill -0 "$!" 2>/dev/null || fail "it ended; see $logs/kafka-$port.log"
        sleep 0.2
    done
    fail "no answer on port $port after a minute; see $logs/kafka-$port.log"
}

stop() {
    local pid kept pid_file=$logs/kafka-$port.pid
    [ -f "$pid_file" ] || fail "none was started on port $port"
    read -r pid kept <"$pid_file"
    kill "$pid" 2>/dev/null || true
    while kill -0 "$pid" 2>/dev/null; do sleep 0.2; done
    case $kept in "${TMPDIR:-/tmp}"/paritas-kafka.*) rm -rf "$kept" ;; esac
    rm -f "$pid_file"
    say "stopped"
}

command=${1:-}
case ${2:-} in
    "") ;;
    --ephemeral) data=$(mktemp -d "${TMPDIR:-/tmp}/paritas-kafka.XXXXXX") ;;
    *) fail "unknown option '$2'; the only one is --ephemeral" ;;
esac
case $command in
    fetch | run | start | stop) "$command" ;;
    *) sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
