"""/_sim: money, time, blocks, going back, and seeing what happened."""

import json
from functools import partial

from tests.serve.driver import PAY, in_parallel, refusal
from tests.serve.hosted import hosted, status_and_text
from tests.serve.paying import asked_of_facilitator
from x402sim import Wallet
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.refusals import RequestError
from x402sim.serving.control.app import ACTIONS


def test_the_index_lists_every_command(server):
    for path in ("/_sim", "/_sim/"):
        answer = server.http.get(path)
        assert answer.status_code == 200
        lines = {tuple(line.split()[:2]) for line in answer.text.splitlines()}
        assert lines == {(m, "/_sim" + path) for m, path in ACTIONS}


def test_the_faucet(server):
    for amount, base in (("1.00", 1_000_000), ("0.000001", 1), ("5", 5_000_000)):
        address = Wallet.create().address
        supply = int(server.state()["chain"]["supply"])
        given = server.sim("faucet", address=address, amount=amount)
        assert given == {"address": address, "balance": str(base)}
        assert server.balance(address) == base
        assert int(server.state()["chain"]["supply"]) == supply + base
        assert server.sim("faucet", address=address.lower())["balance"] == str(base + 100_000_000)


def test_mining_off_and_on(server, payer):
    height = server.state()["chain"]["height"]

    def when_it_waits(act, **given):
        while not server.state()["chain"]["waiting"]:
            pass
        assert server.state()["pendingPayments"] == 1
        return server.sim(act, **given)

    assert server.sim("mining", automine=False) == {"automine": False}
    for act, given, told in (
        ("mine", {}, {"height": height + 1}),
        ("mining", {"automine": True}, {"automine": True}),
    ):
        pays = partial(payer.pay, payer.ask())
        answer, done = in_parallel(pays, partial(when_it_waits, act, **given))
        assert (answer.status_code, done) == (200, told)
    assert server.state()["chain"]["waiting"] == 0
    assert server.sim("mine", blocks=25) == {"height": height + 27}
    assert int(server.rpc("eth_blockNumber"), 16) == height + 27


def test_a_snapshot_brings_everything_back(server):
    payer = server.payer()
    kept, unpaid = payer.paid(), payer.ask()
    session_id = payer.open("0.05")["sessionId"]
    assert payer.quote(session_id=session_id).status_code == 200
    state, session, moves = server.state(), payer.session(session_id), server.transfers()
    held, cached = payer.balance, state["cachedEntitlements"]

    number = server.sim("snapshot")["snapshot"]
    body = payer.settlement(unpaid)
    assert server.http.post(PAY, json=body).status_code == 200
    assert payer.quote(session_id=session_id).status_code == 200
    assert payer.quote(unpaid["paymentId"]).status_code == 200
    assert server.state()["cachedEntitlements"] > cached
    server.sim("indexer/run")
    assert server.state()["snapshots"] == [number]

    ahead_s = server.state()["clockAdvancedSeconds"]
    reverted = server.sim("revert", snapshot=number)
    assert reverted == {"reverted": number, "clockAdvancedSeconds": ahead_s}
    assert payer.balance == held
    assert server.transfers() == moves
    assert payer.session(session_id) == session
    assert payer.quote(unpaid["paymentId"]).status_code == 402
    answer = server.http.get(f"/api/payments/{unpaid['paymentId']}")
    assert refusal(answer) == status_and_text(RequestError.UNKNOWN_PAYMENT)
    assert payer.quote(kept).status_code == 200
    back = server.state()
    for name in ("rows", "chain", "cachedEntitlements", "pendingPayments", "snapshots"):
        assert back[name] == state[name], name

    assert server.http.post(PAY, json=body).status_code == 200, "it was never paid"
    assert payer.quote(unpaid["paymentId"]).status_code == 200
    answer = server.http.post("/_sim/revert", json={"snapshot": number})
    assert refusal(answer) == (404, "Unknown snapshot")


def test_a_snapshot_that_a_reorganisation_took_away_reverts_nothing(server):
    payer = server.payer()
    server.sim("mine")
    number = server.sim("snapshot")["snapshot"]
    kept = payer.paid()
    server.sim("reorg", depth=2)
    answer = server.http.post("/_sim/revert", json={"snapshot": number})
    assert refusal(answer) == (404, "Unknown snapshot")
    assert "there are: none" in answer.json()["reason"]
    assert server.state()["snapshots"] == []
    assert payer.quote(kept).status_code == 200, "the database was not reverted alone"


def test_reset_begins_again_and_the_file_keeps_it(tmp_path):
    file = tmp_path / "world.db"
    with hosted(file=file) as server:
        payer = server.payer()
        paid, session_id = payer.paid(), payer.open("0.05")["sessionId"]
        server.sim("indexer/run")
        server.sim("snapshot")
        server.advance(40)
        assert server.sim("reset") == {"reset": True, "clockAdvancedSeconds": 40.0}
        state = server.state()
        assert state["chain"]["height"] == state["cachedEntitlements"] == 0
        assert set(state["rows"].values()) == {0}
        assert state["snapshots"] == []
        assert server.transfers() == []
        assert server.http.get("/_sim/accounts").json() == server.ready["accounts"]
        assert payer.balance == 0
        assert payer.quote(paid).status_code == 402
        assert payer.quote(session_id=session_id).status_code == 402
        assert server.http.get("/api/agents").json()["agents"][0]["reputation"] == 0
        server.account().paid()
        server.assert_money_is_conserved()
        chain = server.state()["chain"]
        assert chain["height"] == 1
    with hosted(file=file) as server:
        assert server.state()["chain"] == chain
        assert server.state()["rows"]["payments"] == 1


