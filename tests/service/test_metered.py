"""Goods sold `upto`: the amount used is settled once, after the work, and never above the maximum."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from tests.rig import (
    ServiceRig,
    answer,
    beside,
    broken,
    logs_of_few_blocks,
    lose_answer,
    lose_request,
    only,
    scene,
)
from tests.service.standard import On
from x402sim import events
from x402sim.chain.base import Call
from x402sim.http.web import CONNECTION
from x402sim.protocol import abi
from x402sim.protocol.crypto import PrivateKey, checksum, parse_address, sign, to_hex
from x402sim.protocol.permit2 import (
    EXACT_PROXY,
    PERMIT2,
    UPTO_PROXY,
    Permit2Authorization,
    permit2_digest,
)
from x402sim.protocol.permit2_payments import (
    Permit2Payment,
    message_of,
    permit2_payload,
    permit2_payment_of,
)
from x402sim.protocol.x402 import (
    RequirementsV2,
    from_base64,
    json_in,
    read_required,
    to_base64,
)
from x402sim.service import metered
from x402sim.service.app import service_app
from x402sim.service.settings import Settings
from x402sim.service.sources import flagged, goods_of, read_good, selling
from x402sim.service.state import restarted
from x402sim.service.upstream import chain

MAXIMUM, USED = 50_000, 12_300
Scene = Callable[["MeteredRig"], Awaitable[None]]


class MeteredRig(ServiceRig):
    """A service with a metered good at /chat; `used` is what the next answer uses, in tokens."""

    def __init__(self) -> None:
        self.used: Any = "0.0123"
        self.works, self.crashes, self.nonce = 0, False, 7

        async def chat(request: Request) -> Any:
            self.works += 1
            await asyncio.sleep(0.005)
            if self.crashes:
                raise asyncio.CancelledError
            if isinstance(self.used, Response):
                return self.used
            return "hello" if self.used is None else ("hello", self.used)

        sold = {
            "GET /chat upto 0.05": chat,
            "GET /other upto 0.05": chat,
            "GET /rain 0.01": "wet",
            "GET /report permit2 0.05": chat,
        }
        super().__init__(settings=selling(Settings(phase=0), goods_of(sold)))

    async def approve(self, amount_base: int = 10**6) -> None:
        token, data = self.service.env.network.asset, abi.approve(PERMIT2, amount_base)
        await self.parts.chain.send(Call(self.alice.address_bytes, token, data))

    def signed(self, required: httpx.Response, **changes: Any) -> dict[str, str]:
        """Return the header of a payment with a new nonce, for a 402."""
        offer = read_required(required.headers["PAYMENT-REQUIRED"]).accepts[-1]
        account = (offer.extra or {}).get("facilitatorAddress")
        self.nonce += 1
        fields: dict[str, Any] = {
            "from_": self.alice.address_bytes,
            "token": parse_address(offer.asset),
            "amount": int(offer.amount),
            "spender": UPTO_PROXY if account else EXACT_PROXY,
            "nonce": self.nonce,
            "deadline": self.clock.now_s() + offer.max_timeout_seconds - 1,
            "to": parse_address(offer.pay_to),
            "valid_after": self.clock.now_s() - 60,
            "facilitator": account and parse_address(account),
        }
        return {"PAYMENT-SIGNATURE": self.header(Permit2Authorization(**(fields | changes)), offer)}

    def header(self, auth: Permit2Authorization, offer: RequirementsV2) -> str:
        digest = permit2_digest(auth, self.service.env.network.chain_id)
        signature = sign(digest, PrivateKey(self.alice.private_key))
        payload = permit2_payload(auth, signature)
        return to_base64(Permit2Payment(x402_version=2, accepted=offer, payload=payload))

    async def chat(self, headers: dict[str, str] | None = None, path: str = "/chat") -> Any:
        return await self.http.get(path, headers=headers or await self.ready(path))

    async def ready(self, path: str = "/chat") -> dict[str, str]:
        """Approve Permit2, and return the header of a new payment."""
        await self.approve()
        return self.signed(await self.http.get(path))

    def events(self, kind: type[Any]) -> list[Any]:
        return [each.event for each in self.parts.journal if isinstance(each.event, kind)]


def metered_scene(test: Scene) -> Callable[..., None]:
    return scene(test, MeteredRig)


def receipt(answer: httpx.Response) -> Any:
    return json_in(answer.headers.get("PAYMENT-RESPONSE"))


# --- a sale -----------------------------------------------------------------------------------


@metered_scene
async def test_the_402_offers_upto_with_the_facilitators_account_and_what_it_sponsors(rig):
    answer = await rig.http.get("/chat")
    assert answer.status_code == 402
    required = read_required(answer.headers["PAYMENT-REQUIRED"])
    (offer,) = required.accepts
    network = rig.service.env.network
    assert (offer.scheme, offer.network, offer.amount) == ("upto", network.caip2, str(MAXIMUM))
    account = next(iter(rig.parts.facilitators.values()))[0].account
    domain = {"name": network.token_name, "version": network.token_version}
    assert offer.extra == domain | {"facilitatorAddress": checksum(account)}
    assert sorted(required.extensions) == ["eip2612GasSponsoring", "erc20ApprovalGasSponsoring"]
    for each in required.extensions.values():
        assert set(each["schema"]["required"]) == set(each["schema"]["properties"])
        Draft202012Validator.check_schema(each["schema"])
    assert (await rig.http.head("/chat")).status_code == 402
    assert rig.works == 0


@metered_scene
async def test_the_amount_used_is_settled_after_the_work(rig):
    answer = await rig.chat()
    assert (answer.status_code, answer.text) == (200, "hello")
    assert rig.earned == USED
    told = receipt(answer)
    assert (told["success"], told["amount"], told["payer"]) == (True, "12300", rig.alice.address)
    assert "x-amount-used" not in answer.headers
    (measured,), (settled,) = rig.events(events.UsageMeasured), rig.events(events.UsageSettled)
    assert (measured.used_base, measured.maximum_base) == (USED, MAXIMUM)
    assert (settled.settled_base, settled.tx_hash) == (USED, told["transaction"])


@metered_scene
async def test_without_an_amount_the_maximum_is_settled(rig):
    rig.used = None
    assert receipt(await rig.chat())["amount"] == str(MAXIMUM) == str(rig.earned)


@metered_scene
async def test_nothing_used_needs_no_transaction_and_leaves_the_message(rig):
    rig.used = "0"
    headers = await rig.ready()
    answer = await rig.chat(headers)
    assert (answer.status_code, answer.text, rig.earned) == (200, "hello", 0)
    assert (receipt(answer)["transaction"], receipt(answer)["amount"]) == ("", "0")
    rig.used = "0.0123"
    assert (await rig.chat(headers)).status_code == 200
    assert rig.earned == USED


@pytest.mark.parametrize("used", ["0.050001", "-1", "a lot", "0.00000001"])
def test_a_wrong_amount_is_a_defect_of_the_shop_and_nothing_is_settled(used, caplog):
    async def told(rig: MeteredRig) -> None:
        rig.used = used
        headers = await rig.ready()
        answer = await rig.chat(headers)
        assert (answer.status_code, rig.earned) == (500, 0)
        assert "X-Amount-Used of /chat" in answer.json()["reason"]
        rig.used = "0.0123"
        assert (await rig.chat(headers)).status_code == 200

    metered_scene(told)()
    assert "nothing is settled" in caplog.text


@metered_scene
async def test_an_error_of_the_shop_is_not_charged(rig):
    rig.used = Response("out of order", 503)
    assert (await rig.chat()).status_code == 503
    assert rig.earned == 0
    assert rig.service.store.one("SELECT count(*) FROM usages") == (0,)


# --- refused before the work ------------------------------------------------------------------


@metered_scene
async def test_what_cannot_be_settled_is_refused_before_the_work(rig):
    required = await rig.http.get("/chat")
    unapproved = await rig.chat(rig.signed(required))
    assert unapproved.status_code == 412
    await rig.approve()
    wrong = {
        "permit2_amount_mismatch": {"amount": MAXIMUM + 1},
        "upto_facilitator_mismatch": {"facilitator": rig.bob.address_bytes},
        "invalid_permit2_recipient_mismatch": {"to": rig.bob.address_bytes},
        "permit2_deadline_expired": {"deadline": rig.clock.now_s() + 10**6},
        "invalid_permit2_signature": {"from_": rig.bob.address_bytes},
    }
    for word, changes in wrong.items():
        refused = await rig.chat(rig.signed(required, **changes))
        error = read_required(refused.headers["PAYMENT-REQUIRED"]).error
        assert (refused.status_code, error) == (402, word)
    others = {"X-Payment-Id": "pay_x", "X-PAYMENT": "e30="}
    for sent in ({"PAYMENT-SIGNATURE": "e30="}, {"PAYMENT-SIGNATURE": "?"}, others):
        assert (await rig.chat(sent)).status_code == 402
    assert (rig.works, rig.earned) == (0, 0)


@metered_scene
async def test_a_used_nonce_is_refused_before_the_work_although_the_store_is_empty(rig):
    """Also by a facilitator that does not look at nonces."""
    headers = await rig.ready()
    assert (await rig.chat(headers)).status_code == 200
    rig.service.store.clear()
    with broken(rig, "facilitator", only("/verify", answer(200, {"isValid": True}))):
        again = await rig.chat(headers)
    assert (again.status_code, rig.works, rig.earned) == (402, 1, USED)


# --- once -------------------------------------------------------------------------------------


@metered_scene
async def test_the_same_message_is_served_once(rig):
    headers = await rig.ready()
    assert (await rig.chat(headers)).status_code == 200
    for path in ("/chat", "/other"):
        again = await rig.chat(headers, path)
        assert again.status_code == 402
        assert read_required(again.headers["PAYMENT-REQUIRED"]).error == "permit2_invalid_nonce"
    assert (rig.works, rig.earned) == (1, USED)


@metered_scene
async def test_of_the_same_message_at_once_one_is_served(rig):
    headers = await rig.ready()
    answers = await asyncio.gather(*(rig.chat(headers) for _ in range(5)))
    assert sorted(each.status_code for each in answers) == [200, 402, 402, 402, 402]
    assert (rig.works, rig.earned) == (1, USED)


@metered_scene
async def test_of_two_services_on_one_store_one_serves(rig):
    headers = await rig.ready()
    with beside(rig) as (_, other):
        both = await asyncio.gather(rig.chat(headers), other.get("/chat", headers=headers))
        assert [each.status_code for each in both].count(200) == 1
    assert (rig.works, rig.earned) == (1, USED)


# --- lost answers, crashes, hang-ups ----------------------------------------------------------


@metered_scene
async def test_a_settlement_whose_answer_is_lost_is_found_on_the_chain(rig):
    with broken(rig, "facilitator", only("/settle", lose_answer)):
        answer = await rig.chat()
    assert (answer.status_code, rig.works, rig.earned) == (200, 1, USED)
    assert len(rig.events(events.SettlementAnswerLost)) == 1
    assert receipt(answer)["transaction"] == rig.events(events.UsageSettled)[0].tx_hash


@metered_scene
async def test_a_settlement_that_did_not_arrive_is_sent_again_without_new_work(rig):
    headers = await rig.ready()
    with broken(rig, "facilitator", only("/settle", lose_request)):
        lost = await rig.chat(headers)
    assert (lost.json()["error"], lost.json()["final"]) == ("Settlement pending", False)
    assert receipt(lost)["success"] is False
    assert rig.earned == 0
    rig.restart()
    rig.used = "0.05"
    answer = await rig.chat(headers)
    assert (answer.status_code, answer.text) == (200, "hello")
    assert (rig.works, rig.earned, receipt(answer)["amount"]) == (1, USED, str(USED))


@metered_scene
async def test_one_transfer_pays_for_one_message_whatever_the_calldata_names(rig):
    """A payer cancels a nonce, and names the message in the calldata of another payment."""
    first, second = await rig.ready(), await rig.ready()
    answer = await rig.chat(first)
    with broken(rig, "facilitator", only("/settle", lose_request)):
        assert (await rig.chat(second)).status_code == 409

    async def names_both(request: httpx.Request, deliver: Any) -> httpx.Response:
        call, answered = json.loads(request.content), json.loads((await deliver()).content)
        if call["method"] == "eth_getTransactionByHash":
            sent = permit2_payment_of(from_base64(second["PAYMENT-SIGNATURE"]))
            auth, signature = message_of(sent)
            answered["result"]["input"] += abi.settle(auth, USED, signature).hex()
        if call["method"] == "eth_call" and call["params"][0]["to"] == to_hex(PERMIT2):
            answered["result"] = "0x" + "f" * 64
        return httpx.Response(200, json=answered)

    with broken(rig, "rpc", names_both):
        await metered.reconcile(rig.service)
        assert (await rig.chat(second)).status_code == 409
    assert [each.tx_hash for each in rig.events(events.UsageSettled)] == [
        receipt(answer)["transaction"]
    ]
    assert (await rig.chat(second)).text == "hello"
    assert (rig.works, rig.earned) == (2, 2 * USED)


@metered_scene
async def test_after_a_crash_the_background_settles_what_is_owed(rig):
    headers = await rig.ready()
    with broken(rig, "facilitator", only("/settle", lose_request)):
        await rig.chat(headers)
    rig.restart()
    await metered.reconcile(rig.service)
    await metered.reconcile(rig.service)
    assert rig.earned == USED
    assert (await rig.chat(headers)).status_code == 200
    assert (await rig.chat(headers)).status_code == 402
    assert (rig.works, rig.earned) == (1, USED)


@metered_scene
async def test_what_is_owed_is_for_one_message_and_one_resource(rig):
    await rig.approve()
    required = await rig.http.get("/chat")
    headers, other = rig.signed(required), rig.signed(required, nonce=8, valid_after=1)
    with broken(rig, "facilitator", only("/settle", lose_request)):
        await rig.chat(headers)
    assert (await rig.chat(headers, "/other")).status_code == 402
    assert (await rig.chat(other)).status_code == 402
    assert (rig.works, rig.earned) == (1, 0)
    assert (await rig.chat(headers)).status_code == 200


@metered_scene
async def test_a_message_that_the_payer_cancels_during_the_work_buys_nothing(rig):
    headers = await rig.ready()

    async def cancel_first(request: httpx.Request, deliver: Any) -> httpx.Response:
        cancel = abi.INVALIDATE_NONCES + abi.word(0)
        data = cancel + abi.word(1 << rig.nonce)
        await rig.parts.chain.send(Call(rig.alice.address_bytes, PERMIT2, data))
        return await deliver()

    with broken(rig, "facilitator", only("/settle", cancel_first)):
        assert (await rig.chat(headers)).json()["error"] == "Settlement pending"
    rig.wires["facilitator"].seen.clear()
    assert "not by this payment" in (await rig.chat(headers)).json()["reason"]
    assert rig.wires["facilitator"].seen == [], "a used nonce is not settled again"
    assert (rig.works, rig.earned) == (1, 0)
    rig.now[0] += 1_000 + metered.LATE_S
    await rig.parts.chain.mine()
    await metered.reconcile(rig.service)
    assert len(rig.events(events.UsageFailed)) == 1


@metered_scene
async def test_a_node_that_does_not_show_the_transaction_yet_ends_no_paid_message(rig):
    """A node behind another shows no events of the newest block: with an old message, too."""

    async def behind(request: httpx.Request, deliver: Any) -> httpx.Response:
        none = httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": []})
        return none if b"eth_getLogs" in request.content else await deliver()

    known, owed = await rig.ready(), rig.signed(await rig.http.get("/chat"))
    rig.service.store.usages.delivered = lambda payment_id: None  # as a client that hangs up
    assert (await rig.chat(known)).text == "hello"
    with broken(rig, "rpc", behind), broken(rig, "facilitator", only("/settle", lose_answer)):
        assert (await rig.chat(owed)).json()["error"] == "Settlement pending"
        rig.now[0] += 301  # both messages have expired
        await rig.parts.chain.mine()
        await metered.reconcile(rig.service)
    assert rig.events(events.UsageFailed) == []
    await metered.reconcile(rig.service)
    assert len(rig.events(events.UsageSettled)) == 2
    assert (await rig.chat(owed)).text == "hello"
    assert (rig.works, rig.earned) == (2, 2 * USED)


@metered_scene
async def test_a_settlement_is_found_at_a_node_that_gives_logs_of_few_blocks(rig):
    headers = await rig.ready()
    with (
        broken(rig, "facilitator", only("/settle", lose_answer)),
        broken(rig, "rpc", logs_of_few_blocks(rig, 0)),
    ):
        assert (await rig.chat(headers)).json()["error"] == "Settlement pending"
    await rig.parts.chain.mine(40)
    with (
        pytest.MonkeyPatch.context() as patch,
        broken(rig, "rpc", logs_of_few_blocks(rig, 10)),
    ):
        patch.setattr(chain, "AT_ONCE", 100)
        assert (await rig.chat(headers)).text == "hello"
    assert (rig.works, rig.earned) == (1, USED)


@metered_scene
async def test_a_kept_answer_outlives_a_change_of_the_price(rig):
    headers = await rig.ready()
    with broken(rig, "facilitator", only("/settle", lose_request)):
        await rig.chat(headers)
    env = rig.service.env
    cheap = goods_of({"GET /chat upto 0.04": "cheap"})
    cheaper = replace(env, settings=replace(env.settings, sells=cheap))
    app = httpx.ASGITransport(service_app(restarted(replace(rig.service, env=cheaper))))
    async with httpx.AsyncClient(transport=app, base_url="http://service.test") as other:
        fresh = rig.signed(await rig.http.get("/chat"))
        assert (await other.get("/chat", headers=fresh)).status_code == 402
        assert (await other.get("/chat", headers=headers)).text == "hello"
    assert (rig.works, rig.earned) == (1, USED)


@metered_scene
async def test_after_a_crash_within_the_work_the_work_is_done_again(rig):
    headers = await rig.ready()
    rig.crashes = True
    usages = rig.service.store.usages
    usages.release = lambda payment_id: None  # as a crash does not release
    with pytest.raises(asyncio.CancelledError):
        await rig.chat(headers)
    del usages.release
    rig.crashes = False
    rig.restart()
    assert (await rig.chat(headers)).status_code == 200
    assert (rig.works, rig.earned) == (2, USED)


@metered_scene
async def test_nobody_is_served_while_nothing_is_settled(rig):
    """The payer has spent the money elsewhere between verify and settle."""
    headers = await rig.ready()

    async def spend_first(request: httpx.Request, deliver: Any) -> httpx.Response:
        held = rig.balance(rig.alice)
        moves = abi.transfer(rig.bob.address_bytes, held)
        token = rig.service.env.network.asset
        await rig.parts.chain.send(Call(rig.alice.address_bytes, token, moves))
        return await deliver()

    with broken(rig, "facilitator", only("/settle", spend_first)):
        refused = await rig.chat(headers)
    assert refused.json()["error"] == "Settlement pending"
    assert "permit2_insufficient_balance" in refused.json()["reason"]
    assert rig.earned == 0
    rig.now[0] += 1_000  # the deadline is over
    await rig.parts.chain.mine()
    await metered.reconcile(rig.service)
    (failed,) = rig.events(events.UsageFailed)
    assert failed.used_base == USED
    assert (await rig.chat(headers)).status_code == 402
    assert (rig.works, rig.earned) == (1, 0)


@metered_scene
async def test_a_client_that_hangs_up_pays_for_the_work_and_gets_the_answer_later(rig):
    app, lost = rig.wires["service"].inner.app, [True]

    async def hung_up(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, CONNECTION: On(answered=False)} if lost.pop() else scope, receive, send)

    headers = await rig.ready()
    rig.wires["service"].inner.app = hung_up
    await rig.chat(headers)
    assert rig.earned == USED
    assert len(rig.events(events.AnswerNotWritten)) == 1
    rig.wires["service"].inner.app = app
    rig.restart()
    answer = await rig.chat(headers)
    assert (answer.text, receipt(answer)["amount"]) == ("hello", str(USED))
    assert (await rig.chat(headers)).status_code == 402
    assert (rig.works, rig.earned) == (1, USED)


@metered_scene
async def test_a_settlement_undone_by_the_chain_is_settled_again(rig):
    await rig.chat()
    (settled,) = rig.events(events.UsageSettled)
    tx = (await rig.parts.chain.transaction(bytes.fromhex(settled.tx_hash[2:]))).hash
    await rig.parts.chain.reorg(1, drop=[tx])
    assert rig.earned == 0
    await metered.reconcile(rig.service)
    await metered.reconcile(rig.service)
    assert rig.earned == USED
    assert len(rig.events(events.PaymentUndone)) == 1
    await rig.parts.chain.mine(20)
    await metered.reconcile(rig.service)
    assert rig.service.store.usages.due(0, 9) == []


@metered_scene
async def test_a_silent_facilitator_or_node_costs_nobody_anything(rig):
    with broken(rig, "facilitator", only("/supported", lose_request)):
        assert (await rig.http.get("/chat")).json()["error"] == "Facilitator unreachable"
    headers = await rig.ready()
    with broken(rig, "facilitator", only("/verify", lose_request)):
        assert (await rig.chat(headers)).json()["error"] == "Facilitator unreachable"
    with broken(rig, "rpc", lose_request):
        assert (await rig.chat(headers)).json()["error"] == "Chain unreachable"
    assert (await rig.chat(headers)).status_code == 200
    assert (rig.works, rig.earned) == (1, USED)


# --- exact, by Permit2 beside EIP-3009 ---------------------------------------------------------


@metered_scene
async def test_exact_is_sold_by_permit2_beside_eip_3009(rig):
    """One price, whatever an API uses; no approval is 412, and the offers stay; all once."""
    rig.used = Response("hello", headers={"X-Amount-Used": "0.0123"})
    required = await rig.http.get("/report")
    told = read_required(required.headers["PAYMENT-REQUIRED"])
    plain, offer = told.accepts
    domain = {key: (plain.extra or {})[key] for key in ("name", "version")}
    assert (plain.scheme, plain.amount, offer.scheme) == ("exact", str(MAXIMUM), "exact")
    assert offer == structs.replace(plain, extra=domain | {"assetTransferMethod": "permit2"})
    assert {"payment-identifier", "eip2612GasSponsoring"} < set(told.extensions or {})
    headers = rig.signed(required)
    refused = await rig.chat(headers, "/report")
    told = read_required(refused.headers["PAYMENT-REQUIRED"])
    assert (refused.status_code, told.error) == (412, "permit2_allowance_required")
    assert told.accepts[-1] == offer
    await rig.approve()
    headers_of_upto = rig.signed(await rig.http.get("/chat"))
    cheaper = rig.signed(required, amount=MAXIMUM - 1)
    for wrong in (headers_of_upto, cheaper):
        assert (await rig.chat(wrong, "/report")).status_code == 402
    assert (rig.works, rig.earned) == (0, 0)
    with broken(rig, "facilitator", only("/settle", lose_answer)):
        answer = await rig.chat(headers, "/report")
    assert (answer.status_code, answer.text, rig.earned) == (200, "hello", MAXIMUM)
    for path in ("/report", "/chat"):
        assert (await rig.chat(headers, path)).status_code == 402
    assert (await rig.pay(required)).status_code == 200
    shown = {"X-Payment-Id": required.json()["paymentId"]} | rig.signed(required)
    assert (await rig.chat(shown, "/report")).status_code == 200, "the id counts, and costs nothing"
    assert (rig.works, rig.earned) == (2, 2 * MAXIMUM)


@metered_scene
async def test_with_the_payers_own_id_the_answer_is_given_again(rig):
    """And no other payment, by Permit2 or not, has the id."""
    await rig.approve()
    required = await rig.http.get("/report")

    def named(**changes: Any) -> dict[str, str]:
        headers = rig.signed(required, **changes)
        payment = json_in(headers["PAYMENT-SIGNATURE"])
        payment["extensions"] = {"payment-identifier": {"info": {"id": "pay_of_the_payers_own"}}}
        return {"PAYMENT-SIGNATURE": to_base64(payment)}

    headers = named()
    first, again = [await rig.chat(headers, "/report") for _ in range(2)]
    assert (again.text, receipt(again)) == (first.text, receipt(first))
    others = [named(), named()]
    assert [(await rig.chat(each, "/report")).status_code for each in others] == [409, 409]
    rig.service.store.clear()
    answers = await asyncio.gather(*(rig.chat(each, "/report") for each in others))
    assert sorted(each.status_code for each in answers) == [200, 409]
    assert (rig.works, rig.earned) == (2, 2 * MAXIMUM)


@metered_scene
async def test_without_a_facilitator_exact_is_offered_by_eip_3009_alone(rig):
    with broken(rig, "facilitator", only("/supported", lose_request)):
        required = await rig.http.get("/report")
    (offer,) = read_required(required.headers["PAYMENT-REQUIRED"]).accepts
    assert (required.status_code, offer.scheme) == (402, "exact")


# --- how a good is named ----------------------------------------------------------------------


def test_a_good_is_named_with_its_maximum_and_perhaps_a_fixed_use():
    async def body(_: Any) -> Response:
        return Response("x")

    good = read_good("POST /chat upto 0.05", body)
    assert (good.method, good.path, good.price, good.upto) == ("POST", "/chat", "0.05", True)
    assert read_good("/chat upto 0.05", body).method == "GET"
    assert not read_good("/upto 0.05", body).upto
    by_permit2 = read_good("/permit2 permit2 0.05", body)
    assert (by_permit2.path, by_permit2.permit2, by_permit2.upto) == ("/permit2", True, False)
    (sold,) = flagged(["GET /report permit2 0.05"], [])
    assert asyncio.run(sold.answer(Request({"type": "http"}))).body == b'{"sold":"GET /report"}'
    (fixed,) = flagged(["GET /chat 0.0123 upto 0.05"], [])
    answer = asyncio.run(fixed.answer(Request({"type": "http"})))
    assert answer.headers["X-Amount-Used"] == "0.0123"
    (constant,) = goods_of({"/chat upto 0.05": ("hello", "0.0123")})
    answer = asyncio.run(constant.answer(Request({"type": "http"})))
    assert (answer.body, answer.headers["X-Amount-Used"]) == (b"hello", "0.0123")
    for wrong in ("upto 0.05", "GET /chat much upto 0.05"):
        with pytest.raises(ValueError, match=r"expected|such as"):
            list(flagged([wrong], []))
