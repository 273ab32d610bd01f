"""How does a run offer its frames? As attributes that are read when asked, documented by column."""

from typing import TYPE_CHECKING, Any, Protocol, Self, overload

from x402sim.journal import Journal
from x402sim.report import need_extra

if TYPE_CHECKING:
    from pandas import DataFrame


class Labelled(Protocol):
    """What has a journal, and labels for the rows of its frames."""

    @property
    def journal(self) -> Journal:
        """The journal."""

    @property
    def labels(self) -> tuple[tuple[str, Any], ...]:
        """The label columns and their values."""


class Table:
    """An attribute that is a frame of `x402sim.report.frames`; its `help` has the columns."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, run: None, owner: type) -> Self: ...
    @overload
    def __get__(self, run: Labelled, owner: type) -> "DataFrame": ...
    def __get__(self, run: Labelled | None, owner: type) -> "Self | DataFrame":
        if run is None:
            return self
        made = self._function()(run.journal)
        for name, value in reversed(run.labels):
            made.insert(0, name, value)
        return made

    def __set__(self, run: Labelled, value: object) -> None:
        raise AttributeError(f"{self._name!r} is read from the journal, and cannot be set")

    def _function(self) -> Any:
        need_extra()
        from x402sim.report import frames

        return frames.TABLES[self._name]

    @property
    def columns(self) -> str:
        """What the columns mean, as a table; the title alone without the extra `report`."""
        try:
            return str(self._function().__doc__)
        except ModuleNotFoundError:
            return self.title


Table.__doc__ = property(lambda table: table.columns)  # type: ignore[assignment]
