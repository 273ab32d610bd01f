"""`python -m tests.suite.demands`: write the page of all demands, `conformance/demands.md`, anew."""

from x402sim.suite.demands import FILE, page, uncovered
from x402sim.suite.engine import all_checks, folder


def written() -> str:
    """Return the page as it must be."""
    return page(all_checks(), uncovered(folder()))


if __name__ == "__main__":
    (folder() / FILE).write_text(written(), encoding="utf-8")
