"""Waits for a subject that is still starting: a command that was started, or somebody at a URL."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx

from x402sim.clock import Clock
from x402sim.suite.subject import Tell

LOOK_S = 0.05
"""How long to wait between two looks at a command, which may take no time to start."""
URL_LOOK_S = 0.5
"""How long between two looks at a URL, which may be far away."""
STARTING = (502, 503, 504)
"""What a gateway answers for what is behind it and does not answer yet."""
NOBODY = "nobody answers"
_CLOCK = Clock()


async def until_ready(
    look: Callable[[], Awaitable[str]],
    wait_s: float,
    *,
    every_s: float = LOOK_S,
    on_wait: Tell = lambda why: None,
) -> str:
    """Look until there is nothing in the way, `wait_s` seconds at most; return what was last.

    `look` returns why a subject is not ready, "" once it is, and raises what waiting cannot mend;
    `on_wait` is called once with why it is waited for.
    """
    why = f"{NOBODY} yet"
    try:
        async with asyncio.timeout(wait_s) as limit:
            is_first = True
            while why := await look():
                if is_first:
                    on_wait(why)
                is_first = False
                await _CLOCK.sleep(every_s)
    except TimeoutError:
        if not limit.expired():  # it is the look's own
            raise
    return why


async def until_url_answers(
    http: httpx.AsyncClient, url: str, wait_s: float, tell: Tell = lambda text: None
) -> str:
    """Wait until somebody answers at a URL, and tell so; return why nobody does, "" if they do."""

    async def look() -> str:
        try:
            async with http.stream("GET", url, timeout=wait_s) as answer:  # a body may have no end
                status = answer.status_code
        except httpx.TransportError as error:
            return "" if "SSL" in str(error) else silent(error)  # a certificate does not mend
        return f"it answers {status}" if status in STARTING else ""

    return await until_ready(look, wait_s, every_s=URL_LOOK_S, on_wait=waiting(url, wait_s, tell))


def waiting(url: str, wait_s: float, tell: Tell) -> Tell:
    """Return what tells that a URL is waited for, given why."""
    return lambda why: tell(f"waiting at most {wait_s:g} s for {url}: {why}")


def silent(error: httpx.HTTPError) -> str:
    """Return why there is no answer."""
    return f"{NOBODY} ({type(error).__name__})"


def in_vain(url: str, why: str, wait_s: float) -> str:
    """Return that a subject at a URL was waited for in vain, and what was observed last."""
    return f"{url}: {why}, after waiting for {wait_s:g} s"
