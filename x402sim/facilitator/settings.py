"""The settings of one facilitator of a world."""

from dataclasses import dataclass

from x402sim.durations import ServiceTime, require_servers
from x402sim.text.arguments import AboveZero, FromZero, WholeAboveZero, WholeFromZero, explained


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class FacilitatorSettings:
    """The settings of a facilitator. Raises `ValueError` for an impossible value.

    receipt_timeout_s
        Seconds that it waits for a transaction to be mined; then settle answers 504, or in the
        dialects of the x402 standard that it is pending.
    simulates_verify
        Whether verify simulates the call, too, in the dialects of the x402 standard; the Cronos
        dialect's never does.
    simulates
        Whether it simulates a call before it sends it. If not, a transfer that the token refuses
        is mined nevertheless, and costs the facilitator its gas.
    native
        Native coins that its account has for gas, 0 or more. Without enough for the gas limit of
        another transaction, settle answers that it failed; verify does not look. Default None:
        more than it can spend.
    servers
        How many requests it serves at a time; others wait, first in, first out, and one begins when
        a server is free. Default None: all at once, and nothing queues.
    service_time_s
        Seconds that a server is busy with a request before it does the work: a number,
        `Exponential(mean_s=1.2)` of `x402sim.backends`, or whatever a latency can be. Or such by
        the end of the path, {"/settle": 1.2}: other paths take no server and never wait. The server
        stays busy until it has answered: while it waits for a block, too. Default None: 0 s.
    queue_length
        How many can wait; one more is answered 503. Default None: no limit.
    """

    receipt_timeout_s: AboveZero = 120
    simulates: bool = True
    simulates_verify: bool = True
    native: FromZero | None = None
    servers: WholeAboveZero | None = None
    service_time_s: ServiceTime | None = None
    queue_length: WholeFromZero | None = None

    def __post_init__(self) -> None:
        require_servers(self.servers, self.service_time_s, self.queue_length)
