"""The steps of `demo`: one paid request through every component.

Real HTTP to a real local server, a real signature, a real settlement on the simulated
chain; every number that a step shows is read back from the component that has it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from x402sim.clock import Clock
from x402sim.commands.steps import Step
from x402sim.events import AnswerSent, Event, name_of
from x402sim.journal import Journal
from x402sim.protocol import abi
from x402sim.protocol.crypto import parse_address, to_hex
from x402sim.protocol.messages import (
    PaymentRequired,
    Receipt,
    SettlementRequest,
    decode,
    encode,
)
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.world.server.local import LocalServer

ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}


def play(seed: int, network: Network) -> Iterator[Step]:
    """Pay for a quote; yield every step."""
    with (
        LocalServer(seed=seed, network=network) as server,
        httpx.Client(base_url=server.url) as http,
    ):
        yield from _Demo(server, http, network).steps()


@dataclass(frozen=True, slots=True)
class _Demo:
    """A server, a client of it, and the network of both."""

    server: LocalServer
    http: httpx.Client
    network: Network

    def steps(self) -> Iterator[Step]:
        """Yield the steps up to the served quote, and those that look behind it."""
        payer, before = self.server.wallets[0], self._balances()
        facts: dict[str, Any] = {"service": self.server.url, "payer": payer.address}
        yield Step("The world is up", True, {**facts, "balance": self._shown(before[0])})

        asked = self.http.post("/api/perp/quote", json=ORDER)
        challenge: PaymentRequired = decode(asked.content, PaymentRequired)
        wanted, payment_id = challenge.payment_requirements, challenge.payment_id
        price_base = int(wanted.max_amount_required)
        facts = {
            "answer": f"{asked.status_code} {challenge.error}",
            "price": f"{price_base} base units = {self._shown(price_base)}",
            "pay_to": wanted.pay_to,
            "payment_id": payment_id,
        }
        title = "The payer asks for a quote, and the service answers with its price"
        yield Step(title, asked.status_code == 402, facts)

        header = payer.payment_header(wanted, Clock().now_s(), network=self.network)
        facts = {
            "signs": "TransferWithAuthorization, valid from 60 s ago to 300 s from now",
            "payment_header": f"{header[:42]}… ({len(header)} characters)",
        }
        title = "The payer signs an EIP-3009 authorization, off-chain"
        yield Step(title, header.startswith("0x"), facts)

        body = SettlementRequest(
            payment_id=payment_id, payment_header=header, payment_requirements=wanted
        )
        mark, json = len(self._journal()), {"Content-Type": "application/json"}
        paid = self.http.post("/api/pay", content=encode(body), headers=json)
        receipt: Receipt = decode(paid.content, Receipt)
        facts = {
            "answer": f"{paid.status_code} txHash {receipt.tx_hash}",
            "behind": ", ".join(self._journal()[mark:]),
        }
        title = "The payer sends it to /api/pay; the facilitator verifies and settles it"
        yield Step(title, paid.status_code == 200, facts)
        yield from self._behind(receipt, before, price_base)

    def _behind(self, receipt: Receipt, before: list[int], price_base: int) -> Iterator[Step]:
        """Yield the transfer on the chain, the served request and the indexed record."""
        mined = self._rpc("eth_getTransactionReceipt", receipt.tx_hash)
        block, after = int(mined["blockNumber"], 16), self._balances()
        payer, merchant = (
            f"{self._shown(old)} -> {self._shown(new)}"
            for old, new in zip(before, after, strict=True)
        )
        gas = f"{int(mined['gasUsed'], 16)} paid by {mined['from']}"
        has_moved = after == [before[0] - price_base, before[1] + price_base]
        yield Step(
            "The token has moved the money, and the facilitator has paid the gas",
            mined["status"] == "0x1" and has_moved,
            {"block": block, "gas": gas, "payer": payer, "merchant": merchant},
        )

        proof = {"X-Payment-Id": receipt.payment_id}
        served = self.http.post("/api/perp/quote", json=ORDER, headers=proof)
        facts = {"answer": served.status_code, "quote": served.json().get("quote")}
        title = "The payer repeats the request with X-Payment-Id, and is served"
        yield Step(title, served.status_code == 200, facts)

        self.http.post("/_sim/indexer/run")
        record = self.http.get(f"/api/payments/{receipt.payment_id}").json()
        facts = {name: record[name] for name in ("status", "block_number")}
        title = "The indexer asks the explorer, and completes the stored record"
        yield Step(title, record["block_number"] == block, facts)

    def _shown(self, amount_base: int) -> str:
        """Return an amount with the token's symbol."""
        return f"{to_decimal(amount_base, self.network.decimals)} {self.network.token_symbol}"

    def _rpc(self, method: str, *params: Any) -> Any:
        """Call the chain's JSON-RPC."""
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.http.post(self.server.rpc_url, json=call).json()["result"]

    def _balances(self) -> list[int]:
        """Return the balances of payer and merchant, read as a wallet does: with balanceOf."""
        found = []
        for account in (self.server.wallets[0].address, self.server.info.pay_to):
            data = to_hex(abi.balance_of(parse_address(account)))
            call = {"to": self.server.info.asset, "data": data}
            found.append(int(self._rpc("eth_call", call), 16))
        return found

    def _journal(self) -> list[str]:
        """Return what has happened so far, a few words for each event."""
        journal = Journal.load(self.http.get(f"{self.server.control_url}/journal").content)
        return [_few_words(entry.event) for entry in journal]


def _few_words(event: Event) -> str:
    if isinstance(event, AnswerSent):
        return f"{event.actor} {event.path} {event.status}"
    return name_of(event)
