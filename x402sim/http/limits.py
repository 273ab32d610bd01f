"""The most that a stranger can make a server hold or do: one table for the code and SECURITY.md.
The control API is not for strangers, and has separate bounds.

Each row tells how the server refuses the excess; `tests/serve/test_limits.py` attacks each row.
"""

from dataclasses import dataclass
from typing import Literal

Unit = Literal["bytes", "s", ""]


@dataclass(frozen=True, slots=True)
class Limit:
    """A row: the limited quantity, the limit with a unit, and the fate of the excess."""

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
"""As in nginx and Apache; the log and the page remember paths."""
MAX_HEADERS = 200
"""A header of four bytes takes a hundred and fifty bytes of memory."""
MAX_BODY_BYTES = 1 << 20
MAX_MESSAGE_BYTES = 8 * MAX_BODY_BYTES
"""The most bytes of a message on the wire, chunking and trailers included."""
MAX_HELD_BYTES = 64 << 20
"""The most bytes of requests in all connections of a server together."""
FREE_BYTES = 16 * 1024
"""Bytes of a connection that never count: an ordinary request."""
HEAD_S, BODY_S, IDLE_S = 10, 30, 75
UNREAD_S, READ_BYTES = 30, 1 << 20
"""A client that reads fewer bytes in these seconds is cut off."""
MAX_UNREAD_BYTES = 128 << 20
"""The most bytes of unread answers in all connections of a server together."""
FREE_UNREAD_BYTES = 64 * 1024

# --- JSON-RPC ---------------------------------------------------------------------------

MAX_BATCH = 100
MAX_BATCH_BYTES = 25 << 20
"""Bytes of answers after which the rest of a batch gets errors, as on geth."""
MAX_LOGS = 10_000
"""The limit of Alchemy and Infura."""
MAX_ALTERNATIVES = 1000
"""The limit of geth for addresses, and for topics at each position."""
MAX_CALLS = 256
MAX_FILTERS = 1000
MAX_AGE_S = 300
"""Five minutes, as on geth."""
MAX_SUBSCRIPTIONS = 100
MAX_ALL_SUBSCRIPTIONS = 1000
MAX_AT_ONCE = 8
"""Requests of a WebSocket answered at a time; further requests stay in the socket, so that a client
that sends and never reads takes no memory here."""
MAX_TRANSACTION_BYTES = 128 * 1024
MAX_POOL = 5120
"""As geth: 4,096 executable and 1,024 queued."""
MAX_QUEUED = 1024
MAX_POOL_BYTES = 8 << 20
MAX_MINED_BYTES = 32 << 20
"""For the blocks that can be reorganised: four full mempools."""
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
    Limit("body with chunking and trailers", MAX_MESSAGE_BYTES, "bytes", "closed"),
    Limit("time for a head to arrive", HEAD_S, "s", "408, closed if nothing came"),
    Limit("time for a body to arrive", BODY_S, "s", "408"),
    Limit("time until the next request of a connection", IDLE_S, "s", "closed"),
    Limit("time for a client to read 1 MiB of an answer", UNREAD_S, "s", "closed"),
    Limit("requests of one connection in work", 1, "", "the rest stays unread"),
    Limit("requests of a WebSocket in work", MAX_AT_ONCE, "", "the rest stays unread"),
    Limit("requests of all connections, beyond 16 KiB each", MAX_HELD_BYTES, "bytes", "503"),
    Limit(
        "unread answers of all clients, beyond 64 KiB each",
        *(MAX_UNREAD_BYTES, "bytes", "closed"),
    ),
    Limit("calls of a JSON-RPC batch", MAX_BATCH, "", "error -32600"),
    Limit("answers of a batch", MAX_BATCH_BYTES, "bytes", "error -32003"),
    Limit("logs in an answer", MAX_LOGS, "", "error -32005 (a poll of a filter: in parts)"),
    Limit("addresses and topics of a filter", MAX_ALTERNATIVES, "", "error -32602"),
    Limit("calls of a Multicall3 call", MAX_CALLS, "", "reverts"),
    Limit("filters", MAX_FILTERS, "", "the longest not polled ends"),
    Limit("time of a filter without a poll", MAX_AGE_S, "s", "the filter ends"),
    Limit("subscriptions of a WebSocket", MAX_SUBSCRIPTIONS, "", "error -32000"),
    Limit("subscriptions", MAX_ALL_SUBSCRIPTIONS, "", "error -32000"),
    Limit("a transaction", MAX_TRANSACTION_BYTES, "bytes", "oversized data"),
    Limit("waiting transactions", MAX_POOL, "", "txpool is full"),
    Limit("transactions waiting behind a gap", MAX_QUEUED, "", "txpool is full"),
    Limit("all waiting transactions", MAX_POOL_BYTES, "bytes", "txpool is full"),
    Limit("transactions of the blocks in memory", MAX_MINED_BYTES, "bytes", "the oldest are final"),
    Limit("time to wait for a receipt", MAX_WAIT_S, "s", "error -32602"),
    Limit("journal of a server", MAX_EVENTS, "", "the oldest are dropped"),
    Limit("requests on the page", MAX_EXCHANGES, "", "the oldest are dropped"),
    Limit(
        "requests and answers on the page", MAX_EXCHANGES_BYTES, "bytes", "the oldest are dropped"
    ),
    Limit("requests waiting to be logged", MAX_UNLOGGED, "", "counted in the log"),
    Limit(
        "requests and answers waiting to be logged",
        MAX_UNLOGGED_BYTES,
        "bytes",
        "counted in the log",
    ),
)
