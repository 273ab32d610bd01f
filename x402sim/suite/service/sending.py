"""Connects to a target by its URL, and to a given world; sends the requests of a run.

With the user's TLS, headers and limits, it follows redirects on the target's own host, and waits
while the target is busy: after a 429, or a 503 with Retry-After, a request is sent again after the
time in the answer.

If the target accepts no more connections, the report names the last request before; where the run
can restart the target, the request is sent again alone, to find out whether it is the cause.
"""

import itertools
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import httpx

from x402sim.clock import Clock, SkewedClock
from x402sim.http.bounded import (
    AnswerTooLarge,
    AnswerTooSlow,
    BoundedTransport,
    Limits,
    to_no_url,
)
from x402sim.http.exchange import retry_after_s
from x402sim.protocol.networks import Network
from x402sim.rng import Rng
from x402sim.serving.control.client import WORLD_ANSWER_BYTES, ControlClient, ControlError
from x402sim.serving.control.messages import network_of
from x402sim.story.stages import left_ahead
from x402sim.suite import redact
from x402sim.suite.redact import cut
from x402sim.suite.report.results import DemandKey
from x402sim.suite.service.options import MOST_BYTES, Options
from x402sim.suite.service.setting import RestartFailed, Setting, restarting
from x402sim.suite.subject import Tell, in_vain, until_url_answers
from x402sim.suite.verdict import CheckFailed, Inconclusive, NotReady

BUSY_S = 120.0
"""The most seconds that one request waits in all for a busy target."""
FIRST_WAIT_S = 1.0
"""Seconds to wait without Retry-After; twice as long each time."""
TOO_MANY, UNAVAILABLE = 429, 503
KEPT_S = 0.8
"""Seconds for which an idle connection is reused: services close theirs after one, or five."""
STOP_TRIES, STOP_S = 6, 0.5
"""How often, and after how many seconds each, a target without connections is tried again."""
TOLD_S = 2.0
"""Longer waits are announced."""
MOVED = (307, 308)
"""Redirects that keep the method and the body."""
MOST_MOVES = 3


class _OneShotAfterErrors(httpx.AsyncBaseTransport):
    """Sends requests after an error over fresh connections, for a moment; nothing twice.

    uvicorn closes a connection as soon as it has answered 500 for an application that raises;
    whether a request on the connection was read at that moment, and paid, is unknown.
    """

    def __init__(self, kept: httpx.AsyncBaseTransport, fresh: httpx.AsyncBaseTransport) -> None:
        self._kept, self._fresh, self._clock, self._error_s = kept, fresh, Clock(), -KEPT_S

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        is_soon = self._clock.now() - self._error_s < KEPT_S
        response = await (self._fresh if is_soon else self._kept).handle_async_request(request)
        if response.status_code >= 500:
            self._error_s = self._clock.now()
        return response

    async def aclose(self) -> None:
        await self._kept.aclose()
        await self._fresh.aclose()


