"""An adapter, as the subject of a judgement by vectors.

The vectors are asked one after the other, of one process. An operation that the adapter does not
claim is skipped, as is an input that the adapter answers with "unsupported".
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from x402sim.suite.case import Case, by_play
from x402sim.suite.engine import CaseResults, Judging, Plan, result, skipped, unclear
from x402sim.suite.options import again, env_flag, flag, given, patience_flag, read
from x402sim.suite.report.exchange import Exchange, Message
from x402sim.suite.report.results import CaseResult
from x402sim.suite.row import beginnings
from x402sim.suite.subject import Subject, Tell
from x402sim.suite.vectors.adapter import Adapter, Broken
from x402sim.suite.vectors.vector import (
    CAPABILITIES,
    FAMILIES,
    OPERATIONS,
    UNSUPPORTED,
    Answer,
    Capabilities,
    File,
    Vector,
    agrees,
    files,
    ground_of,
    ground_of_word,
    shown,
)
from x402sim.suite.verdict import Found, NotApplicable, NotReady, Violation
from x402sim.text.words import counted

PATIENCE_S = 10.0
MOST_BROKEN = 5
"""The broken answers in a row after which nothing more is asked; four times as many in all."""
GUIDE = "the guide, `Vectors`, shows an adapter: x402sim open guide"
NOT_CLAIMED = "an operation that the adapter does not claim, or --operations does not name"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VectorCase(Case):
    """A vector as a case; `is_word` is about the word of a refusal alone."""

    vector: Vector
    is_word: bool = False


@cache
def all_cases() -> tuple[VectorCase, ...]:
    """Return a case for each vector, and one for each word."""
    return tuple(
        case for file in files() for vector in file.vectors for case in _cases(vector, file)
    )


def _cases(vector: Vector, file: File) -> list[VectorCase]:
    first = VectorCase(
        id=vector.id,
        level=vector.level,
        ground=ground_of(vector, file),
        title=vector.about,
        played_as=vector.id,
        vector=vector,
    )
    if not vector.word:
        return [first]
    word = VectorCase(
        id=f"kit/{vector.id.partition('/')[2]}-word",
        level="SHOULD",
        ground=ground_of_word(vector, file),
        title=f"{vector.about}: the word is {vector.word}",
        played_as=vector.id,
        vector=vector,
        is_word=True,
    )
    return [first, word]


def found_in(case: VectorCase, answer: Answer) -> Found:
    """Return how an answer differs from the vector; an observation where the texts are silent."""
    vector, got = case.vector, shown(answer.brief)
    if case.is_word:
        if answer.brief.get("invalidReason") == vector.word:
            return None
        return Violation(expected=vector.word, actual=got, demand="vector-word")
    if vector.expect is None:
        return got
    if agrees(vector, answer):
        return None
    demand = "vector-refuses" if "error" in vector.expect else f"vector-{vector.op}"
    return Violation(expected=shown(vector.expect), actual=got, demand=demand, about=vector.id)


def exchange(vector: Vector, got: str) -> Exchange:
    """Return a request and its answer, for a report."""
    line = msgspec.json.encode({"op": vector.op, "input": vector.input}).decode()
    return Exchange(request=Message(line), answer=Message(got))


@dataclass(slots=True, kw_only=True, eq=False)
class VectorJudge:
    """One judgement of one adapter."""

    adapter: Adapter
    broken: int = 0
    in_a_row: int = 0

    async def run(
        self, cases: Sequence[VectorCase], on_begin: Callable[[str], None]
    ) -> AsyncIterator[tuple[VectorCase, CaseResult]]:
        """Ask each vector once; yield a result when the next answer has come in order."""
        before: CaseResults[VectorCase] = []
        for its in by_play(cases):
            for case in its:
                on_begin(case.id)
            if self.in_a_row >= MOST_BROKEN or self.broken >= 4 * MOST_BROKEN:
                broken = f"{counted(self.broken, 'answer')}, {self.in_a_row} in a row"
                why = f"the adapter broke {broken}: nothing more was asked"
                now = [(case, unclear(case, why)) for case in its]
            else:
                try:
                    now = await self._judged(its)
                except Broken as how:  # the line before was two lines
                    before = self._failed([case for case, _ in before], how)
                    now = await self._judged(its)
            for pair in before:
                yield pair
            before = now
        try:
            await self.adapter.finish()
        except Broken as how:
            before = self._failed([case for case, _ in before], how)
        for pair in before:
            yield pair

    async def _judged(self, its: Sequence[VectorCase]) -> CaseResults[VectorCase]:
        """Ask a vector; raises `Broken` if the line before was broken."""
        vector = its[0].vector
        try:
            answer = await self.adapter.ask(vector.op, vector.input)
        except Broken as how:
            if how.before:
                raise
            return self._failed(its, how)
        self.in_a_row = 0
        got = msgspec.json.encode(answer).decode()
        return [(case, _result(case, answer, got)) for case in its]

    def _failed(self, its: Sequence[VectorCase], how: Broken) -> CaseResults[VectorCase]:
        """Return the results of a vector whose answer broke the contract."""
        self.broken += 1
        self.in_a_row += 1
        return [(case, _broken(case, str(how))) for case in its]


def _broken(case: VectorCase, how: str) -> CaseResult:
    if case.vector.expect is None or case.is_word:
        return unclear(case, how)
    wrong = Violation(expected="one line: an answer", actual=how, demand="vector-line")
    return result(case, wrong, (exchange(case.vector, how),))


def _result(case: VectorCase, answer: Answer, got: str) -> CaseResult:
    if answer.error is not None and answer.error.code == UNSUPPORTED:
        return skipped(case, NotApplicable(f"the adapter answers {UNSUPPORTED}"))
    if case.is_word and answer.brief.get("isValid") is not False:
        return skipped(case, NotApplicable("the answer is no refusal with a word"))
    return result(case, found_in(case, answer), (exchange(case.vector, got),))


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOptions:
    """A user's options for the judgement of an adapter."""

    words: tuple[str, ...]
    rerun: str = ""
    patience: float = patience_flag("answer", PATIENCE_S)
    env: tuple[str, ...] = env_flag()
    operations: tuple[str, ...] | None = flag(
        f"Operations to judge: {', '.join(OPERATIONS)}. [default: those that the adapter claims]",
        metavar="NAMES",
        read=lambda text: _operations(text),
    )

    @property
    def shown(self) -> str:
        """The adapter's name in reports."""
        return self.rerun.partition(" -- ")[2] or " ".join(self.words)


