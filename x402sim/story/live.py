"""`LiveWorld`, the argument of a scenario: payers, time, faults, chain, money, checks and notes.

A scenario calls its methods: `await world.payer("alice", balance="1.00")`. A method marked
(needs "…") works only on stages that meet the need (`x402sim.spec.needs`).
"""

import math
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal

import msgspec
from msgspec import to_builtins

from x402sim import events
from x402sim.clock import Clock
from x402sim.events import Scalar
from x402sim.facilitator import standard
from x402sim.payer.policies import NewBlock, PayerPolicy
from x402sim.protocol import abi, cronos, x402
from x402sim.protocol.crypto import ZERO_ADDRESS, checksum, parse_address, to_hex
from x402sim.protocol.header import authorization_of
from x402sim.protocol.permit2_payments import Permit2Payment
from x402sim.protocol.x402 import exact_payload, read_required
from x402sim.rng import Stream
from x402sim.serving.control.app import EVENTS
from x402sim.serving.control.client import ControlError
from x402sim.serving.control.messages import Transfer, WorldInfo
from x402sim.story.observing import Act, Observers, newest_block
from x402sim.story.payer import Answer, Payer, Spending
from x402sim.story.population import Arrivals, Behaviour, Buy, Population, play_population
from x402sim.story.stages import Stage, path_on
from x402sim.text.words import as_given, described, unknown
from x402sim.world.faults import Fault, FaultRule, fields_of
from x402sim.world.scenario import require_clause


def _scalar(given: Any) -> Scalar:
    return given if isinstance(given, str | int | float | bool | None) else repr(given)


_TWO_STEPS = {"verify": cronos.VERIFY_PATH, "settle": cronos.SETTLE_PATH}
_PLAIN = PayerPolicy()  # the policy of payers without one
_STANDARD = {"verify": standard.VERIFY_PATH, "settle": standard.SETTLE_PATH}


