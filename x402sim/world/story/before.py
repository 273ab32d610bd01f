"""How was the world before the story began? Counting begins there."""

from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What the control plane said before the story began; empty where there is none."""

    pay_to: str | None = None
    """The merchant's address."""
    token_owner: str | None = None
    earned_base: int = 0
    """What the merchant held, in base units."""
    tx_hashes: frozenset[str] = frozenset()
    """The transactions that had moved tokens."""
    journal: int = 0
    """How many events the world had recorded."""

    @classmethod
    async def seen_by(cls, control: httpx.AsyncClient) -> "Before":
        """Ask the control plane; raises `RuntimeError` if it refuses."""

        async def ask(method: str, path: str, body: Any = None) -> Any:
            answer = await control.request(method, path, json=body or {})
            if answer.status_code != 200:
                raise RuntimeError(f"the world refused {path!r}: {answer.text}")
            return answer.json()

        who = await ask("GET", "/who")
        (earned,) = await ask("POST", "/balances", {"accounts": [who["payTo"]]})
        return cls(
            pay_to=who["payTo"],
            token_owner=who["tokenOwner"],
            earned_base=int(earned),
            tx_hashes=frozenset(each["txHash"] for each in await ask("GET", "/transfers")),
            journal=int(who["journal"]),
        )
