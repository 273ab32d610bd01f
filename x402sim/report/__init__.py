"""Reports of a run, made from its journal: frames, plots and pages.

Users hold a `run.Run`. Frames, plots, `html` and `save` import pandas and matplotlib: import these
modules late, after `need_extra()`. The other modules work without the extra `report`.

The page of payments, which a server also shows, is `page` and `static`: no frame or plot imports
it. Reports of judges are in `x402sim.suite.report`.
"""

from collections.abc import Sequence
from importlib.util import find_spec

from x402sim.text.program import install

EXTRA = ("pandas", "matplotlib", "pyarrow")


def need_extra(
    modules: Sequence[str] = EXTRA, purpose: str = "reports", extra: str = "report"
) -> None:
    """Raise `ModuleNotFoundError` with the install command if modules of an extra are missing."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"{purpose} need {', '.join(missing)}: {install(extra)}", name=missing[0]
        )
