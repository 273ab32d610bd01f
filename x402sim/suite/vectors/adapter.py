"""An adapter at work: a command that answers each line with one line.

A command that crashes, hangs, or writes anything but one line is started again for the next
request; the reason is told in plain words.
"""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import msgspec

from x402sim.clock import stopwatch
from x402sim.protocol.messages import BadMessage, decode
from x402sim.suite.kept import MOST_BYTES, Kept
from x402sim.suite.started import CLOCK, START_S, STOP_S, command, error_lines
from x402sim.suite.subject import LOOK_S
from x402sim.suite.vectors.vector import Answer, Request
from x402sim.text.words import printable

SHOWN = 120
"""The most characters of a line in a message."""


class Broken(Exception):
    """An adapter broke the contract of one line for one line; the text says how.

    `before` is whether the line before was broken: two lines came for the request before.
    """

    def __init__(self, how: str, *, before: bool = False) -> None:
        super().__init__(how)
        self.before = before


@dataclass(slots=True, kw_only=True, eq=False)
class Adapter:
    """A command, started on the first request, and started again after a fault.

    patience_s
        The most seconds of one answer.
    start_s
        The most seconds of the first answer after a start; after the first start, twice the seconds
        that the first start took, or `patience_s`.
    """

    words: Sequence[str]
    patience_s: float
    also: Sequence[str] = ()
    start_s: float = START_S
    answers: int = 0
    _command: Kept | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def ask(self, op: str, given: dict[str, Any]) -> Answer:
        """Send a request, and return the answer; raises `Broken`, and `NotReady` at the start."""
        is_new, elapsed = self._command is None, stopwatch()
        if is_new:
            starting = command(self.words, {}, "", also=self.also, speaks=True)
            self._command = (await self._stack.enter_async_context(starting)).command
        number, it = next(self._numbers), self._command
        assert it is not None
        try:
            patience_s = max(self.patience_s, self.start_s) if is_new else self.patience_s
            request = msgspec.json.encode(Request(number, op, given))
            answer = self._read(await self._exchanged(it, request, patience_s), number)
        except Broken:
            await self.close()
            raise
        if not self.answers:
            self.start_s = 2 * elapsed()
        self.answers += 1
        return answer

    async def _exchanged(self, it: Kept, line: bytes, patience_s: float) -> bytes:
        try:
            async with asyncio.timeout(patience_s):
                it.stdin.write(line + b"\n")
                await it.stdin.drain()
                found = await it.stdout.readline()
        except TimeoutError:
            raise Broken(f"it wrote no line within {patience_s:g} s") from None
        except ValueError:
            raise Broken(f"its line is longer than {MOST_BYTES >> 20} MiB") from None
        except ConnectionError:
            found = b""
        if not found:
            raise Broken(await self._ended(it))
        return found

    async def _ended(self, it: Kept) -> str:
        for _ in range(int(STOP_S / LOOK_S)):
            if it.returncode is not None:
                break
            await CLOCK.sleep(LOOK_S)
        code = it.returncode
        how = "it closed its output" if code is None else f"it ended, exit code {code}"
        return f"{how}; it wrote: {printable(error_lines(it.log.text))}"

    def _read(self, line: bytes, number: int) -> Answer:
        text = printable(line.decode("utf-8", "backslashreplace").strip())
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
        try:
            answer: Answer = decode(line, Answer)
        except BadMessage as wrong:
            raise Broken(f"its line is no answer ({wrong}): {shown}") from None
        if answer.id != number:
            what = f"id {answer.id}, expected {number}"
            raise Broken(f"more than one line for one request, or a wrong id ({what}): {shown}",
                         before=answer.id == number - 1)  # fmt: skip
        if (answer.result is None) is (answer.error is None):
            raise Broken(f"its line has not one of result and error: {shown}")
        return answer

    async def finish(self) -> None:
        """End the command after the last answer; raises `Broken` for a further line."""
        if (it := self._command) is None:
            return
        it.stdin.close()
        try:
            async with asyncio.timeout(STOP_S):
                rest = await it.stdout.read(SHOWN)
        except TimeoutError:
            rest = b""
        await self.close()
        if rest.strip():
            text = printable(rest.decode("utf-8", "backslashreplace").strip())
            raise Broken(f"more than one line for one request: {text}", before=True)

    async def close(self) -> None:
        """End the command at once."""
        if self._command is not None:
            self._command.kill()
        self._command = None
        await self._stack.aclose()
        self._stack = AsyncExitStack()
