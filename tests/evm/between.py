"""A server between a client and a node: what the node answers, or what a rule says instead."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from urllib.request import Request, urlopen

from tests.cli.shops import Asked, Reply, serving

Json = dict[str, Any]


class Between:
    """An HTTP server before a node. `rules` say what happens to a method instead of the truth.

    A rule takes the parameters and returns a whole JSON-RPC answer without its id, or bytes
    or a status as the whole HTTP answer, or None to hang up; it may ask the node itself.
    """

    def __init__(self, url: str) -> None:
        self.rules: dict[str, Callable[..., Any]] = {}
        self.seen: list[str] = []
        """The methods that were asked."""
        self.batches: list[list[str]] = []
        """The methods that were asked together."""
        self._node = url
        self._serving = ExitStack()
        self.url = self._serving.enter_context(serving(self._reply))
        self.close = self._serving.close

    def _reply(self, asked: Asked) -> Reply:
        answer = self.answer(json.loads(asked.body))
        is_status = answer is None or isinstance(answer, int)
        return Reply(answer) if is_status else Reply(200, answer)

    def answer(self, asked: Json | list[Json]) -> Any:
        if isinstance(asked, dict):
            return self._one(asked)
        self.batches.append([one["method"] for one in asked])
        answers = [self._one(one) for one in asked]
        whole = [answer for answer in answers if not isinstance(answer, dict)]
        return whole[0] if whole else answers

    def _one(self, asked: Json) -> Any:
        method = asked["method"]
        self.seen.append(method)
        rule = self.rules.get(method)
        answer = rule(*asked["params"]) if rule else self.truth(method, *asked["params"])
        if isinstance(answer, dict):
            return {"jsonrpc": "2.0", "id": asked["id"], **answer}
        return answer

    def truth(self, method: str, *parameters: Any) -> Json:
        """Ask the node itself; return its answer without the id."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        asked = Request(
            self._node, json.dumps(body).encode(), headers={"content-type": "application/json"}
        )
        with urlopen(asked) as answer:
            told = json.loads(answer.read())
        return {name: told[name] for name in ("result", "error") if name in told}


def refuses(code: int, message: str) -> Callable[..., Json]:
    """Return a rule that answers with an error."""
    return lambda *_: {"error": {"code": code, "message": message}}


def says(result: Any) -> Callable[..., Json]:
    """Return a rule that answers with a result."""
    return lambda *_: {"result": result}
