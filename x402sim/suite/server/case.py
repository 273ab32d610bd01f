"""How cases of a server are declared: rows, each of which is played once for each version.

Most rows are played over MCP, too, where a tool is sold: there their grounds are the sentences of
the transport MCP in place of those of HTTP.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from x402sim.spec.ground import Ground
from x402sim.suite import row, texts
from x402sim.suite.room import Floor
from x402sim.suite.row import Demand as Demand, RoomCase
from x402sim.suite.server.payment import Dialect
from x402sim.suite.server.room import PLAIN

ONE_PATH = "all tools of a server have one path, and one method"
IN_RESULTS = "a tool's answers are results, and no answers of HTTP to browsers, proxies or caches"
NOT_OF_TOOLS = {
    "path": ONE_PATH,
    "binding/query": ONE_PATH,
    **{
        f"offer/{slug}": IN_RESULTS
        for slug in ("cache", "cache-forbidden", "browser", "cors", "preflight", "proxy")
    },
    "header/other": "a payment of either version has one place in a call",
    **{
        f"handler/{slug}": "a tool returns its result as a whole"
        for slug in ("redirects", "stream", "stream-refused", "stream-left")
    },
    "identifier": "what the text says of it are statuses of HTTP",
    "sign-in": "a sign-in is a header of HTTP",
    "discovery": "a catalogue is looked for at a path",
}
"""Why sections and rows are not played over MCP; all others are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(row.RoomRow):
    """A row of the table of servers."""

    subject: ClassVar[str] = "server"
    control: ClassVar[str] = "sells"
    dialects: ClassVar[type[Dialect]] = Dialect
    plain: ClassVar[Floor] = PLAIN

    def __post_init__(self) -> None:
        names = (self.section, f"{self.section}/{self.slug}")
        if why := next((NOT_OF_TOOLS[name] for name in names if name in NOT_OF_TOOLS), ""):
            object.__setattr__(self, "absent", {**self.absent, Dialect.MCP: why})

    def cases(self) -> Iterator[RoomCase]:
        """Yield a case for each demand and dialect; of tools, with grounds that speak of them."""
        for case in row.RoomRow.cases(self):
            if case.dialect is not Dialect.MCP:
                yield case
            elif (ground := of_tools(case.ground)) is not None:
                yield replace(case, ground=ground)


_IN_TOOLS = {
    texts.SIGNAL: texts.MCP_SIGNAL,
    texts.REQUIRED: texts.MCP_BOTH,
    texts.RESPONSE: texts.MCP_RESPONSE,
    texts.STATUS_SUCCESS: texts.MCP_SERVES,
    texts.STATUS_INVALID: texts.MCP_INVALID,
    texts.STATUS_FAILED: texts.MCP_FAILED,
    texts.STATUS_SERVER: None,
    texts.FIELDS_V1: None,
    texts.ERROR_V1: None,
    texts.HEAD: None,
}
"""The sentences of the transport MCP that say what those of HTTP and of version 1 say; None if
there is none.
"""


def of_tools(ground: Ground) -> Ground | None:
    """Return a ground in the words of the transport MCP; None if none of its sentences has any."""
    found = [_IN_TOOLS.get(each, each) for each in ground.sentences]
    kept = tuple(dict.fromkeys(each for each in found if each is not None))
    if ground.sentences and not kept:
        return None
    return replace(ground, sentences=kept)
