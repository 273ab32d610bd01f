"""`LocalServer`: a whole world on a free local port, in a thread of this process."""

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import httpx
import uvicorn

from x402sim.clock import Clock
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.protocol.networks import Network
from x402sim.report.page import Shown
from x402sim.service.sources import Sells, goods_of
from x402sim.serving.control.client import ControlClient, ControlError
from x402sim.serving.control.messages import Paid, Ready, Transfer
from x402sim.serving.listen import Listen
from x402sim.serving.log import Form
from x402sim.serving.serve import open_world, run, serve
from x402sim.world.faults import Fault
from x402sim.world.loop import run_anywhere
from x402sim.world.running_world import RunningWorld
from x402sim.world.world import World, with_goods

T = TypeVar("T")
TIMEOUT_S = 30.0


@cache
def certificates() -> ssl.SSLContext:
    """Return the certificates to trust; reading them takes longer than building a world."""
    return httpx.create_ssl_context(trust_env=False)


class LocalServer:
    """A whole world on a free local port, in a thread of this process.

    It serves a `World`, whose options may also be given here by name, as in
    `LocalServer(seed=1, block_time_s=2)`: `help(x402sim.World)` has them all. `port` is the port to
    listen on, by default a free one. `sells` are goods of your own:
    `sells={"GET /weather 0.01": {"sky": "blue"}}`, where a value may also be text, bytes or a
    function of the request. With a `control_token`, only its holder can change the world.

    `wallets` are the funded accounts, those of anvil and Hardhat unless a seed or another phrase
    (`mnemonic`) is given; `url` is the service, and `facilitator_url`, `explorer_url`, `rpc_url`
    and `control_url` the rest. `clock` is the world's clock: give the clock to a payer if you
    advance it. With several networks, the service is on the first, and the facilitator settles on
    all.
    `parts` is the running world: read it only while no request is in flight.

    `fault`, `advance` and `reset` change the world; `transfers`, `balance` and `journal` return the
    past, and `show` shows the payments in a notebook. All raise `RuntimeError` with the reason if
    the server refuses. In async code, write `async with LocalServer() as server:`, and
    `server.control` has the same methods as coroutines.
    """

    def __init__(
        self,
        world: World | None = None,
        *,
        port: int = 0,
        control_token: str | None = None,
        sells: Sells | None = None,
        **options: Any,
    ) -> None:
        self.clock = Clock()
        self._listen = Listen(port=port, control_token=control_token)
        self._world = World(**options) if world is None else replace(world, **options)
        if sells is not None:
            self._world = with_goods(self._world, goods_of(sells))
        self._http: httpx.AsyncClient | None = None
        self._thread: threading.Thread | None = None
        self._server: uvicorn.Server | None = None
        self._failure: BaseException | None = None
        self._ready_message: Ready | None = None
        self.parts: RunningWorld | None = None
        self.log_form: Form | None = None
        """Where its log goes, and how; None if nowhere. Set it before the start."""

    def __repr__(self) -> str:
        return f"LocalServer({self.url})" if self._ready_message else "LocalServer(not running)"

    @property
    def url(self) -> str:
        """The service's URL."""
        return str(self.info.service)

    @property
    def facilitator_url(self) -> str:
        """The facilitator's base URL."""
        return self.info.facilitator

    @property
    def explorer_url(self) -> str:
        """The explorer's base URL."""
        return self.info.explorer

    @property
    def rpc_url(self) -> str:
        """The chain's JSON-RPC URL."""
        return self.info.rpc

    @property
    def control_url(self) -> str:
        """The control API's URL."""
        return str(self.info.control)

    @property
    def network(self) -> Network:
        """The network whose token pays: `PaymentAuth(wallet, network=server.network)`."""
        return self.parts.service.env.network if self.parts else self._world.networks[0]

    @property
    def wallets(self) -> list[Wallet]:
        """The funded accounts."""
        return [Wallet(account.private_key) for account in self.info.accounts]

    @property
    def info(self) -> Ready:
        """The ready message of `serve --json`; raises `RuntimeError` if it is not running."""
        if self._ready_message is None:
            raise RuntimeError("not running: use `with LocalServer() as server:`, or start()")
        return self._ready_message

    def start(self) -> "LocalServer":
        """Start serving; returns when it is ready. Raises the error that prevented the start."""
        if self._ready_message:
            raise RuntimeError(f"this server is running already, at {self.url}")
        ready, self._failure = Future[Ready](), None
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="x402sim", daemon=True
        )
        self._thread.start()
        self._ready_message = ready.result()
        return self

    def stop(self) -> None:
        """Stop serving; returns when everything is closed."""
        if self._server and self._thread:
            self._server.should_exit = True
            self._thread.join()
            self._server, self._ready_message = None, None
            if self._failure:
                raise self._failure

    def __enter__(self) -> "LocalServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- what a test changes in the world, and reads from it ---------------------------

    def fault(self, fault: Fault) -> None:
        """Add a fault; earlier faults have precedence."""
        self._ask(lambda control: control.fault(fault))

    def advance(self, seconds: float) -> None:
        """Move the clock forward; sessions end, authorizations expire, pending payments resolve."""
        self._ask(lambda control: control.advance(seconds))

    def reset(self) -> None:
        """Empty chain and database, restore the balances, and remove all faults.

        Clock and journal go on.
        """
        self._ask(lambda control: control.reset())

    def transfers(self, account: str = "") -> list[Transfer]:
        """Return the token's transfers, oldest first; with an address, only from or to the address.

        Each has `tx_hash`, `block_number`, `sender`, `to` and `amount_base`: text, in base units.
        """
        return self._ask(lambda control: control.transfers(account))

    def payments(self, path: str = "", times: int | None = None) -> list[Paid]:
        """Return the settled payments, oldest first, for one path if given.

        `server.payments("/api/perp/quote", times=1)` demands exactly one: it raises
        `AssertionError` for another number, and names each payment.
        """
        return self._ask(lambda control: control.payments(path, times))

    def balance(self, address: str) -> int:
        """Return what an address has of the token, in base units, as an int."""
        return self._ask(lambda control: control.balance(address))

    @property
    def journal(self) -> Journal:
        """The events until now; the guide's page `events.md` describes each kind."""
        return self._ask(lambda control: control.journal())

    def show(self) -> Shown:
        """Return the payments until now as lanes, for a notebook, below a link to the live page.

        The copy is in a frame: no site may show the live page in a frame, as it has all keys.
        """
        link = f'<a href="{self.control_url}/ui" target="_blank" rel="noopener">The live page</a>'
        return Shown(self._ask(lambda control: control.page()), link)

    @property
    def control(self) -> ControlClient:
        """The client of the control API within `async with`; raises `RuntimeError` elsewhere."""
        if self._http is None:
            raise RuntimeError("`control` is for `async with LocalServer() as server:`")
        return ControlClient(self._http)

    def _ask(self, ask: Callable[[ControlClient], Awaitable[T]]) -> T:
        async def main() -> T:
            async with self._client() as http:
                return await ask(ControlClient(http))

        try:
            return run_anywhere(main)
        except ControlError as wrong:
            raise wrong.with_traceback(None) from None  # its text says it all

    def _client(self) -> httpx.AsyncClient:
        token = self._listen.control_token
        return httpx.AsyncClient(
            base_url=self.control_url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=TIMEOUT_S,
            trust_env=False,
            verify=certificates(),
        )

    async def __aenter__(self) -> "LocalServer":
        await asyncio.to_thread(self.start)
        self._http = self._client()
        return self

    async def __aexit__(self, *_: object) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()
        await asyncio.to_thread(self.stop)

    def _run(self, ready: Future[Ready]) -> None:
        def on_start(server: uvicorn.Server, message: Ready) -> None:
            self._server = server
            ready.set_result(message)

        try:
            self.parts, sock = open_world(self._world, self._listen, self.clock)
            run(serve(self.parts, self._listen, sock, on_start, self.log_form))
        except BaseException as failure:  # noqa: BLE001 - raised in the thread that calls us
            if ready.done():
                self._failure = failure
            else:
                ready.set_exception(failure)
