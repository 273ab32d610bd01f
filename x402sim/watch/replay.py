"""Answers as a recorded shop did: `serve --recording`.

A request gets the recorded answer to the same method, path, query and body, with or without a
payment. Several answers come in the recorded order, and the last one again and again. Only the
presence of a payment counts: a payer signs anew, and nothing is verified or settled.
"""

from base64 import b64decode
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from x402sim.events import Note
from x402sim.http import web
from x402sim.http.web import Refused
from x402sim.journal import Journal
from x402sim.protocol.x402 import PROOFS

_OF_ONE_ANSWER = frozenset(
    {"connection", "content-encoding", "content-length", "date", "keep-alive", "transfer-encoding"}
)
"""Fields that belong to the recorded connection; bodies are recorded without their encoding."""
Key = tuple[str, str, bytes, bool]
"""Method, target, body, and whether a payment is shown."""


class Replay:
    """An ASGI application with the answers of a recording; raises `ValueError` without any."""

    def __init__(self, journal: Journal) -> None:
        self._answers: dict[Key, list[dict[str, Any]]] = {}
        for note in journal.events(Note):
            seen = note.data
            if note.name == "exchange" and _can_answer(seen):
                shown = {name.lower().encode() for name, _ in seen["sent"]["headers"]}
                key = _key(seen["method"], seen["target"], _body(seen["sent"]), shown)
                self._answers.setdefault(key, []).append(
                    seen["answered"] | {"status": seen["status"]}
                )
        if not self._answers:
            raise ValueError("the recording has no whole answer of a shop, recorded by `watch`")

    @property
    def asked(self) -> list[str]:
        """The answered requests, each once: "GET /weather"."""
        return list(dict.fromkeys(f"{method} {target}" for method, target, *_ in self._answers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the next recorded answer; raises `Refused` for a request that is not recorded."""
        request = Request(scope, receive)
        target, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        target += f"?{query}" if query else ""
        shown = {name for name, _ in request.headers.raw}
        key = _key(request.method, target, await web.read_body(request), shown)
        answers = self._answers.get(key)
        if answers is None:
            known = ", ".join(self.asked[:10])
            how = "with" if key[-1] else "without"
            seen = f"{request.method} {target} with this body, {how} a payment; recorded: {known}"
            raise Refused(404, "Not recorded", seen)
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        response = Response(_body(answer), answer["status"])
        response.raw_headers += [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in answer["headers"]
            if name.lower() not in _OF_ONE_ANSWER
        ]
        await response(scope, receive, send)


def _can_answer(seen: dict[str, Any]) -> bool:
    is_shops = not seen["path"].startswith("/facilitator") and "endpoint" not in seen
    is_whole = not (seen["sent"]["cut"] or seen["answered"]["cut"] or "hidden" in seen)
    return is_shops and is_whole and seen["status"] is not None


def _key(method: str, target: str, body: bytes, shown: set[bytes]) -> Key:
    """Return the key of a request with these header names; a body that pays is new each time."""
    is_paid_in_body = b'"paymentHeader"' in body
    pays = is_paid_in_body or not PROOFS.isdisjoint(shown)
    return method, target, b"" if is_paid_in_body else body, pays


def _body(half: dict[str, Any]) -> bytes:
    return b64decode(half["base64"]) if "base64" in half else half["body"].encode()
