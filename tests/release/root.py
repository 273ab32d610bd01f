"""A root of a file system with nothing in it but what is added: no Python, no shell, no certificates.

What runs there is not root, sees no other process, and ends when the one that waits for it ends. Linux
only; root or a user who may have user namespaces makes one.
"""

import os
import shutil
import subprocess
from pathlib import Path

GLIBC = (
    "libc.so.6", "libdl.so.2", "libm.so.6", "libnss_dns.so.2", "libnss_files.so.2",
    "libpthread.so.0", "libresolv.so.2", "librt.so.1", "libutil.so.1",
)  # fmt: skip
"""What every Linux with glibc has; the loader comes with each program."""
NOBODY = 65534
ENTER = 'mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec "$@"'


class Root:
    """The root in a folder, which is made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for each in ("bin", "dev", "etc", "out", "proc", "tmp"):
            (folder / each).mkdir(parents=True)
        for each in ("out", "tmp"):
            (folder / each).chmod(0o1777)
        folder.chmod(0o755)
        (folder / "etc" / "hosts").write_text("127.0.0.1 localhost\n")

    def add(self, program: Path, name: str = "") -> str:
        """Add a program with the libraries that it names; return its path in the root."""
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        found = [Path(word) for word in listed.split() if word.startswith("/")]
        beside = next(each for each in found if each.name == "libc.so.6").parent
        for each in {*found, *(beside / name for name in GLIBC)}:
            to = self.folder / each.relative_to("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(each, to)
        there = f"/bin/{name or program.name}"
        shutil.copy(program, self.folder / there[1:])
        return there

    def words(self, *command: str) -> list[str]:
        """Return the words that run a command of the root in it, as nobody."""
        is_root = os.geteuid() == 0
        own = [] if is_root else ["--map-root-user"]
        who = [f"--userspec={NOBODY}:{NOBODY}"] if is_root else []
        return [
            "unshare", *own, "--mount", "--pid", "--fork", "--kill-child",
            "sh", "-c", ENTER, str(self.folder), "chroot", *who, str(self.folder), *command,
        ]  # fmt: skip
