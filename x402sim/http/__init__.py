"""What every HTTP client and application of the kit shares: bounded reading, bodies, errors."""

import sys

if "httpx" not in sys.modules:
    # With rich installed, httpx imports its command line, which takes half of the import's time.
    # Nobody calls `httpx.main()` in this process; it would say that it is not installed.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
    import httpx as httpx

    del sys.modules["httpx._main"]
