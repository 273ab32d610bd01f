"""A head is no goods: a payment has bought something when the body was read to its end."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.payer.shop import Shop, opened, payer as payer_in_steps, served
from tests.payer.test_standard_servers import OFFER, PAID, VERSIONS, StandardShop, Version, payer
from x402sim import PaidNotServed, PaymentFailed, SessionAuth, Wallet

URL = "http://shop/x"
BROKEN = httpx.RemoteProtocolError("peer closed connection without sending complete message body")


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Some pieces, and then the end or an error."""

    def __init__(self, *pieces: bytes, error: Exception | None = None) -> None:
        self.pieces, self.error, self.is_closed = pieces, error, False

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces
        if self.error is not None:
            raise self.error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.is_closed = True


def whole() -> Body:
    return Body(b"first ", b"last")


def broken() -> Body:
    return Body(b"first ", error=BROKEN)


@dataclass
class Streaming:
    """A shop whose answers to what was paid are streams, one after the other."""

    shop: Any
    bodies: list[Callable[[], Body]]
    status: int = 200
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    streamed: list[Body] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        answer: httpx.Response = self.shop(request)
        if answer.status_code != 200 or request.url.path != "/x":
            return answer
        make = self.bodies[min(len(self.streamed), len(self.bodies) - 1)]
        self.streamed.append(make())
        return httpx.Response(self.status, headers=self.headers, stream=self.streamed[-1])

    async def serve(self, request: httpx.Request) -> httpx.Response:
        return self(request)


Use = Callable[[httpx.Response], None]


def read(answer: httpx.Response) -> None:
    assert answer.read() == b"first last"


def first_piece(answer: httpx.Response) -> None:
    assert next(answer.iter_raw()) == b"first "


def nothing(answer: httpx.Response) -> None:
    assert not answer.is_stream_consumed


def in_sync(shop: Streaming, auth: httpx.Auth, use: Use = read, method: str = "GET") -> None:
    with (
        httpx.Client(transport=httpx.MockTransport(shop), auth=auth) as http,
        http.stream(method, URL) as answer,
    ):
        use(answer)


def in_async(shop: Streaming, auth: httpx.Auth, use: Use = read, method: str = "GET") -> None:
    async def main() -> None:
        transport = httpx.MockTransport(shop.serve)
        async with (
            httpx.AsyncClient(transport=transport, auth=auth) as http,
            http.stream(method, URL) as answer,
        ):
            if use is read:
                assert await answer.aread() == b"first last"
            elif use is first_piece:
                assert await anext(answer.aiter_raw()) == b"first "
            else:
                use(answer)

    asyncio.run(main())


BOTH = pytest.mark.parametrize("ask", [in_sync, in_async])
ENDS = pytest.mark.parametrize(
    ("body", "use"), [(broken, read), (whole, first_piece), (whole, nothing)]
)


@BOTH
@ENDS
@VERSIONS
def test_what_breaks_off_is_fetched_with_the_same_payment(
    version: Version, body: Callable[[], Body], use: Use, ask: Callable[..., None]
) -> None:
    shop = StandardShop(version)
    streaming, auth = Streaming(shop, [body, body, whole]), payer()
    for _ in range(2):
        with suppress(httpx.RemoteProtocolError):
            ask(streaming, auth, use)
    assert len(shop.paid) == 2
    assert len(shop.nonces) == 1
    ask(streaming, auth)
    assert len(shop.nonces) == 1
    assert auth.signed_base == 10000
    assert all(each.is_closed for each in streaming.streamed)
    ask(streaming, auth)  # it was served: the next request pays for itself
    assert len(shop.nonces) == 2


@BOTH
@ENDS
@pytest.mark.parametrize("reuse", [True, False])
def test_what_breaks_off_is_shown_again_in_two_steps(
    reuse: bool, body: Callable[[], Body], use: Use, ask: Callable[..., None]
) -> None:
    shop, auth = Shop(serves=served), payer_in_steps(reuse=reuse)
    streaming = Streaming(shop, [body, body, whole])
    for _ in range(2):
        with suppress(httpx.RemoteProtocolError):
            ask(streaming, auth, use)
    ask(streaming, auth)
    assert len(shop.headers) == len(shop.settled) == 1
    ask(streaming, auth)
    assert len(shop.headers) == (1 if reuse else 2)


def test_a_proof_that_serves_once_and_breaks_off_is_not_paid_anew() -> None:
    seen: list[str | None] = []

    def serves(proof: str | None) -> tuple[int, Any] | None:
        seen.append(proof)
        return (200, {}) if proof and seen.count(proof) == 1 else None

    shop, auth = Shop(serves=serves), payer_in_steps()
    streaming = Streaming(shop, [broken])
    with pytest.raises(httpx.RemoteProtocolError):
        in_sync(streaming, auth)
    for _ in range(2):
        with pytest.raises(PaidNotServed):
            in_sync(streaming, auth)
    assert len(shop.headers) == 1


