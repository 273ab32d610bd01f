"""What is recorded of each payment: everything on a test network, nothing to spend of real money."""

import asyncio
import base64
import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from tests.watch.said import (
    ALICE,
    MAIN,
    NOW_S,
    SHOP,
    TX,
    exchange,
    offer,
    packed,
    paid,
    required,
    settled,
    signed,
    signed_v1,
    terms,
)
from x402sim import Fault
from x402sim.backends import Schedule
from x402sim.events import (
    AnswerReceived,
    Begin,
    End,
    FaultPeriodEnded,
    NoAnswer,
    Note,
    PaymentSettled,
    RequestSent,
)
from x402sim.journal import Journal
from x402sim.protocol.networks import BASE_SEPOLIA, NETWORKS
from x402sim.report.diff import describe
from x402sim.report.reading import end_of_recording
from x402sim.report.run import Run, RunFailed
from x402sim.serving.log import Form
from x402sim.text.program import shown
from x402sim.watch.messages import HIDDEN, digest, hidden_body, hidden_message
from x402sim.watch.proxy import MAX_BODY, Exchange
from x402sim.watch.recorder import Recorder, Seen, line_of

NAMES = (
    *("accepts", "accepted", "network", "payload", "signature", "x402Version", "success", "amount"),
    *("paymentPayload", "paymentHeader", "paymentRequirements", "method", "params", "extra"),
    *("result", "error", "isError", "structuredContent", "_meta", "transaction"),
)
ODD_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=12,
)
"""JSON with the names that messages have, and any values."""
ODD = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12) | ODD_JSON.map(
    packed
)


REFUSE = (Fault(victim="service", does="refuse", times=None),)


class Watch:
    """A recorder, and what it has recorded."""

    def __init__(self, **options: Any) -> None:
        self.journal, self.seen = Journal(), list[Seen]()
        self.told = list[str]()
        options.setdefault("say", self.told.append)
        self.recorder = Recorder(self.journal, NETWORKS, log=self.seen.append, **options)

    def see(self, *exchanges: Exchange, to: str = "service") -> None:
        for each in exchanges:
            each.to = to
            self.recorder.requested(each)
            self.recorder.ended(each)
        assert not self.notes("not recorded")

    def notes(self, name: str) -> list[dict[str, Any]]:
        return [each.data for each in self.journal.events(Note) if each.name == name]

    @property
    def wrong(self) -> list[str]:
        return [f"{each['about']}: {each['seen']}" for each in self.notes("finding")]

    @property
    def text(self) -> str:
        return self.journal.ndjson().decode()


def message_of(header: str) -> dict[str, Any]:
    return json.loads(base64.b64decode(header))


def nonce_of(header: str) -> str:
    return message_of(header)["payload"]["authorization"]["nonce"]


def signature_of(header: str) -> str:
    return message_of(header)["payload"]["signature"]


def asked(
    header: str, path: str, answer: Any, network=BASE_SEPOLIA, number: int = 90, wanted: Any = None
) -> Exchange:
    """Return an exchange of a shop with its facilitator."""
    parts = {"paymentPayload": message_of(header), "paymentRequirements": wanted or terms(network)}
    body = {"x402Version": 2, **parts}
    return exchange(number, target=path, method="POST", body=body, answer=answer)


def test_a_payment_is_recorded_whole():
    watch, header = Watch(), signed(NOW_S)
    watch.see(offer(1), paid(2, header))
    sent, answered = (list(watch.journal.events(kind)) for kind in (RequestSent, AnswerReceived))
    assert [each.path for each in sent] == ["/w", "/w"]
    assert [each.status for each in answered] == [402, 200]
    assert sent[1].authorization == nonce_of(header)[2:]
    (found,) = watch.journal.events(PaymentSettled)
    assert (found.tx_hash, found.payer, found.amount_base) == (TX, ALICE.address, 10_000)
    assert (found.resource, found.payment_id) == ("/w", sent[1].authorization)
    first, second = watch.notes("exchange")
    assert first["lane"] == second["lane"] == "offer 1"
    assert ["PAYMENT-SIGNATURE", header] in map(list, second["sent"]["headers"])
    assert second["answered"]["body"] == "sold"
    assert watch.wrong == []
    assert watch.recorder.wrong == 0


def test_a_payment_of_version_1_is_recorded_too():
    watch, (said, header) = Watch(), signed_v1(NOW_S)
    receipt = {"X-PAYMENT-RESPONSE": packed({**settled(), "network": "base-sepolia"})}
    watch.see(
        exchange(1, status=402, answer=said),
        exchange(2, sent={"X-PAYMENT": header}, answered=receipt, answer=b"sold"),
    )
    (found,) = watch.journal.events(PaymentSettled)
    assert found.tx_hash == TX
    assert watch.wrong == []


