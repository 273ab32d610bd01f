"""No server holds a payer for longer than `deadline_s`, whatever it sends instead of an answer."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.bounded import hostile_peer
from tests.bounded.hostile_peer import Server, Write, head, serving, whole
from tests.payer.shop import Get, in_async, in_sync
from x402sim import PaymentAuth, PaymentFailed, SessionAuth, Wallet
from x402sim.payer import deadline

DEADLINE_S = 0.4
GRACE_S = 1.5
"""A thread's last wait is for whole seconds; and a busy machine."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def peer(server: Server) -> Server:
    server.pause_s = 0.0
    server.seen.clear()
    return server


def payer(**options: Any) -> PaymentAuth:
    return PaymentAuth(Wallet.create(), **{"deadline_s": DEADLINE_S} | options)


def session(**options: Any) -> SessionAuth:
    return SessionAuth(Wallet.create(), deadline_s=DEADLINE_S, **options)


def refused(get: Get, url: str, auth: httpx.Auth) -> str:
    """Return what a payer says that pays in vain."""
    with pytest.raises(PaymentFailed) as failed:
        get(url, auth)
    return str(failed.value)


HELD: dict[str, Callable[[str], tuple[str, httpx.Auth]]] = {
    "the first answer": lambda habit: (f"/{habit}/402", payer()),
    "the settlement": lambda habit: ("/pays/x", payer(pay_path=f"/{habit}/200")),
    "the paid answer": lambda habit: (f"/seller/{habit}/x", payer(pay_path="/seller/pay")),
    "a redirect": lambda habit: ("/away/302/x", payer()),
    "opening a session": lambda habit: ("/x", session(create_path=f"/{habit}/201")),
    "a session's answer": lambda habit: (f"/{habit}/200", session(session_id="session_mine")),
}


SLOW = ("slow_head", "silent", "redirect_slowly")
FIXED = "in_sync_with_fixed_timeouts"


@pytest.fixture(params=["in_sync", "in_async", FIXED])
def get(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Get:
    if request.param == FIXED:
        monkeypatch.setattr(deadline, "TIMEOUT", deadline.fixed)
    return in_async if request.param == "in_async" else in_sync


def test_no_answer_holds_anybody(get: Get, peer: Server) -> None:
    """A head that never ends, wherever it is read, and other ways to be slow; all at once."""
    goes_on = deadline.TIMEOUT is not deadline.fixed  # those end a silent server's answers only
    worst = "endless_continue" if goes_on else "silent"
    asked = {at: where(worst) for at, where in HELD.items()}
    asked |= {habit: (f"/{habit}/402", payer()) for habit in SLOW if goes_on}
    peer.away = f"{peer.url}/{worst}/200"

    started_s = time.monotonic()
    with ThreadPoolExecutor(len(asked)) as threads:
        said = threads.map(lambda each: refused(get, peer.url + each[0], each[1]), asked.values())
        told = dict(zip(asked, said, strict=True))
    assert time.monotonic() - started_s < DEADLINE_S + 4 * GRACE_S
    text = "within deadline_s = 0.4; raise deadline_s"
    assert {at: said for at, said in told.items() if text not in said} == {}


def test_one_deadline_holds_for_the_whole_purchase(
    get: Get, peer: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer comes in time, and all of them do not; what was signed is kept."""
    monkeypatch.setitem(hostile_peer.HABITS, "serves", whole(b"paid"))
    auth = payer(deadline_s=0.8, pay_path="/seller/pay")
    peer.pause_s = 0.5
    with pytest.raises(PaymentFailed, match=r"not known whether .* deadline_s = 0\.8"):
        get(f"{peer.url}/seller/serves/x", auth)
    peer.pause_s = 0.0
    assert get(f"{peer.url}/seller/serves/x", auth).content == b"paid"
    settled = [body for path, _, body in peer.seen if path == "/seller/pay"]
    assert (len(settled), len(set(settled)), auth.signed_base) == (2, 1, 10_000)


def test_who_waits_for_another_request_has_a_deadline_too(get: Get, peer: Server) -> None:
    auth = payer(pay_path="/silent/200")
    started_s = time.monotonic()
    with ThreadPoolExecutor(6) as threads:
        told = list(threads.map(lambda _: refused(get, f"{peer.url}/pays/x", auth), range(6)))
    assert time.monotonic() - started_s < DEADLINE_S + 2 * GRACE_S
    assert [each for each in told if "deadline_s = 0.4" not in each] == []
    assert auth.signed_base == 10_000


def test_a_session_is_opened_at_one_server_while_another_is_silent(peer: Server) -> None:
    auth = session(create_path="/silent/201")
    with serving() as other, ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(in_sync, f"{each.url}/x", auth) for each in (peer, other)]
        told = [str(each.exception()) for each in asked]
    assert ["within deadline_s" in each for each in told] == [True, True]


def test_the_callers_own_timeout_counts_if_it_is_shorter(get: Get, peer: Server) -> None:
    started_s = time.monotonic()
    with pytest.raises(httpx.ReadTimeout):
        get(f"{peer.url}/silent/402", payer(deadline_s=60), timeout_s=1)
    assert 0.9 < time.monotonic() - started_s < 1 + GRACE_S


def test_what_was_paid_for_may_take_longer(
    get: Get, peer: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trickle(status: int, write: Write) -> None:
        write(head(status, "Content-Length: 3"))
        for _ in range(3):
            time.sleep(DEADLINE_S)
            write(b"x")

    monkeypatch.setitem(hostile_peer.HABITS, "trickle", trickle)
    answer = get(f"{peer.url}/seller/trickle/x", payer(pay_path="/seller/pay"))
    assert answer.content == b"xxx"


def test_a_request_has_its_own_extensions_again(peer: Server) -> None:
    """Sent once more, it has its whole time."""
    with httpx.Client(base_url=peer.url) as http:
        request = http.build_request("GET", "/silent/402", timeout=7)
        before = dict(request.extensions)
        with pytest.raises(PaymentFailed):
            http.send(request, auth=payer())
    assert request.extensions == before
