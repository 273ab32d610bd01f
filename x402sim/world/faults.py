"""Faults: fields and checks, periods of outages, and the choice of the striking fault.

A fault has a victim, a type and conditions, and perhaps periods; or a fault is a function of a
request. An unknown victim, type, field or path raises where the fault is made, and so does a field
that the type does not use. `strike.py` carries faults out.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Annotated, Any, Literal, cast, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from x402sim.events import FaultPeriodEnded, Part
from x402sim.protocol.header import json_of_header
from x402sim.protocol.messages import BadMessage, decoded
from x402sim.protocol.x402 import PROOFS
from x402sim.rng import Rng, Stream
from x402sim.text.keys import keyless
from x402sim.text.words import as_given, unknown

Period = tuple[float, float]
"""The begin and the end of a period, in seconds; the end is not in it."""


class Outages(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="outages",
):
    """Periods at random: an alternating renewal process, up first.

    Up-times are exponential with mean `mtbf_s` (the mean time between the end of an outage and the
    next one), down-times exponential with mean `mttr_s` (the mean time to repair). The part is up
    when the fault is added; in the long run the part is available for a share of
    mtbf / (mtbf + mttr).

    Periods are drawn from the world's seed, in a separate stream: requests change nothing, and
    another `mttr_s` changes only the down-times, in proportion.

    >>> Outages(mtbf_s=3600, mttr_s=60).availability
    0.9836065573770492
    """

    mtbf_s: float
    mttr_s: float

    def __post_init__(self) -> None:
        if not (self.mtbf_s > 0 and self.mttr_s > 0):
            raise ValueError(f"Outages: mtbf_s and mttr_s are above 0, got {self}")

    @property
    def availability(self) -> float:
        """The share of up-time in the long run: mtbf / (mtbf + mttr)."""
        return self.mtbf_s / (self.mtbf_s + self.mttr_s)

    def periods_from(self, start_s: float, rng: Stream) -> Iterator[Period]:
        """Yield the down-times after `start_s`, without end."""
        at_s = start_s
        while True:
            from_s = at_s + rng.expovariate(1 / self.mtbf_s)
            at_s = from_s + rng.expovariate(1 / self.mttr_s)
            yield from_s, at_s


class Schedule(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="schedule",
):
    """Periods that are given: pairs of seconds, from and until, from when the fault is added.

    They are in order and do not overlap. `until` itself is not in a period.

    >>> Schedule([(600, 660), (7200, 7260)])
    Schedule(periods=((600, 660), (7200, 7260)))
    """

    periods: tuple[Period, ...]

    def __post_init__(self) -> None:
        wanted = "expected pairs of seconds in order, such as Schedule([(600, 660), (7200, 7260)])"
        try:
            periods = tuple((from_s, until_s) for from_s, until_s in self.periods)
            moments = [0.0, *chain.from_iterable(periods)]
            is_right = all(before <= after < float("inf") for before, after in pairwise(moments))
            is_right &= all(from_s < until_s for from_s, until_s in periods) and bool(periods)
        except (TypeError, ValueError):
            is_right = False
        if not is_right:
            raise ValueError(f"periods of Schedule: {wanted}, got {as_given(self.periods)}")
        msgspec.structs.force_setattr(self, "periods", periods)

    def periods_from(self, start_s: float, rng: Stream) -> Iterator[Period]:
        """Yield the periods of a fault that is added at `start_s`; draws nothing."""
        return ((start_s + from_s, start_s + until_s) for from_s, until_s in self.periods)


When = Outages | Schedule
"""When a fault strikes."""


# --- faults -----------------------------------------------------------------------------

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"([!-~]([\t -~]*[!-~])?)?")
_NO_VALUE = "no value of a header: printable ASCII, without spaces around it"
_WRITTEN_ANYWAY = {
    "content-type": "give `content_type`",
    "content-length": "it is that of `body`",
    "content-encoding": "`body` is sent as it is",
    "transfer-encoding": "`body` is sent as it is",
    "connection": "the server decides when it closes one",
}
"""The headers that a fault cannot set, and why: the server writes them already, and of two equal
headers some clients read the first, others the last."""


def require_writable(status: int, body: str, content_type: str, headers: dict[str, str]) -> None:
    """Raise `ValueError` unless a server can write this answer."""
    if body and status in (204, 205, 304):
        raise ValueError(f"body of a fault: an answer of status {status} has none")
    if not _VALUE.fullmatch(content_type):
        raise ValueError(f"content_type of a fault: {as_given(content_type)} is {_NO_VALUE}")
    names: set[str] = set()
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"headers of a fault: {as_given(name)} is no name of a header")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"headers of a fault: {name}: {as_given(value)} is {_NO_VALUE}")
        if (why := _WRITTEN_ANYWAY.get(name.lower())) is not None:
            raise ValueError(f"headers of a fault: not {name}: {why}")
        if name.lower() in names:
            raise ValueError(f"headers of a fault: {name} stands there twice")
        names.add(name.lower())


FaultType = Literal[
    "lose request",
    "lose answer",
    "refuse",
    "delay request",
    "delay answer",
    "answer",
    "truncate",
    "shorten",
    "duplicate",
    "crash before",
    "crash after",
]
"""What a fault does; the docstring of `Fault` explains each."""
DOES: dict[FaultType, str] = {
    "lose answer": "does the work, then the connection breaks",
    "lose request": "the connection breaks before the work",
    "refuse": "the connection is refused",
    "delay request": "waits before the work",
    "delay answer": "waits after the work",
    "answer": "answers this status instead of doing the work",
    "truncate": "does the work, and the connection ends in the middle of the answer",
    "shorten": "does the work, and half of the answer arrives as if it were all",
    "duplicate": "gets the request twice",
    "crash before": "the service dies before the work",
    "crash after": "the service dies after the work",
}
"""The effect at the victim, by the type of the fault, as the page shows."""


Caller = Literal["service", "facilitator"]
"""The sender of a request: a facilitator, or anybody else."""
Callers = Literal["service", "facilitator", "all"]
"""The senders whose requests a fault strikes; the docstring of `Fault` explains them."""


class Fault(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    repr_omit_defaults=True,
):
    """A fault: the effect, the struck requests, how often and how likely.

    Every request to the victim, by a payer or by a service, is compared with all faults in the
    order of adding; the first fitting fault with turns left strikes.

    victim
        The receiver of the requests: "service", "facilitator", "explorer", "rpc" (the chain's
        node), or the name of one service or facilitator of a market.
    does
        - "lose request": the connection breaks before the victim sees the request
        - "lose answer": the victim does the work, then the connection breaks
        - "refuse": the connection is refused (over TCP it looks like a lost request)
        - "delay request", "delay answer": `seconds` pass before the work is done, or after it
        - "answer": `status` and `body` are answered, instead of the work or after it (`work_done`)
        - "truncate": the work is done, half of the answer's body arrives, and the connection ends
          before its Content-Length, or without the last chunk; an answer without a body is lost
        - "shorten": the work is done, and half of the answer's body arrives as a whole answer
        - "duplicate": the request arrives twice, and only the second answer arrives
        - "crash before", "crash after": the *service* that receives or sends the request dies when
          the request reaches the victim, or when the answer is ready; the service runs again on the
          same database 1 second later, and refuses connections until then
    path
        The end of the request's path, such as "/settle"; default "", which is any. Of the service:
        "/api/perp/quote", "/api/pay", "/api/sessions/create", "/api/agents" and so on; of the
        facilitator: "/verify", "/settle", "/supported". A path that the victim lacks is refused
        when the fault is added. The node has one path: give its method in `contains`.
    contains
        A text in the path, the query, the body or a header that shows a payment, such as
        "eth_getLogs" or a payment id, also in the JSON of a payment header, in upper or lower case;
        default "", which is any. "payment" fits the requests that pay, in one step or in two, but
        not the first request, answered 402.
    skip
        How many of the requests that fit pass first, as the first 402 may; default 0.
    times
        How many requests to strike, one after the other; default 1, and with `when` None: without
        limit.
    probability
        The chance to strike a fitting request, drawn from the seed; default 1.0. A spared request
        does not count.
    seconds
        How long a delay lasts; needed for "delay request" and "delay answer", and for them only.
    status, body, content_type, work_done, headers
        What "answer" answers, and whether the work is done before; default 500, "",
        "application/json", False and {}. For "answer" only. `headers` are further headers, a value
        a name, such as {"Location": url}, "Retry-After", "WWW-Authenticate", or "PAYMENT-REQUIRED"
        with a price that has changed.
    caller
        The struck senders, for victim "rpc" only: "service" are services, payers and all other
        clients of the node's HTTP; "facilitator" are facilitators; or "all". Default "service".
        While a fault for facilitators is active, facilitators send JSON-RPC over a link, such as
        `eth_getCode`, `eth_call`, `eth_sendRawTransaction`, `eth_getTransactionReceipt`; otherwise
        facilitators call the chain directly, without a trace in the journal. No fault crashes a
        facilitator.
    when
        The periods of striking: `Outages(mtbf_s=3600, mttr_s=60)` at random, or
        `Schedule([(600, 660)])` in seconds from when the fault is added, both of
        `x402sim.backends`; default always. `run.outages` has each period. As JSON:
        {"kind": "outages", "mtbf_s": 3600, "mttr_s": 60}, {"kind": "schedule", "periods": [[600,
        660]]}.

    Raises `ValueError` for an invalid value, and for a field that the kind does not use.

    >>> Fault(victim="facilitator", does="lose answer", path="/settle", times=2)
    Fault(victim='facilitator', does='lose answer', path='/settle', times=2)
    """

    victim: Part
    does: FaultType
    path: str = ""
    contains: str = ""
    skip: Annotated[int, Meta(ge=0)] = 0
    times: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    seconds: Annotated[float, Meta(gt=0, le=366 * 86400)] | UnsetType = UNSET
    status: Annotated[int, Meta(ge=200, le=599)] | UnsetType = UNSET
    body: str | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    work_done: bool | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    caller: Callers | UnsetType = UNSET
    when: When | UnsetType = UNSET

    def __post_init__(self) -> None:
        _require_known("kind of fault", self.does, get_args(FaultType))
        if self.caller is not UNSET and self.caller not in (known := get_args(Callers)):
            raise ValueError(f"caller of a fault: {unknown('caller', self.caller, known)}")
        for name, kind in _FIELD_TYPES.items():
            value = getattr(self, name)
            if value is UNSET:
                continue
            if self.does not in _KINDS_WITH.get(name, (self.does,)):
                kinds = " and ".join(map(repr, _KINDS_WITH[name]))
                raise ValueError(f"{name} of a fault is for {kinds} only, not for {self.does!r}")
            try:
                read = msgspec.convert(value, kind)
            except msgspec.ValidationError as wrong:
                raise ValueError(f"{name} of a fault: {keyless(str(wrong))}") from None
            if name == "when":
                msgspec.structs.force_setattr(self, name, read)  # JSON becomes an object
        if self.does in DELAYS and self.seconds is UNSET:
            raise ValueError(f"a fault that does {self.does!r} needs `seconds`")
        if self.caller is not UNSET and self.victim != "rpc":
            why = "facilitators call only the node"
            raise ValueError(f"caller of a fault is for 'rpc', not for {self.victim!r}: {why}")
        if self.caller in ("facilitator", "all") and self.does.startswith("crash"):
            why = f"{self.does!r} kills the service that asks, and no facilitator"
            raise ValueError(f"caller of a fault: {why}; 'service' is possible")
        if self.does == "answer":
            require_writable(*(value_of(self, name) for name in ANSWERED))
            if self.headers is not UNSET:
                msgspec.structs.force_setattr(self, "headers", dict(self.headers))  # its own


ANSWERED = ("status", "body", "content_type", "headers")
"""The fields of the answer that "answer" makes up."""
DELAYS: tuple[FaultType, ...] = ("delay request", "delay answer")
"""The kinds that take `seconds`."""
DEFAULTS: dict[str, Any] = {
    "times": 1,
    "seconds": 0.0,
    "status": 500,
    "body": "",
    "content_type": "application/json",
    "work_done": False,
    "headers": {},
    "caller": "service",
    "when": None,
}
"""The defaults of the fields that may be `UNSET`; with `when`, that of `times` is None."""
_KINDS_WITH: dict[str, tuple[FaultType, ...]] = {
    "seconds": DELAYS,
    **dict.fromkeys((*ANSWERED, "work_done"), ("answer",)),
}
"""The types that use a field; all other fields are for every type."""


def value_of(fault: Fault, name: str) -> Any:
    """Return the value of one of the fields of `DEFAULTS`."""
    value = getattr(fault, name)
    if value is not UNSET:
        return value
    return None if name == "times" and fault.when is not UNSET else DEFAULTS[name]


def fields_of(fault: Fault) -> dict[str, Any]:
    """Return the fields of the event `FaultInjected`: the given fields, and `times`."""
    return {**msgspec.to_builtins(fault), "times": value_of(fault, "times")}


_FIELD_TYPES = get_type_hints(Fault, include_extras=True)


def _require_known(kind: str, given: object, known: Sequence[str]) -> None:
    if given not in known:
        raise ValueError(unknown(kind, given, known))


def read_fault(fields: object) -> Fault:
    """Return the fault that a JSON object describes; raises `ValueError`."""
    if not isinstance(fields, dict):
        raise ValueError(f"a fault is an object such as {EXAMPLE}, not {as_given(fields)}")
    for name in fields:
        _require_known("field of a fault", name, Fault.__struct_fields__)
    for name in ("victim", "does"):
        if name not in fields:
            raise ValueError(f"a fault needs {name!r}, as in {EXAMPLE}")
    return Fault(**fields)


EXAMPLE = '{"victim": "facilitator", "does": "lose answer", "path": "/settle"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultedRequest:
    """A request to a victim, as a `FaultRule` gets it.

    `sent` is its path, query and body; `at_s` the true time, in Unix seconds; `rng` the random
    stream of the world's faults.
    """

    victim: Part
    path: str
    sent: bytes
    at_s: float
    rng: Stream

    @property
    def json(self) -> Any:
        """The JSON of its body; None if it is not JSON."""
        return decoded(self.sent.partition(b"\n")[2])


FaultRule = Callable[[FaultedRequest], Fault | None]
"""A user's function that returns the fault to strike a request with, or None.

