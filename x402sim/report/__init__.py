"""What happened in a run, as frames, plots and pages; all of it is read from the journal.

`run.Run` is what users hold. Frames, plots, `html` and `save` import pandas and matplotlib, so
import them late, after `need_extra()`; the other modules work without the extra `report`.
"""

from importlib.util import find_spec

EXTRA = ("pandas", "matplotlib", "pyarrow")


def need_extra() -> None:
    """Raise `ModuleNotFoundError` that says what to install, if the extra `report` is missing."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"reports need {', '.join(missing)}: pip install 'x402sim[report]'", name=missing[0]
        )
