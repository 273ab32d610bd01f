"""Our own payers are judged where they pay for tools of MCP: no MUST fails."""

import sys

import httpx
import pytest

from x402sim import PaymentAuth, Wallet
from x402sim.clock import Clock
from x402sim.judging import judge
from x402sim.payer.tools import ToolTransport, tool_request
from x402sim.protocol.networks import network_named
from x402sim.report.results import Outcome
from x402sim.suite.payer.start import Task

DEADLINE_S = 5.0
FEW = (
    "payer/control/buys-mcp",
    "payer/accept/events-mcp",
    "payer/lost/events-break-off-mcp",
    "payer/lost/no-answer-after-settling-mcp",
    "payer/lost/again-over-cap-mcp",
    "payer/sign/asset-mcp",
)
_auths: dict[str, PaymentAuth] = {}


def by_auth(task: Task) -> str:
    """Call the tool with `PaymentAuth`, kept for a purchase as a program keeps it."""
    auth = _auths.setdefault(
        task.state_dir,
        PaymentAuth(
            Wallet(task.private_key), max_amount=task.max_amount, max_total=task.max_amount,
            network=network_named(task.network_name), deadline_s=DEADLINE_S, clock=Clock(),
        ),
    )  # fmt: skip
    transport = ToolTransport(httpx.HTTPTransport())
    with httpx.Client(transport=transport, auth=auth, timeout=DEADLINE_S) as http:
        answer = http.send(tool_request(task.url, task.tool))
    return answer.raise_for_status().text


COMMAND = f"{sys.executable} -m x402sim pay"


def failed(what: object, only: tuple[str, ...] = ()) -> list[str]:
    """Return the ids of MUST that fail, and those of `only` that do not pass."""
    verdict = judge("payer", what, flows="mcp", only=only)
    found = {it.id: it for it in verdict.results if it.id.endswith("-mcp")}
    assert len(found) >= max(len(only), 1)
    wrong = (Outcome.FAILED, Outcome.INCONCLUSIVE)
    return [
        each
        for each, it in found.items()
        if (it.level == "MUST" and it.outcome in wrong) or (each in only and it.outcome is not Outcome.PASSED)
    ]  # fmt: skip


@pytest.mark.parametrize(("what", "only"), [(by_auth, FEW), (COMMAND, FEW[:3])])
def test_our_payers_buy_tools(what: object, only: tuple[str, ...]) -> None:
    assert failed(what, only) == []


@pytest.mark.thorough
@pytest.mark.waits
@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", [by_auth, COMMAND])
def test_our_payers_fail_no_must_for_tools(what: object) -> None:
    assert failed(what) == []
