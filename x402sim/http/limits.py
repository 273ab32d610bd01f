"""What a stranger can make a server hold or do at most: one table, which the code and SECURITY.md
share. The control API is not for strangers, and has bounds of its own.

What goes beyond a row is refused as the row says; `tests/serve/test_limits.py` walks the table with
an attack on each.
"""

from dataclasses import dataclass
from typing import Literal

Unit = Literal["bytes", "s", ""]


@dataclass(frozen=True, slots=True)
class Limit:
    """A row: what is limited, to how much of a unit, and what becomes of the rest."""

    what: str
    most: int
    unit: Unit
    beyond: str

    @property
    def shown(self) -> str:
        """The limit as SECURITY.md shows it."""
        if self.unit != "bytes":
            return f"{self.most:,} {self.unit}".replace(",", " ").strip()
        return f"{self.most >> 20} MiB" if self.most >= 1 << 20 else f"{self.most >> 10} KiB"


# --- requests ---------------------------------------------------------------------------

MAX_HEAD_BYTES = 64 * 1024
MAX_TARGET_BYTES = 8 * 1024
"""As of nginx and Apache: the log and the page remember paths."""
MAX_HEADERS = 200
"""A header of four bytes takes a hundred and fifty here."""
MAX_BODY_BYTES = 1 << 20
MAX_MESSAGE_BYTES = 8 * MAX_BODY_BYTES
"""The most bytes of a message on the wire, chunking and trailers included."""
MAX_HELD_BYTES = 64 << 20
"""The most bytes of requests that all connections of a server hold together."""
FREE_BYTES = 16 * 1024
"""What each connection may hold even when that limit is reached: an ordinary request."""
HEAD_S, BODY_S, IDLE_S = 10, 30, 75
UNREAD_S, READ_BYTES = 30, 1 << 20
"""A client that reads less than this in that time is cut off."""
MAX_UNREAD_BYTES = 128 << 20
"""The most bytes of answers that all connections of a server hold for clients to read them."""
FREE_UNREAD_BYTES = 64 * 1024

# --- JSON-RPC ---------------------------------------------------------------------------

MAX_BATCH = 100
MAX_BATCH_BYTES = 25 << 20
"""After so many bytes of answers the rest of a batch gets errors, as on geth."""
MAX_LOGS = 10_000
"""As Alchemy and Infura have it."""
MAX_ALTERNATIVES = 1000
"""geth has as many addresses, and as many topics at each position."""
MAX_FILTERS = 1000
MAX_AGE_S = 300
"""Five minutes, as on geth."""
MAX_SUBSCRIPTIONS = 100
MAX_ALL_SUBSCRIPTIONS = 1000
MAX_AT_ONCE = 8
"""How many requests of a WebSocket are answered at a time; the others stay in its socket, so that
a client that sends and never reads takes no memory here."""
MAX_TRANSACTION_BYTES = 128 * 1024
MAX_POOL = 5120
"""As geth's 4,096 that can be mined and 1,024 that cannot."""
MAX_QUEUED = 1024
MAX_POOL_BYTES = 8 << 20
MAX_MINED_BYTES = 32 << 20
"""Of the blocks that can be reorganised: four full mempools."""
MAX_WAIT_S = 60
"""As on geth."""

# --- what a server remembers ------------------------------------------------------------

MAX_EVENTS = 100_000
MAX_EXCHANGES = 500
MAX_EXCHANGES_BYTES = 8 << 20
MAX_UNLOGGED = 10_000
MAX_UNLOGGED_BYTES = 8 << 20

TABLE = (
    Limit("head of a request", MAX_HEAD_BYTES, "bytes", "431"),
    Limit("target of a request: path and query", MAX_TARGET_BYTES, "bytes", "431"),
    Limit("headers of a request", MAX_HEADERS, "", "431"),
    Limit("body of a request, message of a WebSocket", MAX_BODY_BYTES, "bytes", "413, close 1009"),
    Limit("body with its chunking and trailers", MAX_MESSAGE_BYTES, "bytes", "closed"),
    Limit("time for a head to arrive", HEAD_S, "s", "408, closed if nothing came"),
    Limit("time for a body to arrive", BODY_S, "s", "408"),
    Limit("time until the next request of a connection", IDLE_S, "s", "closed"),
    Limit("time in which a client reads less than 1 MiB of an answer", UNREAD_S, "s", "closed"),
    Limit("requests that one connection has in work", 1, "", "they stay unread"),
    Limit("requests that a WebSocket has in work", MAX_AT_ONCE, "", "they stay unread"),
    Limit("requests that all connections hold, beyond 16 KiB each", MAX_HELD_BYTES, "bytes", "503"),
    Limit(
        "answers that all clients have not read, beyond 64 KiB each",
        *(MAX_UNREAD_BYTES, "bytes", "closed"),
    ),
    Limit("calls of a JSON-RPC batch", MAX_BATCH, "", "error -32600"),
    Limit("answers of a batch", MAX_BATCH_BYTES, "bytes", "error -32003"),
    Limit("logs in an answer", MAX_LOGS, "", "error -32005"),
    Limit("addresses and topics of a filter", MAX_ALTERNATIVES, "", "error -32602"),
    Limit("filters", MAX_FILTERS, "", "the longest not polled ends"),
    Limit("time that a filter is kept without a poll", MAX_AGE_S, "s", "it ends"),
    Limit("subscriptions of a WebSocket", MAX_SUBSCRIPTIONS, "", "error -32000"),
    Limit("subscriptions", MAX_ALL_SUBSCRIPTIONS, "", "error -32000"),
    Limit("a transaction", MAX_TRANSACTION_BYTES, "bytes", "oversized data"),
    Limit("transactions that wait", MAX_POOL, "", "txpool is full"),
    Limit("transactions that wait behind a gap", MAX_QUEUED, "", "txpool is full"),
    Limit("all transactions that wait", MAX_POOL_BYTES, "bytes", "txpool is full"),
    Limit("transactions of the blocks in memory", MAX_MINED_BYTES, "bytes", "the oldest are final"),
    Limit("time to wait for a receipt", MAX_WAIT_S, "s", "error -32602"),
    Limit("journal of a server", MAX_EVENTS, "", "the oldest are dropped"),
    Limit("requests that the page shows", MAX_EXCHANGES, "", "the oldest are dropped"),
    Limit(
        "those requests and their answers", MAX_EXCHANGES_BYTES, "bytes", "the oldest are dropped"
    ),
    Limit("requests that wait to be logged", MAX_UNLOGGED, "", "counted in the log"),
    Limit("those that wait, and their answers", MAX_UNLOGGED_BYTES, "bytes", "counted in the log"),
)
