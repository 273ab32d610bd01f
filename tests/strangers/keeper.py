"""`python -m tests.strangers.keeper FILE COMMAND…`: run a service, and again whenever it is killed.

The file holds the process id of the service that runs. SIGTERM ends both.
"""

import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

STOP_S = 5


def main(file: Path, command: list[str]) -> NoReturn:
    """Run the command until this process is told to stop."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        process = subprocess.Popen(command)
        try:
            file.write_text(str(process.pid))
            process.wait()
        finally:
            end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process, by force if it does not end by itself."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
