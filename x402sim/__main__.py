"""`python -m x402sim`."""

import sys

try:
    from x402sim.cli import main

    main()
except KeyboardInterrupt:  # stopped while still starting
    sys.exit(130)
