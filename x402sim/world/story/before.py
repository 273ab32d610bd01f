"""What was the state of the world before the story began? Stories count from there."""

from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from x402sim.printable import printable
from x402sim.world.control.messages import Transfer, Who


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The world before the story began; the defaults if there is no control API."""

    pay_to: str | None = None
    """The merchant's address."""
    token_owner: str | None = None
    earned_base: int = 0
    """The merchant's balance, in base units."""
    tx_hashes: frozenset[str] = frozenset()
    """The transactions that had transferred tokens."""
    journal: int = 0
    """The number of events in the world's journal."""

    @classmethod
    async def seen_by(cls, control: httpx.AsyncClient) -> "Before":
        """Ask the control API; raises `ConnectionError` if it refuses."""

        async def ask(method: str, path: str, body: Any = None) -> Any:
            answer = await control.request(method, path, json=body or {})
            if answer.status_code != 200:
                raise ConnectionError(f"the world refused {path!r}: {printable(answer.text)}")
            return answer.json()

        who = msgspec.convert(await ask("GET", "/who"), Who)
        (earned,) = await ask("POST", "/balances", {"accounts": [who.pay_to]})
        moved = msgspec.convert(await ask("GET", "/transfers"), list[Transfer])
        return cls(
            pay_to=who.pay_to,
            token_owner=who.token_owner,
            earned_base=int(earned),
            tx_hashes=frozenset(each.tx_hash for each in moved),
            journal=who.journal,
        )
