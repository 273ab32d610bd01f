"""Connects to a target by its URL, in real time, and to its world if one is given."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

import httpx

from x402sim.clock import Clock, SkewedClock
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import Address
from x402sim.protocol.networks import NETWORKS, Network
from x402sim.rng import Rng
from x402sim.suite.redact import cut
from x402sim.suite.restart import restarting
from x402sim.suite.setting import Setting
from x402sim.suite.target import Target
from x402sim.suite.wire import Wire, client, why
from x402sim.world.control.client import ControlClient, ControlError
from x402sim.world.control.limits import WORLD_ANSWER_BYTES
from x402sim.world.control.messages import network_of
from x402sim.world.stages.deployment import left_ahead

CLOCKS_AGREE_S = 30.0


class NotReady(Exception):
    """A run cannot begin: one line that says what was seen, what is wanted, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The user's options: the target's URL, and the means to check it.

    Without a seed, each run has new wallets and nonces, as a real chain needs.
    """

    base_url: str
    target: Target
    given_url: str = ""
    """The URL as the user gave it, without a password; it may be an endpoint's."""
    world_url: str | None = None
    rpc_url: str | None = None
    payer: Wallet | None = None
    budget_base: int = 0
    pay_to: Address | None = None
    allow_mainnet: bool = False
    networks: Mapping[str, Network] = field(default_factory=lambda: NETWORKS)
    """The networks that can be paid on, by the name that a 402 gives."""
    seed: int | None = None
    patient: bool = False
    restart: str | None = None
    """The command that ends and starts the target."""
    wire: Wire = field(default_factory=Wire)
    require: tuple[str, ...] = ()
    """What must be there, or the run does not begin: see `preflight.REQUIRABLE`."""
    skip: Mapping[str, str] = field(default_factory=dict)
    """The cases that the user leaves out, by their names, and why."""
    secrets: tuple[str, ...] = ()
    rerun: str = ""
    note: str = ""
    """What to tell the user about the options."""
    tell: Callable[[str], None] = lambda text: None
    """Tells the user what the run waits for."""


@asynccontextmanager
async def reach(access: Access) -> AsyncIterator[Setting]:
    """Connect to the target and its world; raises `NotReady`."""
    async with AsyncExitStack() as stack:
        wire = access.wire
        http = await stack.enter_async_context(
            client(access.base_url, wire, headers=dict(wire.headers))
        )
        clock = SkewedClock(Clock())
        control: ControlClient | None = None
        runs_target = False
        networks = access.networks
        rpc_url = access.rpc_url
        if access.world_url is not None:
            control_url = _control_url(access.world_url)
            most = max(WORLD_ANSWER_BYTES, wire.limits.max_answer_bytes)
            limits = replace(wire.limits, max_answer_bytes=most)
            control = ControlClient(
                await stack.enter_async_context(client(control_url, replace(wire, limits=limits)))
            )
            runs_target, theirs = await _meet(control, clock, access)
            stack.callback(_tell_if_ahead, access, clock, clock.skew_s)
            networks = {theirs.name: theirs, **networks}
            rpc_url = rpc_url or control_url.removesuffix("/_sim") + "/rpc"

        yield Setting(
            target=access.target,
            http=http,
            clock=clock,
            rng=Rng(access.seed),
            control=control,
            rpc=await stack.enter_async_context(client(rpc_url, wire)) if rpc_url else None,
            payer=access.payer,
            budget_base=access.budget_base,
            pay_to=access.pay_to,
            advance=control.advancing(clock) if control and runs_target else None,
            restart=restarting(access.restart, http, wire.limits.deadline_s)
            if access.restart
            else None,
            patient=access.patient,
            allow_mainnet=access.allow_mainnet,
            networks=networks,
            rerun=access.rerun,
            left_out=access.skip,
            secrets=access.secrets,
            rate=wire.rate,
            tell=access.tell,
        )


def _tell_if_ahead(access: Access, clock: SkewedClock, met_s: float) -> None:
    if clock.skew_s > met_s:
        access.tell(f"x402sim: {left_ahead(access.base_url, clock.skew_s)}")


def _control_url(world_url: str) -> str:
    """Return the URL of the control API, given its own or the world's."""
    url = world_url.rstrip("/")
    return url if url.endswith("/_sim") else url + "/_sim"


async def _meet(control: ControlClient, clock: SkewedClock, access: Access) -> tuple[bool, Network]:
    """Set our clock to the world's; tell whether that world runs the target, and its network."""
    wanted = f"--world {access.world_url} is not the control API of `x402sim serve`"
    itself = httpx.URL(access.world_url or "").netloc == httpx.URL(access.base_url).netloc
    hint = "; it is the service to judge: give the URL of its world" if itself else ""
    try:
        who = await control.who()
        now_s, network = who.now / 1000, network_of(who)
    except ControlError as error:
        if isinstance(error.__cause__, httpx.TransportError):
            raise NotReady(f"{wanted}: no answer ({why(error.__cause__)})") from error
        answer = error.answer
        said = cut(f"{answer.status_code} {answer.text}".strip(), 80) if answer else str(error)
        raise NotReady(f"{wanted}: /_sim/who answers {said}{hint}") from error
    except (ValueError, OverflowError) as error:
        raise NotReady(f"{wanted}: /_sim/who answers {cut(str(error), 80)}{hint}") from error
    here = httpx.URL(access.base_url)
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