@pytest.mark.parametrize("network", [BASE_SEPOLIA, MAIN])
def test_a_payment_by_permit2_is_recorded_with_what_was_signed_and_used(network):
    watch, payer = Watch(allow_mainnet=True), {"facilitatorAddress": ALICE.address}
    offered = terms(network) | {"scheme": "upto", "extra": payer}
    said = required(network) | {"accepts": [offered]}
    header = signed(NOW_S, network, said)
    used = settled(network, amount="1500")
    settles = asked(header, "/settle", used, network, 2, offered | {"amount": "1500"})
    watch.see(exchange(1, status=402, answered={"PAYMENT-REQUIRED": packed(said)}, answer=b"{}"))
    watch.see(settles, to="facilitator")
    watch.see(paid(3, header, network, answered={"PAYMENT-RESPONSE": packed(used)}))
    settled_for = {each.amount_base for each in watch.journal.events(PaymentSettled)}
    assert settled_for == {1500}
    told = "; ".join(line_of(watch.seen[-1], Form(lambda _: None), NETWORKS).notes)
    assert "signed at most 0.01 USDC" in told
    assert "settled 0.0015 USDC" in told
    assert watch.wrong == ["allowance of offer 1: no sponsoring of gas is offered"]
    assert (signature_of(header) in watch.text) == (network is BASE_SEPOLIA)


@pytest.mark.parametrize("said", ["0", "9" * 5000])
def test_the_receipt_of_exact_does_not_decide_what_was_paid(said):
    watch = Watch()
    receipt = {"PAYMENT-RESPONSE": packed(settled(amount=said))}
    watch.see(offer(1), paid(2, signed(NOW_S), answered=receipt))
    assert [each.amount_base for each in watch.journal.events(PaymentSettled)] == [10_000]


def test_what_is_not_about_a_payment_is_only_counted():
    watch = Watch()
    watch.see(exchange(1, target="/style.css", answer=b"body { }"))
    assert len(watch.journal) == 2
    assert watch.notes("exchange") == []


def test_what_the_facilitator_is_asked_is_of_the_same_payment():
    watch, header = Watch(), signed(NOW_S)
    watch.see(offer(1))
    verify = asked(header, "/verify", {"isValid": True, "payer": ALICE.address}, number=2)
    watch.see(verify, asked(header, "/settle", settled(), number=3), to="facilitator")
    watch.see(paid(4, header))
    sent = list(watch.journal.events(RequestSent))
    assert [(each.actor, each.to) for each in sent[1:3]] == [("service", "facilitator")] * 2
    notes = watch.notes("exchange")
    assert [each["path"] for each in notes] == [
        "/w",
        "/facilitator/verify",
        "/facilitator/settle",
        "/w",
    ]
    assert len(list(watch.journal.events(PaymentSettled))) == 1
    assert watch.wrong == []


@pytest.mark.parametrize(
    ("wrong", "about"),
    [({"value": 5_000}, "value: 5000"), ({"to": ALICE.address}, f"to: {ALICE.address}")],
)
def test_what_is_wrong_in_a_payment_is_found(wrong, about):
    watch = Watch()
    header = signed(NOW_S, **wrong)
    refused = {"answered": {"PAYMENT-RESPONSE": packed(settled(success=False, errorReason="no"))}}
    watch.see(offer(1), paid(2, header, status=402, **refused))
    assert about in watch.wrong
    (answer,) = [each for each in watch.journal.events(AnswerReceived) if each.exchange == 2]
    assert answer.error == "no"
    assert list(watch.journal.events(PaymentSettled)) == []


def test_an_offer_nobody_can_pay_is_examined_once():
    watch, bad = Watch(), required()
    del bad["accepts"][0]["payTo"]
    for number in range(1, 4):
        said = {"PAYMENT-REQUIRED": packed(bad)}
        watch.see(exchange(number, status=402, answered=said, answer=b"{}"))
    assert len(watch.recorder._examined) == 1
    assert sum("payTo" in each for each in watch.wrong) >= 3


