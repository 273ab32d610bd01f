"""Whatever a shop answers: a payer signs again when the first cannot be paid, and never before."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
from hypothesis import given, settings, strategies as st

from tests.payer.shop import LOST, URL, Reply, Shop
from tests.strategies import words
from x402sim import PaymentAuth, PaymentFailed, Wallet
from x402sim.clock import Clock
from x402sim.payer.purchases import EXPIRY_MARGIN_S
from x402sim.protocol.header import read_header

NOT_PAID = ["Insufficient USDC balance", "Invalid signature", "Authorization expired"]
MADE = ["Nonce already used", "Payment already settled"]
OPEN = ["Settlement pending", "Facilitator unreachable"]
HINTS = ["already used", "FiatTokenV2: authorization is used or canceled", "nonce_already_used",
         "Duplicate payment"]  # fmt: skip
OTHER = ["", "Payment requirements expired", "Settlement failed", "no", *HINTS]
SAYS_NO = [400, 402, 403, 404, 410, 422]
A_MINUTE_AFTER_S = 60


@dataclass(frozen=True)
class Said:
    """An answer to a settlement; None is a lost one."""

    status: int
    text: str
    shape: str
    final: bool | None
    noise: Any

    @property
    def reply(self) -> Reply:
        if self.shape == "plain":
            return self.status, self.text.encode()
        text = [{"messages": [{"text": self.text}]}] if self.shape == "errors" else self.text
        body: dict[str, Any] = {"noise": self.noise, self.shape: text}
        return self.status, body if self.final is None else body | {"final": self.final}

    @property
    def stated(self) -> bool | None:
        """The `final` that a payer may believe: a true one stands beside `error`."""
        if self.shape == "plain" or (self.final and self.shape != "error"):
            return None
        return self.final


@dataclass(frozen=True)
class Act:
    """One request of the caller: how long after the one before, and what the shop answers."""

    wait_s: int
    settlement: Said | None
    shown: int


saids = st.builds(
    Said,
    status=st.sampled_from([200, 202, 302, 408, 409, 425, 429, 500, 502, 503, *SAYS_NO]),
    text=st.sampled_from(NOT_PAID + MADE + OPEN + OTHER),
    shape=st.sampled_from(["error", "detail", "plain", "errors"]),
    final=st.sampled_from([None, None, None, True, False]),
    noise=st.lists(words | st.integers() | st.lists(words, max_size=2), max_size=2),
)
acts = st.builds(
    Act,
    wait_s=st.sampled_from([0, 10, 359, 374, 375, 376, 400, 5000]),
    settlement=st.none() | saids,
    shown=st.sampled_from([402, 402, 402, 200, 422, 503]),
)


@dataclass
class Shown:
    """All that has happened to one authorization."""

    sent: list[tuple[int, Said | None]]
    answered: list[int]
    """The statuses of its payment id, since it was sent last."""


def is_over(header: str, past: Shown, after_s: int = A_MINUTE_AFTER_S) -> bool:
    """Tell, by the rules in words of `PaymentAuth`, whether an authorization was refused for good."""
    sent_s, said = past.sent[-1]
    expires_s = read_header(header).authorization.valid_before
    if said is None or said.stated is False:
        return False
    if any(each and each.text in MADE and each.stated is not False for _, each in past.sent):
        return False
    if sent_s <= expires_s + after_s:
        return False
    says_no = said.status in SAYS_NO and said.text not in HINTS + OPEN
    return said.stated is True or says_no or said.text in NOT_PAID


def may_sign_again(header: str, past: Shown) -> bool:
    """Tell whether another authorization may be signed: this one bought what it could, or nothing."""
    return 200 in past.answered or (past.answered[-1:] == [402] and is_over(header, past))


@settings(max_examples=400)
@given(st.lists(acts, max_size=7), st.booleans())
def test_no_second_authorization_while_the_first_may_be_paid(todo: list[Act], reuse: bool) -> None:
    now = [1_800_000_000]
    auth = PaymentAuth(Wallet(b"k" * 32), clock=Clock(lambda: float(now[0])), reuse=reuse)
    history: dict[str, Shown] = {}
    by_id: dict[str, str] = {}

    def settle(body: dict[str, Any]) -> Reply | Exception:
        header = body["paymentHeader"]
        if header not in history:
            for earlier, past in history.items():
                assert may_sign_again(earlier, past), past
            history[header] = Shown([], [])
            by_id[body["paymentId"]] = header
        history[header].sent.append((now[0], act.settlement))
        history[header].answered.clear()
        return act.settlement.reply if act.settlement else LOST

    def serve(proof: str | None) -> Reply | None:
        if proof is None:
            return None
        history[by_id[proof]].answered.append(act.shown)
        return None if act.shown == 402 else (act.shown, {})

    shop = Shop(serves=serve, settles=settle)
    with shop.client(auth) as http:
        for act in todo:
            now[0] += act.wait_s
            with suppress(PaymentFailed, httpx.ReadTimeout):
                http.get(URL)
            newest, past = list(history.items())[-1]
            if is_over(newest, past, EXPIRY_MARGIN_S - 1):
                assert set(past.answered) - {402}, "it shows the id, and then signs another"
