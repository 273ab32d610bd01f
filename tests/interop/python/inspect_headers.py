"""x402-inspect reads the headers of a paid request; prints what it says of each, as JSON.

It reads a list of header values from stdin.
"""

import json
import subprocess
import sys


def inspected(value: str) -> dict[str, object]:
    command = [sys.executable, "-m", "x402_inspect.cli", "--json", value]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    found = json.loads(done.stdout)
    return {"exit": done.returncode, "kind": found["kind"], "findings": found["findings"]}


print(json.dumps([inspected(value) for value in json.load(sys.stdin)]))
