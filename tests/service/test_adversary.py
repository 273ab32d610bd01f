"""Attacks: each of these once worked, or nearly."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.rig import (
    ServiceRig,
    after,
    answer,
    broken,
    lose_answer,
    lose_request,
    only,
    requirements,
    scene,
)  # fmt: skip
from tests.service.standard import failed, is_served, record, set_up, sign
from x402sim import TESTNET, Wallet
from x402sim.protocol.cronos import SettleError
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import encode_header
from x402sim.protocol.x402_reasons import VALID_BEFORE
from x402sim.rng import Rng
from x402sim.service import sessions
from x402sim.service.issue import Issuer
from x402sim.service.reconcile import reconcile


def rpc_says(**results: Any) -> Any:
    """A fault: these methods of the RPC answer this instead."""

    async def on(request: httpx.Request, deliver: Any) -> httpx.Response:
        method = json.loads(request.content)["method"]
        if method not in results:
            response: httpx.Response = await deliver()
            return response
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": results[method]})

    return on


async def lose_settlement(
    rig: ServiceRig, required: httpx.Response | None = None, header: str | None = None
) -> httpx.Response:
    """Pay, and lose every sign of it; return the 402 that was paid."""
    required = required or await rig.ask()
    with (
        broken(rig, "facilitator", only("/settle", lose_answer)),
        broken(rig, "rpc", after(2, lose_request)),
    ):
        assert (await rig.pay(required, header)).status_code == 502
    return required


def lasting(rig: ServiceRig, required: httpx.Response, until_s: int, by: Wallet) -> str:
    auth = by.authorize(requirements(required.json()["paymentRequirements"]), 0)
    changed = Authorization(auth.from_, auth.to, auth.value, 0, until_s, auth.nonce)
    return encode_header(changed, by.sign(changed, TESTNET.domain), TESTNET)


@scene
async def test_an_authorization_may_never_expire_if_the_setting_allows_it(rig: ServiceRig) -> None:
    set_up(rig, longest_window_s=2.0**256)
    for until_s in (2**63 - 1, 2**63, 2**256 - 1):
        required = await rig.ask()
        header = lasting(rig, required, until_s, rig.alice)
        assert (await rig.pay(required, header)).status_code == 200


@scene
async def test_a_key_without_money_leaves_no_work_for_ever(rig: ServiceRig) -> None:
    """What is not paid is asked about until its window ends: at most a day by default."""
    store, now_s, nobody = rig.service.store, rig.clock.now_s(), Wallet.create()
    for until_s in (2**50, now_s + 86_401, 1000 * now_s):
        is_odd = until_s == 1000 * now_s
        milliseconds = ". Milliseconds? It is wanted in Unix seconds" * is_odd
        required = await rig.ask()
        refused = await rig.pay(required, lasting(rig, required, until_s, nobody))
        assert (refused.status_code, refused.json()["final"]) == (400, True)
        ahead = f"the server's clock says {now_s}; at most 86400 s ahead of that are taken"
        assert refused.json()["error"] == "Authorization expired"
        assert refused.json()["reason"] == f"validBefore is {until_s}, {ahead}{milliseconds}"
        for version in (1, 2):
            payment = sign(rig, version, await rig.ask(), nobody, valid_before=until_s)
            in_one_step = await rig.ask(**payment)
            assert in_one_step.status_code == 402
            assert ahead in in_one_step.json()["reason"]
            assert VALID_BEFORE in in_one_step.json()["reason"]
    assert store.counts()["payments"] == 0
    required = await rig.ask()
    await rig.pay(required, lasting(rig, required, now_s + 86_400, nobody))
    assert store.payments.unresolved() == 1
    rig.now[0] += 86_401
    await rig.parts.chain.mine()
    assert (await reconcile(rig.service), store.payments.unresolved()) == (1, 0)


@scene
async def test_what_was_claimed_is_settled_although_the_setting_is_shorter_now(
    rig: ServiceRig,
) -> None:
    required = await rig.ask()
    header = lasting(rig, required, rig.clock.now_s() + 9_000, rig.alice)
    with broken(rig, "facilitator", lose_request):
        assert (await rig.pay(required, header)).status_code == 502
    set_up(rig, longest_window_s=600.0)
    assert (await rig.pay(required, header)).status_code == 200


@pytest.mark.clause("3/pending-resolved")
@pytest.mark.parametrize(
    "denial",
    [
        answer(200, failed("Timed out waiting for receipt")),
        answer(200, failed("Authorization already used")),
        answer(200, failed(SettleError.BALANCE.value)),
        answer(400, {"error": "busy"}),
        answer(409, "already being processed"),
        lose_request,
    ],
    ids=["timed out", "used", "balance", "400", "409", "lost"],
)
@scene
async def test_a_broadcast_payment_stays_pending_whatever_the_facilitator_answers(
    rig: ServiceRig, denial: Any
) -> None:
    """To the first attempt, which waits in the mempool, and to a second one."""
    await rig.parts.chain.set_automine(False)
    required = await rig.ask()
    header = rig.sign(required)

    async def broadcast_and_deny(request: httpx.Request, deliver: Any) -> httpx.Response:
        task = asyncio.ensure_future(deliver())
        while not rig.parts.chain.machine.state.waiting:
            await asyncio.sleep(0)
        task.cancel()
        return await denial(request, deliver)

    for fault in (broadcast_and_deny, denial):
        with broken(rig, "facilitator", only("/settle", fault)):
            assert (await rig.pay(required, header)).json()["final"] is False
    await rig.parts.chain.mine()
    rig.now[0] += 15
    assert await reconcile(rig.service) == 1
    assert await is_served(rig, required)
    assert rig.transfers() == 1


@pytest.mark.clause("3/pending-resolved")
@pytest.mark.parametrize(
    "fault",
    [
        rpc_says(eth_getLogs=[]),
        rpc_says(eth_getLogs=[{"address": 1}]),
        rpc_says(eth_getTransactionReceipt=None),
        rpc_says(eth_getTransactionReceipt={"logs": [{"address": 1, "topics": []}]}),
        rpc_says(eth_call="0x"),
        rpc_says(eth_getBlockByNumber=None),
        answer(500, "oops"),
    ],
)  # fmt: skip
@scene
async def test_a_payment_stays_pending_while_the_node_does_not_answer(
    rig: ServiceRig, fault: Any
) -> None:
    required = await lose_settlement(rig)
    rig.now[0] += 10_000
    await rig.parts.chain.mine()
    with broken(rig, "rpc", fault):
        assert await reconcile(rig.service) == 0
        same = await rig.pay(required)
        assert same.status_code in (409, 502)
    rig.now[0] += 15
    assert await reconcile(rig.service) == 1
    assert await is_served(rig, required)


@pytest.mark.clause("3/pending-resolved")
@scene
async def test_a_node_that_keeps_the_newest_state_only_is_asked_again_at_once(
    rig: ServiceRig,
) -> None:
    """A block may come between the two calls, and the state before it is gone then.

    Behind one address may be several nodes: each is asked for the state at the head's own block.
    """
    required = await lose_settlement(rig)
    asked: list[Any] = []

    async def decline_once(request: httpx.Request, deliver: Any) -> httpx.Response:
        asked.append(json.loads(request.content))
        if len(asked) == 2:
            error = {"code": -32000, "message": "missing trie node"}
            return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "error": error})
        response: httpx.Response = await deliver()
        return response

    with broken(rig, "rpc", decline_once):
        assert await reconcile(rig.service) == 1
    assert [each["method"] for each in asked[:4]] == ["eth_getBlockByNumber", "eth_call"] * 2
    assert asked[1]["params"][1] == hex(rig.parts.chain.machine.state.head.number)
    assert (await record(rig, required))["status"] == "settled"


@scene
async def test_a_payment_fails_if_the_database_is_restored_meanwhile(rig: ServiceRig) -> None:
    store = rig.service.store
    before = store.copy()
    for undo in (lambda: store.restore(before), store.clear):

        async def rewind(_: httpx.Request, __: Any, undo: Any = undo) -> httpx.Response:
            undo()
            raise httpx.ReadTimeout("lost")

        with broken(rig, "facilitator", only("/settle", rewind)):
            refused = await rig.pay(await rig.ask())
        assert (refused.status_code, refused.json()["error"]) == (502, "Settlement failed")
    before.close()


@scene
async def test_deposits_go_where_refunds_can_be_paid_from(rig: ServiceRig) -> None:
    """The merchant may be another account than the server wallet, which holds the escrow."""
    merchant = parse_address("0x" + "22" * 20)
    setup = replace(rig.service.env, recipient=merchant)
    object.__setattr__(rig.service, "env", setup)
    object.__setattr__(rig.service, "issuer", Issuer(setup, Rng(1).stream("x")))
    quote = (await rig.ask()).json()["paymentRequirements"]
    assert parse_address(quote["payTo"]) == merchant
    before = rig.balance(rig.alice)
    await rig.open_session("0.05", duration=60)
    rig.now[0] += 60
    assert await sessions.expire(rig.service) == 1
    assert rig.balance(rig.alice) == before


@pytest.mark.clause("3/pending-resolved")
@scene
async def test_expired_does_not_mean_unused_when_a_payment_is_resumed(rig: ServiceRig) -> None:
    """The token looks at the window before the nonce, and this node has not seen the transfer."""
    required = await rig.ask()
    header = rig.sign(required)
    await lose_settlement(rig, required, header)
    head = {"timestamp": hex(rig.clock.now_s()), "number": "0x0"}
    behind = rpc_says(eth_getBlockByNumber=head, eth_call="0x0")
    rig.now[0] += 300
    with broken(rig, "rpc", behind):
        assert (await rig.pay(required, header)).status_code == 409
        assert await reconcile(rig.service) == 0
    assert (await rig.pay(required, header)).status_code == 200
    assert rig.transfers() == 1
