"""`pytest conformance --base-url URL`: every check is a test, with the suite's own verdicts.

A failed check fails, an inconclusive one is an error of its own kind, a missing capability
is a skip. The last test repeats every positive control that others rest on.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.money import to_base
from x402sim.suite.command import find_target
from x402sim.suite.engine import run_case, try_control
from x402sim.suite.probe import Probe
from x402sim.suite.remote import Access, Unreachable, reach
from x402sim.suite.setting import Ledger, Setting
from x402sim.suite.verdict import Check, Outcome, Result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `python -m x402sim conformance`."""
    group = parser.getgroup("x402sim conformance")
    group.addoption("--base-url", help="where the service to judge is")
    group.addoption("--target", default="spec", help="a target file, or a shipped target's name")
    group.addoption("--payer-key", help="private key of a payer with money (0x and 64 digits)")
    group.addoption("--world", help="the control URL of the world the target lives in")
    group.addoption("--rpc-url", help="a node of the target's chain")
    group.addoption("--pay-to", help="the merchant address that the 402 must name")
    group.addoption("--budget", default="1.00", help="what the payer may sign for in all")
    group.addoption("--allow-mainnet", action="store_true", help="pay with real money")


class Jury:
    """The one setting that all checks of a session share."""

    def __init__(self, access: Access) -> None:
        self._runner, self._stack = asyncio.Runner(), AsyncExitStack()
        self.ledger = Ledger()
        self.setting: Setting = self._run(self._stack.enter_async_context(reach(access)))

    def _run(self, work: Any) -> Any:
        return self._runner.run(_as_coroutine(work))

    def judge(self, check: Check) -> Result:
        """Run one case."""
        result: Result = self._run(run_case(self.setting, self.ledger, check))
        return result

    def broken_controls(self) -> list[str]:
        """Repeat the controls; return those that no longer hold, and why."""
        tried = sorted(name for name, problem in self.ledger.controls.items() if problem is None)
        found = {
            name: self._run(try_control(Probe(self.setting, self.ledger), name)) for name in tried
        }
        return [f"{name}: {problem}" for name, problem in found.items() if problem]

    def close(self) -> None:
        """Let go of the target."""
        self._run(self._stack.aclose())
        self._runner.close()


async def _as_coroutine(work: Any) -> Any:
    return await work


JURY = pytest.StashKey[Jury]()


def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Put the controls at the end."""
    if any(isinstance(item, CheckItem) for item in items):
        items.append(ControlsItem.from_parent(session, name="the positive controls still hold"))


def pytest_pycollect_makeitem(collector: Any, name: str, obj: object) -> "CheckItem | None":
    """Turn every check of a module into a test."""
    if isinstance(obj, Check):
        return CheckItem.from_parent(collector, name=f"{obj.id}:{name}", check=obj)
    return None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Close what was opened."""
    jury = session.config.stash.get(JURY, None)
    if jury is not None:
        jury.close()


def _jury(config: pytest.Config) -> Jury:
    """Return the session's jury; made when the first check needs it."""
    jury = config.stash.get(JURY, None)
    if jury is None:
        try:
            jury = config.stash[JURY] = Jury(_access(config))
        except (Unreachable, ValueError) as error:
            pytest.exit(f"x402sim conformance: {error}", returncode=2)
    return jury


def _access(config: pytest.Config) -> Access:
    """Return what the options give; raises `ValueError`."""
    base_url = config.getoption("--base-url")
    if base_url is None:
        raise ValueError("which service? --base-url http://127.0.0.1:4020")
    key, pay_to = config.getoption("--payer-key"), config.getoption("--pay-to")
    return Access(
        base_url=base_url,
        target=find_target(config.getoption("--target")),
        world_url=config.getoption("--world"),
        rpc_url=config.getoption("--rpc-url"),
        payer=Wallet(key) if key else None,
        budget_base=to_base(config.getoption("--budget"), 6),
        pay_to=parse_address(pay_to) if pay_to else None,
        allow_mainnet=config.getoption("--allow-mainnet"),
        rerun=f"python -m x402sim conformance {base_url}",
    )


class CheckItem(pytest.Item):
    """One case of one id, as a test."""

    def __init__(self, *, check: Check, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.check = check

    def runtest(self) -> None:
        """Judge the target."""
        result = _jury(self.config).judge(self.check)
        match result.outcome:
            case Outcome.SKIPPED:
                pytest.skip(result.reason)
            case Outcome.FAILED | Outcome.INCONCLUSIVE:
                raise Verdict(result)
            case Outcome.OBSERVED:
                self.user_properties.append(("observed", result.actual))

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Show the verdict, not a stack trace."""
        if not isinstance(excinfo.value, Verdict):
            return super().repr_failure(excinfo, style)
        result = excinfo.value.result
        if result.outcome is Outcome.INCONCLUSIVE:
            return f"inconclusive: {result.reason}"
        return (
            f"{result.id} {result.level}: {result.title}\nexpected: {result.expected}\n"
            f"actual:   {result.actual}\n\n{result.exchange}\n\nrun it again: {result.rerun}"
        )

    def reportinfo(self) -> tuple[Any, None, str]:
        """Say where the check is written."""
        return self.path, None, self.check.title


class ControlsItem(pytest.Item):
    """Whether what was accepted at the beginning still is: else refusals prove nothing."""

    def runtest(self) -> None:
        """Repeat the controls."""
        broken = _jury(self.config).broken_controls()
        if broken:
            raise AssertionError(f"the refusals above prove nothing: {'; '.join(broken)}")

    def reportinfo(self) -> tuple[Any, None, str]:
        """Say what it is."""
        return self.path, None, self.name


class Verdict(Exception):
    """A check that failed or was inconclusive."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.id)
        self.result = result