Of the fault's conditions only `probability` counts; the victim is ignored.
"""


class Faults:
    """The active faults, and the choice of the striking fault."""

    def __init__(self, rng: Rng, now: Callable[[], float] = lambda: 0.0) -> None:
        self._streams, self._rng, self._now = rng.stream, rng.stream("faults"), now
        self._active: list[_ActiveFault] = []
        self._outages = Counter[Part]()
        self._rules: list[FaultRule] = []
        self.paths: dict[str, Sequence[str]] = {}
        """The paths of each victim, as in the routes."""
        self.on_inject: list[Callable[[str, Fault, str], None]] = []
        """Called with victim, fault, and struck path."""
        self.on_period: list[Callable[[FaultPeriodEnded], None]] = []
        """Called with each ended period of a fault, at the latest at the fault's removal."""
        self.reach_facilitators = False
        """Whether an active fault strikes the requests of facilitators."""

    def add(self, fault: Fault) -> None:
        """Add a fault; earlier faults have precedence.

        Raises `ValueError` for a victim that the world lacks, and if no path of the victim ends
        with the fault's.
        """
        self.require_there(fault)
        periods = None
        if fault.when is not UNSET:
            # a stream of the victim's own: other faults do not change the periods
            self._outages[fault.victim] += 1
            stream = self._streams(f"outages of {fault.victim} {self._outages[fault.victim]}")
            periods = fault.when.periods_from(self._now(), stream)
        self._active.append(_ActiveFault(fault, periods))
        self._note_callers()

    def require_there(self, fault: Fault) -> None:
        """Raise `ValueError` for an unknown victim, or an end of no path of the victim."""
        if self.paths:
            _require_known("victim", fault.victim, list(self.paths))
        require_path(fault.victim, fault.path, self.paths.get(fault.victim, ()))

    def _end_past_periods(self, each: "_ActiveFault", now_s: float) -> None:
        while each.until_s <= now_s:
            self._end(each, each.until_s)
            each.next_period()

    def _end(self, each: "_ActiveFault", at_s: float) -> None:
        if each.from_s >= at_s or each.from_s == -math.inf:
            return
        period = FaultPeriodEnded(
            victim=each.fault.victim,
            does=each.fault.does,
            path=each.fault.path,
            from_ms=int(each.from_s * 1000),
            until_ms=int(at_s * 1000),
            struck=each.strikes - each.strikes_before,
        )
        for listener in self.on_period:
            listener(period)

    def _remove(self, gone: Collection["_ActiveFault"]) -> None:
        for each in gone:
            self._end_past_periods(each, self._now())
            self._end(each, self._now())
        self._active = [each for each in self._active if each not in gone]
        self._note_callers()

    def _note_callers(self) -> None:
        """Compute `reach_facilitators` once here, as every call of the chain reads it."""
        active = (value_of(each.fault, "caller") for each in self._active)
        self.reach_facilitators = any(callers != "service" for callers in active)

    def add_rule(self, rule: FaultRule) -> None:
        """Add a function to call with every request not struck by a fault.

        Raises `TypeError` if it is no function.
        """
        if not callable(rule):
            raise TypeError(f"a fault is a Fault or a function of a request, not {as_given(rule)}")
        self._rules.append(rule)

    def clear(self, keep: Collection[str] = ()) -> None:
        """Remove all faults, except faults whose `contains` is one of the texts to `keep`."""
        self._remove([each for each in self._active if each.fault.contains not in keep])
        self._rules.clear()

    def active(self) -> list[Fault]:
        """Return the faults that can still strike."""
        return [each.fault for each in self._active]

    def unspent(self) -> list[str]:
        """Describe each fault that struck fewer requests than `times`."""
        return [
            f"{each.fault}: struck {each.strikes} of {times}, {each.matched} requests fit it"
            for each in self._active
            if (times := value_of(each.fault, "times")) is not None
        ]

    @property
    def is_empty(self) -> bool:
        """Whether no request can be struck."""
        return not self._active and not self._rules

    def next_for(
        self,
        victim: Part,
        path: str,
        body: bytes,
        *,
        query: bytes = b"",
        headers: Iterable[tuple[bytes, bytes]] = (),
        caller: Caller = "service",
    ) -> Fault | None:
        """Return the fault that strikes this request, if any, and count the strike.

        Of the `headers`, only `PROOFS` count. No `FaultRule` gets requests of facilitators.
        """
        request = path.encode() + b"?" + query + b"\n" + body
        named = ((name.lower(), value) for name, value in headers)
        paid = (b"%b: %b\n" % each for each in named if each[0] in PROOFS)
        texts: list[bytes] = []  # made for the first fault that looks for a text, not for each
        for each in self._active:
            fault = each.fault
            if fault.victim != victim or not ends_with(path, fault):
                continue
            if value_of(fault, "caller") not in (caller, "all"):
                continue
            if each.sought:
                texts = texts or _texts(b"".join(paid) + request)
                if not any(each.sought in text for text in texts):
                    continue
            if fault.when is not UNSET:
                now_s = self._now()
                self._end_past_periods(each, now_s)
                if now_s < each.from_s:
                    continue
            each.matched += 1
            if each.matched <= fault.skip or self._rng.random() >= fault.probability:
                continue
            each.strikes += 1
            times = value_of(fault, "times")
            if times is not None and each.strikes >= times:
                self._remove([each])
            return fault
        return None if caller == "facilitator" else self._by_rule(victim, path, request)

    def _by_rule(self, victim: Part, path: str, request: bytes) -> Fault | None:
        faulted = FaultedRequest(
            victim=victim, path=path, sent=request, at_s=self._now(), rng=self._rng
        )
        for rule in self._rules:
            fault = rule(faulted)
            if fault is None:
                continue
            if not isinstance(cast(object, fault), Fault):
                result = f"{as_given(rule)} returned {as_given(fault)}"
                raise TypeError(f"{result}; a function of a request returns a Fault or None")
            if self._rng.random() < fault.probability:
                return fault
        return None


