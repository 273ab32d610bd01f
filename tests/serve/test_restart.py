"""What survives a restart with --db, and a kill -9 while a payment waits for its block.

`tests/crash` kills at any moment, under load.
"""

from pathlib import Path

import pytest

from tests.serve.driver import Payer, refusal
from tests.serve.hosted import gives_up, hosted, status_and_text
from x402sim.protocol.refusals import Refusal


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "world.db")


@pytest.mark.clause(
    "2.2/payment-id",
    "2.4/record",
    "3/indexed-status",
    "5/session-debit",
    "5/stored-records",
    "7/payment-already-settled",
)
def test_everything_goes_on_after_a_restart(db):
    with hosted(file=db) as server:
        payer = server.payer()
        asked = payer.ask()
        signed = payer.sign(asked["paymentRequirements"])
        assert payer.pay(asked, signed).status_code == 200
        server.sim("indexer/run")
        record = server.record(asked)
        assert record["block_number"] is not None
        session_id = payer.open("0.03")["sessionId"]
        assert payer.quote(session_id=session_id).status_code == 200
        session = payer.session(session_id)
        unpaid, deposit = payer.ask(), payer.ask_session("0.05", 60)
        agents = server.http.get("/api/agents").json()
        assert agents["agents"][0]["reputation"] == 1
        chain, head = server.state()["chain"], server.rpc("eth_getBlockByNumber", "latest", True)
        held, moves = payer.balance, server.transfers()

    with hosted(file=db) as server:
        payer = Payer(server, payer.wallet)
        assert server.state()["chain"] == chain
        assert server.rpc("eth_getBlockByNumber", "latest", True) == head
        assert (payer.balance, server.transfers()) == (held, moves)
        assert server.state()["cachedEntitlements"] == 0
        assert server.record(asked) == record
        assert payer.quote(asked["paymentId"]).status_code == 200
        assert refusal(payer.pay(asked, signed)) == status_and_text(Refusal.ALREADY_SETTLED)
        second = payer.ask()
        assert refusal(payer.pay(second, signed)) == status_and_text(Refusal.NONCE_USED)
        assert server.http.get("/api/agents").json() == agents

        assert payer.session(session_id) == session
        spent = [payer.quote(session_id=session_id).status_code for _ in range(3)]
        assert spent == [200, 200, 402]

        assert payer.pay(unpaid).status_code == 200
        assert payer.quote(unpaid["paymentId"]).status_code == 200
        assert payer.pay(deposit).status_code == 200
        opened = payer.create(deposit["paymentId"]).json()
        assert opened["deposited"] == "50000"
        assert server.sim("indexer/run")["matched"] == 3
        server.assert_money_is_conserved(100_000_000)


def test_a_world_whose_clock_was_advanced_can_be_paid_after_a_restart(db):
    """The chain's newest block is of the advanced time, and no block is older than its parent."""
    with hosted(file=db) as server:
        server.advance(86_400)
        server.account().paid()
    with hosted(file=db) as server:
        server.account().paid()


@pytest.mark.clause("2.2/payment-id")
def test_a_restart_with_the_same_seed_within_a_second_issues_no_payment_id_twice(db):
    """The second run draws from the same seed; its clock is set to the very same second."""
    with hosted(file=db, seed=7) as server:
        server.advance(1000 + 1 - server.state()["now"] % 1000 / 1000)
        issued_s = server.now_s()
        first = server.account().ask()
        assert server.account().pay(first).status_code == 200
    with hosted(file=db, seed=7) as server:
        server.advance(max(0, issued_s + 0.2 - server.state()["now"] / 1000))
        second = server.account(1).ask()
        assert second["paymentId"] != first["paymentId"]
        assert server.account(1).quote(second["paymentId"]).status_code == 402
        assert server.account(1).pay(second).status_code == 200


def test_a_file_of_another_seed_or_in_use_is_refused_in_one_line(db):
    """Two servers with one chain log would each build blocks the other does not know."""
    with hosted(file=db, seed=1) as server:
        payment_id = server.account().paid()
        gives_up("--db", db, says="another x402sim uses")
        server.account().paid()
    gives_up("--db", db, "--seed", "2", says="another seed")
    gives_up("--db", db, "--seed", "1", "--network", "cronos-mainnet", says="chain 338, not 25")
    with hosted(file=db, seed=1) as server:
        assert server.account().quote(payment_id).status_code == 200, "the file is unharmed"