OUTCOMES = {
    "no receipt": ({"answered": {}}, "receipt: none"),
    "paid and not served": ({"status": 500, "answer": b""}, "answer: 500, and a receipt"),
    "served and not paid": (
        {"answered": {"PAYMENT-RESPONSE": packed(settled(success=False))}},
        "answer: 200, and not settled",
    ),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_answer_that_contradicts_itself_is_found(name):
    watch, (how, wanted) = Watch(), OUTCOMES[name]
    watch.see(offer(1), paid(2, signed(NOW_S), **how))
    assert wanted in watch.wrong


FATES = {
    "an error": {"status": 502, "answer": b""},
    "a lost answer": {"status": None, "broke": "it ended"},
    "half an answer": {"broke": "it ended in the middle"},
}


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("asks_again", [False, True])
def test_what_is_paid_twice_for_one_answer_is_found(fate, asks_again):
    watch = Watch()
    watch.see(offer(1), paid(2, signed(NOW_S), **FATES[fate]))
    watch.see(*[offer(3)][:asks_again], paid(4, signed(NOW_S)))
    assert sum("a second payment" in each for each in watch.wrong) == 1
    watch.see(offer(5), paid(6, signed(NOW_S)))  # a purchase of its own
    assert sum("a second payment" in each for each in watch.wrong) == 1


def test_the_facilitator_tells_that_a_payment_without_any_answer_was_settled():
    watch, header = Watch(), signed(NOW_S)
    watch.see(offer(1))
    watch.see(asked(header, "/settle", settled(), number=2), to="facilitator")
    nothing = {"status": None, "broke": "it ended", "answered": {}, "answer": b""}
    watch.see(paid(3, header, **nothing), offer(4), paid(5, signed(NOW_S)))
    assert sum("a second payment" in each for each in watch.wrong) == 1


FUNDS = "insufficient_funds"
FAILED = settled(success=False, errorReason="settle_exact_node_failure", transaction="")


def test_a_facilitators_unknown_word_leaves_the_outcome_open():
    watch = Watch()
    watch.see(asked(signed(NOW_S), "/settle", FAILED), to="facilitator")
    (found,) = [each for each in watch.notes("finding") if each["about"] == "success"]
    assert "Sign no other" in found["do"]
    line = line_of(watch.seen[-1], Form(lambda _: None), NETWORKS)
    assert "it is not known whether it was paid: settle_exact_node_failure" in line.notes
    known = FAILED | {"errorReason": FUNDS}
    watch.see(asked(signed(NOW_S), "/settle", known, number=91), to="facilitator")
    assert len([each for each in watch.notes("finding") if each["about"] == "success"]) == 1


@pytest.mark.parametrize(
    "fate",
    [
        {"status": None, "broke": "it ended"},
        {"status": 503},
        {"status": 402, "answered": {"PAYMENT-RESPONSE": packed(FAILED)}},
    ],
)
def test_a_second_authorization_while_the_first_may_be_used_is_noted(fate):
    watch = Watch()
    watch.see(offer(1), paid(2, signed(NOW_S), **{"answered": {}, "answer": b""} | fate))
    watch.see(offer(3), paid(4, signed(NOW_S)))
    (found,) = [each for each in watch.notes("finding") if each["about"] == "order"]
    assert "a second authorization; the first can be used until" in found["seen"]
    assert found["stops"] is False


def test_an_older_payment_that_is_sent_again_stays_in_its_order():
    """Though the same client has paid another offer of the URL meanwhile."""
    watch, refused = Watch(), {"status": 402, "answered": {}, "answer": b"{}"}
    old = signed(NOW_S, value=5000)
    watch.see(offer(1), paid(2, old, **refused), offer(3), paid(4, signed(NOW_S)))
    watch.see(paid(5, old, **refused), offer(6), paid(7, old, **refused))
    lanes = [each["lane"] for each in watch.notes("exchange")]
    assert lanes == ["offer 1", "offer 1", "offer 3", "offer 3", "offer 1", "offer 6", "offer 6"]


def test_a_second_authorization_after_the_first_has_expired_is_right():
    watch, lost = Watch(), {"status": None, "broke": "it ended", "answered": {}}
    watch.see(offer(1), paid(2, signed(NOW_S), **lost))
    watch.see(offer(3, began=NOW_S + 400.0), paid(4, signed(NOW_S + 400), began=NOW_S + 400.0))
    assert not any("a second" in each for each in watch.wrong)


@pytest.mark.parametrize("how", [{"status": 500}, {"status": 402}, {"status": None, "broke": "it"}])
def test_what_was_settled_and_not_served_is_found_without_a_receipt(how):
    watch, header = Watch(), signed(NOW_S)
    watch.see(offer(1))
    watch.see(asked(header, "/settle", settled()), to="facilitator")
    watch.see(paid(3, header, answered={}, answer=b"", **how))
    (found,) = [each for each in watch.notes("finding") if each["about"] == "answer"]
    assert f"the payment was settled, transaction {TX}" in found["seen"]
    assert found["stops"] == (how["status"] is not None)  # a client that left may come again
    assert watch.recorder.wrong == found["stops"]


FACILITATORS = {
    "nothing": [],
    "verify": [("/verify", {"isValid": True})],
    "refused": [("/verify", {"isValid": True}), ("/settle", {"success": False})],
}


@pytest.mark.parametrize("asks", FACILITATORS)
@pytest.mark.parametrize("receipt", [{}, {"PAYMENT-RESPONSE": packed(settled())}])
def test_what_is_served_and_not_settled_is_found(asks, receipt):
    """Without a receipt, or with one that no facilitator gave."""
    watch, header, honest = Watch(), signed(NOW_S), signed(NOW_S)
    watch.see(offer(1))
    watch.see(asked(honest, "/settle", settled(), number=2), to="facilitator")
    watch.see(paid(3, honest))
    assert not any("has not settled" in each for each in watch.wrong)
    watch.see(offer(4))
    for path, answer in FACILITATORS[asks]:
        watch.see(asked(header, path, answer), to="facilitator")
    watch.see(paid(6, header, answered=receipt))
    assert sum("the facilitator has not settled this payment" in each for each in watch.wrong) == 1


def test_a_shop_is_not_accused_of_what_may_have_been_settled_before_the_recording():
    """The recording begins between the settlement and the payer's second try."""
    watch = Watch()
    watch.see(asked(signed(NOW_S), "/settle", settled(), number=1), to="facilitator")
    watch.see(paid(2, signed(NOW_S)))
    (found,) = [each for each in watch.notes("finding") if each["about"] == "answer"]
    assert found["seen"].endswith("has not settled this payment since the recording began")
    assert not found["stops"]


def test_the_reason_of_a_refusal_is_in_the_header_of_the_next_offer_too():
    watch, said = Watch(), {**required(), "error": "invalid_exact_evm_nonce_already_used"}
    watch.see(offer(1))
    again = {"PAYMENT-REQUIRED": packed(said)}
    watch.see(paid(2, signed(NOW_S), status=402, answered=again, answer=b"{}"))
    assert watch.seen[1].messages.refusal == "invalid_exact_evm_nonce_already_used"


RIGHT = {
    "bought twice": [{}, {}],
    "refused, then paid": [
        {"status": 402, "answered": {"PAYMENT-RESPONSE": packed(FAILED | {"errorReason": FUNDS})}},
        {},
    ],
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_bought_twice_is_paid_twice_rightly(name):
    watch = Watch()
    for number, how in enumerate(RIGHT[name]):
        watch.see(offer(2 * number + 1), paid(2 * number + 2, signed(NOW_S), **how))
    assert not any("a second" in each for each in watch.wrong)


@pytest.mark.parametrize("fate", [{"status": 402}, {"status": None, "broke": "it ended"}])
def test_a_served_payment_that_is_sent_again_is_refused_rightly(fate):
    watch, header = Watch(), signed(NOW_S)
    watch.see(offer(1), paid(2, header), offer(3))
    watch.see(paid(4, header, **{"answered": {}, "answer": b"{}"} | fate))
    watch.see(offer(5), paid(6, signed(NOW_S)))
    assert watch.recorder.wrong == 0
    assert not any("was settled" in each for each in watch.wrong)


def test_a_payment_that_is_repeated_until_it_is_served_is_one_payment():
    watch, header = Watch(), signed(NOW_S)
    watch.see(offer(1), paid(2, header, status=502, answer=b""), offer(3), paid(4, header))
    assert not any("a second payment" in each for each in watch.wrong)


def test_a_broken_exchange_has_no_answer():
    watch = Watch()
    watch.see(
        offer(1), paid(2, signed(NOW_S), status=None, answered={}, answer=b"", broke="it ended")
    )
    (lost,) = watch.journal.events(NoAnswer)
    assert lost.reason == "it ended"
    assert watch.notes("exchange")[1]["status"] is None


@pytest.mark.parametrize("name", ["weather", "天気", "été 1/2"])
def test_a_call_of_a_paid_tool_is_read_as_http_would_say_it(name):
    watch, header = Watch(), signed(NOW_S)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}}
    unpaid = {
        "isError": True,
        "structuredContent": required(url=f"mcp://tool/{name}"),
        "content": [],
    }
    receipt = {"_meta": {"x402/payment-response": settled()}, "content": []}
    meta = {"x402/payment": message_of(header)}
    pays = {**call, "params": {"name": name, "_meta": meta}}
    common = {"method": "POST", "target": "/mcp", "answered": {"Content-Type": "application/json"}}
    watch.see(
        exchange(1, body=call, answer={"jsonrpc": "2.0", "id": 1, "result": unpaid}, **common),
        exchange(2, body=pays, answer={"jsonrpc": "2.0", "id": 1, "result": receipt}, **common),
        exchange(3, body={**call, "method": "tools/list"}, **common),
    )
    notes = watch.notes("exchange")
    assert [(each["path"], each["status"]) for each in notes] == [
        (f"mcp://tool/{name}", 402),
        (f"mcp://tool/{name}", 200),
    ]
    assert notes[0]["lane"] == notes[1]["lane"]
    assert len(list(watch.journal.events(PaymentSettled))) == 1
    assert watch.wrong == []