def client(
    url: str,
    options: Options,
    headers: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> httpx.AsyncClient:
    """Return a client for a URL, with the limits of the options unless others are given."""
    limits = limits or options.limits
    verify = _verify(url)
    kept, fresh = (
        httpx.AsyncHTTPTransport(verify=verify, trust_env=False, limits=connections)
        for connections in (
            httpx.Limits(keepalive_expiry=KEPT_S),
            httpx.Limits(max_keepalive_connections=0),
        )
    )
    return httpx.AsyncClient(
        base_url=url,
        headers=headers,
        transport=BoundedTransport(_OneShotAfterErrors(kept, fresh), limits),
        timeout=limits.deadline_s,
    )


def _verify(url: str) -> ssl.SSLContext | bool:
    """Return the trust in a URL's certificate: in the authorities of SSL_CERT_FILE, if set."""
    return ssl.create_default_context() if url.startswith("https") else False


def why(error: httpx.TransportError) -> str:
    """Return why a request was not answered, in terms of the options."""
    match error:
        case AnswerTooSlow():
            return "its answer took longer than --timeout allows"
        case AnswerTooLarge():
            return f"its answer is larger than {MOST_BYTES} bytes"
        case _:
            return f"{type(error).__name__} {error}".strip()


@dataclass(frozen=True, slots=True)
class Last:
    """The last request to reach the target, the id of its check, and the outcome."""

    request: httpx.Request
    check_id: str
    outcome: str

    @property
    def line(self) -> str:
        """The request in a line."""
        size = len(self.request.content)
        body = f" with a body of {size} bytes" if size > 1000 else ""
        path = redact.redacted(self.request.url.raw_path.decode())
        return f"{self.request.method} {path}{body}"

    def __str__(self) -> str:
        """Return the request in a line, with its id."""
        return f"{self.line} (of {self.check_id or 'the preflight'})"


async def answered(
    setting: Setting, request: httpx.Request, *, may_retry_503: bool
) -> httpx.Response:
    """Send a request until the target accepts it; raises `Inconclusive` if it stays busy."""
    waited_s = 0.0
    for before in itertools.count():
        await setting.pace.turn(setting.clock)
        try:
            response = await setting.http.send(request)
        except (httpx.InvalidURL, UnicodeError) as wrong:
            raise to_no_url(wrong) from wrong
        now_s = setting.clock.now()
        wait_s = requested_wait_s(response, before, now_s, may_retry_503=may_retry_503)
        setting.has_answered = True
        if wait_s is None:
            return response
        waited_s += wait_s
        if waited_s > BUSY_S:
            break
        if wait_s >= TOLD_S:
            reason = f"as the target asks in its {response.status_code}"
            setting.tell(f"waiting for {wait_s:.0f} s, {reason}")
        setting.pace.hold(setting.clock, wait_s)
    raise Inconclusive(
        f"the target answers {response.status_code} and asks to wait {wait_s:.0f} s more, "
        f"after {BUSY_S:.0f} s: give --rate, below its limit"
    )


def requested_wait_s(
    response: httpx.Response, before: int, now_s: float, *, may_retry_503: bool
) -> float | None:
    """Return the seconds after which an answer asks for the request again, or None.

    `before` counts the earlier waits of the request. Where the world has faults, a 503 is the
    service's own answer, and the request is not repeated.
    """
    retry_after = response.headers.get("retry-after")
    is_later = response.status_code == UNAVAILABLE and retry_after is not None and may_retry_503
    if response.status_code != TOO_MANY and not is_later:
        return None
    return max(retry_after_s(retry_after, now_s) or FIRST_WAIT_S * 2.0**before, 0.05)


async def followed(
    setting: Setting, request: httpx.Request, *, may_retry_503: bool
) -> httpx.Response:
    """Send a request, and follow the target's redirects on its own host."""
    for _ in range(MOST_MOVES):
        response = await answered(setting, request, may_retry_503=may_retry_503)
        if response.status_code not in MOVED:
            break
        there = request.url.join(response.headers.get("location", ""))
        is_here = (there.scheme, there.netloc) == (request.url.scheme, request.url.netloc)
        if not is_here or there == request.url:
            break
        request = httpx.Request(
            request.method, there, headers=request.headers, content=request.content
        )
    return response


async def examine_stop(setting: Setting, error: httpx.TransportError) -> None:
    """Return if the target still accepts connections; else raise with the evidence of the stop.

    Raises `CheckFailed` if the last request stops the target again, alone after a restart, or came
    last before an earlier stop, too; else, and without a restart, `Inconclusive`.
    """
    last = setting.last
    if not await _has_stopped(setting):
        return
    at = f"{datetime.fromtimestamp(setting.clock.now(), UTC):%H:%M:%S} UTC"
    after = f", after {last}, which was {last.outcome}" if last else ""
    stop = f"the service stopped answering at {at}{after}"
    if last is None or setting.restart is None:
        way = "; give --restart COMMAND to have that request tried again alone" if last else ""
        setting.stopped = stop + way
        raise Inconclusive(setting.stopped) from error
    try:
        is_cause = await _stops_again(setting, last.request)
    except RestartFailed as problem:
        setting.stopped = f"{stop}; it was not restarted: {problem}"
        raise Inconclusive(setting.stopped) from error
    again = "sent again alone, after a restart, it has stopped the service again"
    if not is_cause:  # a fresh service may lack another condition of the stop
        sent = (last.request.method, str(last.request.url), last.request.content)
        if sent not in setting.stops:
            setting.stops.add(sent)
            raise Inconclusive(f"{stop}; after a restart, that request alone did not stop it")
        again = "it has stopped the service twice in this run, though not alone after a restart"
    raise CheckFailed(
        "a service that goes on answering",
        "an answer to every request",
        f"{stop}; {again}",
        setting.showing(last.request, None, last.outcome),
        DemandKey.GOES_ON,
    ) from error


async def _stops_again(setting: Setting, request: httpx.Request) -> bool:
    """Restart the target, send a request, and tell whether the target has stopped; then restart."""
    assert setting.restart is not None
    await setting.restart()
    setting.offers.clear()
    again = httpx.Request(
        request.method,
        request.url,
        headers=request.headers,
        content=request.content,
        extensions=request.extensions,
    )
    with suppress(httpx.TransportError):  # only the next connection shows a stop
        await setting.http.send(again)
    if not await _has_stopped(setting):
        return False
    await setting.restart()
    return True


async def _has_stopped(setting: Setting) -> bool:
    """Tell whether the target, which has answered before, accepts no connection for a while."""
    if setting.advance is not None or not setting.has_answered:
        return False
    for attempt in range(STOP_TRIES + 1):
        if attempt:
            await setting.clock.sleep(STOP_S)
        try:
            await setting.http.send(setting.http.build_request("GET", "/"))
        except httpx.ConnectError:
            continue
        except httpx.TransportError:
            return False
        return False
    return True


CLOCKS_AGREE_S = 30.0


@asynccontextmanager
async def reach(options: Options, tell: Tell = lambda text: None) -> AsyncIterator[Setting]:
    """Connect to the target and its world; raises `NotReady`."""

    def tell_if_ahead(met_s: float) -> None:
        if clock.skew_s > met_s:
            tell(f"x402sim: {left_ahead(options.base_url, clock.skew_s)}")

    async with AsyncExitStack() as stack:
        enter, limits = stack.enter_async_context, options.limits
        http = await enter(client(options.base_url, options, options.headers))
        clock = SkewedClock(Clock())
        control: ControlClient | None = None
        runs_target = False
        networks, rpc_url = options.networks, options.rpc_url
        if options.world_url is not None:
            control_url = options.world_url.rstrip("/").removesuffix("/_sim") + "/_sim"
            of_world = replace(limits, max_answer_bytes=WORLD_ANSWER_BYTES)
            control = ControlClient(await enter(client(control_url, options, limits=of_world)))
            runs_target, theirs = await _meet(control, clock, options)
            stack.callback(tell_if_ahead, clock.skew_s)
            networks = {theirs.name: theirs, **networks}
            rpc_url = rpc_url or control_url.removesuffix("/_sim") + "/rpc"

        restart = options.restart
        yield Setting(
            options=replace(options, networks=networks),
            http=http,
            clock=clock,
            rng=Rng(options.seed),
            control=control,
            rpc=await enter(client(rpc_url, options)) if rpc_url else None,
            advance=control.advancing(clock) if control and runs_target else None,
            restart=restarting(restart, http, limits.deadline_s) if restart else None,
            tell=tell,
        )


async def started(options: Options, wait_s: float, tell: Tell) -> None:
    """Wait until the world answers, and then the target, each at most `wait_s` seconds.

    Raises `NotReady`.
    """
    for url, headers in (options.world_url, None), (options.base_url, options.headers):
        if url is None:
            continue
        verify = _verify(url)
        async with httpx.AsyncClient(headers=headers, verify=verify, trust_env=False) as http:
            if silent := await until_url_answers(http, url, wait_s, tell):
                raise NotReady(in_vain(url, silent, wait_s))


async def _meet(
    control: ControlClient, clock: SkewedClock, options: Options
) -> tuple[bool, Network]:
    """Set our clock to the world's; tell whether the world runs the target, and its network."""
    wanted = f"--world {options.world_url} is not the control API of `x402sim serve`"
    itself = httpx.URL(options.world_url or "").netloc == httpx.URL(options.base_url).netloc
    hint = "; it is the service to judge: give the URL of its world" if itself else ""
    try:
        who = await control.who()
        now_s, network = who.now / 1000, network_of(who)
    except (ControlError, ValueError, OverflowError) as error:
        if isinstance(error.__cause__, httpx.TransportError):
            raise NotReady(f"{wanted}: no answer ({why(error.__cause__)})") from error
        answer = error.answer if isinstance(error, ControlError) else None
        got = f"{answer.status_code} {answer.text}".strip() if answer else str(error)
        raise NotReady(f"{wanted}: /_sim/who answers {cut(got, 80)}{hint}") from error
    here = httpx.URL(options.base_url)
    runs_target = who.service and (here.host, here.port) == (
        control.http.base_url.host,
        control.http.base_url.port,
    )
    clock.skew_s = now_s - Clock().now()
    if not runs_target and abs(clock.skew_s) > CLOCKS_AGREE_S:
        raise NotReady(
            f"the world's clock differs from this machine's by {clock.skew_s:.0f} s, and the "
            "target uses this machine's; restart the world"
        )
    return runs_target, network
