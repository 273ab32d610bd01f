"""The client of the control API `/_sim`, for scenarios, stages at a URL and the suite."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

import httpx
import msgspec

from x402sim.clock import SkewedClock
from x402sim.http.bounded import MIB
from x402sim.journal import Journal
from x402sim.protocol.messages import BadMessage, ErrorBody, decode, decoded
from x402sim.serving.control.messages import Base, Paid, Transfer, WorldInfo
from x402sim.text.keys import keyless
from x402sim.text.words import printable
from x402sim.world.faults import Fault

WORLD_ANSWER_BYTES = 8 * MIB
"""Some 40,000 transfers."""
WORLD_ANSWER_ITEMS = 100_000
"""The arrays and objects in an answer."""
JOURNAL_ANSWER_BYTES = 64 * MIB
"""Some 300,000 events."""


class ControlError(RuntimeError):
    """The control API did not answer, refused, or answered what cannot be read.

    `answer` is its answer; None if none came.
    """

    def __init__(self, text: str, answer: httpx.Response | None = None) -> None:
        super().__init__(text)
        self.answer = answer


class ControlClient:
    """A client of the control API, over an HTTP client with its base URL; raises `ControlError`.

    An answer has at most `most` arrays and objects.
    """

    def __init__(self, http: httpx.AsyncClient, *, most: int = WORLD_ANSWER_ITEMS) -> None:
        self.http, self._most = http, most

    async def request(self, method: str, path: str, body: Any = None, kind: Any = Any) -> Any:
        """Return the answer, as a message of the kind."""
        answer = await self._sent(method, path, json=body or {})
        try:
            return decode(answer.content, kind, most=self._most)
        except BadMessage as error:
            text = f"the control API's answer to {_named(path)} cannot be read: {error}"
            raise ControlError(text, answer) from error

    async def _sent(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            answer = await self.http.request(method, f"/{path}", **options)
        except httpx.TransportError as error:
            raise ControlError(f"the control API did not answer: {error!r}") from error
        if answer.status_code != 200:
            body: ErrorBody | None = decoded(answer.content, ErrorBody)
            reason = answer.text if body is None else body.reason or body.error
            raise ControlError(
                f"the control API refused {_named(path)}: {printable(reason)}", answer
            )
        return answer

    async def who(self) -> WorldInfo:
        """Return the description of the world."""
        found: WorldInfo = await self.request("GET", "who", kind=WorldInfo)
        return found

    async def fault(self, fault: Fault) -> None:
        """Add a fault, whose path the victim must serve."""
        await self.request("POST", "faults", msgspec.to_builtins(fault))

    async def transfers(self, account: str = "") -> list[Transfer]:
        """Return the token's transfers, oldest first; with an address, only of the address."""
        path = f"transfers?account={account}" if account else "transfers"
        found: list[Transfer] = await self.request("GET", path, kind=list[Transfer])
        return found

    async def payments(self, path: str = "", times: int | None = None) -> list[Paid]:
        """Return the settled payments, for one path if given; with `times`, so many are demanded.

        Raises `AssertionError` for another number, which names each payment.
        """
        query = {"path": path} if times is None else {"path": path, "times": str(times)}
        try:
            asked = f"payments?{urlencode(query)}"
            found: list[Paid] = await self.request("GET", asked, kind=list[Paid])
        except ControlError as wrong:
            if times is not None and wrong.answer is not None and wrong.answer.status_code == 409:
                raise AssertionError(decode(wrong.answer.content, ErrorBody).reason) from None
            raise
        return found

    async def balance(self, address: str) -> int:
        """Return the balance of an address, in base units."""
        (held,) = await self.request("POST", "balances", {"accounts": [address]}, tuple[Base])
        return int(held)

    async def journal(self, since: int = 0) -> Journal:
        """Return the world's journal, from the event with this number on."""
        answer = await self._sent(
            "GET",
            "journal",
            params={"since": str(since)},
            extensions={"max_answer_bytes": JOURNAL_ANSWER_BYTES},
        )
        try:
            return Journal.load(answer.content)
        except ValueError as error:
            raise ControlError(f"the world's journal cannot be read: {error}", answer) from error

    async def page(self) -> str:
        """Return the present page at /_sim/ui, as one HTML file that loads nothing."""
        return (await self._sent("GET", "ui/saved")).text

    async def advance(self, seconds: float) -> None:
        """Move the world's clock forward; what falls due is done."""
        await self.request("POST", "clock/advance", {"seconds": seconds})

    async def reset(self) -> None:
        """Empty chain and database, restore the balances, and remove all faults."""
        await self.request("POST", "reset")
        await self.request("POST", "faults/clear")

    def advancing(self, clock: SkewedClock) -> Callable[[float], Awaitable[None]]:
        """Return a function that advances the world's clock and `clock` together."""

        async def advance(seconds: float) -> None:
            await self.advance(seconds)
            clock.skew_s += seconds

        return advance


def _named(path: str) -> str:
    """Return a path for an error, without the query: a key there may be a caller's secret."""
    return repr(keyless(httpx.URL(path).path))