def test_a_defect_of_the_recording_ends_no_traffic(monkeypatch):
    told = list[str]()
    watch = Watch(say=told.append)
    side = watch.recorder
    monkeypatch.setattr("x402sim.watch.recorder.messages_of", lambda *_: 1 / 0)
    for number in (1, 2):
        side.requested(exchange(number))
        assert side.fault(exchange(number)) is None
        side.ended(exchange(number))
    assert len(watch.notes("not recorded")) == 6
    assert all("ZeroDivisionError" in each for each in told)


@given(
    sent=st.dictionaries(st.sampled_from(["PAYMENT-SIGNATURE", "X-PAYMENT", "X-Payment-Id"]), ODD),
    answered=st.dictionaries(st.sampled_from(["PAYMENT-REQUIRED", "PAYMENT-RESPONSE"]), ODD),
    body=ODD_JSON | st.binary(max_size=80),
    answer=ODD_JSON | st.binary(max_size=80),
    status=st.sampled_from([None, 200, 402, 500]),
    allow=st.booleans(),
)
@settings(max_examples=40)
def test_no_message_is_a_defect_of_the_recording(sent, answered, body, answer, status, allow):
    watch = Watch(allow_mainnet=allow)
    more = {"body": body, "answered": answered, "answer": answer, "status": status}
    for to in ("service", "facilitator"):
        watch.see(exchange(1, sent=sent, **more), to=to)
    Journal.load(watch.journal.ndjson())