class LiveWorld:
    """The world during a scenario; `World.play` makes one.

    `network` is the first network, whose token pays, and `stage` the open stage. A method about the
    chain acts on the first network's chain, unless a `network` is given.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage, self.network = stage, stage.network
        self.info: WorldInfo | None = None
        """The control API's description of the world at the start; None without a control API."""
        self._names: set[str] = set()
        self._initial_balances: dict[tuple[str, str | None], int] = {}
        """The merchants' balances at the start in base units, by address and further network."""
        self._earlier_transfers: frozenset[str] = frozenset()
        """The hashes of the transactions that transferred tokens before the start."""
        self._observers: Observers | None = None
        self._observing = 0

    @classmethod
    async def start(cls, stage: Stage) -> "LiveWorld":
        """Return the live world on an open stage; transfers and earnings count from now.

        Raises `ConnectionError` if the control API refuses, or answers unreadably.
        """
        live, control = cls(stage), stage.control
        if control is None:
            return live
        try:
            live.info = await control.who()
            for account in live._accounts().values():
                live._initial_balances[account] = await stage.balance(*account)
            live._earlier_transfers = frozenset(each.tx_hash for each in await control.transfers())
        except ControlError as wrong:
            raise ConnectionError(str(wrong)) from wrong
        return live

    def _accounts(self) -> dict[events.ServiceName, tuple[str, str | None]]:
        """Return where each service is paid: its merchant's address, and a further network."""
        stage = self.stage
        return {
            name: (address, stage.further(stage.network_of(name)))
            for name, address in stage.merchants(self.merchant).items()
        }

    # --- participants and time -------------------------------------------

    @property
    def clock(self) -> Clock:
        """The true time of this world."""
        return self.stage.clock

    @property
    def merchant(self) -> str:
        """The merchant's address (2.1/pay-to), of the first service."""
        return str(self.info and self.info.pay_to)

    def rng(self, name: str) -> Stream:
        """Return a random stream for the scenario, seeded with the world's seed and `name`."""
        return self.stage.stream(name)

    async def payer(
        self,
        name: str,
        *,
        balance: str | None = None,
        policy: PayerPolicy | None = None,
        wallet: Literal["key", "smart"] = "key",
    ) -> Payer:
        """Return a new payer with `balance` tokens, such as "1.00", or none.

        A "smart" wallet is a contract (EIP-1271), whose owner's key signs (needs "control chain").

        `policy` is for `buy`, `fetch` and `open_session`: the number of tries, the use of sessions,
        and the limit of spending (`x402sim.policies`). Raises `ValueError` for the name of another
        payer in the scenario: equal names would share a wallet.
        """
        if name in self._names:
            raise ValueError(f"there is a payer named {as_given(name)} already; names are unique")
        if name in self.stage.actors:
            raise ValueError(f"there is a part named {as_given(name)}: give the payer another name")
        self._names.add(name)
        held = self.stage.wallet(name)
        if wallet == "smart":
            made = await self.stage.ask("wallet", {"owner": held.address})
            held = held.of_contract(made["address"])
        self.stage.record(events.PayerJoined(name=name, address=held.address))
        if balance is not None and self.stage.control is not None and self.stage.funded is None:
            await self.fund(held.address, balance)
        if policy is not None:
            self.note("policy", payer=name, policy=repr(policy))
        return Payer(self.stage, name, held, Spending(policy or _PLAIN))

    async def population(
        self,
        n: int,
        *,
        arrivals: Arrivals,
        behaviour: Behaviour = Buy(),  # noqa: B008 - frozen, without state
        until_s: float | None = None,
        balance: str | None = "100.00",
        policy: PayerPolicy | None = None,
        name: str = "payer",
    ) -> Population:
        """Play the visits of `n` payers, "payer 1" and so on; return after the last visit ends.

        Sessions that were opened may end later: `await world.advance(...)` lets them be refunded.

        Without `until_s`, each payer comes once. With it, visits begin for that many seconds: at
        Poisson arrivals each is of a payer drawn at random, else they come in turn. A visit runs
        `behaviour(payer, rng)` and may overlap with others. `asyncio.gather` plays several
        populations, each under a `name` of its own. The objects are in `x402sim.population`;
        `policy` is that of each payer.

        A visit that raises `PaymentFailed` is given up; any other exception fails the scenario.
        """
        return await play_population(
            self.stage,
            name,
            lambda each: self.payer(each, balance=balance, policy=policy),
            count=n,
            arrivals=arrivals,
            behaviour=behaviour,
            until_s=until_s,
        )

    async def another_service(
        self, *, shares_database: bool = False, **settings: Any
    ) -> events.ServiceName:
        """Start another service; return its name, such as "service 2".

        The new service has the first service's merchant, wallet and settings, but for the
        `settings` given here, and a new database and id secret, or with `shares_database` the
        first service's (needs "other services"). `sells` are goods as of `LocalServer`, such as
        `{"POST /answer upto 0.05": answer}`: a function of the request, which may return the body
        and the amount used in tokens.
        """
        if self.stage.another_service is None:
            raise RuntimeError(f"{self.stage.base_url} has one service: another cannot be started")
        return await self.stage.another_service(shares_database, settings)

    @property
    def services(self) -> tuple[events.ServiceName, ...]:
        """The names of the services; payers use the first, and others as `payer.at(name)`."""
        return self.stage.services

    async def advance(self, seconds: float = 0.0, *, until_s: float | None = None) -> None:
        """Advance time (needs "clock"); timers, sweeps and blocks run as they fall due.

        `until_s` is a moment in Unix seconds instead; if it is past, no time goes by.
        """
        if until_s is not None:
            seconds = max(0.0, until_s - self.clock.now())
        if not 0 <= seconds < math.inf:
            raise ValueError(f"seconds: time goes forward, by 0 or more, and not by {seconds}")
        self.stage.record(events.TimeAdvanced(seconds=seconds))
        await self.stage.advance(seconds)

    async def fault(self, fault: Fault | FaultRule) -> None:
        """Add a fault (needs "faults"), such as `Fault(victim="facilitator", does="lose answer")`.

        A fault may also be a function, but not at a deployment: the function gets each request
        not struck by another fault, a `FaultedRequest` of `x402sim.backends`, and returns the
        fault to strike with, or None. Raises `RuntimeError` for a path that the victim lacks.
        """
        if isinstance(fault, Fault):
            await self.stage.ask("faults", msgspec.to_builtins(fault))
            self.stage.record(events.FaultInjected(**fields_of(fault)))
        elif self.stage.parts is None:
            raise ValueError("a Python function cannot be sent to a deployment")
        else:
            self.stage.parts.faults.add_rule(fault)
            self.note("fault", rule=described(fault))

    def observe(
        self, act: Act, *, at: events.Part, path: str = "", probability: float = 1.0
    ) -> None:
        """Let an adversary observe the requests `at` a part, or the "mempool", and act on them.

        At a part, such as "facilitator", the adversary observes the requests whose path ends with
        `path`, at the sending: an `act` within the latency of the link is faster than the part. In
        the mempool the adversary observes the transactions that wait for a block. Each is observed
        with `probability`, drawn from a separate stream.

        `act` gets an `Observed` of `x402sim.backends`. A coroutine function runs in a task beside
        the scenario, holds nothing up and ends with the scenario at the latest; an exception fails
        the scenario. Requests of an observer are not observed.

        >>> async def front_running(world):
        ...     mallory = await world.payer("mallory")
        ...
        ...     async def steal(observed):
        ...         await mallory.submit(observed.payment_header)
        ...
        ...     world.observe(steal, at="facilitator", path="/settle", probability=0.3)

        Raises `ValueError` for a part or a path that the world lacks, for the mempool of a chain
        that mines at once or of an existing node, and for a deployment.
        """
        if self.stage.parts is None:
            raise ValueError("a Python function cannot be sent to a deployment")
        if self._observers is None:
            self._observers = Observers(self.stage.parts, self.stage.watches)
        self._observing += 1
        rng = self.stage.rng.stream(f"observer {self._observing}")
        self._observers.add(act, at, path, probability, rng)
        self.note("observed", at=at, path=path, by=described(act))

    async def end(self) -> None:
        """End the tasks of observers."""
        if self._observers is not None:
            await self._observers.end()

    async def _do(self, path: str, **given: Any) -> None:
        await self.stage.ask(path[1:], given)
        self.stage.record(EVENTS[path](**given))

    async def _do_recorded(self, path: str, event: events.StoryEvent, **given: Any) -> None:
        """Do an action that records the event itself, in this journal if the world is here."""
        await self.stage.ask(path, given)
        if self.stage.parts is None:
            self.stage.record(event)

    async def heal(self) -> None:
        """Reset faults, clock skews, the explorer's lag, forced reverts, mining, facilitators."""
        await self.stage.ask("faults/clear", {})

    async def skew(self, actor: events.Part, seconds: float) -> None:
        """Skew the clock of the service, the facilitator, the explorer or the chain.

        Services and facilitators with names have clocks of their own.
        """
        await self._do("/clock/skew", actor=actor, seconds=seconds)

    async def explorer_lag(self, seconds: float) -> None:
        """Show each block in the explorer `seconds` late (needs "faults")."""
        await self._do("/explorer/lag", seconds=seconds)

    async def set_facilitator(
        self,
        name: str | None = None,
        *,
        receipt_timeout_s: float | None = None,
        simulates: bool | None = None,
        simulates_verify: bool | None = None,
        listing_delay_s: float | None = None,
    ) -> None:
        """Change settings of a facilitator, the first one's without a name (needs "faults").

        The names are those of `FacilitatorSettings`; an omitted setting stays.
        """
        given = {"name": name, "receipt_timeout_s": receipt_timeout_s}
        given |= {"simulates": simulates, "simulates_verify": simulates_verify}
        given |= {"listing_delay_s": listing_delay_s}
        await self._do("/facilitator", **{k: each for k, each in given.items() if each is not None})

    async def crash(self, service: events.ServiceName = "service") -> None:
        """Kill a service; returns after the restart on the same database, 1 second later."""
        name = self.stage.first if service == "service" else service
        await self._do_recorded("crash", events.ServiceCrashed(victim=name), service=name)

    # --- the chain -------------------------------------------------------------------

    async def fund(self, address: str, amount: str, network: str | None = None) -> None:
        """Mint tokens, such as "1.00", to an address; the transaction is mined (needs "funds")."""
        given = {"address": address, "amount": amount}
        await self.stage.ask(path_on("faucet", network), given)

    async def mining(self, automine: bool) -> None:
        """Mine each transaction immediately, or only on demand (needs "control chain")."""
        event = events.MiningSwitched(automine=automine)
        await self._do_recorded("mining", event, automine=automine)

    async def mine(self, blocks: int = 1) -> None:
        """Mine blocks; the first includes every waiting transaction (needs "control chain")."""
        await self.stage.ask("mine", {"blocks": blocks})

    async def reorg(self, depth: int, drop: list[str] | None = None) -> None:
        """Replace the newest `depth` blocks, without the transactions in `drop` (hashes)."""
        event = events.ChainReorganised(depth=depth)
        await self._do_recorded("reorg", event, depth=depth, drop=drop or [])

    async def newest_block(self) -> NewBlock:
        """Return the chain's newest block (needs "observe chain")."""
        return await newest_block(self.stage)

    async def drop_waiting(self) -> None:
        """Drop every transaction from the mempool (needs "control chain")."""
        await self._do("/drop")

    async def force_revert(self, calls: int = 1, *, account: str = "") -> None:
        """Make the next calls of the token revert when mined; with an address, calls naming it."""
        await self._do("/force-revert", calls=calls, account=account)

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Pause the token for the length of a `with` block (needs "fiat token")."""
        return self._while_set(abi.PAUSE, abi.UNPAUSE)

    def blacklisted(self, address: str) -> AbstractAsyncContextManager[None]:
        """Blacklist an address for the length of a `with` block (needs "fiat token")."""
        calls = (abi.BLACKLIST, abi.UNBLACKLIST)
        on, off = (abi.calldata(each, parse_address(address)) for each in calls)
        return self._while_set(on, off)

    @asynccontextmanager
    async def _while_set(self, on: bytes, off: bytes) -> AsyncIterator[None]:
        owner = str(self.info and self.info.token_owner)
        await self.stage.transact(owner, to_hex(on))
        try:
            yield
        finally:
            await self.stage.transact(owner, to_hex(off))

    async def run_indexer(self, service: events.ServiceName = "service") -> dict[str, Any]:
        """Run the payment indexer of a service now; return its counts."""
        done: dict[str, Any] = await self.stage.ask("indexer/run", {"service": service})
        return done

    async def ask_facilitator(
        self,
        verb: str,
        payer: Payer,
        required: Answer,
        header: str,
        *,
        version: int | None = None,
        requirements: dict[str, Any] | None = None,
    ) -> Any:
        """Ask the facilitator to "verify" or "settle", as a service does; return its answer.

        With a `version`, 1 or 2, the request is that of a shop of the x402 standard.
        `requirements` (only the differing fields) replace the 402's. Raises `ValueError` for
        another verb or version.
        """
        path, body = _facilitator_request(verb, required, header, version, requirements or {})
        async with self.stage.client(payer.name, "facilitator") as http:
            response = await http.post(path, json=body)
        self.stage.last_exchange = response.request.extensions["exchange"]
        return response.json()

    # --- the money, counted on the chain --------------------------------------------

    async def balance(self, address: str, network: str | None = None) -> int:
        """Return an address's balance on the chain, in base units (needs "observe chain")."""
        return await self.stage.balance(address, network)

    async def earned(self, service: events.ServiceName | None = None) -> int:
        """Return what the merchants have earned since the scenario began, in base units.

        Each on the network of the service. With a service's name, only that merchant. Services
        with one merchant share the earnings. Raises `ValueError` for the name of no service.
        """
        accounts = self._accounts()
        name = self.stage.first if service == "service" else service
        if name is not None and name not in accounts:
            raise ValueError(unknown("service", name, accounts))
        of = set(accounts.values()) if name is None else {accounts[name]}
        return sum([await self.balance(*each) - self._initial_balances.get(each, 0) for each in of])

    async def transfers(
        self, sender: Payer | None = None, *, to: Payer | None = None
    ) -> list[Transfer]:
        """Return the transfers since the scenario began, without mints; of one payer if given."""
        found: list[Transfer] = await self.stage.ask("transfers", kind=list[Transfer])
        return [
            each
            for each in found
            if each.tx_hash not in self._earlier_transfers
            and each.sender != checksum(ZERO_ADDRESS)
            and (sender is None or each.sender == sender.address)
            and (to is None or each.to == to.address)
        ]

    # --- checks and notes --------------------------------------------------------------

    def expect(
        self, actual: Any, expected: Any, clause: str, *, about: Answer | None = None
    ) -> None:
        """Check that `actual` equals `expected`, as the clause demands, and record the result.

        Of an answer the status is checked, or, if a text is expected, the error. `about` is the
        checked answer, if `actual` is none; default the newest. Raises `ValueError` for an unknown
        clause.
        """
        require_clause(clause, "expect")
        if isinstance(actual, Answer):
            about = about or actual
            actual = actual.error if isinstance(expected, str) else actual.status
        self.stage.record(
            events.Check(
                clause=clause,
                ok=bool(actual == expected),
                exchange=(about.exchange if about else self.stage.last_exchange) or None,
                expected=_scalar(expected),
                actual=_scalar(actual),
            )
        )

    def note(self, name: str, /, **data: Any) -> None:
        """Write a note of your own to the journal: a name and JSON data.

        Raises `TypeError` for data that JSON cannot hold.
        """
        self.stage.record(events.Note(name=name, data=to_builtins(data)))


