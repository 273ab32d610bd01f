"""Fixtures for the tests of a payer; pytest loads this module wherever x402sim is installed.

`x402_server` is a server of the test's own, `x402_payer` one of its funded accounts. The marker
`@pytest.mark.x402(network="base-sepolia", faults=[Fault(...)])` sets faults and any option of
`LocalServer`, or all of them by a `World`. A fault that strikes less often than its `times`
is an error, and a failed test reports the server's log. `-p no:x402sim` leaves the plugin out.
"""

import shlex
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import httpx

    from x402sim import Fault, LocalServer, PaymentAuth
    from x402sim.suite.facilitator.room import Make
    from x402sim.suite.fixture import CaseOfTest
    from x402sim.suite.payer.play import Buy
    from x402sim.suite.server.room import Make as MakeServer

MARKERS = (
    "x402(world, faults, **options): the server of this test, as LocalServer(world, **options)",
    "x402_payer(dialects, only, strict): the cases of `x402_payer_case`; strict counts SHOULD, too",
    "x402_facilitator(dialects, only, strict): the cases of `x402_facilitator_case`; as x402_payer",
    "x402_server(sells, dialects, only, strict, **options): the cases of `x402_server_case`, as on "
    "the command line; `sells` are paths",
)
PASSED = pytest.StashKey[bool]()
UNSPENT = (
    "So this test shows nothing about the fault: give a victim, path, contains and skip that "
    "requests of this payer fit, or times=None for a fault that need not strike."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class X402Payer:
    """A funded account, and clients that pay with it without a spending cap.

    `auth` is for any httpx client; `client` is one with the server's URL.
    """

    private_key: str = field(repr=False)
    """As 0x-hex."""
    address: str
    auth: "PaymentAuth" = field(repr=False)
    client: "httpx.Client" = field(repr=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for each in MARKERS:
        config.addinivalue_line("markers", each)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each play of a judge, for the fixtures whose names end with `_case`."""
    for subject in ("server", "facilitator", "payer"):
        fixture = f"x402_{subject}_case"
        if fixture not in metafunc.fixturenames:
            continue
        mark = metafunc.definition.get_closest_marker(f"x402_{subject}")
        flags = mark.kwargs if mark else {}
        if subject == "server" and not mark:
            raise pytest.UsageError('x402_server_case: @pytest.mark.x402_server(sells="/weather")')
        plays = import_module(f"x402sim.suite.{subject}.subject").plays(**flags)
        metafunc.parametrize(fixture, plays, ids=lambda play: play.name, indirect=True)


def _judge(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    """Return a function that plays a test's case; it skips the test if nothing was judged."""
    from x402sim.suite.verdict import Skipped

    play: CaseOfTest = request.param
    again = f"pytest {shlex.quote(request.node.nodeid)}"

    def judge(given: Any) -> None:
        try:
            wrong = play.wrong(given, again)
        except Skipped as why:
            pytest.skip(str(why))
        if wrong:
            pytest.fail(wrong, pytrace=False)

    return judge


@pytest.fixture
def x402_payer_case(request: pytest.FixtureRequest) -> "Callable[[Buy], None]":
    """Play one case of the judge of payers with a function that buys: it is given a `Task`.

    Fails the test with the defect, the cost and the repair; skips the test if nothing could be
    judged.
    """
    return _judge(request)


@pytest.fixture
def x402_facilitator_case(request: pytest.FixtureRequest) -> "Callable[[Make], None]":
    """Play one case of the judge of facilitators with the ASGI application that a function makes.

    The function is given a port, an `rpc_url`, a `private_key` with coins for gas and the
    `network`. Fails and skips tests as `x402_payer_case` does.
    """
    return _judge(request)


@pytest.fixture
def x402_server_case(request: pytest.FixtureRequest) -> "Callable[[MakeServer], None]":
    """Play one case of the judge of servers with the ASGI application that a function makes.

    The function is given a port, a `facilitator_url`, an `rpc_url`, whom to pay as `pay_to`, a
    `state_dir` and the `network`. Fails and skips tests as `x402_payer_case` does.
    """
    return _judge(request)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Store whether the test has passed so far: its fixtures end differently then."""
    report = yield
    item.stash[PASSED] = report.passed
    return report


@pytest.fixture(scope="session")
def _x402_stopping() -> Iterator["Executor"]:
    """Threads in which servers stop, each for 0.2 s, while the next tests run."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as threads:
        yield threads


@pytest.fixture
def x402_server(
    request: pytest.FixtureRequest, _x402_stopping: "Executor"
) -> Iterator["LocalServer"]:
    """A running server with ten funded accounts, new for each test.

    A fault with turns left is an error: the test does not show what it should.
    """
    from x402sim import LocalServer
    from x402sim.serving.control.client import ControlError
    from x402sim.serving.log import Form

    test, log = request.node, list[bytes]()
    options, faults = _options(test)
    try:
        server = LocalServer(**options)
    except ValueError as wrong:
        pytest.fail(f"@pytest.mark.x402: {wrong}", pytrace=False)
    server.log_form = Form(log.append)
    server.start()
    try:
        for fault in faults:
            server.fault(fault)
        yield server
        passed = test.stash.get(PASSED, False)
        unspent = server.parts.faults.unspent() if passed and server.parts else []
        if unspent or not passed:
            server.stop()
            test.add_report_section("teardown", "x402 server", b"".join(log).decode())
        if unspent:
            pytest.fail("\n".join([*unspent, UNSPENT]), pytrace=False)
    except ControlError as wrong:
        pytest.fail(f"@pytest.mark.x402: {wrong}", pytrace=False)
    finally:
        _x402_stopping.submit(server.stop).add_done_callback(lambda stopped: stopped.result())


@pytest.fixture
def x402_payer(x402_server: "LocalServer") -> Iterator[X402Payer]:
    """The first account of `x402_server`: its key and address, and a client that pays.

    The clock of the client's payments is the server's.
    """
    import httpx

    from x402sim import PaymentAuth
    from x402sim.serving.local import certificates

    wallet, all_it_has = x402_server.wallets[0], "1000"
    auth = PaymentAuth(
        wallet,
        max_amount=all_it_has,
        max_total=all_it_has,
        network=x402_server.network,
        clock=x402_server.clock,
    )
    with httpx.Client(
        base_url=x402_server.url, auth=auth, verify=certificates(), trust_env=False
    ) as client:
        yield X402Payer(
            private_key=wallet.private_key, address=wallet.address, auth=auth, client=client
        )


def _options(node: pytest.Item) -> tuple[dict[str, Any], list["Fault"]]:
    """Return the arguments of `LocalServer`, and faults; the nearest marker has precedence.

    A `World` replaces the options of the markers before.
    """
    from x402sim import LocalServer, World
    from x402sim.text.words import unknown

    options: dict[str, Any] = {}
    of_server = [each for each in signature(LocalServer).parameters if each != "options"]
    known = ["faults", *of_server, *signature(World).parameters]
    for mark in reversed(list(node.iter_markers("x402"))):
        match mark.args:
            case ():
                pass
            case (World() as world,):
                options = {"world": world, "faults": options.get("faults", [])}
            case others:
                pytest.fail(f"x402 takes options by name (faults=...), not {others}", pytrace=False)
        options |= mark.kwargs
    for name in options:
        if name not in known:
            pytest.fail(unknown("option of @pytest.mark.x402", name, known), pytrace=False)
    return options, options.pop("faults", [])
