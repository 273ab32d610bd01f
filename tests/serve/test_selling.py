"""A paywall before an API that exists, goods from Python, and the file x402sim.toml."""

import html
import json
import os
import re
import shlex
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import FileResponse, Response, StreamingResponse

import x402sim
from tests.cli.runner import run
from tests.house import blocks
from tests.serve.paying import in_one_step
from x402sim import Fault, LocalServer, PaymentAuth, SessionAuth
from x402sim.cli import load
from x402sim.commands import selling
from x402sim.commands.configuration import defaults
from x402sim.service.sources import behind
from x402sim.service.upstream import api
from x402sim.serving.local import certificates
from x402sim.suite.service.target import load as load_target

PRICES = ["/premium/* 0.05", "POST /report 0.02"]


CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"
CONTROL = b"HTTP/1.1 200 OK\r\nX-A: a\x01b\r\nContent-Length: 2\r\n\r\nok"


class Shop(BaseHTTPRequestHandler):
    """An API that knows nothing of payments; it remembers what it was asked."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, str, dict[str, str], bytes]]

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.asked.append((self.command, self.path, headers, body))
        path = self.path.partition("?")[0]
        status = {"/premium/broken": 500, "/premium/moved": 302, "/openapi.json": 404}.get(path)
        if path.endswith("/both"):
            both = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n"
            self.wfile.write(both + b"4\r\nsold\r\n0\r\n\r\n")
            return
        if odd := {"/premium/cut": CUT, "/premium/control": CONTROL}.get(path):
            self.wfile.write(odd)
            self.close_connection = True
            return
        answer = b"x" * 200 if path == "/premium/long" else json.dumps({"path": path}).encode()
        self.send_response(status or 200)
        for name, value in (
            ("Content-Length", str(len(answer))),
            ("Cache-Control", "public, max-age=600"),
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
            ("Connection", "X-Secret, keep-alive"),
            ("X-Secret", "of one connection"),
            ("PAYMENT-RESPONSE", "invented"),
            ("Location", "/elsewhere"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET  # noqa: N815 - the name that the library calls

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def shop() -> Iterator[tuple[str, list[Any]]]:
    asked: list[Any] = []
    handler = type("Handler", (Shop,), {"asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def sold() -> Iterator[tuple[LocalServer, list[Any]]]:
    """A paywall before a shop, and what the shop was asked."""
    with shop() as (url, asked), LocalServer(sells=tuple(behind(url, PRICES))) as server:
        yield server, asked


@pytest.fixture
def paywall(sold: tuple[LocalServer, list[Any]]) -> tuple[LocalServer, list[Any]]:
    sold[1].clear()
    return sold


def client(server: LocalServer, number: int = 0, **options: Any) -> httpx.Client:
    auth = PaymentAuth(server.wallets[number], max_amount="1", clock=server.clock, **options)
    return plain(server, auth=auth)


def plain(server: LocalServer, **options: Any) -> httpx.Client:
    return httpx.Client(base_url=server.url, verify=certificates(), trust_env=False, **options)


def earned(server: LocalServer) -> int:
    return server.balance(str(server.info.pay_to))


Paywall = tuple[LocalServer, list[Any]]


def test_a_free_path_is_passed_on(paywall: Paywall) -> None:
    server, asked = paywall
    with plain(server) as http:
        other = {"X-Original-URL": "/premium/x", "X_HTTP_Method_Override": "PUT"}
        other |= {"X_Forwarded_For": "1.2.3.4"}  # WSGI reads _ as -
        answer = http.post("/free/a?b=c", content=b"d", headers=other)
        assert answer.json() == {"path": "/free/a"}
        assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
        assert answer.headers["cache-control"] == "public, max-age=600"
        assert "x-secret" not in answer.headers
        assert len(answer.headers.get_list("date")) == 1
        ((method, path, headers, body),) = asked
        assert (method, path, body) == ("POST", "/free/a?b=c", b"d")
        assert headers["host"] != server.url.removeprefix("http://")
        assert headers["x-forwarded-host"] == server.url.removeprefix("http://")
        assert not {name for name in headers if "x-original" in name or "_" in name}


def test_of_two_lengths_of_an_answer_its_chunks_count(paywall: Paywall) -> None:
    with client(paywall[0], 3) as http:
        assert [http.get(path).text for path in ("/free/both", "/premium/both")] == ["sold"] * 2


def test_the_own_pages_of_the_service_stand_behind_those_of_the_api(paywall: Paywall) -> None:
    with plain(paywall[0]) as http:
        assert http.get("/docs").json() == {"path": "/docs"}
        assert http.get("/openapi.json").json()["openapi"]
        assert http.get("/", headers={"Accept": "text/html"}).json() == {"path": "/"}


@pytest.mark.parametrize("path", ["/premium/a", "/Premium/a", "/premium", "/premium/%61?b=c"])
def test_a_paid_path_is_paid_for(paywall: Paywall, path: str) -> None:
    server, asked = paywall
    before = earned(server)
    with client(server) as http:
        answer = http.get(path)
    assert answer.status_code == 200
    assert answer.headers.get_list("cache-control") == ["no-store"]
    assert "payment-response" not in answer.headers
    assert earned(server) - before == 50_000
    ((_, seen, headers, _),) = asked
    assert seen == path
    assert not [name for name in headers if "payment" in name or "session" in name]


@pytest.mark.parametrize("version", [1, 2])
def test_one_step(paywall: Paywall, version: int) -> None:
    server, asked = paywall
    before = earned(server)
    with plain(server) as http:
        pay = in_one_step(http, server, version)
        answer = pay("/premium/a")
        assert (answer.status_code, answer.json()) == (200, {"path": "/premium/a"})
        assert pay.again().status_code == 402
        assert len(asked) == 1
        assert earned(server) - before == 50_000
        failures = (("/premium/broken", 500), ("/premium/cut", 502), ("/premium/control", 500))
        for path, status in failures:
            failed = pay(path)
            assert failed.status_code == status, failed.text
        assert earned(server) - before == 50_000
        moved = pay("/premium/moved")
        assert moved.status_code == 302
        assert earned(server) - before == 100_000


def test_an_answer_beyond_the_limits_is_not_charged(
    paywall: Paywall, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = paywall
    before = earned(server)
    monkeypatch.setattr(api, "MAX_ANSWER_BYTES", 100)
    with plain(server) as http:
        pay = in_one_step(http, server, 2)
        assert "more than 100 bytes" in pay("/premium/long").json()["reason"]
        monkeypatch.setattr(api, "DEADLINE_S", 1e-9)
        assert pay("/premium/a").status_code == 504
    assert earned(server) == before


def test_a_session_pays(paywall: Paywall) -> None:
    server, asked = paywall
    auth = SessionAuth(server.wallets[1], deposit="0.10", clock=server.clock)
    with plain(server, auth=auth) as http:
        failed = {"/premium/broken": 500, "/premium/cut": 502}
        for path in (*failed, "/premium/a", "/premium/b"):
            assert http.get(path).status_code == failed.get(path, 200)
    assert [path for _, path, _, _ in asked] == [*failed, "/premium/a", "/premium/b"]


def test_without_a_payment_the_api_is_not_asked(paywall: Paywall) -> None:
    server, asked = paywall
    with plain(server) as http:
        assert http.get("/premium/a").status_code == 402
        assert http.get("/premium/a", headers={"X-Session-Id": "session_x"}).status_code == 402
        assert http.get("/premium/a", headers={"X-Payment-Id": "pay_x"}).status_code == 402
        assert http.head("/premium/a").status_code == 402
        assert http.post("/report").status_code == 402
        assert not asked
        assert http.get("/report").status_code == 200  # only POST is sold


@pytest.mark.parametrize(
    "target",
    [
        *("/x/../premium/a", "//premium/a", "/x/%2e%2e/premium/a", "/x\\..\\premium"),
        *("/premium;x/a", "/%2570remium/a", "/./premium/a", "/x/..%2fpremium"),
        *("/premium/%ff", "/x/%c0%ae%c0%ae/premium/a"),
    ],
)
def test_a_path_that_servers_read_in_two_ways_is_refused(paywall: Paywall, target: str) -> None:
    server, asked = paywall
    with plain(server) as http:
        request = http.build_request("GET", server.url, extensions={"target": target.encode()})
        assert http.send(request).status_code == 400
    assert not asked


@pytest.mark.parametrize(
    ("price", "target"),
    [
        ("/users/{id} 0.05", "/users/a%2Fb"),
        ("/files/*.csv 0.05", "/files/a%2fb.csv"),
        ("/users 0.05", "/users%2F"),
    ],
)
def test_an_encoded_slash_makes_nothing_free(price: str, target: str) -> None:
    """Many servers take it for a part of a name, and not for the end of one."""
    with (
        shop() as (url, asked),
        LocalServer(sells=tuple(behind(url, [price]))) as server,
        plain(server) as http,
    ):
        for path in (target, "/free/a%2Fb"):
            sent = http.build_request("GET", server.url, extensions={"target": path.encode()})
            http.send(sent)
        assert [path for _, path, _, _ in asked] == ["/free/a%2Fb"]


def test_an_api_that_is_off_is_said() -> None:
    sells = tuple(behind("http://127.0.0.1:1", PRICES))
    with LocalServer(sells=sells) as server, plain(server) as http:
        answer = http.get("/free")
        assert (answer.status_code, answer.json()["error"]) == (502, "Upstream failed")


def test_faults_strike_and_the_page_shows(paywall: Paywall) -> None:
    server, _ = paywall
    server.fault(Fault(victim="service", does="lose answer", path="/premium/a", skip=1))
    with client(server, 2) as http, pytest.raises(httpx.RemoteProtocolError):
        http.get("/premium/a")
    assert "/premium/a" in server.show().page


def test_a_good_at_the_root_for_another_method_leaves_the_root_to_browsers() -> None:
    with LocalServer(sells={"POST / 0.01": "sold"}) as server, client(server) as http:
        assert http.post("/").text == "sold"
        page = http.get("/", headers={"Accept": "text/html"}).text
        assert "<code>POST /</code>" in page


def test_python_sells() -> None:
    sells = {"GET /weather 0.01": {"sky": "blue"}, "POST /echo 0.02": echo}
    with LocalServer(sells=sells) as server, client(server) as http:
        assert http.get("/weather").json() == {"sky": "blue"}
        assert http.post("/echo", content=b"abc").text == "abc"


COPIED = {"Content-Length": "9"}, {"Transfer-Encoding": "chunked"}
"""Of an answer of another server, whose body has another form."""


@pytest.mark.parametrize("headers", [{"X-A": "a\nb"}, {"X A": "b"}, {"X-A": "\x7f"}, *COPIED])
def test_an_answer_that_cannot_be_sent_is_not_charged(headers: dict[str, str]) -> None:
    sells = {"GET /odd 0.01": lambda _: Response("sold", headers=headers)}
    with LocalServer(sells=sells) as server, plain(server) as http:
        answer = in_one_step(http, server, 2)("/odd")
        assert (answer.status_code, answer.json()["error"]) == (500, "Answer cannot be sent")
        assert earned(server) == 0


async def drops(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * 1024


def test_a_file_and_a_stream_are_sold_whole(tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text("a report")
    sells = {
        "GET /file 0.01": lambda _: FileResponse(tmp_path / "report.txt"),
        "GET /stream 0.01": lambda _: StreamingResponse(drops(3), headers={"X-A": "b"}),
        "GET /endless 0.01": lambda _: StreamingResponse(drops(1 << 20)),
    }
    with LocalServer(sells=sells) as server, plain(server) as http:
        pay = in_one_step(http, server, 2)
        file, stream = pay("/file"), pay("/stream")
        assert (file.text, file.headers["content-type"]) == (
            "a report",
            "text/plain; charset=utf-8",
        )
        assert (len(stream.content), stream.headers["x-a"]) == (3072, "b")
        assert stream.headers.get_list("content-length") == ["3072"]
        earlier = earned(server)
        assert pay("/endless").status_code == 500
        assert earned(server) == earlier


async def echo(request: Any) -> bytes:
    return bytes(await request.body())


LISTED = {
    "GET /weather 0.01": "grey",
    "GET /cities/{city} 0.02": lambda request: {"path": request.url.path},
    "POST /premium/* 0.05": echo,
}


@pytest.fixture(scope="module")
def listed() -> Iterator[LocalServer]:
    with LocalServer(sells=LISTED) as server:
        yield server


def told(server: LocalServer, path: str, body: Any = None) -> Any:
    """Return what the control API, or another path, answers."""
    with plain(server) as http:
        answer = http.get(path) if body is None else http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


def test_the_page_lists_and_buys_each_good_and_tells_that_it_was_served(
    listed: LocalServer,
) -> None:
    words = told(listed, "/_sim/ui/words")
    assert [(each["name"], each["price"]) for each in words["goods"]] == [
        ("GET /weather", "0.01"), ("GET /cities/{city}", "0.02"), ("POST /premium/*", "0.05"),
    ]  # fmt: skip
    bodies = [{"buys": each["name"]} for each in words["goods"]]
    bodies += [{"buys": "GET /cities/{city}", "path": "/cities/Oslo"}, {"session": True}]
    made = [told(listed, "/_sim/ui/pay", body) for body in bodies]
    assert [each["status"] for each in made] == [200] * 5
    assert json.loads(made[3]["said"]) == {"path": "/cities/Oslo"}
    with plain(listed) as http:
        page = html.unescape(http.get("/_sim/ui/saved").text)
    (tape,) = re.findall(r'id="tape">(.*?)</script>', page, re.DOTALL)
    messages = dict(json.loads(tape)["messages"])
    assert [each["path"] for each in messages["served"]][:4] == [
        "/weather", "/cities/1", "/premium/PATH", "/cities/Oslo",
    ]  # fmt: skip
    shown = [each["path"] for each in messages["exchanges"]]
    assert set(shown) > {"/weather", "/cities/1", "/premium/PATH", "/cities/Oslo"}


def test_the_openapi_document_lists_the_goods(listed: LocalServer) -> None:
    from openapi_spec_validator import validate

    document = told(listed, "/openapi.json")
    validate(document)
    ours = {path: [*each] for path, each in document["paths"].items() if "/api/perp" in path}
    assert ours == {}, "as in the other lists, the user's goods stand in their place"
    for path, method, price, holes in (
        ("/weather", "get", "0.01", []),
        ("/cities/{city}", "get", "0.02", ["city"]),
        ("/premium/{rest}", "post", "0.05", ["rest"]),
    ):
        operation = document["paths"][path][method]
        assert price in operation["summary"]
        assert [*operation["responses"]][:2] == ["2XX", "402"]
        named = [each.get("name") for each in operation["parameters"] if "name" in each]
        assert named == holes


def test_the_goods_are_tools_of_mcp(listed: LocalServer) -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    tools = {each["name"]: each for each in told(listed, "/mcp", listing)["result"]["tools"]}
    assert [*tools] == ["get_weather", "get_cities_city", "post_premium"]
    assert tools["get_cities_city"]["inputSchema"]["required"] == ["city"]
    assert [*tools["post_premium"]["inputSchema"]["properties"]] == ["rest"]
    before = earned(listed)

    def bought(tool: str, **arguments: Any) -> Any:
        given = ("--tool", tool, "--arguments", json.dumps(arguments), "--world", listed.url)
        return json.loads(run("pay", f"{listed.url}/mcp", *given).stdout)

    path = bought("get_cities_city", city="New York")["structuredContent"]
    assert path == {"path": "/cities/New York"}
    assert bought("post_premium", rest="a/b", deep=[1])["structuredContent"] == {"deep": [1]}
    assert bought("get_weather")["content"] == [{"type": "text", "text": "grey"}]
    assert earned(listed) == before + 80_000
    call = listing | {"method": "tools/call", "params": {"name": "get_cities_city"}}
    assert "needs the argument 'city'" in told(listed, "/mcp", call)["error"]["message"]
    (asked,) = told(listed, "/mcp", call | {"params": {"name": "get_weather"}})["result"][
        "structuredContent"
    ]["accepts"]
    assert asked["amount"] == "10000"


@pytest.mark.x402(sells={"GET /weather 0.01": "blue"})
def test_pytest_sells(x402_payer: Any) -> None:
    assert x402_payer.client.get("/weather").text == "blue"


# --- the command line -----------------------------------------------------------------------


def test_the_lines_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `serve` line makes its goods, `pay` is served, and the files are read."""
    page = (Path(x402sim.__file__).parent / "guide" / "selling.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    made = []
    (tmp_path / "api.yaml").write_text(blocks(page, "yaml")[0])
    target, configuration = blocks(page, "toml")
    (tmp_path / "target.toml").write_text(target)
    lines = [
        line for block in blocks(page, "sh") for line in block.replace("\n  ", " ").splitlines()
    ]
    written = re.fullmatch("echo '(.*)' > (.*)", lines.pop(0))
    assert written is not None
    Path(written[2]).write_text(written[1])
    for line in lines:
        _, command, *words = shlex.split(line, comments=True)
        context = load(command).make_context(command, [*words], resilient_parsing=True)
        if command == "serve":
            taken = ("sell", "body", "openapi", "upstream", "price")
            given = {name: context.params[name] for name in taken}
            body = [Path(each) for each in given.pop("body") or ()]
            file = given.pop("openapi")
            made.append(selling.goods(body=body, openapi=file and Path(file), **given))
        elif command == "pay":
            (url,) = words
            with LocalServer(sells=made[-1]) as server:
                done = run("pay", url.replace("http://127.0.0.1:4020", server.url))
                assert (done.exit_code, done.stdout.strip()) == (0, written[1])
    assert [[each.name for each in goods] for goods in made] == [
        *(["GET /weather"], ["GET /weather/{city}"], ["/premium/*", "POST /report", "/*"]),
    ]
    assert load_target(Path("target.toml")).protected.amount_base == 50_000
    Path("x402sim.toml").write_text(configuration)
    for name in ("serve", "watch", "conformance"):
        assert defaults(load(name), name)


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    old = Path.cwd()
    os.chdir(tmp_path)
    yield lambda text: (tmp_path / "x402sim.toml").write_text(text) and None
    os.chdir(old)


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        ("[serve]\nsell = ['weather']", ["serve"], "such as `GET /weather 0.01`"),
        ("[serve]\nsell = 'weather'", ["serve"], "such as `GET /weather 0.01`"),
        ("[serve]\nsel = 1", ["serve"], "unknown option of serve 'sel'; did you mean 'sell'?"),
        ("[serve]\nport = [1]", ["serve"], "port: one value is wanted"),
        ("[serve]\nquiet = 1", ["serve"], "quiet: true or false is wanted"),
        ("[serve]\nport = true", ["serve"], "port: a text or a number is wanted"),
        ("serve = 1", ["serve"], "serve is a table, [serve]"),
        ("[watch]\nallow-mainnet = true", ["watch"], "--allow-mainnet on the command line"),
        ("[conformance]\nallow-mainnet = true", ["conformance"], "on the command line"),
        ("[serve", ["serve"], "x402sim.toml:"),
        ("[watch]\nupstream = 'ftp://a'", ["watch"], "a URL is wanted"),
        ("[conformance]\nonly = ['nothing']", ["conformance", "http://127.0.0.1:1"], "nothing"),
        (
            "[conformance.server]\ndialects = 'v9'",
            ["conformance", "server", "/weather", "--start", "true"],
            "dialects are",
        ),
    ],
)
def test_the_file_has_the_options(
    configured: Callable[[str], None], text: str, words: list[str], says: str
) -> None:
    configured(text)
    done = run(*words)
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())


def test_the_command_line_has_precedence(configured: Callable[[str], None]) -> None:
    configured("[conformance]\nonly = ['5/nonce']")
    (listed,) = {line[0] for line in run("conformance", "--list").stdout.splitlines()[:1]}
    assert listed
    assert "5/nonce-once" in run("conformance", "--list").stdout
    assert "5/nonce-once" not in run("conformance", "--list", "--only", "4.3").stdout


@pytest.mark.thorough
def test_our_judge_finds_nothing_wrong_in_a_paywall(paywall: Paywall, tmp_path: Path) -> None:
    page = (Path(x402sim.__file__).parent / "guide" / "selling.md").read_text(encoding="utf-8")
    target = tmp_path / "target.toml"
    target.write_text(blocks(page, "toml")[0])
    server = paywall[0]
    done = run(
        *("conformance", server.url, "--world", server.control_url, "--target", target),
        *("--only", "spec/1,spec/5/resource-binding,spec/5/session-debit,spec/6/reputation"),
    )
    assert done.exit_code == 0, done.output
    assert "No MUST demand failed" in done.output
