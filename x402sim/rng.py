"""Random numbers from one seed, in independent streams; no other file draws any.

(`payer.wallet` alone draws nonces, from the system's randomness.) A stream is named after the
drawing actor: a further actor does not change the numbers of the others.
"""

import hashlib
import os
import random
from collections.abc import Callable
from typing import Any, cast

Stream = random.Random
"""One stream of random numbers."""


class _Later:
    """Makes a stream when it is first used."""

    __slots__ = ("_make", "_stream")

    def __init__(self, make: Callable[[], Stream]) -> None:
        self._make: Callable[[], Stream] | None = make

    def __getattr__(self, name: str) -> Any:
        if self._make is not None:
            self._stream, self._make = self._make(), None
        return getattr(self._stream, name)


def later(make: Callable[[], Stream]) -> Stream:
    """Return a stream that is made at the first use: each takes 3 kB, and a crowd has many."""
    return cast(Stream, _Later(make))


def is_untouched(stream: Stream) -> bool:
    """Return whether a stream of `later` has not been used."""
    made: object = stream
    return isinstance(made, _Later) and made._make is not None


class Rng:
    """A seed and the streams that grow from the seed; without a seed, the system's entropy."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed
        self._root = os.urandom(32) if seed is None else f"x402sim/{seed}".encode()

    def secret(self, name: str) -> bytes:
        """Return 32 bytes that only this seed and name give."""
        return hashlib.sha256(self._root + b"/" + name.encode()).digest()

    def stream(self, name: str) -> Stream:
        """Return a new generator that starts at the beginning of the stream `name`."""
        return random.Random(self.secret(name))  # noqa: S311 - simulation, secrets use `secret`