@VERSIONS
def test_a_server_that_served_in_part_and_refuses_is_not_paid_anew(version: Version) -> None:
    """Not even when the authorization has expired: it was used."""
    now = [1_800_000_000.0]
    shop = StandardShop(version, answers=lambda count: (200 if count == 1 else 402, None))
    streaming, auth = Streaming(shop, [broken]), payer(now)
    with pytest.raises(httpx.RemoteProtocolError):
        in_sync(streaming, auth)
    now[0] += 5000
    for _ in range(2):
        with pytest.raises(PaidNotServed, match="200, not read to its end"):
            in_sync(streaming, auth)
    assert len(shop.nonces) == 1


@BOTH
@pytest.mark.parametrize(
    ("method", "status", "headers"),
    [("HEAD", 200, {}), ("GET", 204, {}), ("GET", 200, {"content-length": "0"})],
)
def test_what_has_no_body_needs_no_reading(
    method: str, status: int, headers: dict[str, str], ask: Callable[..., None]
) -> None:
    shop, auth = StandardShop(2), payer()
    streaming = Streaming(shop, [Body], status, method, headers)
    for _ in range(2):
        ask(streaming, auth, nothing, method)
    assert len(shop.nonces) == 2


@VERSIONS
def test_an_older_payment_that_is_usable_for_longer_forbids_another(version: Version) -> None:
    """The newer one is over; of the older one a body breaks off only now."""
    now = [1_800_000_000.0]
    shop = StandardShop(version, answers=lambda count: (200 if count == 1 else 402, None))
    shop.offers = [{**OFFER, "max_timeout_seconds": 300}]
    streaming, auth = Streaming(shop, [broken]), payer(now)
    with httpx.Client(transport=httpx.MockTransport(streaming), auth=auth) as http:
        with http.stream("GET", URL) as first:
            shop.offers = [{**OFFER, "max_timeout_seconds": 1}]
            now[0] += 1
            with pytest.raises(PaymentFailed):
                http.get(URL)
            with pytest.raises(httpx.RemoteProtocolError):
                first.read()
        now[0] += 77
        shop.offers = [OFFER]
        for _ in range(2):
            with pytest.raises(PaymentFailed):
                http.get(URL)
    usable = {
        each.signed.authorization.nonce
        for each in shop.paid
        if each.signed.authorization.valid_before > now[0]
    }
    assert len(usable) == 1
    assert len(shop.nonces) == 2


PACKED = gzip.compress(b"first last", mtime=0)  # a worker collects it in another second


@BOTH
@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (200, {"content-encoding": "gzip"}, Body(PACKED[:-8])),
        (200, {"content-encoding": "gzip"}, Body(PACKED[:1])),
        (200, {"content-encoding": "gzip"}, Body(PACKED[:-8], bytes(4) + PACKED[-4:])),
        (200, {"content-encoding": "deflate"}, Body(zlib.compress(b"first last")[:-4])),
        (200, {"content-encoding": "gzip"}, Body(b"no gzip")),
        (200, {"content-encoding": "gzip, identity"}, Body(PACKED[:-8])),
        (200, {"content-encoding": "gzip,"}, Body(PACKED[:-8])),
        (200, {"content-encoding": "gzip, gzip"}, Body(gzip.compress(PACKED)[:-8])),
        (205, {}, broken()),
        (200, {"content-length": "0", "transfer-encoding": "chunked"}, broken()),
    ],
)
def test_a_body_that_is_cut_behind_a_right_length_is_not_served(
    status: int, headers: dict[str, str], body: Body, ask: Callable[..., None]
) -> None:
    """A shop that sends one to collect several payments gets one and the same."""
    shop, auth = StandardShop(2), payer()
    streaming = Streaming(shop, [lambda: body], status, headers=headers)
    for _ in range(3):
        with suppress(httpx.DecodingError, httpx.RemoteProtocolError, AssertionError):
            ask(streaming, auth)
    assert len(shop.paid) == 3
    assert len(shop.nonces) == 1


@BOTH
@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", PACKED),
        ("deflate", zlib.compress(b"first last")),
        ("deflate", zlib.compress(b"first last", wbits=-zlib.MAX_WBITS)),
    ],
)
def test_a_whole_body_in_an_encoding_is_served(
    encoding: str, packed: bytes, ask: Callable[..., None]
) -> None:
    shop, auth = StandardShop(2), payer()
    whole = Body(packed[:3], packed[3:])
    streaming = Streaming(shop, [lambda: whole], headers={"content-encoding": encoding})
    for _ in range(2):
        ask(streaming, auth)
    assert len(shop.nonces) == 2


class Endless(Body):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0)


class ClosesSlowly(Body):
    """The answer is closed before the caller has it, and the time may end in the close."""

    async def aclose(self) -> None:
        await asyncio.sleep(1)


