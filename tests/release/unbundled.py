"""Runs first in the standalone program: what it starts is not part of it, and it ends as a whole.

Programs of others load their own libraries, and x402sim itself unpacks itself anew, so that it may go on
when the one that has started it ends; PyInstaller documents both variables. The program is two processes:
the first unpacks and waits, the second is this one, which Linux ends with the first, also by `kill -9`.
"""

import ctypes
import os
import signal
import sys

ENDS_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)

before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
os.environ.pop("LD_LIBRARY_PATH", None)
if before is not None:
    os.environ["LD_LIBRARY_PATH"] = before
os.environ["PYINSTALLER_RESET_ENVIRONMENT"] = "1"
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(ENDS_WITH_PARENT, signal.SIGKILL)
