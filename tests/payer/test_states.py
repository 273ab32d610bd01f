"""The rows of the table in `payer/purchases.py`: a payment's state, and what the next request does."""

from typing import Any

import httpx
import pytest

from tests.payer.shop import LOST, URL, Reply, Shop, ask, receipt
from tests.payer.test_bodies import Streaming, broken, whole
from tests.payer.test_standard_servers import PAID, StandardShop
from x402sim import PaidNotServed, PaymentAuth, SpendingCapExceeded, Wallet
from x402sim.clock import Clock
from x402sim.payer.purchases import EXPIRY_MARGIN_S, State, Unfinished
from x402sim.protocol.networks import BASE_SEPOLIA
from x402sim.protocol.x402_reasons import NONCE_USED

OVER_S = 300 + EXPIRY_MARGIN_S
LOSE, REFUSE, MADE, DENY = "lose", "refuse", "made", "deny"
DIALECTS = pytest.mark.parametrize("version", [None, 1, 2])


class Trade:
    """A payer with a clock, and a shop that does with payments what `does` says, and then serves.

    It loses its answer, refuses the payment, reports the payment as made, or denies its proof.
    """

    def __init__(self, version: Any, *does: str, bodies: Any = (whole,), **options: Any) -> None:
        self.version, self.does, self.now = version, list(does), [1_800_000_000.0]
        self.paid = set[str]()
        self.shop: Any = Shop(serves=self._serves, settles=self._settles)
        if version is not None:
            self.shop = StandardShop(version, answers=self._answers)
            options["network"] = BASE_SEPOLIA
        self.streaming = Streaming(self.shop, list(bodies))
        options = {"clock": Clock(lambda: self.now[0]), "reuse": False} | options
        self.auth = PaymentAuth(Wallet.create(), **options)

    def _settles(self, body: dict[str, Any]) -> Reply | Exception:
        done = self.does.pop(0) if self.does else ""
        if done == LOSE:
            return LOST
        if done == REFUSE:
            return 400, {"detail": "Payment requirements expired"}
        self.paid.add(body["paymentId"])
        return (409, {"error": "Nonce already used"}) if done == MADE else receipt(body)

    def _serves(self, proof: str | None) -> Reply | None:
        if self.does[:1] == [DENY] and proof:
            self.does.pop(0)
            return None
        return (200, {}) if proof in self.paid else None

    def _answers(self, _: int) -> Any:
        done = self.does.pop(0) if self.does else ""
        self.shop.error = NONCE_USED[self.version] if done == MADE else None
        return LOST if done == LOSE else (402, None) if done else (200, PAID)

    def ask(self) -> Any:
        return ask(self.streaming, self.auth)

    @property
    def unfinished(self) -> Unfinished:
        return self.auth.unfinished(httpx.Request("GET", URL))

    @property
    def states(self) -> list[State]:
        return [each.state for each in self.unfinished.payments]

    @property
    def signed(self) -> int:
        return self.auth.signed_base // 10_000


@DIALECTS
@pytest.mark.parametrize("max_total", ["0.01", "0.02"])
def test_a_payment_that_is_over_is_replaced_or_sent_again(version: Any, max_total: str) -> None:
    """It may be settled after all: the next request sends it first, if no other could be signed."""
    trade = Trade(version, LOSE, REFUSE, max_total=max_total)
    assert trade.ask() is LOST
    trade.now[0] += OVER_S
    if max_total == "0.01":
        assert isinstance(trade.ask(), SpendingCapExceeded)
        assert trade.states == [State.OVER]
    assert (trade.ask(), trade.states, trade.signed) == (200, [], int(max_total[-1]))


@DIALECTS
def test_a_payment_that_bought_nothing_is_shown_first(version: Any) -> None:
    trade = Trade(version, MADE, DENY, DENY)
    for _ in range(2):
        assert isinstance(trade.ask(), PaidNotServed)
        assert trade.states == [State.UNSERVED]
    assert (trade.ask(), trade.states, trade.signed) == (200, [], 1)


@DIALECTS
@pytest.mark.parametrize("reuse", [False, True])
def test_a_body_that_is_read_has_bought_and_one_that_breaks_off_has_not(
    version: Any, reuse: bool
) -> None:
    """A payment id that was served is shown again, if it may be, until its body breaks off."""
    trade = Trade(version, reuse=reuse)
    with (
        httpx.Client(transport=httpx.MockTransport(trade.streaming), auth=trade.auth) as http,
        http.stream("GET", URL),
    ):
        assert trade.states == [State.READING]
    assert trade.states == [State.UNSERVED if version is None else State.UNRESOLVED]
    assert (trade.ask(), trade.states, trade.signed) == (200, [], 1)
    signed = 1 if reuse and version is None else 2
    assert (trade.ask(), trade.states, trade.signed) == (200, [], signed)


@DIALECTS
def test_what_was_given_up_counts_until_its_purchase_is_served(version: Any) -> None:
    """The sum of an unfinished purchase, for an object that takes it over."""
    trade = Trade(version, LOSE, REFUSE)
    assert trade.ask() is LOST
    trade.now[0] += OVER_S
    with (
        httpx.Client(transport=httpx.MockTransport(trade.streaming), auth=trade.auth) as http,
        http.stream("GET", URL),
    ):
        assert trade.unfinished.signed_base == 20_000
    assert trade.unfinished.signed_base == 20_000
    assert (trade.ask(), trade.unfinished.signed_base) == (200, 0)
    trade.does = [LOSE]
    assert (trade.ask(), trade.unfinished.signed_base) == (LOST, 10_000)


@DIALECTS
def test_each_payment_that_bought_nothing_is_shown_before_another_is_signed(version: Any) -> None:
    """Three streams break off. In two steps, the shop serves none but the oldest payment anew."""
    trade = Trade(version, bodies=[broken, broken, broken, whole])
    with httpx.Client(transport=httpx.MockTransport(trade.streaming), auth=trade.auth) as http:
        with (
            http.stream("GET", URL) as one,
            http.stream("GET", URL) as two,
            http.stream("GET", URL) as three,
        ):
            first, *later = trade.unfinished.payments
            for each in (one, two, three):
                with pytest.raises(httpx.RemoteProtocolError):
                    each.read()
        trade.does = [MADE] if version else [DENY, DENY]
        assert http.get(URL).status_code == 200
        assert (trade.unfinished.payments, first.state) == (later, State.READ)
        for _ in later:
            assert http.get(URL).status_code == 200
    assert (trade.states, trade.signed) == ([], 3)


@DIALECTS
def test_payments_of_several_objects_are_sent_again_one_by_one(version: Any) -> None:
    """Both were lost: neither is known to be made, and the second is not needed for the first."""
    trade, request = Trade(version, LOSE, LOSE), httpx.Request("GET", URL)
    for _ in range(2):
        other = PaymentAuth(Wallet.create(), network=trade.auth.network, clock=trade.auth.clock)
        assert ask(trade.shop, other) is LOST
        trade.auth.resume(request, other.unfinished(request))
    for count in (2, 1, 0):
        assert trade.states == [State.UNRESOLVED] * count
        assert count == 0 or trade.ask() == 200
    assert trade.signed == 2