class _ActiveFault:
    """A fault, with the numbers of matched and of struck requests.

    It strikes from `from_s` to `until_s`, in Unix seconds: always, or in its next period.
    """

    def __init__(self, fault: Fault, periods: Iterator[Period] | None) -> None:
        self.fault, self._periods = fault, periods
        self.sought = fault.contains.encode().lower()
        self.matched = self.strikes = self.strikes_before = 0
        self.from_s, self.until_s = -math.inf, math.inf
        if periods is not None:
            self.next_period()

    def next_period(self) -> None:
        """Take the next period; after the last one, the fault never strikes again."""
        never = math.inf, math.inf
        self.from_s, self.until_s = never if self._periods is None else next(self._periods, never)
        self.strikes_before = self.strikes


_HEADER = re.compile(
    rb'(?:"paymentHeader"\s*:\s*"|^(?:x-payment|payment-signature): )([^"\\\n]*)', re.MULTILINE
)


def _texts(request: bytes) -> list[bytes]:
    """Return a request and the decoded payment header in the request, both in small letters.

    Services choose the encoding of the header they pass on, and the case of addresses.
    """
    found = _HEADER.search(request)
    try:
        header = [json_of_header(found[1].decode()).lower()] if found else []
    except (BadMessage, UnicodeDecodeError):
        header = []  # no payment header that anybody could read
    return [request.lower(), *header]


