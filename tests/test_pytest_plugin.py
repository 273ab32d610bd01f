"""The pytest plugin, as pytest runs it: the README's test finds payers that pay twice.

Pytest runs within pytest, as that is quick; the plugin is named, as it may not be installed.
"""

import subprocess
import sys
from importlib import import_module
from typing import Any

import httpcore  # noqa: F401 - what is loaded later is loaded by each inner run anew
import pytest

import x402sim.serving.local  # noqa: F401
from tests.house import blocks
from tests.house.test_house import PROJECT
from tests.house.test_readme import README

pytest_plugins = ("pytester",)
README_TEST = blocks(README, "python")[1]
PAYER = """
import httpx
from x402sim import PaymentAuth, PaymentFailed, Wallet

def buy(url, key):
    payer = PaymentAuth(Wallet(key), reuse=False{options})
    for _ in range({tries}):
        try:
            with httpx.Client(auth=payer) as http:
                answers = [http.get(url).raise_for_status() for _ in range({times})]
                return answers[0].json()
        except (PaymentFailed, httpx.TransportError):
            if {forgets}:
                payer = PaymentAuth(Wallet(key), reuse=False{options})
    return {{"error": "not served"}}
"""


def payer(options: str = "", *, tries: int = 3, times: int = 1, forgets: str = "False") -> str:
    """Return a payer that buys `times` times, and may forget after a failure what it has paid."""
    return PAYER.format(options=options, tries=tries, times=times, forgets=forgets)


ONE_STEP = ", version=2"
PAYERS = {
    "right": (payer(), None, None),
    "right, in one step": (payer(ONE_STEP), None, None),
    "forgets": (payer(forgets="True"), "2 == 1", "2 == 1"),
    "forgets, in one step": (payer(ONE_STEP, forgets="True"), "2 == 1", "2 == 1"),
    "forgets unless it has a receipt": (payer(forgets="not payer.receipts"), "2 == 1", None),
    "buys twice": (payer(times=2), "2 == 1", "2 == 1"),
    "gives up": (payer(tries=1), "'market' in", "'market' in"),
    "never pays": ("def buy(url, key): return 'market'", "0 == 1", "0 == 1"),
}
"""A payer, and what the test says of it: if the receipt is lost, and if the goods are."""
# The plugin is loaded here already, and under PYTHONOPTIMIZE pytest warns that helpers assert nothing.
IGNORED = "PytestAssertRewriteWarning", "PytestConfigWarning"
STRICT = ("-Werror", *(f"-Wignore::pytest.{name}" for name in IGNORED))


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the function that runs pytest on the text of a test, and returns its result."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(text: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(text)
        plugin = ("-p", "x402sim.pytest_plugin")
        return pytester.runpytest_inprocess(*plugin, "--strict-markers", "-Wdefault", *options)

    return run


@pytest.mark.parametrize(
    "name",
    [pytest.param(it, marks=[pytest.mark.thorough] * ("one step" in it)) for it in PAYERS],
)
def test_the_test_of_the_readme_finds_who_pays_twice(name: str, pytester: Any, run: Any) -> None:
    text, *expected = PAYERS[name]
    pytester.makepyfile(my_payer=text)
    result = run(README_TEST)
    failed = [f"*assert {text}*" for text in expected if text]
    result.assert_outcomes(passed=2 - len(failed), failed=len(failed))
    result.stdout.fnmatch_lines(failed)


def test_the_report_of_a_failed_test_has_the_log_of_the_server(pytester: Any, run: Any) -> None:
    pytester.makepyfile(my_payer=payer(forgets="True"))
    paid = ["*account 0 * POST /api/pay *", "*transfer: 0.01 *"]
    struck = '*fault: "lose answer" struck service /api/p*'
    result = run(README_TEST, "-k", "market")
    result.stdout.fnmatch_lines(["*x402 server*", *paid, struck, *paid])


