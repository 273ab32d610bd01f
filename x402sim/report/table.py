"""The frames of a run, as attributes that are read when asked, documented by column."""

from typing import TYPE_CHECKING, Any, Self, overload

from x402sim.report import need_extra
from x402sim.report.summary import Summary

if TYPE_CHECKING:
    from pandas import DataFrame


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
    def __get__(self, run: Summary, owner: type) -> "DataFrame": ...
    def __get__(self, run: Summary | None, owner: type) -> "Self | DataFrame":
        if run is None:
            return self
        run.require_whole()
        made = self._function()(run.journal)
        for name, value in reversed(run.labels):
            made.insert(0, name, value)
        return made

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
