"""Goods of the user: a request finds its good and price, and a payment opens the good's path."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tests.rig import ServiceRig, scene
from tests.service.standard import On, settlement_of, sign
from x402sim.clock import stopwatch
from x402sim.events import DebitUndone, SessionDebited
from x402sim.http.web import CONNECTION, Refused
from x402sim.service.goods import Good, Shop
from x402sim.service.settings import Settings
from x402sim.service.sources import fixed, flagged, goods_of, of_openapi, read_good, selling

RUNS = list[str]()


def broken(request: Request) -> Response:
    RUNS.append(request.url.path)
    return Response("out of order", 503)


SELLS: Mapping[str, Any] = {
    "GET /weather 0.01": {"sky": "blue"},
    "POST /weather 0.01": b"written",
    "GET /premium/* 0.05": lambda request: {"path": request.url.path},
    "POST /broken 0.02": broken,
    "GET /files/{name}.csv 0.03": "a,b",
}


def selling_scene(
    test: Callable[[ServiceRig], Awaitable[None]], sells: Any = SELLS
) -> Callable[..., None]:
    sold = selling(Settings(phase=0), goods_of(sells))
    return scene(test, lambda: ServiceRig(settings=sold))


def shop(*goods: str) -> Shop:
    return Shop([read_good(text, fixed("")) for text in goods], 6)


# --- what a request finds -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "fits", "not_"),
    [
        ("/weather", ["/weather", "/weather/", "/Weather"], ["/weather/x", "/weathers"]),
        ("/premium/*", ["/premium", "/premium/", "/PREMIUM/a/b"], ["/premiums", "/x/premium"]),
        ("/users/{id}", ["/users/7", "/users/7/"], ["/users", "/users/7/x", "/users/"]),
        ("/a/*.csv", ["/a/b.csv", "/a/.csv"], ["/a/b/c.csv", "/a/b.json"]),
        ("/*", ["/", "/a", "/a/b"], []),
        ("/", ["/"], ["/a"]),
        ("/a.b", ["/a.b"], ["/acb"]),
        ("/q/{a}-{b}", ["/q/x-y", "/q/--y", "/q/x--", "/q/x-y-z/"], ["/q/-y", "/q/x-", "/q/a/-b"]),
        ("/q/*-*.csv", ["/q/-.csv", "/q/a-b-c.csv", "/q/a.csv-.csv"], ["/q/a.csv", "/q/-/.csv"]),
        ("/u/{id}/*", ["/u/17", "/u/17/", "/u/17/a/b"], ["/u", "/u/", "/v/17"]),
        ("/u/{id}/x{b}/*", ["/u/xx/xx", "/u/1/x2/a/xb"], ["/u/1/x", "/u/x1"]),
        ("/u/{id}-x/*", ["/u/a-x-x", "/u/a-x/b-x"], ["/u/a-xx", "/u/-x"]),
        ("/{a}{b}", ["/xy"], ["/x", "/x/y"]),
    ],
)
def test_a_path_fits(pattern: str, fits: list[str], not_: list[str]) -> None:
    there = shop(f"{pattern} 1")
    assert [path for path in (*fits, *not_) if there.at(path, "GET")] == fits


def test_a_long_path_is_compared_soon() -> None:
    waited = stopwatch()
    there = shop("/q/{a}-{b}-{c} 1", "/f/**/**/*.csv 1", "/f/{a}{b}{c}/x 1")
    for path in ("/q/" + "-" * 1200 + "/x", "/f/" + "a" * 600 + "/" + "a" * 600):
        assert there.at(path, "GET") is None
    assert waited() < 0.5


def test_an_exact_path_comes_before_one_with_holes() -> None:
    there = shop("/a/* 1", "/a/b 2")
    found = there.at("/a/b", "GET")
    assert found is not None
    assert found.price_base == 2_000_000


def test_a_dear_method_of_a_path_is_opened_neither_by_a_cheap_one_nor_by_a_free_good() -> None:
    cheap, dear = read_good("GET /a/b 1", fixed("")), read_good("POST /a/* 2", fixed(""))
    for others in ([], [Good(path="/*", price=None, answer=fixed(""))]):
        with pytest.raises(HTTPException) as refused:
            Shop([cheap, dear, *others], 6).at("/a/b", "POST")
        assert refused.value.status_code == 405
        assert "POST" not in refused.value.headers["Allow"]


@pytest.mark.parametrize(
    ("goods", "said"),
    [
        (["GET /a 1", "POST /a 2"], "different prices"),
        (["GET /a 0"], "more than 0"),
        (["GET /a 0.0000001"], "at most 6 fraction digits"),
        (["/a"], "such as `GET /weather 0.01`"),
        (["a 1"], "a path begins with /"),
        (["get /a 1"], "a method is such as GET"),
    ],
)
def test_a_good_that_cannot_be_sold(goods: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        shop(*goods)


def test_work_is_not_done_for_payments_that_nobody_has_verified() -> None:
    goods = goods_of({"GET /a 1": lambda _: "a"})
    with pytest.raises(ValueError, match="payment_flow"):
        Settings(sells=goods)
    assert selling(Settings(), goods).payment_flow == "authorization"
    assert selling(Settings(payment_flow="upfront"), goods).payment_flow == "upfront"
    assert selling(Settings(), goods_of({"GET /a 1": "a"})).payment_flow is None


# --- what a payment opens -------------------------------------------------------------------


async def two_steps(rig: ServiceRig, path: str) -> tuple[str, httpx.Response]:
    required = await rig.http.get(path)
    assert required.status_code == 402
    paid = await rig.pay(required)
    assert paid.status_code == 200, paid.text
    payment_id = str(required.json()["paymentId"])
    return payment_id, await rig.http.get(path, headers={"X-Payment-Id": payment_id})


@selling_scene
async def test_two_steps(rig: ServiceRig) -> None:
    payment_id, answer = await two_steps(rig, "/weather")
    assert answer.json() == {"sky": "blue"}
    assert answer.headers["cache-control"] == "no-store"
    assert rig.earned == 10_000
    written = await rig.http.post("/weather", headers={"X-Payment-Id": payment_id})
    assert written.content == b"written"


@selling_scene
async def test_a_payment_for_one_path_below_opens_no_other(rig: ServiceRig) -> None:
    payment_id, answer = await two_steps(rig, "/premium/a")
    assert answer.json() == {"path": "/premium/a"}
    other = await rig.http.get("/premium/b", headers={"X-Payment-Id": payment_id})
    assert other.status_code == 402
    assert other.json()["paymentRequirements"]["resource"] == "/premium/b"


@selling_scene
async def test_one_step(rig: ServiceRig) -> None:
    for version in (1, 2):
        required = await rig.http.get("/premium/ä b")
        headers = sign(rig, version, required)  # type: ignore[arg-type]
        answer = await rig.http.get("/premium/ä b", headers=headers)
        assert answer.json() == {"path": "/premium/ä b"}
        assert settlement_of(version, answer).success  # type: ignore[arg-type]
        again = await rig.http.get("/premium/ä b", headers=headers)
        assert again.status_code == 402
    assert rig.earned == 100_000


@selling_scene
async def test_an_error_is_not_charged_and_only_a_good_payment_causes_work(rig: ServiceRig) -> None:
    RUNS.clear()
    required = await rig.http.post("/broken")
    forged = await rig.http.post("/broken", headers=sign(rig, 2, required, signer=rig.bob))
    assert (required.status_code, forged.status_code, RUNS) == (402, 402, [])
    answer = await rig.http.post("/broken", headers=sign(rig, 2, required))
    assert (answer.status_code, answer.text) == (503, "out of order")
    assert (RUNS, rig.earned) == (["/broken"], 0)


@selling_scene
async def test_a_session_pays_for_answers_only(rig: ServiceRig) -> None:
    session = {"X-Session-Id": (await rig.open_session("0.06"))["sessionId"]}
    failed = await rig.http.post("/broken", headers=session)
    assert failed.status_code == 503
    assert (await rig.http.get("/premium/a", headers=session)).status_code == 200
    RUNS.clear()
    assert (await rig.http.post("/broken", headers=session)).status_code == 402
    assert not RUNS


FAILURES: dict[str, Exception] = {
    "/bug": KeyError("city"), "/none": HTTPException(404, "No such city"),
    "/late": Refused(504, "Late", "no answer"),
}  # fmt: skip


def fails_once(request: Request) -> str:
    if (path := request.url.path) not in RUNS:
        RUNS.append(path)
        raise FAILURES[path]
    return "done"


@pytest.mark.parametrize(("path", "status"), [("/bug", 500), ("/none", 404), ("/late", 504)])
def test_an_endpoint_that_fails_after_its_payment_says_that_it_is_paid(
    path: str, status: int
) -> None:
    sold = goods_of({f"GET {name} 0.01": fails_once for name in FAILURES})
    settings = selling(Settings(phase=0, payment_flow="upfront"), sold)

    async def play(rig: ServiceRig) -> None:
        payment = sign(rig, 2, await rig.http.get(path))
        failed = await rig.http.get(path, headers=payment)
        assert (failed.status_code, settlement_of(2, failed).success) == (status, True)
        assert (await rig.http.get(path, headers=payment)).text == "done"
        assert rig.transfers() == 1

    RUNS.clear()
    scene(play, lambda: ServiceRig(settings=settings))()


async def slow(request: Request) -> str:
    RUNS.append(request.url.path)
    await asyncio.sleep(0.02)
    return "done"


@partial(selling_scene, sells={"POST /slow 0.05": slow})
async def test_a_session_causes_no_more_work_at_once_than_it_pays_for(rig: ServiceRig) -> None:
    RUNS.clear()
    session = {"X-Session-Id": (await rig.open_session("0.10"))["sessionId"]}
    at_once = [rig.http.post("/slow", headers=session) for _ in range(5)]
    answers = await asyncio.gather(*at_once)
    assert sorted(each.status_code for each in answers) == [200, 200, 402, 402, 402]
    assert len(RUNS) == 2


class Leaving(On):
    """A client that leaves during the work."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = [True, False]

    def is_closed(self) -> bool:
        return self.looks.pop()