def _operations(text: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in text.split(","))
    if wrong := [each for each in names if each not in OPERATIONS]:
        raise ValueError(f"there is no operation {wrong[0]}; there are {', '.join(OPERATIONS)}")
    return names


def _read(words: Sequence[str], flags: Mapping[str, Any]) -> VectorOptions:
    if not words:
        raise ValueError(
            "give the command of an adapter, as in `x402sim conformance vectors -- node "
            f"adapter.mjs`; {GUIDE}"
        )
    rerun = again(("vectors",), VectorOptions, given(VectorOptions, flags), behind=words)
    return VectorOptions(words=tuple(words), rerun=rerun, **read(VectorOptions, flags))


@asynccontextmanager
async def begin(
    options: VectorOptions, cases: Sequence[VectorCase], tell: Tell
) -> AsyncIterator[Judging[VectorCase]]:
    """Start the adapter, and ask for its operations; raises `NotReady` without an operation."""
    adapter = Adapter(words=options.words, patience_s=options.patience, also=options.env)
    judge = VectorJudge(adapter=adapter)
    try:
        claimed, name = await _capabilities(adapter)
        wanted = claimed & {*(options.operations or OPERATIONS)}
        planned = [case for case in cases if case.vector.op in wanted]
        yield Judging(
            judge=judge,
            cases=cases,
            rerun=options.rerun,
            left_out=lambda case: skipped(case, NotApplicable(NOT_CLAIMED)),
            done=lambda: counted(adapter.answers, "answer"),
            plan=_plan(planned, cases, name),
        )
    finally:
        await adapter.close()


async def _capabilities(adapter: Adapter) -> tuple[set[str], str]:
    try:
        answer = await adapter.ask(CAPABILITIES, {})
        found = msgspec.convert(answer.result, Capabilities)
    except Broken as how:
        raise NotReady(f"the adapter does not answer {CAPABILITIES}: {how}; {GUIDE}") from None
    except msgspec.ValidationError as wrong:
        raise NotReady(f"the adapter's {CAPABILITIES} are wrong: {wrong}; {GUIDE}") from None
    if unknown := [each for each in found.operations if each not in OPERATIONS]:
        raise NotReady(f"the adapter claims {unknown[0]}; there are {', '.join(OPERATIONS)}")
    if not found.operations:
        raise NotReady(f"the adapter claims no operation; there are {', '.join(OPERATIONS)}")
    return {*found.operations}, found.name


def _plan(planned: Sequence[VectorCase], cases: Sequence[VectorCase], name: str) -> Plan:
    vectors = len({case.vector.id for case in planned})
    of = len({case.vector.id for case in cases})
    left = dict.fromkeys(case.vector.op for case in cases if case not in planned)
    lines = [f"Plan: {vectors} of {counted(of, 'vector')}" + f", answered by {name}" * bool(name)]
    if left:
        lines.append(f"Not claimed, or not in --operations: {', '.join(left)}")
    return Plan(cases=planned, lines=tuple(lines))


VECTORS: Subject[VectorOptions] = Subject(
    name="vectors",
    words="-- COMMAND…",
    words_help="The adapter, in any language: reads a line of JSON, and writes one.",
    help="Judge any implementation by vectors: headers, signatures, amounts, verdicts.\n\n"
    "Example: x402sim conformance vectors -- ./adapter",
    options=VectorOptions,
    read=_read,
    cases=all_cases,
    documents=beginnings("vectors"),
    sections=FAMILIES,
    begin=begin,
)