def _facilitator_request(
    verb: str, required: Answer, header: str, version: int | None, requirements: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of a request to "verify" or "settle".

    `header` belongs to a payment in two steps; a `version` of the standard takes the signed
    authorization in the header, or the whole header of a payment by Permit2. `requirements` replace
    fields of the 402's. Raises `ValueError` for another verb or version.
    """
    if verb not in _TWO_STEPS:
        raise ValueError(unknown("verb", verb, _TWO_STEPS))
    if version is None:
        wanted = {**required.requirements, **requirements}
        body = {"paymentHeader": header, "paymentRequirements": wanted}
        return _TWO_STEPS[verb], {"x402Version": cronos.VERSION, **body}
    if version not in x402.VERSIONS:
        raise ValueError(f"version: the x402 standard has 1 and 2, not {version}")
    payment: Any = x402.json_in(header, Permit2Payment)
    if payment is not None:
        wanted = to_builtins(payment.accepted)
    elif version == 1:
        wanted = required.body["accepts"][0]
        payload = exact_payload(*authorization_of(header))
        payment = x402.PaymentV1(1, wanted["scheme"], wanted["network"], payload)
    else:
        offered = read_required(required.standard_offer or "")
        wanted = to_builtins(offered.accepts[0])
        payload = exact_payload(*authorization_of(header))
        payment = x402.PaymentV2(2, offered.accepts[0], payload, offered.resource)
    return _STANDARD[verb], {
        "x402Version": version,
        "paymentPayload": to_builtins(payment),
        "paymentRequirements": {**wanted, **requirements},
    }