def test_diff_compares_recordings_by_what_was_asked_and_answered():
    """Their times, ids and hashes are never the same."""
    first, same, other = Watch(), Watch(), Watch()
    for each in (first, same, other):
        each.journal.record(1, BEGIN)
    first.see(offer(1), paid(2, signed(NOW_S)))
    same.see(offer(1), paid(2, signed(NOW_S)))
    refused = {"answered": {"PAYMENT-RESPONSE": packed(settled(success=False, errorReason="no"))}}
    other.see(offer(1), paid(2, signed(NOW_S), status=402, **refused))
    assert describe(first.journal, same.journal) == []
    told = describe(first.journal, other.journal)
    assert "3 events are equal" in told[0]
    assert any("status: a 200, b 402" in each for each in told)


# --- real money ----------------------------------------------------------------------------


def test_a_payment_of_real_money_is_hidden():
    watch, header = Watch(), signed(NOW_S, MAIN)
    watch.see(offer(1, MAIN), paid(2, header, MAIN))
    for secret in (header, signature_of(header), nonce_of(header)[2:], SHOP):
        assert secret not in watch.text
    assert all("--allow-mainnet" in each["hidden"] for each in watch.notes("exchange"))
    assert all(each.is_hidden for each in watch.seen)
    assert list(watch.journal.events(PaymentSettled)) == []
    assert [each.status for each in watch.journal.events(AnswerReceived)] == [402, 200]


def test_what_a_facilitator_is_asked_of_real_money_is_hidden():
    watch, header = Watch(), signed(NOW_S, MAIN)
    valid = {"isValid": True, "payer": ALICE.address}
    verify = asked(header, "/verify", valid, MAIN, 1)
    watch.see(verify, asked(header, "/settle", settled(MAIN), MAIN, 2), to="facilitator")
    secret = (signature_of(header), nonce_of(header)[2:], ALICE.address, SHOP, TX)
    assert [each for each in secret if each.lower() in watch.text.lower()] == []
    assert all(each.is_hidden for each in watch.seen)


def test_a_payment_in_a_query_is_not_recorded():
    header = signed(NOW_S, MAIN)
    for allow in (False, True):
        watch = Watch(allow_mainnet=allow)
        watch.see(offer(1, MAIN), paid(2, header, MAIN, target=f"/w?payment={header}"))
        assert header[200:] not in watch.text


