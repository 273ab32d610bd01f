"""The options of a run: what the user chooses, parsed. `parse_options` makes it from the flags."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import Address
from x402sim.protocol.networks import NETWORKS, Network
from x402sim.suite.target import Target
from x402sim.suite.wire import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user chooses: the target, and the means to judge it.

    A `patient` run waits minutes, too. `budget_base` limits what the `payer` signs for in all;
    money that a world mints is not counted. Without a seed, each run has new wallets and nonces,
    as a real chain needs.
    """

    base_url: str = ""
    given_url: str = ""
    """The URL as the user gave it, without a password; it may be an endpoint's."""
    target: Target = field(default_factory=Target)
    world_url: str | None = None
    rpc_url: str | None = None
    payer: Wallet | None = None
    budget_base: int = 0
    pay_to: Address | None = None
    allow_mainnet: bool = False
    networks: Mapping[str, Network] = field(default_factory=lambda: NETWORKS)
    """The networks that can be paid on, by the name that a 402 gives."""
    seed: int | None = None
    patient: bool = False
    restart: str | None = None
    """The command that ends and starts the target."""
    wire: Wire = field(default_factory=Wire)
    require: tuple[str, ...] = ()
    """What must be there, or the run does not begin: see `preflight.REQUIRABLE`."""
    skip: Mapping[str, str] = field(default_factory=dict)
    """The cases that are not run, by their `name`, and why."""
    secrets: tuple[str, ...] = ()
    """Texts that no report shows, such as the values of the user's own headers."""
    rerun: str = ""
    """The command that repeats the run, without --only."""