def ends_with(path: str, fault: Fault) -> bool:
    """Return whether a path ends with a fault's; on one port the victim's name comes before it."""
    return path.endswith(fault.path) or f"/{fault.victim}{path}".endswith(fault.path)


def require_path(part: Part, end: str, paths: Sequence[str]) -> None:
    """Raise `ValueError` if no path of a part, as its routes spell them, ends with `end`."""
    if paths and not any(_may_end_with(part, path, end) for path in paths):
        shown = [path for path in paths if "/api" in path] or paths
        endings: dict[str, str] = {}
        for path in shown:
            endings.setdefault("/" + "/".join(_ending(part, path, end)[1:]), path)
        raise ValueError(unknown(f"path of {part}", end, endings, shown=endings.__getitem__))


def _may_end_with(part: Part, route: str, end: str) -> bool:
    """Return whether a path of this route can end with `end`; `{name}` matches any segment.

    At least one literal segment must match, or every misspelt path would.
    """
    wanted = end.split("/")
    served = _ending(part, route, end)
    if len(wanted) > len(served):
        return False
    pairs = list(zip(served, wanted, strict=True))
    segment, ending = pairs[0]
    can_end = "{" in segment or segment.endswith(ending)
    names_it = not end.strip("/") or any(
        wanted_segment and not segment.startswith("{") for segment, wanted_segment in pairs
    )
    return can_end and names_it and all(_is_segment(*pair) for pair in pairs[1:])


def _ending(part: Part, route: str, end: str) -> list[str]:
    """Return the last segments of a route, as many as `end` has.

    In a world on one port, the paths of all but the service begin with the victim's name.
    """
    return f"/{part}{route}".split("/")[-len(end.split("/")) :]


def _is_segment(segment: str, wanted: str) -> bool:
    parts = map(re.escape, re.split(r"\{[^}]*\}", segment))
    return re.fullmatch("[^/]+".join(parts), wanted) is not None
