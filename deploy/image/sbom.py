"""Joins what is in an image into one CycloneDX document: distributions, Debian's packages, jars, Python itself.

Run in the build stage: python3 sbom.py DISTRIBUTIONS DEBIAN JARS TARGET; writes the document.  DISTRIBUTIONS is such a
document, DEBIAN has a line `name version architecture` a package, JARS a line `group:artifact:version sha256` a jar.
"""

import json
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote


def joined(found: "dict[str, Any]", further: "Iterable[dict[str, Any]]", target: str) -> "dict[str, Any]":
    """Return the document of the distributions with further components, Python and the image's name added.

    Examples
    --------
    >>> bom = joined({"components": [{"name": "paritas", "version": "1"}]}, [], "agent")
    >>> bom["metadata"]["component"]["name"], [part["name"] for part in bom["components"]]
    ('paritas-agent', ['cpython', 'paritas'])
    """
    version = next(part["version"] for part in found["components"] if part["name"] == "paritas")
    name = {"full": "paritas"}.get(target, f"paritas-{target}")
    component = {"bom-ref": "image", "type": "container", "name": name, "version": version}
    parts = [
        *found["components"],
        *further,
        _component("cpython", platform.python_version(), "pkg:generic/cpython"),
    ]
    metadata = found.get("metadata", {}) | {"component": component}
    return found | {"metadata": metadata, "components": sorted(parts, key=lambda part: part["name"])}


def package(line: str) -> "dict[str, Any]":
    """One of Debian's packages.

    Examples
    --------
    >>> package("libc6 2.36-9+deb12u14 amd64")["purl"]
    'pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64'
    """
    name, version, architecture = line.split()
    return _component(name, version, f"pkg:deb/debian/{name}", f"?arch={architecture}")


def jar(line: str) -> "dict[str, Any]":
    """One artifact of Maven Central, with its hash.

    Examples
    --------
    >>> jar("org.example:connector:1.0 00ff")["purl"]
    'pkg:maven/org.example/connector@1.0'
    """
    artifact, sha256 = line.split()
    group, name, version = artifact.split(":")
    hashes = [{"alg": "SHA-256", "content": sha256}]
    return _component(name, version, f"pkg:maven/{group}/{name}") | {"hashes": hashes}


def _component(name: str, version: str, purl: str, qualifiers: str = "") -> "dict[str, Any]":
    full = f"{purl}@{quote(version, safe='.~-')}{qualifiers}"
    return {"bom-ref": full, "type": "library", "name": name, "version": version, "purl": full}


def _lines(name: str) -> "list[str]":
    return [line for line in Path(name).read_text().splitlines() if line and not line.startswith("#")]


if __name__ == "__main__":
    distributions = json.loads(Path(sys.argv[1]).read_text())
    others = [*map(package, _lines(sys.argv[2])), *map(jar, _lines(sys.argv[3]))]
    sys.stdout.write(f"{json.dumps(joined(distributions, others, sys.argv[4]), indent=1, sort_keys=True)}\n")
