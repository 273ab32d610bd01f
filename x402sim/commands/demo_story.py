"""One paid request through every component, told step by step.

Real HTTP to a real local server, a real signature, a real settlement on the simulated
chain; every number in the story is read back from where it came to be.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from x402sim.clock import Clock
from x402sim.events import AnswerSent, Event, name_of
from x402sim.journal import Journal
from x402sim.protocol import abi
from x402sim.protocol.crypto import parse_address, to_hex
from x402sim.protocol.messages import PaymentRequired, Receipt, decode
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import network_named
from x402sim.world.server.local import LocalServer

ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the story: what was done, whether it went as it must, and the facts."""

    title: str
    ok: bool
    facts: dict[str, Any] = field(default_factory=dict)


def tell(seed: int, each: Callable[[Step], None]) -> bool:
    """Pay for a quote; hand every step to `each`. Returns whether all went as it must."""
    went_well = True

    def step(title: str, ok: bool, **facts: Any) -> None:
        nonlocal went_well
        went_well = went_well and ok
        each(Step(title, ok, facts))

    with LocalServer(seed=seed) as server, httpx.Client(base_url=server.url) as http:
        _story(server, http, step)
    return went_well


def _story(server: LocalServer, http: httpx.Client, step: Callable[..., None]) -> None:
    payer, network = server.wallets[0], network_named(server.info["network"])
    merchant = server.info["payTo"]

    def show(amount_base: int) -> str:
        return f"{to_decimal(amount_base, network.decimals)} {network.token_symbol}"

    before = [_balance(server, http, who) for who in (payer.address, merchant)]
    step("The world is up", True, service=server.url, payer=payer.address, balance=show(before[0]))

    asked = http.post("/api/perp/quote", json=ORDER)
    challenge: PaymentRequired = decode(asked.content, PaymentRequired)
    wanted = challenge.payment_requirements
    step(
        "The payer asks for a quote and is told the price",
        asked.status_code == 402,
        answer=f"{asked.status_code} {challenge.error}",
        price=f"{wanted.max_amount_required} base units = {show(int(wanted.max_amount_required))}",
        pay_to=wanted.pay_to,
        payment_id=challenge.payment_id,
    )

    header = payer.payment_header(wanted, Clock().now_s())
    step(
        "It signs an EIP-3009 authorization, off-chain",
        header.startswith("0x"),
        signs="TransferWithAuthorization, valid from 60 s ago to 300 s from now",
        payment_header=f"{header[:42]}… ({len(header)} characters)",
    )

    body = {
        "paymentId": challenge.payment_id,
        "paymentHeader": header,
        "paymentRequirements": asked.json()["paymentRequirements"],
    }
    mark = len(_journal(server, http))
    paid = http.post("/api/pay", json=body)
    receipt: Receipt = decode(paid.content, Receipt)
    step(
        "It sends it to /api/pay, which has the facilitator verify and settle it",
        paid.status_code == 200,
        answer=f"{paid.status_code} txHash {receipt.tx_hash}",
        behind=", ".join(_journal(server, http)[mark:]),
    )

    mined = _rpc(server, http, "eth_getTransactionReceipt", receipt.tx_hash)
    after = [_balance(server, http, who) for who in (payer.address, merchant)]
    moved = int(wanted.max_amount_required)
    step(
        "The token has moved the money, and the facilitator paid the gas",
        mined["status"] == "0x1" and after == [before[0] - moved, before[1] + moved],
        block=int(mined["blockNumber"], 16),
        gas=f"{int(mined['gasUsed'], 16)} paid by {mined['from']}",
        payer=f"{show(before[0])} -> {show(after[0])}",
        merchant=f"{show(before[1])} -> {show(after[1])}",
    )

    _be_served(http, step, receipt.payment_id, int(mined["blockNumber"], 16))


def _be_served(http: httpx.Client, step: Callable[..., None], payment_id: str, block: int) -> None:
    served = http.post("/api/perp/quote", json=ORDER, headers={"X-Payment-Id": payment_id})
    step(
        "It repeats the request with X-Payment-Id and is served",
        served.status_code == 200,
        answer=served.status_code,
        quote=served.json().get("quote"),
    )

    http.post("/_sim/indexer/run")
    record = http.get(f"/api/payments/{payment_id}").json()
    step(
        "The indexer asks the explorer and completes the stored record",
        record["block_number"] == block,
        status=record["status"],
        block_number=record["block_number"],
    )


def _rpc(server: LocalServer, http: httpx.Client, method: str, *params: Any) -> Any:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return http.post(server.rpc_url, json=call).json()["result"]


def _balance(server: LocalServer, http: httpx.Client, account: str) -> int:
    """Return a balance as any wallet would read it: balanceOf, through the RPC."""
    data = to_hex(abi.balance_of(parse_address(account)))
    return int(_rpc(server, http, "eth_call", {"to": server.info["asset"], "data": data}), 16)


def _journal(server: LocalServer, http: httpx.Client) -> list[str]:
    """Return what has happened so far, a few words for each event."""
    journal = Journal.load(http.get(f"{server.control_url}/journal").content)
    return [_few_words(entry.event) for entry in journal]


def _few_words(event: Event) -> str:
    if isinstance(event, AnswerSent):
        return f"{event.actor} {event.path} {event.status}"
    return name_of(event)
