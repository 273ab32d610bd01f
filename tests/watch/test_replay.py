"""`serve --recording`: answers as a recorded shop gave them."""

import json
import signal

import httpx
import pytest

from tests.cli.runner import assert_misuse, run
from tests.serve.driver import Running
from tests.watch.said import ALICE, NOW_S, exchange, offer, packed, paid, settled, signed
from tests.watch.test_recorder import recorded
from x402sim import BASE_SEPOLIA, PaymentAuth
from x402sim.journal import Journal
from x402sim.watch.replay import Replay


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    file = tmp_path_factory.mktemp("replay") / "shop.ndjson"
    receipt = {"PAYMENT-RESPONSE": packed(settled())}
    odd = {"sent": {"X-PAYMENT-ID": "pay_1"}, "method": "POST", "body": b"\xff", "answer": b"\xfe"}
    run = recorded(
        offer(1, target="/a%20b?c=d%2F"),
        paid(2, signed(NOW_S), target="/a%20b?c=d%2F", status=500, answer=b"", answered=receipt),
        paid(3, signed(NOW_S), target="/a%20b?c=d%2F"),
        exchange(4, status=201, **odd),
        exchange(5, target="/api/pay", method="POST", body={"paymentHeader": signed(NOW_S)}),
    )
    file.write_bytes(run.journal.ndjson())
    return file


def test_a_mock_answers_as_the_shop_did(recording):
    with Running("serve", "--recording", str(recording), "--port", "0", "--json") as mock:
        url = json.loads(mock.first_line())["service"]
        payer = PaymentAuth(ALICE, network=BASE_SEPOLIA)
        with httpx.Client(base_url=url, trust_env=False) as http:
            assert http.get("/a%20b?c=d%2F").status_code == 402
            answers = [http.get("/a%20b?c=d%2F", auth=payer) for _ in range(3)]
            assert [each.status_code for each in answers] == [500, 200, 200]
            assert answers[-1].content == b"sold"
            proof = {"X-Payment-Id": "pay_2"}
            odd = http.post("/w", content=b"\xff", headers=proof)
            assert (odd.status_code, odd.content) == (201, b"\xfe")
            in_body = http.post("/api/pay", json={"paymentHeader": signed(NOW_S)})
            assert in_body.status_code == 200
            other = http.post("/w", content=b"other", headers=proof)
            assert other.status_code == 404
            assert "POST /w with this body, with a payment; recorded: GET /a" in other.text
        assert mock.end(signal.SIGINT) == 0


def test_what_cannot_be_replayed_is_said(recording):
    with pytest.raises(ValueError, match="no whole answer of a shop"):
        Replay(Journal())
    done = run("serve", "--recording", recording, "--db", "x.sqlite")
    assert_misuse(done, "--recording starts no world: omit --db")
