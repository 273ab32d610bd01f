"""The evidence of a case: requests with their answers, and transfers; without secrets.

`lines` is the text of every report: a terminal and a comment show several exchanges in a line each,
the other reports show each exchange whole.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from x402sim.text.words import counted

AGAIN = "send it again: "
MOST = 60
"""The most exchanges of a record."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request or an answer."""

    line: str
    """The method and the address of a request; the status of an answer, or why none came."""
    headers: tuple[str, ...] = ()
    body: str = ""
    short: str = ""
    """The message in one line; if empty, `line` and `body`."""

    def __str__(self) -> str:
        """Return the message in one line."""
        return self.short or f"{self.line} {self.body}".strip()

    @property
    def whole(self) -> Iterator[str]:
        """The lines of the message; a body is indented, so that none looks like a header."""
        yield self.short or self.line
        yield from self.headers
        yield from (f"  {line}" for line in self.body.splitlines())


class Movement(msgspec.Struct, frozen=True, omit_defaults=True):
    """A transfer: base units, and the receiver; empty texts are unknown."""

    base: int
    to: str
    sender: str = ""
    tx_hash: str = ""

    def __str__(self) -> str:
        """Return the transfer in words."""
        by = f" by {self.tx_hash}" if self.tx_hash else ""
        return f"{self.base} base units{self.sender and f' from {self.sender}'} to {self.to}{by}"


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request and its answer, or another event: then `about` is its sentence."""

    about: str = ""
    request: Message | None = None
    answer: Message | None = None
    again: str = ""
    """A shell command that sends the request again."""
    transfers: tuple[Movement, ...] = ()

    def __str__(self) -> str:
        """Return the exchange in one line: "paying 0x12…: GET /x: 402"."""
        return ": ".join(str(each) for each in (self.about, self.request, self.answer) if each)

    @property
    def head(self) -> str:
        """The exchange without headers and bodies."""
        both = [each.line for each in (self.request, self.answer) if each]
        return " -> ".join(both) or self.about

    @property
    def whole(self) -> Iterator[str]:
        """The lines of the exchange; `again` is none of them."""
        if self.about:
            yield f"{self.about}:" if self.request else self.about
        yield from self.request.whole if self.request else ()
        if self.answer:
            first, *rest = self.answer.whole
            yield from (f"-> {first}", *rest)
        yield from (f"  {each}" for each in self.transfers)

    @property
    def has_more(self) -> bool:
        """Whether the one line leaves something out."""
        both = [each for each in (self.request, self.answer) if each]
        return any(each.headers or (each.short and each.body) for each in both)

    def changed(
        self, change: Callable[[str], str], of_body: Callable[[str], str] | None = None
    ) -> "Exchange":
        """Return the exchange with `change` of every text, and `of_body` of the bodies."""

        def of(message: Message | None) -> Message | None:
            return message and Message(
                line=change(message.line),
                headers=tuple(map(change, message.headers)),
                body=(of_body or change)(message.body),
                short=change(message.short),
            )

        return msgspec.structs.replace(
            self,
            about=change(self.about),
            request=of(self.request),
            answer=of(self.answer),
            again=change(self.again),
        )


Exchanges = tuple[Exchange, ...]


def record(exchanges: Sequence[Exchange]) -> Exchanges:
    """Return the first `MOST` exchanges, and a line for the rest."""
    left = len(exchanges) - MOST
    more = [Exchange(f"and {counted(left, 'more line')}")] if left > 0 else []
    return (*exchanges[:MOST], *more)


def lines(exchanges: Exchanges, *, is_short: bool = False) -> tuple[list[str], bool]:
    """Return exchanges in lines, and whether something is left out.

    If `is_short`, several exchanges have a line each; a single one is always whole.
    """
    is_short = is_short and sum(each.request is not None for each in exchanges) > 1
    shown = [line for each in exchanges for line in ([str(each)] if is_short else each.whole)]
    return shown, is_short and any(each.has_more for each in exchanges)


def commands(exchanges: Exchanges) -> list[str]:
    """Return the commands that send the requests again."""
    return [each.again for each in exchanges if each.again]


def written(exchanges: Exchanges, *, is_short: bool = False) -> list[str]:
    """Return exchanges in lines, and the commands that send the requests again."""
    again = (f"{AGAIN}{each}" for each in commands(exchanges))
    return [*lines(exchanges, is_short=is_short)[0], *again]
