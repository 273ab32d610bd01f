"""Restarts a target that somebody else runs, by a command that its owner gives.

The command ends the target and starts it again, and returns while the target runs on.
"""

import asyncio
from asyncio.subprocess import DEVNULL
from collections.abc import Awaitable, Callable

import httpx

from x402sim.clock import Clock
from x402sim.suite.scheduler import RestartFailed

POLL_S = 0.2


def restarting(
    command: str, http: httpx.AsyncClient, deadline_s: float
) -> Callable[[], Awaitable[None]]:
    """Return a function that runs a shell command, and waits until the target answers again.

    Both may take `deadline_s` seconds in real time. It raises `RestartFailed`.
    """

    async def restart() -> None:
        await _run(command, deadline_s)
        clock = Clock()
        end_s = clock.now() + deadline_s
        while (problem := await _no_answer(http)) is not None:
            if clock.now() > end_s:
                raise RestartFailed(
                    f"the target did not answer within {deadline_s:.0f} s after `{command}`: "
                    f"{problem}"
                )
            await clock.sleep(POLL_S)

    return restart


async def _run(command: str, deadline_s: float) -> None:
    """Run the command; what it writes is not kept, because the target may inherit its pipes."""
    process = await asyncio.create_subprocess_shell(
        command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        code = await asyncio.wait_for(process.wait(), deadline_s)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise RestartFailed(
            f"`{command}` did not end within {deadline_s:.0f} s; let it start the target in the "
            "background"
        ) from None
    if code != 0:
        raise RestartFailed(f"`{command}` ended with exit code {code}")


async def _no_answer(http: httpx.AsyncClient) -> str | None:
    """Return why the target does not answer; None if it does, whatever it says."""
    try:
        await http.get("/")
    except httpx.TransportError as error:
        return f"{type(error).__name__} {error}".strip()
    return None
