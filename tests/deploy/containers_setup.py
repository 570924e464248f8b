"""Sets up what builds and runs containers, once: Debian's buildah, podman and runc, a base image, and our images.

No image registry is needed: the base is made with debootstrap and kept as an archive, wheels come from the package
index. Images and containers are in a store of their own in the cache folder (PARITAS_CACHE, else .cache).

Run: python tests/deploy/containers_setup.py
"""

import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from part_setup import SetupError, last_said, one_at_a_time, set_up, speaker

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("PARITAS_CACHE") or ROOT / ".cache").absolute() / "deploy"
HOME = CACHE / "containers"
PACKAGES = {
    "buildah": "buildah",
    "podman": "podman",
    "runc": "runc",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
}
# What is cut off in such namespaces ends with all that it has begun, and what it has mounted is nowhere.
ALONE = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
SUITE = "bookworm"  # its Python is the 3.11 that the lock files are for
INCLUDED = "python3,python3-venv,ca-certificates"
RECIPE = hashlib.sha256(f"{SUITE} {INCLUDED}".encode()).hexdigest()[:12]
BASE_ARCHIVE = HOME / f"base-{RECIPE}.tar"
BASE = f"localhost/paritas-base:{RECIPE}"
BUILD = ROOT / "deploy" / "image" / "build.sh"
# What gets into an image; another content is another tag.
CONTENT = ("pyproject.toml", "README.md", "LICENSE", "src", "agent", "collectors", "contracts", "controller")
CONTENT += ("detectors", "proto", "deploy/image")
TARGETS = ("agent", "full")
STEP_S = 600
STORE = """[storage]
driver = "overlay"
graphroot = "{home}/store"
runroot = "{home}/run"
"""

say = speaker("containers")


def missing_tool():
    """Why no container can be run here; None if one can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "containers are built and run as root on Linux here"
    absent = _absent()
    if absent and not shutil.which("apt-get"):
        return f"needs {', '.join(absent)} on PATH, or Debian's apt-get to install them"
    return None


def fetch():
    """Install the tools, make the base and build the images unless they are there; run a container.

    SetupError names the reason.
    """
    with one_at_a_time(HOME / "lock"):
        _install()
        (HOME / "storage.conf").write_text(STORE.format(home=HOME))
        if not BASE_ARCHIVE.exists():
            _make_base()
        if not has_image(BASE):
            say(f"importing {BASE}")
            run("podman", "--cgroup-manager", "cgroupfs", "import", "-q", BASE_ARCHIVE, BASE)
        for target in TARGETS:
            build(target)
        _run_one()


def _run_one():
    """As the tests run theirs: a machine that builds may lack a right, a network namespace or a cgroup to run with.

    It is the base, so that an image of ours that does not run fails its tests and is not skipped.
    """
    from deploy.containers import Pod, podman, run_once  # which asks this module for the store

    try:
        with Pod() as pod:
            code, _, said = run_once(BASE, "true", options=[f"--network={pod.network}"])
        podman("image", "mount", BASE)
        podman("image", "umount", BASE)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"no container runs here: {last_said(str(error))}") from error
    if code:
        raise SetupError(f"no container runs here: {last_said(said)}")


def build(target: str) -> str:
    """Return the image of this content and target; builds it if it is not there."""
    tag = image(target)
    if not (has_image(tag) and sbom(target).exists()):  # a build that was cut off may have come so far
        say(f"building {tag} (half a minute, once for this content)")
        words = ["--target", target, "--base", BASE, "--tag", tag, "--wheels", CACHE / "wheels"]
        run(BUILD, *words, "--sbom", sbom(target))
        _forget_others(target, tag)
    return tag


def image(target: str) -> str:
    """Return the name of the image that this content gives."""
    return f"localhost/paritas-test-{target}:{_content()}"


def sbom(target: str) -> Path:
    """Return where the SBOM of that image was written."""
    return HOME / f"sbom-{target}-{_content()}.cdx.json"


def run(*command, within=(), timeout_s=STEP_S) -> str:
    """Run to the end in our store and return its output; one error with the last lines it said if it fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            [*within, *words],
            check=False,
            timeout=timeout_s,
            capture_output=True,
            text=True,
            env=environment(),
        )
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"{words[0]} {words[1]} was not done after {timeout_s} s") from error
    if done.returncode:
        last = " ".join(" ".join(done.stderr.splitlines()[-3:]).split()) or "it said nothing"
        raise SetupError(f"{Path(words[0]).name} failed: {last[-600:]}")
    return done.stdout


def environment():
    """Variables that lead podman and buildah to our store; chroot isolation needs no kernel features."""
    own = {
        "CONTAINERS_STORAGE_CONF": str(HOME / "storage.conf"),
        "BUILDAH_ISOLATION": "chroot",
        "BUILDER": "buildah",
    }
    return os.environ | own


def has_image(name: str) -> bool:
    """Whether our store has it."""
    done = subprocess.run(["podman", "image", "exists", name], check=False, env=environment())
    return done.returncode == 0


@cache
def _content():
    digest = hashlib.sha256(RECIPE.encode())
    for path in sorted(_files()):
        digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_mode}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _files():
    for name in CONTENT:
        paths = [ROOT / name, *(ROOT / name).rglob("*")]
        yield from (path for path in paths if path.is_file() and "__pycache__" not in path.parts)


def _absent():
    return sorted(package for name, package in PACKAGES.items() if shutil.which(name) is None)


def _install():
    if packages := _absent():
        say(f"installing Debian's {', '.join(packages)} (100 MB, half a minute, once)")
        run("apt-get", "-q", "update")
        run("apt-get", "-q", "install", "-y", "--no-install-recommends", *packages)


def _make_base():
    say(f"making a base image with debootstrap ({SUITE}, 200 MB, a minute, once)")
    folder, archive = HOME / "base.src", HOME / "base.tar"
    shutil.rmtree(folder, ignore_errors=True)
    run("debootstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, folder, within=ALONE)
    run("tar", "-C", folder, "--exclude=./var/cache/apt/archives/*.deb", "-cf", archive, ".")
    archive.replace(BASE_ARCHIVE)
    shutil.rmtree(folder)


def _forget_others(target, tag):
    """Remove images of former contents and their SBOMs, so that the store does not grow with every edit."""
    names = run("podman", "images", "--format", "{{.Repository}}:{{.Tag}}").split()
    for name in names:
        if name.startswith(f"localhost/paritas-test-{target}:") and name != tag:
            run("podman", "rmi", "-f", name)
    for file in set(HOME.glob(f"sbom-{target}-*")) - {sbom(target)}:
        file.unlink()


def main():
    return set_up(missing_tool, fetch, say=say, ready=lambda: ", ".join(image(target) for target in TARGETS))


if __name__ == "__main__":
    sys.exit(main())
