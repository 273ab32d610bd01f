"""What every HTTP client and application of the kit shares: bounded reading, bodies, errors."""

import sys

if "httpx" not in sys.modules:
    # It imports its command line, too, if rich is installed: half of its time, and for nobody.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
    import httpx as httpx

    del sys.modules["httpx._main"]
