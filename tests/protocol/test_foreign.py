"""402s of other protocols, and their challenges by any writer."""

import time

import pytest

from x402sim.protocol.ways import challenged, foreign_in

LONG = 60_000


@pytest.mark.parametrize(
    ("challenge", "name", "facts"),
    [
        (
            'Payment id="x", request="eyJhbW91bnQiOiIxIn0"',
            "the HTTP authentication scheme Payment",
            {"challenge": "Payment", "id": "x", "request": '{"amount":"1"}'},
        ),
        ('Bearer realm="a, Payment b", L402 macaroon="m"', "L402", {"realm": "a, Payment b"}),
        ('LSAT macaroon=m, invoice="lnbc"', "L402", {"macaroon": "m", "invoice": "lnbc"}),
        ('Basic realm="say \\\\"hi\\\\""', "a challenge of the scheme Basic", {}),
        ("Payment", "the HTTP authentication scheme Payment", {"challenge": "Payment"}),
        ("", "a challenge of no scheme", {}),
        ('Payment request="%%%"', "the HTTP authentication scheme Payment", {"request": "%%%"}),
    ],
)
def test_a_challenge_is_called_by_its_name(
    challenge: str, name: str, facts: dict[str, str]
) -> None:
    found = challenged(challenge)
    assert found.name.startswith(name)
    assert facts.items() <= found.facts.items()


@pytest.mark.parametrize("part", ["a", "a,", 'a="', "a= ", '"', "\\\\", 'a="\\\\', "aB-1 ="])
def test_a_long_challenge_takes_no_long_time(part: str) -> None:
    began = time.process_time()
    for begin in ("", "Payment ", '"'):
        foreign_in({"www-authenticate": begin + part * (LONG // len(part))}, b"")
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("field", ["x402Version", "accepts", "paymentRequirements", "paymentId"])
def test_what_means_to_be_ours_is_not_foreign(field: str) -> None:
    assert foreign_in({"www-authenticate": "Payment"}, f'{{"{field}": 1}}'.encode()) is None
    assert foreign_in({"PAYMENT-REQUIRED": ""}, b"") is None
