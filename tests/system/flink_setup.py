"""Sets Apache Flink up for tests and benchmarks: a virtual environment of its own and the Kafka connector, once.

Everything is in the cache folder (PARITAS_CACHE, else .cache); nothing half made is ever used: the environment is
built beside the one in use and then takes its name, the connector is checked and then takes its own.

Run: python tests/system/flink_setup.py
"""

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from part_setup import LAST_CHARS, SetupError, give_name, one_at_a_time, run_step, set_up, speaker

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("PARITAS_CACHE") or ROOT / ".cache").absolute()
VENV = CACHE / "flink-venv"
FLINK = "apache-flink==2.2.0"
PINS = Path(__file__).with_name("flink-constraints.txt")
PARITAS = ("-e", f"{ROOT}[flink]")
PYTHONS = ((3, 9), (3, 12))  # what Apache Flink 2.2 runs on
# The connector has Kafka's client in it but not what unpacks zstd, the agents' compression.
JARS = {
    CACHE / "maven" / "flink-sql-connector-kafka-5.0.0-2.2.jar": (
        "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",
        "5605c691d11a501382c383fecba37a7a552467da5ab7ba904ef5d6f3d62c5616",
    ),
    CACHE / "maven" / "zstd-jni-1.5.6-10.jar": (
        "com.github.luben:zstd-jni:1.5.6-10",
        "b6c3237e24b8252a5a9c3a0e1ae30ef8f323412e74bd358548b7a9e527d676df",
    ),
}
JAR_WORDS = tuple(word for jar in JARS for word in ("--jar", str(jar)))
TOOLS = {"java": "Flink runs on Java 17 or newer", "mvn": "Maven copies Flink's Kafka connector"}

say = speaker("flink")


def missing_tool():
    """Why no cluster can be started here; None if one can."""
    for tool, why in TOOLS.items():
        if shutil.which(tool) is None:
            return f"{tool} is not installed: {why}"
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return f"{FLINK} runs on Python 3.9 to 3.12, this is {sys.version_info[0]}.{sys.version_info[1]}"
    return None


def fetch():
    """Make the virtual environment and copy the connector, once; says what it does.

    Raises
    ------
    SetupError
        A tool is missing, or the network.
    """
    if reason := missing_tool():
        raise SetupError(reason)
    with one_at_a_time(CACHE / "flink.lock"):
        _fetch_venv()
        for jar, (artifact, sha256) in JARS.items():
            _fetch_jar(artifact, jar, sha256)


def recipe():
    """What the environment is made of, as a name: another recipe is another environment."""
    made_of = f"{FLINK}\n{PARITAS}\n{sys.version_info[:2]}\n{ROOT}\n{PINS.read_text()}"
    return hashlib.sha256(made_of.encode()).hexdigest()[:12]


def _fetch_venv():
    made = CACHE / f"flink-venv-{recipe()}"
    if made.exists() and VENV.is_symlink() and VENV.resolve() == made.resolve():
        return
    if not (made / ".installed").exists():
        say(f"installing {FLINK} and paritas into {made} (1 GB, once, one to two minutes)")
        _run(
            [sys.executable, "-m", "venv", "--clear", str(made)], timeout_s=600, what="a virtual environment"
        )
        pip = [str(made / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run([*pip, "-c", str(PINS), FLINK, *PARITAS], timeout_s=1500, what=FLINK)
        (made / ".installed").touch()
    give_name(VENV, made)


def _fetch_jar(artifact, jar, sha256):
    """Copy one artifact of Maven Central, checked before it takes its name."""
    if jar.exists():
        return
    say(f"copying {artifact} (once)")
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jar.parent) as folder:
        goal = ("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
        _run(["mvn", "-q", "-B", *goal], timeout_s=300, what=artifact)
        copied = Path(folder) / jar.name
        found = hashlib.sha256(copied.read_bytes()).hexdigest()
        if found != sha256:
            raise SetupError(f"{artifact}: SHA-256 is {found}, expected {sha256}")
        copied.replace(jar)


def _run(command, *, timeout_s, what):
    run_step(command, what=what, limit_s=timeout_s, reason_of=_reason)


def _reason(said):
    """Return the first line that says why; pip and Maven tell what follows from it below."""
    told = said.splitlines() or ["it said nothing"]
    named = [line for line in told if line.startswith(("    ", "ERROR", "[ERROR]")) and "WARN" not in line]
    line = (named or told)[0].replace("[ERROR] ", "").removeprefix("ERROR: ")
    return f"is the network up? {line.strip()[:LAST_CHARS]}"


def main():
    return set_up(missing_tool, fetch, say=say, ready=lambda: f"{VENV / 'bin/paritas'} {' '.join(JAR_WORDS)}")


if __name__ == "__main__":
    sys.exit(main())
