"""Our own shops pass the judge of servers: a paywall before an API, and goods of `--sell`.

The shops settle at the judge's facilitator. A shop that serves before settling fails.
"""

import asyncio
import itertools
import json
import shlex
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.cli.runner import run
from tests.house import ROOT, blocks
from tests.suite_server.judging import cases
from tests.suite_server.shop import shop
from x402sim.journal import Journal
from x402sim.policies import ServeBeforeSettle, ServicePolicy
from x402sim.service.environment import Environment
from x402sim.service.settings import Settings
from x402sim.service.sources import flagged, selling
from x402sim.serving.serve import open_service
from x402sim.suite.dialect import Dialect
from x402sim.suite.report.results import CaseResult, Outcome
from x402sim.suite.server.room import Given
from x402sim.suite.server.subject import (
    ServerJudge,
    ServerOptions,
    all_cases,
    begin,
    item_in,
    metered_in,
)
from x402sim.suite.started import App

PAGE = (ROOT / "x402sim" / "guide" / "selling.md").read_text("utf-8")
KEY = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"
STATUSES = {"/premium/broken": 500, "/premium/moved": 302}


class Api(BaseHTTPRequestHandler):
    """An API that knows nothing of payments, numbers its answers, and tells how often it worked."""

    protocol_version = "HTTP/1.1"
    numbers: Iterator[int]

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        if path == "/premium/slow":
            time.sleep(1.2)
        made = {"path": path, "number": next(self.numbers)}
        answer = json.dumps(made).encode()
        self.send_response(STATUSES.get(path, 200))
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the names that the library calls

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def api() -> Iterator[str]:
    handler = type("Handler", (Api,), {"numbers": itertools.count(1)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def assert_passes(words: str, *more: str, least: int = 160) -> None:
    """A line of the judge, with this Python's x402sim, ends without a failed MUST."""
    own = shlex.join([sys.executable, "-m", "x402sim"])
    _, *words_ = shlex.split(words.replace("x402sim service", f"{own} service"))
    done = run(*words_, *more, "--json")
    results = json.loads(done.stdout)["results"]
    wrong = [each for each in results if each["outcome"] in ("failed", "inconclusive")]
    assert (done.exit_code, wrong) == (0, []), done.stderr
    assert sum(each["outcome"] == "passed" for each in results) > least


LINE = next(each for each in blocks(PAGE, "sh") if "conformance server" in each)


@pytest.mark.thorough
@pytest.mark.waits
@pytest.mark.timeout(300)
def test_a_paywall_before_an_api_passes_by_the_line_of_the_guide() -> None:
    with api() as url:
        assert_passes(
            LINE.replace("http://127.0.0.1:3000", url),
            *("--also", 'POST /premium/report {"title": "a"}', "--failing", "/premium/broken"),
            *("--slow", "/premium/slow", "--redirecting", "/premium/moved"),
        )


@pytest.mark.thorough
@pytest.mark.waits
@pytest.mark.timeout(300)
def test_goods_of_files_pass(tmp_path: Path) -> None:
    (body := tmp_path / "weather.json").write_text('{"sky": "blue"}')
    sells = f'--sell "GET /premium/a 0.01" --body {body} --sell "GET /premium/b 0.02" --body {body}'
    upstream = '--upstream http://127.0.0.1:3000 --price "/premium/* 0.05"'
    assert upstream in LINE
    assert_passes(LINE.replace(upstream, sells))


@pytest.mark.thorough
@pytest.mark.waits
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("goods", "more"),
    [
        (
            ("GET /premium/a 0.003 upto 0.01", "GET /premium/b 0.02 upto 0.02"),
            ("--metered", "0.003 /premium/a", "--metered", "0.02 /premium/b"),
        ),
        (
            ("GET /premium/a permit2 0.01", "GET /premium/b permit2 0.02"),
            ("--dialects", "permit2"),
        ),
    ],
)
def test_goods_sold_by_permit2_pass(goods: Sequence[str], more: Sequence[str]) -> None:
    sells = " ".join(f'--sell "{each}"' for each in goods)
    upstream = '--upstream http://127.0.0.1:3000 --price "/premium/* 0.05"'
    assert_passes(LINE.replace(upstream, sells), *more, least=100)


def test_goods_sold_upto_are_settled_as_used_and_no_approval_is_needed() -> None:
    ids = (
        "server/control/sells [upto] server/control/sells-receipt [upto] server/handler/used [upto] "
        "kit/payment/balance-allowance (allowance) [upto] kit/order/settled-lost [upto]"
    )
    judged = found(ServicePolicy(), ids, "GET /weather 0.003 upto 0.01", "0.003 /weather")
    (sponsored,) = [each for each in judged if each.outcome is not Outcome.PASSED]
    assert (len(judged), sponsored.outcome) == (5, Outcome.SKIPPED), judged
    assert "it offers eip2612GasSponsoring" in sponsored.reason


def test_exact_by_permit2_is_sold_beside_eip_3009() -> None:
    ids = (
        "server/control/sells [v2] server/control/sells [permit2] server/identifier/again [permit2] "
        "kit/order/settled-lost [permit2] server/many/again [permit2]"
    )
    judged = found(ServicePolicy(), ids, "GET /weather permit2 0.01")
    assert [each.outcome for each in judged] == [Outcome.PASSED] * 5, judged


def found(
    policy: ServicePolicy, ids: str, good: str = "GET /weather 0.01", *metered: str
) -> list[CaseResult]:
    def make(given: Given) -> Any:
        goods = flagged([good], [])
        setup = Environment(
            private_key=bytes.fromhex(KEY[2:]),
            facilitator_url=given.facilitator_url,
            explorer_url="",
            rpc_url=given.rpc_url,
            dialect="standard",
            network=given.network,
            settings=selling(Settings(policy=policy), goods),
        )
        process, http = open_service(setup, None, Journal(limit=1))

        @asynccontextmanager
        async def until_the_end(_: Any) -> AsyncIterator[None]:
            yield
            await process.close()
            await http.aclose()

        return Starlette(routes=[Mount("/", process)], lifespan=until_the_end)

    async def play() -> list[CaseResult]:
        items = [item_in("/weather")]
        judge = ServerJudge(
            subject=App(make),
            dialects=(Dialect.UPTO,) if metered else (Dialect.V2, Dialect.PERMIT2),
            items=items,
            metered=[*map(metered_in, metered)],
            jobs=1,
        )
        return [result for _, result in await judge.every(cases(ids))]

    return asyncio.run(play())


def test_a_shop_that_serves_before_it_settles_fails() -> None:
    ids = "server/order/refused [v2] server/order/settle-down [v2]"
    assert {each.outcome for each in found(ServicePolicy(), ids)} == {Outcome.PASSED}
    eager = found(ServicePolicy(serve=ServeBeforeSettle()), ids)
    assert {each.outcome for each in eager} == {Outcome.FAILED}


def test_a_shop_at_another_facilitator_is_told_so() -> None:
    """As `x402sim serve` is, which has a world of its own."""

    def make(given: Given) -> Any:
        return shop(replace(given, facilitator_url="http://127.0.0.1:9"))

    async def play() -> str:
        options = ServerOptions(subject=App(make), items=(item_in("/weather"),), jobs=1)
        async with begin(options, all_cases(), lambda text: None) as judging:
            return repr(judging.left_out(all_cases()[0]))

    assert "it asked another facilitator, or none" in asyncio.run(play())
