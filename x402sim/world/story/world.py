"""A world to play stories in: payers, time, faults, and an eye on the money.

`World(seed=1).play(story)` builds it, lets the story act, and returns a `Run`. Within
the story the same object is the world: `await world.payer("alice", balance="1.00")`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import msgspec

from x402sim import events
from x402sim.clock import Clock, stopwatch
from x402sim.journal import Journal
from x402sim.payer.auth import PaymentAuth
from x402sim.payer.session import SessionAuth
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, checksum, parse_address, to_hex
from x402sim.protocol.networks import TESTNET, Network
from x402sim.report.run import Run
from x402sim.rng import Stream
from x402sim.spec.decisions import Decisions
from x402sim.world.assembly.chains import LEDGER, shown
from x402sim.world.assembly.parts import Recipe
from x402sim.world.story import serialize
from x402sim.world.story.idle_timeout import Patience
from x402sim.world.story.invariants import Invariants
from x402sim.world.story.payer import Answer, Payer
from x402sim.world.story.scenario import NEEDS, Scenario, Story, find
from x402sim.world.story.stage import Plan, Stage, opener
from x402sim.world.transport.faults import Fault, When
from x402sim.world.transport.link import LatencySpec, latency_of

HOPS = ("service", "facilitator", "explorer", "rpc")


class World:
    """The whole world of a pay-per-request API, to be played in.

    `latency` gives for each hop (`HOPS`, named after who is asked) the seconds of one
    crossing: a number, (median, sigma) of a lognormal, or a list of measured ones.
    `block_time_s` is the time between blocks; None mines each transaction at once.
    `on` is where to play: "in-process", "tcp", or the URL of a service. `chain` is what a world
    of ours stands on: "ledger" (in memory), "anvil" (a real EVM, of its own), or the URL of
    a node, where time is real, keys are in X402SIM_CHAIN_KEYS, and the token is at the
    network's own address or at `token`.
    `without` leaves rules out of the rule tables, to see what notices.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        on: str = "in-process",
        chain: str = LEDGER,
        latency: Mapping[str, LatencySpec] | None = None,
        block_time_s: float | None = None,
        explorer_lag_s: float = 0.0,
        decisions: Decisions | None = None,
        network: Network = TESTNET,
        token: str | None = None,
        without: tuple[tuple[str, str], ...] = (),
        invariants: bool = True,
    ) -> None:
        unknown = set(latency or {}) - set(HOPS)
        if unknown:
            raise ValueError(f"no hop {', '.join(sorted(unknown))}; there are: {', '.join(HOPS)}")
        self.seed, self.on, self.chain, self.network = seed, on, chain, network
        self._plan = Plan(
            recipe=Recipe(
                network=network,
                seed=seed,
                decisions=decisions,
                explorer_lag_s=explorer_lag_s,
                chain=chain,
                token=token,
                block_time_s=block_time_s,
                without=without,
            ),
            latency={hop: latency_of(spec) for hop, spec in (latency or {}).items()},
        )
        self._options = serialize.options(
            latency=dict(latency or {}),
            block_time_s=block_time_s,
            explorer_lag_s=explorer_lag_s,
            decisions=decisions,
            network=None if network == TESTNET else network,
            without=without,
        )
        self._run, self._open = opener(on, chain)
        self._has_invariants = invariants
        self._stage: Stage | None = None
        self._before: dict[str, Any] = {}
        self._clients: list[httpx.AsyncClient] = []
        self.last_exchange = 0
        """The number of the newest exchange, for whoever wants to know what a check is about."""

    def play(self, story: Scenario | Story | str) -> Run:
        """Play a scenario, the shipped scenario of this name, or any `async def story(world)`.

        Returns when it is over. What goes wrong in the story is in the run's outcome;
        raises `ValueError` for an unknown name, `ConnectionError` for a dead URL, and
        `ChainError` for a chain that cannot be had.
        """
        if self._stage is not None:
            raise RuntimeError("this world is being played in already; make another one")
        if isinstance(story, str):
            (story,) = find([story])
        if not isinstance(story, Scenario):
            name = getattr(story, "__name__", "story")
            story = Scenario(name, name.replace("_", " "), (), "", (), story)
        run: Run = self._run(lambda: self._live(story))
        return run

    async def _live(self, scenario: Scenario) -> Run:
        elapsed = stopwatch()
        async with self._open(self._plan) as stage:
            self._stage = stage
            self.last_exchange = 0
            try:
                journal = stage.wires.journal
                outcome, reason = await self._play_on(stage, scenario)
                if stage.parts is None and stage.control is not None:
                    journal.merge(await self._remote_events())
                self._record(events.End(outcome=outcome, reason=reason))
                return Run(journal=journal, on=self.on, real_s=elapsed())
            finally:
                for client in self._clients:
                    await client.aclose()
                self._stage = None

    async def _play_on(self, stage: Stage, scenario: Scenario) -> tuple[events.Outcome, str]:
        """Play the story; return its outcome and the reason."""
        self._before = await self._look_around()
        if "asset" in self._before:  # a token that was just deployed has an address of its own
            asset = parse_address(self._before["asset"])
            self.network = replace(self.network, asset=asset)
        self._record(
            events.Begin(
                scenario=scenario.name,
                title=scenario.title,
                seed=self.seed,
                start_ms=stage.clock.now_ms(),
                network=self.network.name,
                decimals=self.network.decimals,
                symbol=self.network.token_symbol,
                chain=None if self.chain == LEDGER else shown(self.chain),
                options=self._options,
                merchant=self._before.get("payTo"),
                token_owner=self._before.get("tokenOwner"),
            )
        )
        missing = [NEEDS[need] for need in scenario.needs if need not in stage.can]
        if missing:
            where = self.on if self.chain == LEDGER else f"{self.on} on {shown(self.chain)}"
            return "skipped", f"{where} does not offer {', '.join(missing)}"
        if stage.parts is not None and self._has_invariants:
            stage.wires.journal.listeners.append(Invariants(stage.parts, self._broken))
        patience = Patience()
        stage.wires.journal.listeners.append(patience)
        try:
            async with patience:
                await scenario.play(self)
        except Exception as error:  # noqa: BLE001 - whatever the story raises is its outcome
            self._record(events.StoryRaised(trace=serialize.trace(error)))
            return "failed", f"{type(error).__name__}: {error}"
        finally:
            if stage.control is not None:
                await self.heal()
        checks = [e.event for e in stage.wires.journal if isinstance(e.event, events.Check)]
        failed = [check for check in checks if not check.ok]
        if failed:
            return "failed", f"{len(failed)} of {len(checks)} checks did not hold"
        if scenario.covers and not checks:
            return "failed", "it checked nothing"
        return "passed", ""

    # --- who is there, and what time it is -------------------------------------------

    @property
    def stage(self) -> Stage:
        """Where the story is being played; raises `RuntimeError` outside of one."""
        if self._stage is None:
            raise RuntimeError("a world is alive only within a story: World(...).play(story)")
        return self._stage

    @property
    def clock(self) -> Clock:
        """The true time of this world."""
        return self.stage.clock

    @property
    def merchant(self) -> str:
        """The merchant's address (2.1/pay-to)."""
        return str(self._before["payTo"])

    def rng(self, name: str) -> Stream:
        """Return a stream of random numbers of one's own, from the world's seed."""
        return self.stage.rng.stream(f"story {name}")

    async def payer(self, name: str, *, balance: str | None = None) -> Payer:
        """Return a new payer with a wire to the service and `balance` tokens, if any."""
        wallet = self.stage.wallet(name)
        self._record(events.PayerJoined(name=name, address=wallet.address))
        if balance is not None and self.stage.control is not None:
            await self.fund(wallet.address, balance)
        http = self.stage.client(name)
        self._clients.append(http)
        return Payer(self, name, wallet, http)

    def client(self, payer: Payer, auth: PaymentAuth | SessionAuth) -> httpx.AsyncClient:
        """Return an httpx client of a payer that pays by itself, with the auth you give it."""
        http = self.stage.client(payer.name)
        http.auth = auth
        self._clients.append(http)
        return http

    async def advance(self, seconds: float) -> None:
        """Let time go by (needs "clock"); what is due happens meanwhile."""
        self._record(events.TimeAdvanced(seconds=seconds))
        await self.stage.advance(seconds)

    async def until(self, at_s: float) -> None:
        """Let time go by until the clock shows `at_s`, in Unix seconds (needs "clock")."""
        await self.advance(max(0.0, at_s - self.clock.now()))

    # --- what goes wrong -------------------------------------------------------------

    async def fault(self, fault: Fault, when: When | None = None) -> None:
        """Let something go wrong from now on (needs "faults").

        `when` is a further condition on a request (its path, query and body, as bytes);
        it cannot be sent to a URL.
        """
        self._record(events.FaultInjected(**msgspec.structs.asdict(fault)))
        if when is None:
            await self._control("POST", "faults", msgspec.to_builtins(fault))
        elif self.stage.parts is None:
            raise ValueError("a condition of your own cannot be sent to a URL")
        else:
            self.stage.parts.faults.add(fault, when)

    async def heal(self) -> None:
        """End all faults, skews, lags and dooms; mine as at first."""
        await self._control("POST", "faults/clear")

    async def skew(self, actor: events.Skewable, seconds: float) -> None:
        """Make the clock of service, facilitator, explorer or chain wrong."""
        self._record(events.ClockSkewed(victim=actor, seconds=seconds))
        await self._control("POST", "clock/skew", {"actor": actor, "seconds": seconds})

    async def explorer_lag(self, seconds: float) -> None:
        """Let the explorer learn of each block so many seconds late."""
        self._record(events.ExplorerLagged(seconds=seconds))
        await self._control("POST", "explorer/lag", {"seconds": seconds})

    async def crash(self) -> None:
        """Kill the service and start it again on its database."""
        self._record(events.ServiceCrashed())
        await self._control("POST", "crash")

    # --- the chain -------------------------------------------------------------------

    async def fund(self, address: str, amount: str) -> None:
        """Mint tokens to an address, in a block of its own."""
        await self._control("POST", "faucet", {"address": address, "amount": amount})

    async def mining(self, automine: bool) -> None:
        """Mine every transaction at once, or only on demand."""
        self._record(events.MiningSwitched(automine=automine))
        await self._control("POST", "mining", {"automine": automine})

    async def mine(self, blocks: int = 1) -> None:
        """Mine blocks; the first takes all that waits."""
        await self._control("POST", "mine", {"blocks": blocks})

    async def reorg(self, depth: int, drop: list[str] | None = None) -> None:
        """Replace the newest blocks; the transactions in `drop` (hashes) are forgotten."""
        self._record(events.ChainReorganised(depth=depth))
        await self._control("POST", "reorg", {"depth": depth, "drop": drop or []})

    async def drop_waiting(self) -> None:
        """Let the node forget the transactions in its mempool."""
        self._record(events.MempoolDropped())
        await self._control("POST", "drop")

    async def revert_next(self, calls: int = 1) -> None:
        """Let the next calls of the token revert when they are mined."""
        self._record(events.RevertsForced(calls=calls))
        await self._control("POST", "doom", {"calls": calls})

    async def transact(self, sender: str, data: str) -> dict[str, Any]:
        """Send a call of the token from any account.

        Returns {"txHash", "mined", "revertReason", "cause"}: the reason in the token's own
        words, and the same for every token (`x402sim.chain.reverts.Cause`).
        """
        call = {"from": sender, "to": self._before["asset"], "data": data}
        sent: dict[str, Any] = await self._control("POST", "send", call)
        return sent

    async def token_owner(self, data: str) -> dict[str, Any]:
        """Send a call of the token from its owner, who may pause and blacklist."""
        return await self.transact(self._before["tokenOwner"], data)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Have the token's owner pause the token for as long as the block lasts."""
        await self.token_owner(to_hex(abi.PAUSE))
        try:
            yield
        finally:
            await self.token_owner(to_hex(abi.UNPAUSE))

    @asynccontextmanager
    async def blacklisted(self, address: str) -> AsyncIterator[None]:
        """Have the token's owner blacklist an address for as long as the block lasts."""
        account = parse_address(address)
        await self.token_owner(to_hex(abi.calldata(abi.BLACKLIST, account)))
        try:
            yield
        finally:
            await self.token_owner(to_hex(abi.calldata(abi.UNBLACKLIST, account)))

    async def run_indexer(self) -> dict[str, Any]:
        """Run the payment indexer now; return what it did."""
        done: dict[str, Any] = await self._control("POST", "indexer/run")
        return done

    async def ask_facilitator(
        self,
        verb: str,
        payer: Payer,
        required: Answer,
        header: str,
        *,
        requirements: dict[str, Any] | None = None,
    ) -> Any:
        """Ask the facilitator to "verify" or "settle", as a service would; return its answer.

        `requirements` (only the fields that differ) replace those of the 402.
        """
        async with self.stage.client(payer.name, "facilitator") as http:
            body = {
                "x402Version": 1,
                "paymentHeader": header,
                "paymentRequirements": {**required.requirements, **(requirements or {})},
            }
            request = http.build_request("POST", f"/v2/x402/{verb}", json=body)
            response = await http.send(request)
            self.last_exchange = request.extensions["exchange"]
            return response.json()

    # --- the money, counted on the ledger --------------------------------------------

    async def balance(self, address: str) -> int:
        """Return an address's balance on the chain, in base units (needs "chain")."""
        (held,) = await self._control("POST", "balances", {"accounts": [address]})
        return int(held)

    async def earned(self) -> int:
        """Return what the merchant has earned since the story began, in base units."""
        return await self.balance(self.merchant) - int(self._before["earned"])

    async def transfers(
        self, sender: Payer | None = None, *, to: Payer | None = None
    ) -> list[dict[str, Any]]:
        """Return the transfers since the story began, from a payer, to a payer; no mints."""
        found = await self._control("GET", "transfers")
        nobody = checksum(ZERO_ADDRESS)
        return [
            each
            for each in found
            if each["txHash"] not in self._before["known"]
            and each["from"] != nobody
            and (sender is None or each["from"] == sender.address)
            and (to is None or each["to"] == to.address)
        ]

    # --- what must hold --------------------------------------------------------------

    def expect(
        self, actual: Any, expected: Any, clause: str, *, about: Answer | None = None
    ) -> None:
        """Check that `actual` equals `expected`, as the clause demands; it is recorded.

        `about` is the answer the check is about, if that is not the newest one.
        """
        self._record(
            events.Check(
                clause=clause,
                ok=bool(actual == expected),
                expected=serialize.value(expected),
                actual=serialize.value(actual),
                exchange=(about.exchange if about else self.last_exchange) or None,
            )
        )

    def note(self, name: str, /, **data: Any) -> None:
        """Write a note to the journal: a name and JSON data of your own choice.

        Raises `TypeError` for data that JSON cannot hold.
        """
        self._record(events.Note(name=name, data=msgspec.to_builtins(data)))

    def _broken(self, clause: str, expected: str, actual: str) -> None:
        self._record(
            events.Check(
                clause=clause,
                ok=False,
                expected=expected,
                actual=actual,
                exchange=self.last_exchange or None,
            )
        )

    # --- the control plane -----------------------------------------------------------

    async def _control(self, method: str, path: str, body: Any = None) -> Any:
        control = self.stage.control
        if control is None:
            raise RuntimeError(f"{self.on} has no control plane, which {path!r} needs")
        answer = await control.request(method, f"/{path}", json=body or {})
        if answer.status_code != 200:
            raise RuntimeError(f"the world refused {path!r}: {answer.text}")
        return answer.json()

    async def _look_around(self) -> dict[str, Any]:
        """Return who is who, and what had happened before the story began."""
        if self.stage.control is None:
            return {}
        found: dict[str, Any] = await self._control("GET", "who")
        (earned,) = await self._control("POST", "balances", {"accounts": [found["payTo"]]})
        known = {each["txHash"] for each in await self._control("GET", "transfers")}
        return {**found, "earned": earned, "known": known}

    async def _remote_events(self) -> Journal:
        """Return what the world behind a URL has written to its own journal since."""
        assert self.stage.control is not None
        since = {"since": str(self._before["journal"])}
        return Journal.load((await self.stage.control.get("/journal", params=since)).content)

    def _record(self, event: events.StoryEvent) -> None:
        stage = self.stage
        stage.wires.journal.record(stage.clock.now_ms(), event)
