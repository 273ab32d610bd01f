"""Demands on MCP tools alone; other rows are played with tools, too."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from x402sim.protocol import mcp
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.row import only
from x402sim.suite.server.case import case, demand
from x402sim.suite.server.double import INVALID, REFUSED, SETTLE, VERIFY, on, refuses
from x402sim.suite.server.observed import Try
from x402sim.suite.server.payment import payable
from x402sim.suite.server.play import Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.verdict import Found, Violation

_case = partial(case, absent=only([Dialect.MCP], "only a tool has results"))
DRAFT = "org.x402/payment"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


def result_in(answer: Answer) -> Mapping[str, Any]:
    """Return the answer's result of a call; empty without a result."""
    result = answer.rpc.get("result")
    return result if isinstance(result, dict) else {}


@demand(
    "A call without a payment gets an error as result, with the offer",
    texts.explicit(texts.MCP_SIGNAL),
)
def _is_error(_: Play, answer: Answer) -> Found:
    if answer.status == 402 and result_in(answer).get("isError") is True:
        return None
    return Violation(demand="offer-is-error-result", actual=answer.how)


@demand(
    "structuredContent and the first text hold the same offer",
    texts.explicit(texts.MCP_BOTH, texts.MCP_IDENTICAL),
    suffix="both",
)
def _in_both(_: Play, answer: Answer) -> Found:
    result = result_in(answer)
    structured, text = result.get("structuredContent"), mcp.text_in(result)
    if isinstance(structured, dict) and "accepts" in structured and text == structured:
        return None
    shown = json.dumps({"structuredContent": structured, "content[0].text": text})[:300]
    return Violation(demand="offer-in-both-places", actual=shown)


def _call(play: Play) -> dict[str, Any]:
    return {"name": play.item.call.name, "arguments": play.item.call.arguments}


@demand(
    "Calls with something else in the payment's place, or elsewhere",
    texts.derived(
        texts.MCP_SIGNAL,
        texts.NO_VALID_PAYMENT,
        so="what is no payment in its place leaves the call unpaid",
    ),
)
def _serves_nothing(play: Play, observed: Sequence[Try]) -> Found:
    served = next((each for each in observed if each.answer.is_2xx), None)
    if served is None:
        return None
    return Violation(demand="no-call-unpaid", actual=f"{served.about}: {served.answer.how}")


@dataclass(frozen=True, slots=True)
class Refused:
    """The result of an unsettled payment, and the result of a settled payment."""

    goods: Answer
    answer: Answer


async def _invalid(play: Play) -> Answer:
    """Pay one base unit less than the price."""
    payment = await play.draft()
    return await play.pay(payment.signed(value=payment.auth.value - 1))


async def _after_verify_no(play: Play) -> Answer:
    payment = await play.draft()
    with play.double.twisted(on(VERIFY, refuses(INVALID)), on(SETTLE, refuses(REFUSED))):
        return await play.pay(payment)


def _texts(answer: Answer) -> list[str]:
    content = result_in(answer).get("content")
    items = content if isinstance(content, list) else []
    return [str(each.get("text")) for each in items if isinstance(each, dict) and "text" in each]


@demand(
    "A settlement fails after the work: none of the content is returned",
    texts.explicit(texts.MCP_NO_CONTENT),
    level="SHOULD",
)
def _keeps_content(_: Play, observed: Refused) -> Found:
    sold = result_in(observed.goods).get("structuredContent")
    got = result_in(observed.answer).get("structuredContent")
    is_sold = isinstance(sold, dict) and isinstance(got, dict) and sold.keys() <= got.keys()
    if len(_texts(observed.answer)) < 2 and not is_sold:
        return None
    return Violation(demand="no-content-beside-error", actual=observed.answer.how)


def _offers_again(play: Play, answer: Answer) -> Found:
    offer = payable(play.dialect, answer, play.room.network)
    structured = result_in(answer).get("structuredContent")
    error = structured.get("error") if isinstance(structured, dict) else None
    if answer.status == 402 and offer is not None and isinstance(error, str) and error:
        return None
    return Violation(demand="refusal-has-offer-and-reason", actual=answer.how)


@demand(
    "The binding of the answer to a client with the experimental binding",
    texts.silent(texts.MCP_DRAFT, why="it is experimental, and changes"),
)
def _binding(_: Play, answer: Answer) -> str:
    kind = result_in(answer).get("resultType")
    if kind == "payment_required":
        return f"{DRAFT}: answered by its result type payment_required"
    return f"{DRAFT}: not answered by a result type of its own ({answer.status})"


@_case("tool/offer", _is_error, _in_both)
async def _asked(play: Play) -> Answer:
    return await play.ask()


@_case("tool/unpaid", _serves_nothing)
async def _unpaid(play: Play) -> Sequence[Try]:
    """Call without a payment, with content that a server may take for a payment."""
    call = _call(play)
    receipt = {"success": True, "transaction": "0x" + "ab" * 32, "network": "eip155:84532"}
    calls: dict[str, dict[str, Any]] = {
        "an empty _meta": {"_meta": {}},
        "a payment that is null": {"_meta": {mcp.PAYMENT: None}},
        "a receipt of its own": {"_meta": {mcp.RESPONSE: receipt}},
        "a payment among the arguments": {
            "arguments": {**play.item.call.arguments, mcp.PAYMENT: {"x402Version": 2}}
        },
        "a payment beside _meta": {mcp.PAYMENT: {"x402Version": 2}},
        "a progress token": {"_meta": {"progressToken": 1}},
    }
    return [Try(about, await play.call(call | more)) for about, more in calls.items()]


@_case("tool/refused", _keeps_content)
async def _refused(play: Play) -> Refused:
    goods, payment = await play.goods(), await play.draft()
    with play.double.twisted(on(SETTLE, refuses(REFUSED))):
        return Refused(goods, await play.pay(payment))


@_case("tool/draft", _binding)
async def _draft(play: Play) -> Answer:
    """Call without a payment, as a client of the experimental binding."""
    can: dict[str, Any] = {CAPABILITIES: {"extensions": {DRAFT: {}}}}
    return await play.call(_call(play) | {"_meta": can})


ROWS = [
    *(
        _case(
            f"tool/{slug}",
            demand(f"{what}: the offer again, with the reason", texts.explicit(texts.MCP_INVALID))(
                _offers_again
            ),
        )(play)
        for slug, what, play in (
            ("underpaid", "A payment of less than the price", _invalid),
            ("invalid", "A payment refused by verify", _after_verify_no),
        )
    ),
]