def test_with_allow_mainnet_its_signature_is_not_recorded():
    watch, header = Watch(allow_mainnet=True), signed(NOW_S, MAIN)
    watch.see(offer(1, MAIN))
    watch.see(asked(header, "/settle", settled(MAIN), MAIN, 2), to="facilitator")
    watch.see(paid(3, header, MAIN))
    assert signature_of(header) not in watch.text
    assert header not in watch.text
    assert nonce_of(header)[2:] in watch.text  # it is on the chain, for everybody to read
    assert watch.wrong == []  # found before anything was hidden
    assert len(list(watch.journal.events(PaymentSettled))) == 1


@pytest.mark.parametrize("allow", [False, True])
def test_proofs_of_payment_are_not_recorded_where_money_is_real_or_not_known(allow):
    watch, proof = Watch(allow_mainnet=allow), "pay_abcdefghijklmnopqrstuvwxyz"
    watch.see(
        exchange(1, sent={"X-Payment-Id": proof, "Cookie": "me=1"}, answer={"paymentId": proof})
    )
    assert proof not in watch.text
    assert "me=1" not in watch.text
    if allow:
        (sent,) = watch.journal.events(RequestSent)
        assert sent.payment_id == digest(proof)
        assert sent.payment_id in watch.notes("exchange")[0]["answered"]["body"]


def test_proofs_of_a_test_network_are_recorded():
    watch, proof = Watch(), "pay_abcdefghijklmnopqrstuvwxyz"
    watch.see(offer(1), exchange(2, sent={"X-Payment-Id": proof}))
    assert proof in watch.text


HEADER = signed(NOW_S, MAIN)
PROOFS = {"pay_": "pay_" + "Ab3_" * 20, "session_": "session_" + "a1" * 20}
PROOFS["letters"] = "pay_" + "AbC_" * 15
SAID = {
    "a record's path": {"target": f"/api/payments/{PROOFS['pay_']}"},
    "a session's path": {"target": f"/api/sessions/{PROOFS['session_']}"},
    "a query": {"target": f"/w?id={PROOFS['pay_']}", "sent": {"X-Payment-Id": PROOFS["pay_"]}},
    "a redirect": {"status": 302, "answered": {"Location": f"/w?id={PROOFS['pay_']}"}},
    "a text": {"answer": f"it is {PROOFS['pay_']}".encode()},
    "an id without digits": {"answer": f"it is {PROOFS['letters']}".encode()},
    "another field": {"answer": {"url": f"/api/sessions/{PROOFS['session_']}"}},
    "an error": {"answer": {"error": f"ask for {PROOFS['pay_']}"}, "status": 402},
    "a signature in a path": {"target": f"/w/{signature_of(HEADER)}"},
    "a signature in a query": {"target": f"/w?signature={signature_of(HEADER)}"},
    "a payment in a path": {"target": f"/w/{HEADER}"},
    "a payment in an error": {"answer": {"error": f"bad: {HEADER}"}, "status": 402},
    "an API key": {"sent": {"X-Api-Key": "pay_of_a_customer"}},
}  # fmt: skip


@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize("where", SAID)
def test_proofs_and_signatures_are_recorded_nowhere(where, allow):
    secrets = (*PROOFS.values(), signature_of(HEADER)[2:], HEADER[300:400], "of_a_customer")
    for first in ([], [offer(1, MAIN)]):
        watch, fields = Watch(allow_mainnet=allow), SAID[where]
        sent = {"PAYMENT-SIGNATURE": HEADER} | fields.get("sent", {})
        watch.see(*first, exchange(2, **fields | {"sent": sent}))
        if "signature" not in where and "payment" not in where:  # such a one is no payment's
            watch.see(exchange(3, **fields))
        assert [each for each in secrets if each in watch.text] == []


def test_a_name_like_that_of_an_id_is_no_proof():
    watch, goods = Watch(allow_mainnet=True), b'{"session_duration_in_minutes":5}'
    watch.see(offer(1, MAIN), paid(2, HEADER, MAIN, answer=goods))
    assert "session_duration_in_minutes" in watch.text


def test_what_another_scheme_can_spend_is_not_recorded():
    watch = Watch(allow_mainnet=True)
    payment = {
        "x402Version": 2,
        "accepted": {**terms(MAIN), "scheme": "permit2"},
        "payload": {"permit": {"secret": "SPENDABLE"}, "transaction": "SPENDABLE"},
    }
    watch.see(offer(1, MAIN), paid(2, packed(payment), MAIN))
    assert "SPENDABLE" not in watch.text
    assert packed(payment) not in watch.text


