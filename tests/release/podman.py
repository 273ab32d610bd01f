"""Podman in a folder of its own, with a base image that is made of Debian's packages: no registry is needed.

The packages come from where this machine has its own: its settings of apt and pip, and the certificates that
it trusts, are in the base image of the tests.
"""

import os
import shlex
import shutil
import subprocess
from itertools import chain
from pathlib import Path

DEBIAN, SUITE = "docker.io/library/debian:bookworm-slim", "bookworm"
NEEDED = ("mmdebstrap", "podman", "podman-compose", "runc")
SETTINGS = ("/etc/pip.conf", "/usr/local/share/ca-certificates")
VARIABLES = ("PIP_CERT", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL")
CONTAINERS = """[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
"""
"""Limits that also a root without CAP_SYS_RESOURCE may set; crun wants cgroups that not all have."""
STEP_S = 300


class Podman:
    """Podman with its images, containers and settings in a folder."""

    def __init__(self, folder: Path) -> None:
        missing = [each for each in NEEDED if shutil.which(each) is None]
        assert not missing, f"these tests need the packages of .ci/run: {missing}"
        folder.mkdir()
        containers, storage = folder / "containers.conf", folder / "storage.conf"
        containers.write_text(CONTAINERS)
        storage.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/kept"\nrunroot = "{folder}/runs"\n'
        )
        own = {"CONTAINERS_CONF": containers, "CONTAINERS_STORAGE_CONF": storage, "TMPDIR": folder}
        self.environment = os.environ | {name: str(each) for name, each in own.items()}

    def run(self, *words: str, cwd: Path | None = None, stdin: bytes | None = None) -> str:
        """Run a command with these settings; return what it printed, which is shown if it fails."""
        done = subprocess.run(
            words, cwd=cwd, env=self.environment, input=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=STEP_S, check=False,
        )  # fmt: skip
        text = done.stdout.decode(errors="replace")
        assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{text[-4000:]}"
        return text

    def make_base(self, folder: Path) -> None:
        """Make the image that stands in for Debian's own."""
        root, options = folder / "debian.tar", folder / "apt.conf"
        told = self.run("apt-config", "dump").splitlines()
        options.write_text("\n".join(each for each in told if each.startswith("Acquire::")))
        kept = shlex.join(each for each in SETTINGS if Path(each).exists())
        also = [f'--customize-hook=cp --recursive --parents {kept} "$1"'] if kept else []
        self.run("mmdebstrap", "--variant=apt", f"--aptopt={options}", *also, SUITE, str(root))
        changes = (f"ENV {each}={os.environ[each]}" for each in VARIABLES if each in os.environ)
        told = chain.from_iterable(("--change", each) for each in changes)
        self.run("podman", "import", *told, str(root), DEBIAN)
        root.unlink()
