"""The steps of `demo`: one paid request through every component.

Real HTTP to a real local server, a real signature, a real settlement on the simulated
chain; every number that a step shows is read back from the component that has it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from x402sim.clock import Clock
from x402sim.events import AnswerSent, Event, name_of
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import parse_address, to_hex
from x402sim.protocol.messages import (
    PaymentRequired,
    PaymentRequirements,
    Receipt,
    SettlementRequest,
    decode,
    encode,
)
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.world.server.local import LocalServer

ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its title, whether it succeeded, and its details."""

    title: str
    ok: bool
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Demo:
    """A server, a payer, and the function that receives the steps."""

    server: LocalServer
    http: httpx.Client
    network: Network
    step: Callable[..., None]

    @property
    def payer(self) -> Wallet:
        return self.server.wallets[0]

    def shown(self, amount_base: int) -> str:
        """Return an amount with the token's symbol."""
        return f"{to_decimal(amount_base, self.network.decimals)} {self.network.token_symbol}"

    def rpc(self, method: str, *params: Any) -> Any:
        """Call the chain's JSON-RPC."""
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.http.post(self.server.rpc_url, json=call).json()["result"]

    def balances(self) -> list[int]:
        """Return the balances of payer and merchant, read as a wallet does: with balanceOf."""
        found = []
        for account in (self.payer.address, self.server.info.pay_to):
            data = to_hex(abi.balance_of(parse_address(account)))
            call = {"to": self.server.info.asset, "data": data}
            found.append(int(self.rpc("eth_call", call), 16))
        return found


def play(seed: int, network: Network, on_step: Callable[[Step], None]) -> bool:
    """Pay for a quote; call `on_step` with every step. Returns whether all succeeded."""
    all_ok = True

    def step(title: str, ok: bool, **facts: Any) -> None:
        nonlocal all_ok
        all_ok = all_ok and ok
        on_step(Step(title, ok, facts))

    with (
        LocalServer(seed=seed, network=network) as server,
        httpx.Client(base_url=server.url) as http,
    ):
        demo = _Demo(server, http, network, step)
        before = demo.balances()
        step(
            "The world is up",
            True,
            service=server.url,
            payer=demo.payer.address,
            balance=demo.shown(before[0]),
        )
        challenge = _ask(demo)
        header = _sign(demo, challenge.payment_requirements)
        receipt = _settle(demo, challenge, header)
        block = _look_at_the_transfer(demo, challenge.payment_requirements, receipt, before)
        _repeat(demo, receipt.payment_id)
        _index(demo, receipt.payment_id, block)
    return all_ok


def _ask(demo: _Demo) -> PaymentRequired:
    answer = demo.http.post("/api/perp/quote", json=ORDER)
    challenge: PaymentRequired = decode(answer.content, PaymentRequired)
    wanted = challenge.payment_requirements
    price_base = int(wanted.max_amount_required)
    demo.step(
        "The payer asks for a quote, and the service answers with its price",
        answer.status_code == 402,
        answer=f"{answer.status_code} {challenge.error}",
        price=f"{price_base} base units = {demo.shown(price_base)}",
        pay_to=wanted.pay_to,
        payment_id=challenge.payment_id,
    )
    return challenge


def _sign(demo: _Demo, wanted: PaymentRequirements) -> str:
    header = demo.payer.payment_header(wanted, Clock().now_s(), network=demo.network)
    demo.step(
        "The payer signs an EIP-3009 authorization, off-chain",
        header.startswith("0x"),
        signs="TransferWithAuthorization, valid from 60 s ago to 300 s from now",
        payment_header=f"{header[:42]}… ({len(header)} characters)",
    )
    return header


def _settle(demo: _Demo, challenge: PaymentRequired, header: str) -> Receipt:
    body = SettlementRequest(
        payment_id=challenge.payment_id,
        payment_header=header,
        payment_requirements=challenge.payment_requirements,
    )
    mark = len(_journal(demo))
    json = {"Content-Type": "application/json"}
    answer = demo.http.post("/api/pay", content=encode(body), headers=json)
    receipt: Receipt = decode(answer.content, Receipt)
    demo.step(
        "The payer sends it to /api/pay; the facilitator verifies and settles it",
        answer.status_code == 200,
        answer=f"{answer.status_code} txHash {receipt.tx_hash}",
        behind=", ".join(_journal(demo)[mark:]),
    )
    return receipt


def _look_at_the_transfer(
    demo: _Demo, wanted: PaymentRequirements, receipt: Receipt, before: list[int]
) -> int:
    """Show the transaction and both balances; return its block's number."""
    mined = demo.rpc("eth_getTransactionReceipt", receipt.tx_hash)
    after, moved = demo.balances(), int(wanted.max_amount_required)
    block = int(mined["blockNumber"], 16)
    payer, merchant = (
        f"{demo.shown(old)} -> {demo.shown(new)}" for old, new in zip(before, after, strict=True)
    )
    demo.step(
        "The token has moved the money, and the facilitator has paid the gas",
        mined["status"] == "0x1" and after == [before[0] - moved, before[1] + moved],
        block=block,
        gas=f"{int(mined['gasUsed'], 16)} paid by {mined['from']}",
        payer=payer,
        merchant=merchant,
    )
    return block


def _repeat(demo: _Demo, payment_id: str) -> None:
    served = demo.http.post("/api/perp/quote", json=ORDER, headers={"X-Payment-Id": payment_id})
    demo.step(
        "The payer repeats the request with X-Payment-Id, and is served",
        served.status_code == 200,
        answer=served.status_code,
        quote=served.json().get("quote"),
    )


def _index(demo: _Demo, payment_id: str, block: int) -> None:
    demo.http.post("/_sim/indexer/run")
    record = demo.http.get(f"/api/payments/{payment_id}").json()
    demo.step(
        "The indexer asks the explorer, and completes the stored record",
        record["block_number"] == block,
        status=record["status"],
        block_number=record["block_number"],
    )


def _journal(demo: _Demo) -> list[str]:
    """Return what has happened so far, a few words for each event."""
    journal = Journal.load(demo.http.get(f"{demo.server.control_url}/journal").content)
    return [_few_words(entry.event) for entry in journal]


def _few_words(event: Event) -> str:
    if isinstance(event, AnswerSent):
        return f"{event.actor} {event.path} {event.status}"
    return name_of(event)
