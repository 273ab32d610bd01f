"""What a journal says, as frames, plots and pages.

Its modules import pandas and matplotlib: whoever needs one imports it late, after
`need_extra()`. Only `diff` does without them.
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
