"""Runs first in the standalone program: what it starts is not part of it.

Programs of others load their own libraries, and x402sim itself unpacks itself anew, so that it may go on
when the one that has started it ends. PyInstaller documents both variables.
"""

import os

before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
os.environ.pop("LD_LIBRARY_PATH", None)
if before is not None:
    os.environ["LD_LIBRARY_PATH"] = before
os.environ["PYINSTALLER_RESET_ENVIRONMENT"] = "1"