@pytest.mark.parametrize("client", [On(answered=False), Leaving()])
@selling_scene
async def test_a_session_is_not_debited_for_work_whose_answer_is_not_written(
    rig: ServiceRig, client: On
) -> None:
    session = (await rig.open_session("0.05"))["sessionId"]
    inner = rig.wires["service"].inner
    app, inner.app = inner.app, lambda scope, *io: app({**scope, CONNECTION: client}, *io)
    await rig.http.get("/premium/a", headers={"X-Session-Id": session})
    inner.app = app
    kinds = {type(each.event) for each in rig.parts.journal}
    assert (DebitUndone in kinds) == (SessionDebited in kinds)
    assert (await rig.http.get(f"/api/sessions/{session}")).json()["released"] == "0"


@selling_scene
async def test_what_is_sold_is_listed(rig: ServiceRig) -> None:
    await two_steps(rig, "/weather")
    agents = (await rig.http.get("/api/agents")).json()["agents"]
    assert {each["resource"] for each in agents} == {name.split()[1] for name in SELLS}
    known = (await rig.http.get("/.well-known/x402")).json()["resources"]
    assert known == ["http://service.test/weather", "http://service.test/broken"]
    assert "- `GET /weather`: " in (await rig.http.get("/llms.txt")).text
    assert (await rig.http.delete("/weather")).status_code == 405
    assert (await rig.http.get("/no/such")).status_code == 404
    assert (await rig.http.get("/premium/../weather")).status_code in (400, 402)
    assert (await rig.http.head("/weather")).status_code == 402
    assert (await rig.http.get("/premium/" + "a" * 600)).status_code == 414


