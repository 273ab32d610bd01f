"""Clients that hang up after the service has spent, while its database commits: who is charged?

A charged payment in one step must be good for one answer, and a session debited only for answers
read by the client.
"""

import json
import socket
import struct
import threading
import time

import pytest

from tests.serve.driver import ORDER, QUOTE
from tests.serve.hosted import hosted
from tests.serve.test_hangups import head
from x402sim import Settings, World
from x402sim.payer.core import proofs
from x402sim.payer.signing import choose, sign
from x402sim.payer.standard import read_standard
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.x402 import PAYMENT_HEADERS
from x402sim.service.store.served import Served
from x402sim.service.store.session_budgets import SessionBudgets


@pytest.mark.parametrize(
    ("way", "how"), [("authorization", "fin"), ("upfront", "reset"), ("session", "fin")]
)
def test_who_leaves_while_the_database_commits_has_paid_for_nothing(
    monkeypatch: pytest.MonkeyPatch, way: str, how: str
) -> None:
    kind, name = (SessionBudgets, "debit") if way == "session" else (Served, "begin")
    spent, left, plain = threading.Event(), threading.Event(), getattr(kind, name)

    def slow(*given: object) -> object:
        done = plain(*given)
        spent.set()
        assert left.wait(10)
        return done

    settings = Settings() if way == "session" else Settings(payment_flow=way)
    with hosted(world=World(service=settings)) as server:
        payer = server.payer()
        if way == "session":
            proof = proofs(session_id=payer.open()["sessionId"])
        else:
            offer = read_standard(server.http.post(QUOTE, json=ORDER), 1)
            assert offer is not None
            _, text = sign(choose(offer, TESTNET), payer.wallet, TESTNET, int(time.time()))
            proof = {PAYMENT_HEADERS[1]: text}
        monkeypatch.setattr(kind, name, slow)
        with socket.create_connection(server.address) as client:
            if how == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(head(QUOTE, proof, json.dumps(ORDER).encode()))
            assert spent.wait(10)
        time.sleep(0.05)  # even loopback is late now and then
        left.set()
        told = "debit undone" if way == "session" else "answer not written"
        assert server.http.post(QUOTE, json=ORDER, headers=proof).status_code == 200
        assert [each["event"] for each in server.journal()].count(told) == 1
        if way == "session":
            shown = server.http.get(f"/api/sessions/{proof['X-Session-Id']}").json()
            assert shown["released"] == "10000"
