"""Runs the checks of x402-conformance, which reads "mode" and "url" from stdin and prints JSON.

Mode "live" looks at a facilitator's GET /supported, and "resource" at one unpaid GET of a page.
"""

import json
import subprocess
import sys

told = json.load(sys.stdin)
command = [sys.executable, "-m", "x402conf", told["mode"], told["url"], "--fail-on-error"]
done = subprocess.run(command, capture_output=True, text=True, check=False)
if done.returncode not in (0, 1):
    sys.exit(done.stderr)
(result,) = json.loads(done.stdout)["results"]
print(json.dumps({"exit": done.returncode, "checks": result["checks"]}))