# --- where goods come from ------------------------------------------------------------------


def body_of(good: Good) -> Any:
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
    answer = asyncio.run(good.answer(Request(scope)))  # type: ignore[arg-type]
    return answer.status_code, answer.headers["content-type"], bytes(answer.body)


def test_flags(tmp_path: Path) -> None:
    file = tmp_path / "weather.json"
    file.write_text('{"sky": "blue"}')
    first, second = flagged(["GET /weather 0.01", "/b 1"], [file, file])
    assert body_of(first) == (200, "application/json", b'{"sky": "blue"}')
    assert (second.method, second.path, second.price) == ("GET", "/b", "1")
    (alone,) = flagged(["/b 1"], [])
    assert body_of(alone)[2] == b'{"sold":"/b"}'
    with pytest.raises(ValueError, match="give each --sell its --body"):
        list(flagged(["/b 1", "/c 1"], [file]))
    file.write_text("{")
    with pytest.raises(ValueError, match="no JSON"):
        list(flagged(["/b 1"], [file]))


OPENAPI = """
openapi: 3.1.0
info: {title: Shop, version: "1"}
paths:
  /weather/{city}:
    get:
      summary: The weather of a city
      x-price: "0.01"
      responses:
        "200": {content: {application/json: {schema: {$ref: "#/components/schemas/Weather"}}}}
  /report:
    post:
      x-price: "0.10"
      responses: {"201": {content: {text/plain: {examples: {first: {value: made}}}}}}
  /free:
    get:
      responses: {"200": {content: {application/json: {example: {free: true}}}}}
  /unknown:
    get: {responses: {"200": {content: {application/json: {schema: {type: string}}}}}}
components:
  schemas:
    Weather:
      properties:
        sky: {enum: [blue, grey]}
        hours: {items: {properties: {hour: {example: 12}}}}
"""


