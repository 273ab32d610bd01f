"""How cases of a server are declared: rows, each of which is played once for each version."""

from dataclasses import dataclass
from typing import ClassVar

from x402sim.suite import row
from x402sim.suite.room import Floor
from x402sim.suite.row import Demand as Demand
from x402sim.suite.server.payment import Dialect
from x402sim.suite.server.room import PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(row.Row):
    """A row of the table of servers."""

    subject: ClassVar[str] = "server"
    control: ClassVar[str] = "sells"
    dialects: ClassVar[type[Dialect]] = Dialect
    plain: ClassVar[Floor] = PLAIN
