"""x402sim: a pay-per-request API and the world around it, to simulate and to test against.

`help` of one name is short, that of the package has all of them:

    World, LiveWorld, Payer, Fault    play a scenario: start with help(x402sim.World)
    Settings, Decisions               what a service is like; x402sim.policies: what it does
    Run                               what happened, as frames and reports
    sweep, summarize, compare         many worlds, in parallel; x402sim.population: many payers
    x402sim.experiments               until there are enough seeds, or one long run
    LocalServer, PaymentAuth          a mock server, and an httpx client that pays it
    x402sim.backends                  stages, chains, blocks, facilitators and explorers of a World

Every public name is loaded when it is first used, so that importing the package is
cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from x402sim.version import VERSION

if TYPE_CHECKING:
    from x402sim.chain.base import ChainError as ChainError
    from x402sim.experiments.compare import compare as compare
    from x402sim.experiments.summary import summarize as summarize
    from x402sim.experiments.sweep import sweep as sweep
    from x402sim.journal import Journal as Journal
    from x402sim.payer.auth import PaymentAuth as PaymentAuth
    from x402sim.payer.core import (
        PaidNotServed as PaidNotServed,
        PaymentFailed as PaymentFailed,
        SpendingCapExceeded as SpendingCapExceeded,
    )
    from x402sim.payer.session import SessionAuth as SessionAuth
    from x402sim.payer.wallet import Wallet as Wallet
    from x402sim.protocol.networks import (
        BASE_SEPOLIA as BASE_SEPOLIA,
        MAINNET as MAINNET,
        TESTNET as TESTNET,
        Network as Network,
    )
    from x402sim.report.run import Run as Run
    from x402sim.service.settings import Settings as Settings
    from x402sim.serving.local import LocalServer as LocalServer
    from x402sim.spec.decisions import Decisions as Decisions
    from x402sim.story.live import LiveWorld as LiveWorld
    from x402sim.story.payer import Answer as Answer, Payer as Payer
    from x402sim.world.faults import Fault as Fault
    from x402sim.world.scenario import Scenario as Scenario, scenario as scenario
    from x402sim.world.world import World as World

__version__ = VERSION
_HOME = {
    "BASE_SEPOLIA": "protocol.networks",
    "MAINNET": "protocol.networks",
    "TESTNET": "protocol.networks",
    "Answer": "story.payer",
    "ChainError": "chain.base",
    "Decisions": "spec.decisions",
    "Fault": "world.faults",
    "Journal": "journal",
    "LiveWorld": "story.live",
    "LocalServer": "serving.local",
    "Network": "protocol.networks",
    "PaidNotServed": "payer.core",
    "Payer": "story.payer",
    "PaymentAuth": "payer.auth",
    "PaymentFailed": "payer.core",
    "Run": "report.run",
    "Scenario": "world.scenario",
    "SessionAuth": "payer.session",
    "Settings": "service.settings",
    "SpendingCapExceeded": "payer.core",
    "Wallet": "payer.wallet",
    "World": "world.world",
    "compare": "experiments.compare",
    "scenario": "world.scenario",
    "summarize": "experiments.summary",
    "sweep": "experiments.sweep",
}
"""The public names, and the file of each."""
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'x402sim' has no attribute {name!r}")
    value = getattr(import_module(f"x402sim.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
