"""The state of the world before the story began, from which stories count."""

from collections.abc import Iterable, Mapping

import msgspec

from x402sim.world.control.client import ControlClient, ControlError


class StartState(msgspec.Struct, frozen=True, kw_only=True):
    """The world before the story began; the defaults if there is no control API."""

    pay_to: str | None = None
    """The merchant's address."""
    token_owner: str | None = None
    held_base: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The balances of the merchants, in base units, by address."""
    tx_hashes: frozenset[str] = frozenset()
    """The transactions that had transferred tokens."""
    journal: int = 0
    """The number of events in the world's journal."""

    @classmethod
    async def seen_by(cls, control: ControlClient, others: Iterable[str] = ()) -> "StartState":
        """Ask the control API; `others` are merchants but the first service's.

        Raises `ConnectionError` if it refuses, or if its answer cannot be read.
        """
        try:
            who = await control.who()
            accounts = [who.pay_to, *others]
            held = await control.balances(accounts)
            moved = await control.transfers()
        except ControlError as wrong:
            raise ConnectionError(str(wrong)) from wrong
        return cls(
            pay_to=who.pay_to,
            token_owner=who.token_owner,
            held_base=dict(zip(accounts, held, strict=True)),
            tx_hashes=frozenset(each.tx_hash for each in moved),
            journal=who.journal,
        )
