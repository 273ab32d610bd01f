"""Which versions of these packages are installed here? None for those that are not."""

import json
import sys
from importlib.metadata import PackageNotFoundError, version


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


print(json.dumps({name: installed(name) for name in json.load(sys.stdin)["packages"]}))
