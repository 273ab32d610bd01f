"""Connects to a target by its URL, in real time, and to its world if one is given."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import httpx

from x402sim.clock import Clock, SkewedClock
from x402sim.protocol.networks import Network
from x402sim.rng import Rng
from x402sim.suite.redact import cut
from x402sim.suite.service.options import Options
from x402sim.suite.service.scheduler import restarting
from x402sim.suite.service.sending import client, tls, why
from x402sim.suite.service.setting import Setting
from x402sim.suite.subject import Tell
from x402sim.suite.verdict import NotReady
from x402sim.suite.waiting import in_vain, until_url_answers
from x402sim.world.control.client import WORLD_ANSWER_BYTES, ControlClient, ControlError
from x402sim.world.control.messages import network_of
from x402sim.world.stages import left_ahead

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
            most = max(WORLD_ANSWER_BYTES, limits.max_answer_bytes)
            large = replace(options, max_answer_bytes=most)
            control = ControlClient(await enter(client(control_url, large)))
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
    """Wait until the world answers, and then the target, each at most so long.

    Raises `NotReady`.
    """
    for url, headers in (options.world_url, None), (options.base_url, options.headers):
        if url is None:
            continue
        verify = tls(options) if url.startswith("https") else False
        async with httpx.AsyncClient(headers=headers, verify=verify, trust_env=False) as http:
            if silent := await until_url_answers(http, url, wait_s, tell):
                raise NotReady(in_vain(url, silent, wait_s))


async def _meet(
    control: ControlClient, clock: SkewedClock, options: Options
) -> tuple[bool, Network]:
    """Set our clock to the world's; tell whether that world runs the target, and its network."""
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
