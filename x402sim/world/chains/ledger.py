"""The chain backend `Ledger`: in memory, fast and deterministic, with every control."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from x402sim.chain.base import ChainError
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.chain.ledger.profiles import PROFILES, token_rules
from x402sim.chain.ledger.token_rules import TokenRules
from x402sim.chain.rpc.app import rpc_app
from x402sim.protocol.crypto import from_hex
from x402sim.spec.needs import Need
from x402sim.text.suggest import unknown
from x402sim.world.chains.backend import ChainRequest, OpenChain

_OFFERS = frozenset({Need.FUNDS, Need.OBSERVE_CHAIN, Need.CONTROL_CHAIN, Need.CLOCK})
_ORIGIN = {"circle": b"origin", "openzeppelin": b"origin, openzeppelin"}
"""What the mark of a chain's file is made from, so that no file is read with another token."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """A chain in memory; with a database FILE it is stored in FILE.chain.

    `token` is the contract whose rules, words and gas it has: "circle" (FiatToken v2.2 behind its
    proxy) or "openzeppelin" (the one that `Anvil()` runs). Raises `ValueError` for another.
    """

    token: str = "circle"  # noqa: S105 - a contract's name
    kind = "ledger"
    is_virtual = True
    is_persistent = False

    def __post_init__(self) -> None:
        if self.token not in PROFILES:
            raise ValueError(unknown("token of the ledger", self.token, PROFILES))

    @property
    def name(self) -> str:
        """The name on the command line."""
        return self.kind if self == Ledger() else f"{self.kind}-{self.token}"

    def open(self, request: ChainRequest) -> OpenChain:
        """Open the chain; raises `ChainError` and `sqlite3.Error` for its file."""
        accounts, rules = request.accounts, self._rules(request.without_token_rules)
        chain = LedgerChain(
            request.network,
            request.clock,
            owner=accounts.owner.address_bytes,
            balances=request.balances,
            native=accounts.native,
            has_history=request.has_payments,
            accounts=accounts.origin,
            origin=hashlib.sha256(_ORIGIN[self.token] + request.secret).digest(),
            file=chain_file(request.file) if request.file else None,
            database=request.file,
            rules=rules,
            spill=request.spill,
        )
        keys = [from_hex(wallet.private_key, 32) for wallet in accounts.funded]
        return OpenChain(
            chain=chain,
            network=request.network,
            facilitator=accounts.facilitator.address_bytes,
            rpc_app=rpc_app(chain, keys=keys, unlocked=request.unlocked),
            offers=_OFFERS | ({Need.FIAT_TOKEN} if rules.has_minters else frozenset()),
        )

    def _rules(self, left_out: tuple[tuple[str, str], ...]) -> TokenRules:
        try:
            return token_rules(self.token, left_out)
        except KeyError as clause:
            raise ChainError(
                f"the token {self.token!r} has no rule {clause} to leave out"
            ) from None


def chain_file(file: Path) -> Path:
    """Return the file of the chain that belongs to a database."""
    return file.with_name(file.name + ".chain")
