"""`pytest conformance --base-url URL`: one run of the suite, with a test for each id.

The run is that of `python -m x402sim conformance`. A failed or inconclusive id fails its test.
"""

from typing import Any

import pytest

from x402sim.report.conformance import explained, readable
from x402sim.report.results import Outcome, Result
from x402sim.suite.command import judge
from x402sim.suite.options import Flag, flags_of
from x402sim.suite.service.case import ServiceCase
from x402sim.suite.service.subject import SERVICE, parse
from x402sim.suite.verdict import NotReady
from x402sim.text.words import printable

FLAGS = flags_of(SERVICE.options)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `python -m x402sim conformance`."""
    group = parser.getgroup("x402sim conformance")
    group.addoption("--base-url", help="URL of the service to judge")
    for flag in FLAGS:
        if name := _option(flag):
            kind: dict[str, Any] = {"type": flag.kind}
            if flag.is_repeatable:
                kind["action"] = "append"
            elif flag.kind is bool:
                kind = {"action": "store_true"}
            group.addoption(name, help=flag.help, **kind)


def _option(flag: Flag) -> str:
    return flag.option if flag.pytest is None else flag.pytest


def pytest_pycollect_makeitem(collector: Any, name: str, obj: object) -> "IdItem | None":
    """Turn every check of a module into a test."""
    if not isinstance(obj, ServiceCase):
        return None
    return IdItem.from_parent(collector, name=obj.id, check=obj)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep one test for each id, which has all of its checks."""
    firsts: dict[str, IdItem] = {}
    for item in [each for each in items if isinstance(each, IdItem)]:
        first = firsts.setdefault(item.name, item)
        if first is not item:
            first.checks += item.checks
            items.remove(item)


RESULTS = pytest.StashKey[dict[str, Result]]()


def pytest_runtestloop(session: pytest.Session) -> None:
    """Judge the target, before the tests say what came of it."""
    items = [item for item in session.items if isinstance(item, IdItem)]
    if not items or session.config.option.collectonly:
        return
    option = session.config.getoption
    given = {flag.name: option(name) for flag in FLAGS if (name := _option(flag))}
    checks = [check for item in items for check in item.checks]
    try:
        results, _ = judge(SERVICE, parse(option("--base-url"), **given), checks)
    except (NotReady, ValueError) as error:
        pytest.exit(f"x402sim conformance: {printable(str(error))}", returncode=2)
    session.config.stash[RESULTS] = {result.id: result for result in results}


class IdItem(pytest.Item):
    """The checks of one id, as a test."""

    def __init__(self, *, check: ServiceCase, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.checks = [check]

    def runtest(self) -> None:
        """Say what came of it."""
        result = self.config.stash[RESULTS][self.name]
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
        result = excinfo.value.args[0]
        if result.outcome is Outcome.INCONCLUSIVE:
            return f"inconclusive: {printable(result.reason)}"
        return explained(*readable([result]))

    def reportinfo(self) -> tuple[Any, None, str]:
        """Return the file of the id's first check, and its title."""
        return self.path, None, self.checks[0].title


class NotPassed(Exception):
    """An id failed or was inconclusive; its argument is the result."""