@pytest.mark.parametrize("body", [Endless, lambda: ClosesSlowly(b"first last")])
def test_a_caller_whose_time_ends_before_it_has_the_answer_has_bought_nothing(body: Any) -> None:
    shop, auth = StandardShop(2), payer()
    streaming = Streaming(shop, [body, whole])

    async def main() -> None:
        transport = httpx.MockTransport(streaming.serve)
        async with httpx.AsyncClient(transport=transport, auth=auth) as http:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await http.get(URL)
            assert (await http.get(URL)).content == b"first last"

    asyncio.run(main())
    assert len(shop.nonces) == 1


def test_an_older_answer_that_ends_forgets_nothing_that_a_newer_purchase_has_signed() -> None:
    now = [1_800_000_000.0]
    shop = StandardShop(2, answers=lambda count: (200, PAID) if count == 1 else (402, None))
    auth, request = payer(now), httpx.Request("GET", URL)
    with httpx.Client(transport=httpx.MockTransport(Streaming(shop, [whole])), auth=auth) as http:
        with http.stream("GET", URL) as older:
            for _ in range(3):
                with pytest.raises(PaymentFailed):
                    http.get(URL)
                now[0] += 1000
            before = auth.unfinished(request).signed_base
            older.read()
        assert before == 4 * shop.paid[0].signed.authorization.value  # the older one is open
    assert auth.unfinished(request).signed_base == before * 3 // 4


@BOTH
@pytest.mark.parametrize(("body", "sessions"), [(broken, 1), (whole, 2)])
def test_a_session_is_followed_by_another_only_if_it_has_served_to_the_end(
    body: Callable[[], Body], sessions: int, ask: Callable[..., None]
) -> None:
    """Each session is served once, and refused then."""
    spent: list[str] = []

    def serves(proof: str | None) -> tuple[int, Any] | None:
        if proof is None or not proof.startswith("session_"):
            return opened(proof)
        spent.append(proof)
        return (200, {}) if spent.count(proof) == 1 else None

    shop, auth = Shop(serves=serves), SessionAuth(Wallet.create(), max_sessions=3)
    streaming = Streaming(shop, [body])
    for raised in (httpx.RemoteProtocolError, PaidNotServed):
        with pytest.raises(raised) if body is broken else nullcontext():
            ask(streaming, auth)
    assert len(shop.headers) == sessions


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_hook_that_spoils_the_answer_buys_nothing_anew(is_closed: bool) -> None:
    """It swallows the error of a cut body, or closes what is too large for it."""
    shop, spoils = StandardShop(2), [True, True, False]

    def hook(answer: httpx.Response) -> None:
        if answer.status_code == 200 and spoils.pop(0):
            with suppress(httpx.HTTPError):
                answer.close() if is_closed else answer.read()

    raised = httpx.StreamClosed if is_closed else httpx.StreamConsumed
    http = httpx.Client(
        transport=httpx.MockTransport(Streaming(shop, [broken, broken, whole])),
        auth=payer(),
        event_hooks={"response": [hook]},
    )
    with http:
        for _ in range(2):
            with pytest.raises(raised):
                http.get(URL)
        assert http.get(URL).content == b"first last"
    assert (len(shop.paid), len(shop.nonces)) == (3, 1)


def test_the_header_of_a_payment_that_is_over_is_not_sent_again() -> None:
    """The shop offers another version by the time that its first payment has expired."""
    now, sent = [1_800_000_000.0], list[set[str]]()
    lost = httpx.ReadTimeout("lost")
    shops = [StandardShop(2, answers=lambda _: lost), StandardShop(1)]

    def serve(request: httpx.Request) -> httpx.Response:
        sent.append({"payment-signature", "x-payment"} & request.headers.keys())
        if now[0] > 1_800_000_500 and "payment-signature" not in request.headers:
            return shops[1](request)
        if now[0] > 1_800_000_500:
            return httpx.Response(402, content=shops[1].required().content)
        return shops[0](request)

    with httpx.Client(transport=httpx.MockTransport(serve), auth=payer(now)) as http:
        with pytest.raises(httpx.ReadTimeout):
            http.get(URL)
        now[0] += 1000
        assert http.get(URL).status_code == 200
    assert sent == [set(), {"payment-signature"}, set(), {"payment-signature"}, {"x-payment"}]


@pytest.mark.parametrize("folder", [False, True])
def test_an_interrupt_before_the_body_is_watched_pays_nothing_anew(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    """Ctrl-C that the caller catches: the answer is gone, and its payment is sent again."""
    shop = Shop(served)
    auth = payer_in_steps(reuse=False, **({"state_dir": tmp_path} if folder else {}))

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with httpx.Client(transport=httpx.MockTransport(shop), auth=auth) as http:
        with monkeypatch.context() as patch:
            patch.setattr("x402sim.payer.auth.on_body_end", interrupted)
            with pytest.raises(KeyboardInterrupt):
                http.get(URL)
        assert http.get(URL).status_code == 200
    assert len(shop.headers) == 1
