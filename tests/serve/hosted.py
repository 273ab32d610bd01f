"""A server in this process, for the tests that do not kill it, and the texts of its refusals."""

import signal
from typing import Any

import msgspec

from tests.cli.runner import assert_misuse, run
from tests.serve.driver import Server, World
from x402sim import Decisions, LocalServer
from x402sim.protocol.refusals import Refusal, RequestError, status_of


class hosted(Server):  # noqa: N801 - it is called as `started` is
    """A server in a thread of this process; the options are those of `LocalServer`."""

    def __init__(self, **options: Any) -> None:
        self.local = LocalServer(**options).start()
        World.__init__(self, msgspec.to_builtins(self.local.info))

    def stop(self, number: int = signal.SIGINT) -> None:
        self.local.stop()

    def close(self) -> None:
        self.http.close()
        self.local.stop()


def gives_up(*args: str, says: str) -> str:
    """See that `serve` exits with 2 and one line on stderr; return the line."""
    done = run("serve", "--json", "--port", "0", *args)
    assert_misuse(done, says)
    return done.stderr


def status_and_text(error: Refusal | RequestError) -> tuple[int, str]:
    """Return the status and the text of an error, as `refusal` returns those of an answer."""
    return status_of(error, Decisions()), error.text