def settle(server, body):
    return server.http.post("/facilitator/settle", json=body).json()


def pending_then_settled(server, version):
    server.sim("mining", automine=False)
    wallet = server.account().wallet
    body = asked_of_facilitator(wallet, TESTNET, server.now_s(), version)
    pending = settle(server, body)
    assert pending == settle(server, body)
    assert (pending["success"], pending["errorReason"]) == (False, "settlement_pending")
    assert len(pending["transaction"]) == 66
    server.sim("mine")
    settled = settle(server, body)
    assert settled["success"]
    for told in ("transaction", "network", "payer"):
        assert settled[told] == pending[told]
    server.sim("mining", automine=True)
    assert not settle(server, body)["success"]


def test_a_running_facilitator_is_told_how_long_to_wait(server):
    changed = {"receipt_timeout_s": 0.05, "simulates": False, "listing_delay_s": 9}
    told = server.sim("facilitator", **changed)
    first = {"name": "facilitator", "simulates_verify": True, "native": None}
    assert told == first | changed
    assert server.sim("facilitator", name="facilitator") == told, "what is left out stays"
    for version in 1, 2:
        pending_then_settled(server, version)
    server.sim("faults/clear")
    at_first = {"receipt_timeout_s": 120, "simulates": True, "listing_delay_s": 0}
    assert server.sim("facilitator") == first | at_first


def test_a_reset_and_a_revert_leave_the_block_time_as_it_is():
    with hosted(block_time_s=0.05) as server:
        number = server.sim("snapshot")["snapshot"]
        server.account().paid()
        server.sim("revert", snapshot=number)
        assert server.state()["chain"]["automine"] is False
        server.sim("reset")
        assert server.state()["chain"]["automine"] is False
        server.account().paid()


def test_what_is_done_to_the_world_is_in_its_journal(server):
    since = len(server.journal())
    fault = {"victim": "facilitator", "does": "lose answer", "path": "/settle", "contains": ""}
    server.http.post("/_sim/faults", json=fault)
    server.account().paid()
    server.sim("faults", victim="rpc", does="refuse")
    server.sim("faults/clear")
    server.sim("clock/skew", actor="service", seconds=0)
    server.sim("clock/advance", seconds=2)
    server.sim("explorer/lag", seconds=0)
    server.sim("mining", automine=True)
    server.sim("facilitator", simulates=True)
    server.sim("force-revert", calls=0)
    server.http.get("/_sim/faults")
    server.http.post("/_sim/faults", json=fault | {"path": "/setle"})
    told = [each for each in server.journal(since) if each.pop("actor") == "world"]
    for each in told:
        del each["seq"], each["at_ms"]
    injected, struck, refuse, *rest = told
    assert injected.items() >= ({"event": "fault injected"} | fault | {"times": 1}).items()
    struck_at = fault | {"path": "/v2/x402/settle"}
    assert struck == {"event": "note", "name": "fault struck", "data": struck_at}
    assert (refuse["victim"], refuse["does"]) == ("rpc", "refuse")
    assert rest == [
        {"event": "note", "name": "faults cleared", "data": {"keep": []}},
        {"event": "clock skewed", "victim": "service", "seconds": 0.0},
        {"event": "time advanced", "seconds": 2.0},
        {"event": "explorer lagged", "seconds": 0.0},
        {"event": "mining switched", "automine": True},
        {"event": "note", "name": "facilitator set", "data": {"simulates": True}},
        {"event": "reverts forced", "calls": 0},
    ]


def test_transfers_are_named_as_in_the_journal(server, payer):
    payer.paid()
    listed = server.http.get("/_sim/transfers").json()[-1]
    told = [each for each in server.journal() if each["event"] == "transfer"][-1]
    told = [told[name] for name in ("tx_hash", "block", "sender", "to", "amount_base")]
    names = ("txHash", "blockNumber", "sender", "to", "amountBase")
    assert listed == dict(zip(names, told, strict=True))


def test_the_example_of_a_fault_strikes_a_settlement(server):
    line = next(line for line in server.http.get("/_sim").text.splitlines() if "Inject" in line)
    example = json.loads(line.partition(": ")[2].removesuffix("."))
    assert server.http.post("/_sim/faults", json=example).status_code == 200
    assert server.http.get("/_sim/faults").json()[0]["path"] == "/settle"
    server.account().paid()
    assert server.http.get("/_sim/faults").json() == []


def test_faucet_money_is_mined_immediately_with_any_block_time():
    """Whoever is given money pays with it next, as the conformance suite's payers do."""
    with hosted(block_time_s=3600) as server:
        new = Wallet("0x" + "77" * 32).address
        assert server.sim("faucet", address=new, amount="2.50")["balance"] == "2500000"
        assert server.http.post("/_sim/send", json={"from": new, "to": new}).json()["mined"]
        server.sim("faults/clear")
        state = server.state()["chain"]
        assert (state["height"], state["automine"]) == (2, False)
