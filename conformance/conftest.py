"""`pytest conformance --base-url URL`: every check is a test, with the suite's own verdicts.

A failed or inconclusive check fails its test; a check whose needs are missing is skipped. The
last test repeats every baseline that other checks depend on.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from x402sim.spec.needs import Need
from x402sim.suite.check import Baseline, Check
from x402sim.suite.command import hidden, skipped
from x402sim.suite.engine import run_case, runs_beside, try_baseline
from x402sim.suite.options import TIMEOUT_S, Options, access
from x402sim.suite.preflight import Ready, examine
from x402sim.suite.printing import announce
from x402sim.suite.probe import Probe
from x402sim.suite.remote import Access, NotReady, reach
from x402sim.suite.setting import Setting
from x402sim.suite.verdict import Outcome, Result
from x402sim.text.printable import printable, printable_lines


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `python -m x402sim conformance`."""
    group = parser.getgroup("x402sim conformance")
    group.addoption("--base-url", help="URL of the service to judge")
    group.addoption("--target", default="spec", help="target file, or name of a shipped target")
    group.addoption("--payer-key", help="private key of a funded payer (0x and 64 hex digits)")
    group.addoption("--world", help="URL of the control API of the world around the service")
    group.addoption("--rpc-url", help="URL of a JSON-RPC node of the service's chain")
    group.addoption("--pay-to", help="merchant address that a 402 must name")
    group.addoption("--budget", help="most that the payer may sign for in all, in tokens")
    group.addoption("--allow-mainnet", action="store_true", help="pay with real money")
    group.addoption("--network-file", type=Path, help="TOML file of networks to pay on")
    group.addoption("--patient", action="store_true", help="wait minutes, too")
    group.addoption("--restart", help="shell command that restarts the service")
    group.addoption(
        "--header", action="append", default=[], help="NAME:VALUE, sent with every request"
    )
    group.addoption("--cacert", type=Path, help="PEM file of certificates to trust, too")
    group.addoption("--insecure", action="store_true", help="accept any TLS certificate")
    group.addoption("--answer-timeout", type=float, default=TIMEOUT_S, help="seconds an answer has")
    group.addoption("--rate", type=float, help="most requests in a second")
    group.addoption("--require", action="append", default=[], help="payments, chain, world, ...")
    group.addoption("--skip", action="append", default=[], help="ID=REASON")


class Jury:
    """The one setting that all checks of a session share."""

    def __init__(self, access: Access, checks: list[Check]) -> None:
        self._runner, self._stack = asyncio.Runner(), AsyncExitStack()
        self._secrets = access.secrets
        try:
            setting: Setting = self._run(self._stack.enter_async_context(reach(access)))
            ready: Ready = self._run(examine(setting, checks, access.require))
        except NotReady:
            self.close()
            raise
        self.setting, self.state = ready.setting, ready.state
        announce(ready, access.note)
        self._begun = self._run(self._begin(checks))

    def _run(self, work: Any) -> Any:
        return self._runner.run(_as_coroutine(work))

    async def _begin(self, checks: list[Check]) -> dict[Check, asyncio.Task[Result]]:
        """Begin the cases that wait: they run while the loop runs, beside the others."""
        beside = [check for check in checks if runs_beside(self.setting, check)]
        return {
            check: asyncio.create_task(run_case(self.setting, self.state, check))
            for check in beside
            if Need.RESTART not in check.needs
        }

    def judge(self, check: Check) -> Result:
        """Run one case."""
        begun = self._begun.get(check)
        result: Result = self._run(begun or run_case(self.setting, self.state, check))
        return hidden(result, self._secrets)

    def broken_baselines(self) -> list[str]:
        """Repeat the baselines; return those that are no longer accepted, and why."""
        tried = sorted(name for name, problem in self.state.baselines.items() if problem is None)
        found = {
            name: self._run(try_baseline(Probe(self.setting, self.state), Baseline(name)))
            for name in tried
        }
        return [f"{name}: {problem}" for name, problem in found.items() if problem]

    def close(self) -> None:
        """Close the connections to the target."""
        self._run(self._stack.aclose())
        self._runner.close()


async def _as_coroutine(work: Any) -> Any:
    return await work


JURY = pytest.StashKey[Jury]()
CHECKS = pytest.StashKey[list[Check]]()


def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Ask for what waits at the end, and then repeat the baselines."""
    items.sort(key=lambda item: isinstance(item, CheckItem) and item.check.waits is not None)
    checks = [item.check for item in items if isinstance(item, CheckItem)]
    session.config.stash[CHECKS] = checks
    if checks:
        items.append(BaselinesItem.from_parent(session, name="the baselines are still accepted"))


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
            checks = config.stash[CHECKS]
            means = replace(_access(config), skip=skipped(checks, config.getoption("--skip")))
            jury = config.stash[JURY] = Jury(means, checks)
        except (NotReady, ValueError) as error:
            pytest.exit(f"x402sim conformance: {printable(str(error))}", returncode=2)
    return jury


def _access(config: pytest.Config) -> Access:
    """Return what the options give; raises `ValueError`."""
    base_url = config.getoption("--base-url")
    if base_url is None:
        raise ValueError("no service to judge: give --base-url, such as http://127.0.0.1:4020")
    option = config.getoption
    return access(
        Options(
            base_url=base_url,
            target=option("--target"),
            payer_key=option("--payer-key"),
            world=option("--world"),
            rpc_url=option("--rpc-url"),
            pay_to=option("--pay-to"),
            budget=option("--budget"),
            allow_mainnet=option("--allow-mainnet"),
            network_file=option("--network-file"),
            patient=option("--patient"),
            restart=option("--restart"),
            header=tuple(option("--header")),
            cacert=option("--cacert"),
            insecure=option("--insecure"),
            timeout=option("--answer-timeout"),
            rate=option("--rate"),
            require=tuple(option("--require")),
        )
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
                pytest.skip(printable(result.reason))
            case Outcome.FAILED | Outcome.INCONCLUSIVE:
                raise NotPassed(result)
            case Outcome.OBSERVED:
                self.user_properties.append(("observed", printable(result.actual or "")))
            case Outcome.PASSED:
                pass

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Show expected, actual and the exchange, not a stack trace."""
        if not isinstance(excinfo.value, NotPassed):
            return super().repr_failure(excinfo, style)
        result = excinfo.value.result
        if result.outcome is Outcome.INCONCLUSIVE:
            return f"inconclusive: {printable(result.reason)}"
        return (
            f"{result.id} {result.level}: {result.title}\n"
            f"expected: {printable(str(result.expected))}\n"
            f"actual:   {printable(str(result.actual))}\n\n"
            f"{printable_lines(result.exchange)}\n\nrun it again: {result.rerun}"
        )

    def reportinfo(self) -> tuple[Any, None, str]:
        """Return the file of the check, and its title."""
        return self.path, None, self.check.title


class BaselinesItem(pytest.Item):
    """Whether the target still accepts what it must: otherwise its refusals prove nothing."""

    def runtest(self) -> None:
        """Repeat the baselines."""
        broken = _jury(self.config).broken_baselines()
        if broken:
            raise AssertionError(
                f"the refusals above prove nothing: {printable('; '.join(broken))}"
            )

    def reportinfo(self) -> tuple[Any, None, str]:
        """Return the title."""
        return self.path, None, self.name


class NotPassed(Exception):
    """A check failed or was inconclusive."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.id)
        self.result = result