def test_openapi(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(OPENAPI)
    weather, report, free = of_openapi(file)
    assert json.loads(body_of(weather)[2]) == {"sky": "blue", "hours": [{"hour": 12}]}
    assert (weather.name, weather.price) == ("GET /weather/{city}", "0.01")
    assert weather.description == "The weather of a city"
    assert body_of(report) == (201, "text/plain; charset=utf-8", b"made")
    assert (free.price, body_of(free)[2]) == (None, b'{"free":true}')


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('x-price: "0.01"', "x-price: 0.01", 'x-price is a text such as "0.05", not 0.01'),
        ("{example: 12}", "{type: integer}", r"no example at \$.hours\[0\].hour"),
        ("#/components/schemas/Weather", "#/components/no", "leads to nothing"),
        ("#/components/schemas/Weather", "other.yaml", "only parts of the same document"),
        ("paths:", "paths: [", "no YAML"),
    ],
)
def test_a_wrong_openapi_document(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(OPENAPI.replace(old, new))
    with pytest.raises(ValueError, match=said):
        list(of_openapi(file))


TREE = (
    "{properties: {name: {example: oak}, children: {items: {$ref: '#/components/schemas/Tree'}}}}"
)
BY_TREE, ITSELF = "{$ref: '#/components/schemas/Tree'}", "{$ref: '#/components/schemas/Two'}"
SCHEMA, UNKNOWN = (
    "schema: {type: string}",
    "{content: {application/json: {schema: {type: string}}}}",
)
CYCLES = [
    (SCHEMA, f"schema: {BY_TREE}", TREE, r"\$.children\[0\]"),
    (SCHEMA, f"schema: {BY_TREE}", f"{{allOf: [{BY_TREE}]}}", r"\$"),
    (SCHEMA, f"schema: {BY_TREE}", BY_TREE, r"\$"),
    (SCHEMA, f"schema: {BY_TREE}", f"{{properties: {{twin: {ITSELF}}}}}", r"\$.twin"),
    (SCHEMA, f"schema: {BY_TREE}", "&tree {properties: {child: *tree}}", r"\$.child"),
    (UNKNOWN, ITSELF, "{}", r"\$"),
    (f"{{{SCHEMA}}}", ITSELF, "{}", r"\$"),
    (f"{{{SCHEMA}}}", f"{{examples: {{a: {ITSELF}}}}}", "{}", r"\$"),
]
"""An answer, an example or a schema that leads to itself: what it replaces, with which tree."""


@pytest.mark.parametrize(("old", "new", "tree", "place"), CYCLES)
def test_what_contains_itself_has_no_example(
    tmp_path: Path, old: str, new: str, tree: str, place: str
) -> None:
    file = tmp_path / "api.yaml"
    text = f"{OPENAPI.replace(old, new)}    Tree: {tree}\n    Two: {ITSELF}\n"
    file.write_text(text)
    assert [good.path for good in of_openapi(file)] == ["/weather/{city}", "/report", "/free"]
    file.write_text(text.replace("get: {responses", 'get: {x-price: "1", responses'))
    said = rf"GET /unknown: the answer 200 has no example at {place};"
    with pytest.raises(ValueError, match=said):
        list(of_openapi(file))


def test_a_schema_may_be_used_twice(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    both = (
        "{properties: {a: {$ref: '#/components/schemas/W'}, b: {$ref: '#/components/schemas/W'}}}"
    )
    file.write_text(
        OPENAPI.replace("schema: {type: string}", f"schema: {both}") + "    W: {const: 1}\n"
    )
    assert body_of(list(of_openapi(file))[3])[2] == b'{"a":1,"b":1}'


def test_python_async() -> None:
    async def made(_: Request) -> Iterable[int]:
        return [1, 2]

    (good,) = goods_of({"/a 1": made})
    assert body_of(good)[2] == b"[1,2]"
    assert good.works