def odd(header: str) -> str:
    """Return a payment's header with a text that JSON's writers allow, and our reader refuses."""
    message = message_of(header)
    message["accepted"]["extra"]["note"] = "\ud800"
    return packed(message)


def test_a_payment_of_real_money_that_cannot_be_read_is_hidden_after_one_of_play_money():
    for header in (signed(NOW_S, MAIN), odd(signed(NOW_S, MAIN)), "~" + signed(NOW_S, MAIN)):
        watch = Watch(faults=REFUSE)
        watch.see(offer(1), paid(2, header))
        assert header not in watch.text
        assert watch.recorder.fault(paid(3, header)) is None
    header = signed(NOW_S, MAIN)
    whole = json.dumps(a_call({"x402/payment": message_of(header)})).encode()
    call = a_call({"x402/payment": message_of(header)}, text="x" * MAX_BODY)
    for body in (call, whole.replace(b"/", b"\\/"), whole.replace(b"/", b"\\u002f")):
        watch = Watch(faults=REFUSE)
        watch.see(offer(1), exchange(2, method="POST", body=body))
        assert signature_of(header) not in watch.text
        assert watch.recorder.fault(exchange(3, method="POST", body=body)) is None


def a_call(meta: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    params = {"_meta": meta, "name": "t", "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


REAL = signed(NOW_S, MAIN)
MESSAGE = message_of(REAL)
WHOLE = json.dumps({"paymentPayload": MESSAGE}).encode()
RAW = zlib.compressobj(wbits=-zlib.MAX_WBITS)
ODD_WAYS: dict[str, dict[str, Any]] = {
    "a batch": {"body": [a_call({"x402/payment": MESSAGE})]},
    "a batch in base64": {"body": [a_call({"x402/payment": REAL})]},
    "a call in base64": {"body": a_call({"x402/payment": REAL})},
    "a draft's name": {"body": a_call({"org.x402/payment": MESSAGE})},
    "A2A": {"body": {"params": {"message": {"metadata": {"x402.payment.payload": MESSAGE}}}}},
    "a payload in base64": {"body": {"paymentPayload": REAL}},
    "a nested payload": {"body": {"a": {"paymentPayload": MESSAGE}}},
    "a list": {"body": [{"paymentPayload": REAL}]},
    "a form": {"body": f"PAYMENT-SIGNATURE={REAL}".encode()},
    "two headers": {"sent": {"X-PAYMENT": signed_v1(NOW_S)[1], "PAYMENT-SIGNATURE": REAL}},
    "gzip in two members": {
        "body": gzip.compress(WHOLE[:1]) + gzip.compress(WHOLE[1:]),
        "sent": {"Content-Encoding": "gzip"},
    },
    "gzip beside identity": {
        "body": gzip.compress(WHOLE), "sent": {"Content-Encoding": "gzip, identity"},
    },
    "gzip twice": {
        "body": gzip.compress(gzip.compress(WHOLE)), "sent": {"Content-Encoding": "gzip, gzip"},
    },
    "deflate without a head": {
        "body": RAW.compress(WHOLE) + RAW.flush(), "sent": {"Content-Encoding": "deflate"},
    },
}  # fmt: skip


@pytest.mark.parametrize("way", ODD_WAYS)
def test_a_payment_of_real_money_is_hidden_however_it_is_sent(way):
    for first in ([], [offer(1)]):
        watch = Watch(faults=REFUSE)
        watch.see(*first, exchange(2, method="POST", **ODD_WAYS[way]))
        assert first or SHOP.lower() not in watch.text.lower()
        assert signature_of(REAL)[2:] not in watch.text
        assert REAL[200:300] not in watch.text
        assert watch.recorder.fault(exchange(3, method="POST", **ODD_WAYS[way])) is None


def test_what_an_answer_repeats_of_a_payment_is_not_recorded():
    watch, header = Watch(allow_mainnet=True), signed(NOW_S, MAIN)
    signature = signature_of(header)
    said = {"error": "bad", "headers": {"payment-signature": header}, "sig": signature.upper()}
    watch.see(offer(1, MAIN), paid(2, header, MAIN, answered={"X-Echo": header}, answer=said))
    assert header not in watch.text
    assert signature[2:].lower() not in watch.text.lower()


def test_a_body_that_is_cut_or_odd_hides_what_it_may_hold():
    signature = "0x" + "5a" * 65
    whole = json.dumps({"paymentPayload": {"payload": {"signature": signature}}}).encode()
    for body, is_cut in ((whole, False), (whole[:-3], True), (b"[" * 300 + whole, False)):
        assert signature.encode() not in hidden_body(body, is_cut=is_cut)
    assert hidden_body(b"plain text", is_cut=False) == b"plain text"
    assert hidden_message("not base64") == HIDDEN


# --- faults --------------------------------------------------------------------------------

LOSE = Fault(victim="service", does="lose answer", contains="payment")


def test_a_fault_strikes_on_a_test_network_only():
    watch, header = Watch(faults=(LOSE,)), signed(NOW_S)
    assert watch.recorder.fault(offer(1)) is None  # it does not pay
    assert watch.recorder.fault(paid(2, header)) == LOSE
    (struck,) = watch.notes("fault struck")
    assert (struck["victim"], struck["does"]) == ("service", "lose answer")
    assert watch.recorder.fault(paid(3, header)) is None  # once


def test_a_fault_with_periods_strikes_in_them_and_they_are_in_the_recording():
    now, later = Schedule([(0, 3600)]), Schedule([(3600, 7200)])
    watch = Watch(faults=(replace(LOSE, when=later), replace(LOSE, when=now)))
    for number in 2, 3:
        struck = watch.recorder.fault(paid(number, signed(NOW_S)))
        assert struck == replace(LOSE, when=now)
    asyncio.run(watch.recorder.close())
    (period,) = watch.journal.events(FaultPeriodEnded)
    assert (period.victim, period.does, period.struck) == ("service", "lose answer", 2)


def test_a_fault_never_strikes_beside_real_money():
    watch = Watch(faults=REFUSE, allow_mainnet=True)
    unknown = exchange(1, target="/other")
    assert watch.recorder.fault(unknown) is None  # nobody has said which network
    assert watch.recorder.fault(paid(2, signed(NOW_S, MAIN), MAIN)) is None
    both = paid(3, signed(NOW_S))  # the shop sells for both
    assert watch.recorder.fault(both) is None
    assert [each[:14] for each in watch.told] == ["faults are off"]  # said once
    assert watch.recorder.fault(unknown) is None


def test_an_unknown_network_counts_as_real():
    watch = Watch(faults=REFUSE)
    said = required()
    said["accepts"][0]["network"] = "eip155:999999"
    asked = exchange(1, status=402, answered={"PAYMENT-REQUIRED": packed(said)}, answer=b"{}")
    watch.see(asked)
    assert watch.recorder.is_main is True
    assert watch.recorder.fault(exchange(2)) is None


BEGIN = Begin(
    scenario="watch", title="Recording of https://shop", seed=0, start_ms=NOW_S * 1000, network="",
    decimals=6, symbol="tokens", upstream="https://shop",
)  # fmt: skip


def recorded(*exchanges: Exchange) -> Run:
    """Return the recording of a shop's exchanges, as `watch` ends it."""
    watch = Watch()
    watch.journal.record(NOW_S * 1000, BEGIN)
    watch.see(*exchanges)
    watch.journal.record(NOW_S * 1000, end_of_recording(watch.recorder.wrong))
    return Run(journal=watch.journal)


def test_the_orders_of_a_recording_name_who_signed():
    refused = {"status": 402, "answered": {}, "answer": b"{}"}
    receipt = {"PAYMENT-RESPONSE": packed(settled(transaction="0x" + "cd" * 32))}
    lost = {"status": None, "broke": "it ended", "answered": receipt}
    run = recorded(
        offer(1), paid(2, signed(NOW_S)), offer(3), paid(4, signed(NOW_S), **refused),
        offer(5), paid(6, signed(NOW_S), **lost),
    )  # fmt: skip
    assert list(run.orders["payer"]) == [ALICE.address] * 3
    assert list(run.orders["served"]) == [True, False, False]
    assert list(run.orders["charged"]) == [True, False, True]


def test_a_failed_recording_raises_its_findings_and_plays_nothing_again(tmp_path):
    run = recorded(offer(1), paid(2, signed(NOW_S, value=5000), status=500, answer=b""))
    with pytest.raises(RunFailed) as failed:
        run.raise_for_failure()
    first, *found = str(failed.value).splitlines()
    assert first == "Recording of https://shop: 2 errors found"
    assert found[0].startswith("  value: 5000; wanted: 10000")
    assert found[1].startswith("  answer: 500, and a receipt; wanted: what was paid for")
    assert run.command == f"{shown()} watch --upstream https://shop"
    killed = run.journal.ndjson().rpartition(b"\n{")[0] + b"\n"
    (tmp_path / "killed.ndjson").write_bytes(killed)
    loaded = Run.load(tmp_path / "killed.ndjson")
    assert (loaded.outcome, list(loaded.journal.events(End))) == ("failed", [])
