"""What was the state of the world before the story began? Stories count from there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from x402sim.protocol.crypto import ZERO_ADDRESS, checksum
from x402sim.protocol.messages import BadMessage, decode
from x402sim.text.printable import printable
from x402sim.world.control.messages import Transfer, Who

MOST = 1_000_000
"""The arrays and objects in an answer: a world that runs for long has many transfers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The world before the story began; the defaults if there is no control API."""

    pay_to: str | None = None
    """The merchant's address."""
    token_owner: str | None = None
    held_base: Mapping[str, int] = field(default_factory=dict)
    """The balances of the merchants, in base units, by address."""
    tx_hashes: frozenset[str] = frozenset()
    """The transactions that had transferred tokens."""
    journal: int = 0
    """The number of events in the world's journal."""

    @classmethod
    async def seen_by(cls, control: httpx.AsyncClient, others: Iterable[str] = ()) -> "Before":
        """Ask the control API; `others` are merchants but the first service's.

        Raises `ConnectionError` if it refuses, or if its answer cannot be read.
        """

        async def ask(method: str, path: str, kind: Any, body: Any = None) -> Any:
            answer = await control.request(method, path, json=body or {})
            if answer.status_code != 200:
                raise ConnectionError(f"the world refused {path!r}: {printable(answer.text)}")
            try:
                return decode(answer.content, kind, most=MOST)
            except BadMessage as wrong:
                raise ConnectionError(f"the world's answer to {path!r}: {wrong}") from wrong

        who: Who = await ask("GET", "/who", Who)
        accounts = [who.pay_to, *others]
        held = await ask("POST", "/balances", list[str], {"accounts": accounts})
        moved = await ask("GET", "/transfers", list[Transfer])
        return cls(
            pay_to=who.pay_to,
            token_owner=who.token_owner,
            held_base=dict(zip(accounts, map(int, held), strict=True)),
            tx_hashes=frozenset(each.tx_hash for each in moved),
            journal=who.journal,
        )

    def since(
        self, transfers: Iterable[Transfer], *, sender: str | None, to: str | None
    ) -> list[Transfer]:
        """Return the transfers since the story began, without mints; of these accounts if given."""
        minter = checksum(ZERO_ADDRESS)
        return [
            each
            for each in transfers
            if each.tx_hash not in self.tx_hashes
            and each.from_ != minter
            and (sender is None or each.from_ == sender)
            and (to is None or each.to == to)
        ]
