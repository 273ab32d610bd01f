"""Who confirms the vectors, and where implementations differ from them: for pages of both."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from x402sim.spec.clauses import Level
from x402sim.spec.ground import Sentence
from x402sim.suite.vectors.vector import File, Vector, quoted

OURS = "x402sim"
"""The key of our own answers among implementations."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Vectors that an implementation answers otherwise: the first, and the number of all."""

    implementation: str
    vector: Vector
    id: str
    answer: str
    level: Level
    sentence: Sentence
    number: int


def differences(files: Sequence[File]) -> list[Difference]:
    """Return the demanded answers that an independent implementation does not give; MUSTs first."""
    groups: dict[tuple[Any, ...], list[tuple[File, Vector]]] = {}
    for file in files:
        for vector in file.vectors if file.implementations else ():
            for name, answer in vector.answers.items() if vector.expect is not None else ():
                said, is_word = _said(vector, answer)
                alike = "" if is_word else vector.about.partition(":")[0]
                is_should = vector.level != "MUST" or is_word
                key = (is_should, file.implementations[name], alike, said, is_word)
                groups.setdefault(key, []).append((file, vector))
    rows = sorted(groups.items(), key=lambda each: (each[0][0], -len(each[1]), str(each[0])))
    return [_difference(its, *key) for key, its in rows]


def _difference(
    its: Sequence[tuple[File, Vector]],
    is_should: bool,
    implementation: str,
    _: str,
    answer: str,
    is_word: bool,
) -> Difference:
    file, first = its[0]
    return Difference(
        implementation=implementation,
        vector=first,
        id=f"kit/{first.id.partition('/')[2]}-word" if is_word else first.id,
        answer=answer,
        level="SHOULD" if is_should else "MUST",
        sentence=quoted(file, first.word_sentence if is_word else first.ground.sentences[0]),
        number=len(its),
    )


def _said(vector: Vector, answer: Any) -> tuple[str, bool]:
    """Return an answer in words, and whether only its word differs."""
    if isinstance(answer, str):
        return answer, False
    if answer.keys() == {"invalidReason"}:
        return f"the word `{answer['invalidReason']}`, for `{vector.word}`", True
    return f"`{msgspec.json.encode(answer).decode()}`", False


def counts(vectors: Sequence[Vector]) -> Counter[str]:
    """Return how many vectors have a level, are confirmed, ours alone, confirmed by whom."""
    its = Counter[str](vectors=len(vectors))
    for vector in vectors:
        its[vector.level] += 1
        others = [name for name in vector.confirmed if name != OURS]
        if vector.expect is not None:
            its["confirmed" if others else "alone"] += 1
            its.update(others)
    return its