OPTIONS = """
import httpx, pytest
from x402sim import Fault, Settings, World
from x402sim.backends import FacilitatorSettings

pytestmark = pytest.mark.x402(service=Settings(quote_price="0.5"), network="base-sepolia")

def test_of_the_module(x402_server, x402_payer):
    assert x402_payer.client.get("/api/perp/market").status_code == 200
    assert x402_server.balance(x402_payer.address) == 999_500000
    assert x402_server.info.chain_id == 84532

@pytest.mark.x402(facilitator=FacilitatorSettings(receipt_timeout_s=3))
def test_of_its_facilitator(x402_server):
    settings = httpx.post(x402_server.control_url + "/facilitator", json={}).json()
    assert settings["receipt_timeout_s"] == 3

PRICEY = Settings(quote_price="2")

@pytest.mark.x402(service=PRICEY, faults=[Fault(victim="service", does="refuse", path="/market")])
def test_of_the_function(x402_server, x402_payer):
    with pytest.raises(httpx.TransportError):
        httpx.get(x402_server.url + "/api/perp/market")
    assert x402_payer.client.get("/api/perp/market").status_code == 200
    assert x402_server.balance(x402_payer.address) == 998_000000
    assert x402_server.info.chain_id == 84532

@pytest.mark.x402(service=Settings(one_step=False, quote_price="0.1"))
def test_of_settings(x402_server):
    required = httpx.get(x402_server.url + "/api/perp/market")
    assert "PAYMENT-REQUIRED" not in required.headers
    assert required.json()["paymentRequirements"]["maxAmountRequired"] == "100000"

WORLD = World(seed=4, network="cronos-testnet", service=Settings(quote_price="0.25"))

@pytest.mark.x402(WORLD, accounts=2)
def test_of_a_world(x402_server, x402_payer):
    assert x402_payer.client.get("/api/perp/market").status_code == 200
    assert x402_server.balance(x402_payer.address) == 999_750000
    assert (x402_server.info.chain_id, len(x402_server.wallets)) == (338, 2)

@pytest.mark.x402(fault=[])
def test_misspelt(x402_server):
    pass

@pytest.mark.x402(network="bas")
def test_of_no_network(x402_server):
    pass

@pytest.mark.x402(faults=[Fault(victim="service", does="refuse", path="/market-data")])
def test_of_no_path(x402_server):
    pass

@pytest.mark.x402("0.05")
def test_without_a_name(x402_server):
    pass
"""


def test_a_marker_sets_options(run: Any) -> None:
    result = run(OPTIONS, *STRICT)
    result.assert_outcomes(passed=5, errors=4)
    result.stdout.no_fnmatch_line("*local.py*")
    result.stdout.re_match_lines_random(
        [
            "unknown option of @pytest.mark.x402 'fault'; did you mean 'faults'\\? Possible: faults, .*",
            r"x402 takes options by name \(faults=...\), not \('0.05',\)",
            "@pytest.mark.x402: unknown network 'bas'; did you mean 'base'\\? Possible: .*",
            ".* refused 'faults': unknown path of service '/market-data'; "
            "did you mean '/api/perp/market'\\? Possible: /api/.*, /api/agents$",
        ]
    )


IDLE = """
import pytest
from x402sim import Fault

QUOTE = Fault(victim="service", does="refuse", path="/api/perp/quote")
pytestmark = pytest.mark.x402(faults=[QUOTE])

def test_that_asks_too_little(x402_server, x402_payer):
    x402_server.fault(Fault(victim="service", does="lose answer", path="/market", skip=5))
    assert x402_payer.client.get("/api/perp/market").status_code == 200

def test_that_fails_anyway(x402_server):
    assert x402_server.balance(x402_server.info.pay_to) == 1

def test_that_is_skipped(x402_server):
    pytest.skip("not now")
"""


def test_a_fault_with_turns_left_is_an_error(run: Any) -> None:
    result = run(IDLE)
    result.assert_outcomes(passed=1, failed=1, skipped=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "Fault(*path='/api/perp/quote'*): struck 0 of 1, 0 requests fit it",
            "Fault(*path='/market', skip=5*): struck 0 of 1, 2 requests fit it",
            "So this test shows nothing about the fault: *",
        ]
    )


def test_pytest_loads_it_wherever_the_package_is_installed() -> None:
    (plugin,) = PROJECT["entry-points"]["pytest11"].items()
    assert plugin[0] == "x402sim"
    assert import_module(plugin[1]).x402_server


def test_it_loads_nothing_until_it_is_used() -> None:
    code = "import sys, pytest; before = set(sys.modules); import x402sim.pytest_plugin; "
    code += "print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {
        name for name in done.stdout.split() if name.split(".")[0] not in sys.stdlib_module_names
    }
    assert loaded == {"x402sim", "x402sim.version", "x402sim.pytest_plugin"}
