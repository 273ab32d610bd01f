"""Fixtures for the tests of a payer; pytest loads this module wherever x402sim is installed.

`x402_server` is a server of the test's own, `x402_payer` one of its funded accounts. The marker
`@pytest.mark.x402(price="0.05", network="base-sepolia", faults=[Fault(...)])` sets the price of a
quote, faults, and all options of `LocalServer`. `-p no:x402sim` leaves the plugin out.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import httpx

    from x402sim import Fault, LocalServer, PaymentAuth

MARKER = "x402(price, faults, **options): the server of this test; options are those of LocalServer"


@dataclass(frozen=True, slots=True, kw_only=True)
class X402Payer:
    """A funded account, and what pays with it, whatever it costs.

    `auth` is for any httpx client; `client` is one with the server's URL.
    """

    key: str = field(repr=False)
    """The private key, as 0x-hex."""
    address: str
    auth: "PaymentAuth" = field(repr=False)
    client: "httpx.Client" = field(repr=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def _x402_stopping() -> Iterator["Executor"]:
    """Threads in which servers stop while the next tests run: each needs 0.2 s for it."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as threads:
        yield threads


@pytest.fixture
def x402_server(
    request: pytest.FixtureRequest, _x402_stopping: "Executor"
) -> Iterator["LocalServer"]:
    """A running server with ten funded accounts, new for each test.

    It warns of a fault that could have struck more requests: the test may not show what it should.
    """
    from x402sim import LocalServer

    options, faults = _options(request.node)
    server = LocalServer(**options).start()
    try:
        for fault in faults:
            server.fault(fault)
        yield server
        for fault in server.parts.faults.standing() if server.parts else ():
            if fault.times is not None:
                warnings.warn(
                    f"too few requests came that this fault strikes: {fault}", stacklevel=1
                )
    finally:
        _x402_stopping.submit(server.stop).add_done_callback(lambda stopped: stopped.result())


@pytest.fixture
def x402_payer(x402_server: "LocalServer") -> Iterator[X402Payer]:
    """The first account of `x402_server`: its key and address, and a client that pays.

    The clock of the client's payments is the server's.
    """
    import httpx

    from x402sim import PaymentAuth
    from x402sim.world.assembly.deploy import certificates

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
        yield X402Payer(key=wallet.private_key, address=wallet.address, auth=auth, client=client)


def _options(node: pytest.Item) -> tuple[dict[str, Any], list["Fault"]]:
    """Return the options of the server and its faults; the nearest marker has precedence."""
    from x402sim import LocalServer, Settings
    from x402sim.text.suggest import unknown

    options: dict[str, Any] = {}
    known = ["price", "faults", *signature(LocalServer).parameters]
    for mark in reversed(list(node.iter_markers("x402"))):
        options |= mark.kwargs
        if mark.args:
            pytest.fail(f"x402 takes options by name (price=...), not {mark.args}", pytrace=False)
    for name in options:
        if name not in known:
            pytest.fail(unknown("option of @pytest.mark.x402", name, known), pytrace=False)
    faults = options.pop("faults", [])
    if "price" in options:
        settings = options.get("service", Settings(phase=0))
        options["service"] = replace(settings, quote_price=options.pop("price"))
    return options, faults
