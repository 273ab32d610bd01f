"""Somebody between us and the node: passes everything on, but for what a test changes."""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

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
        self._node = url
        between = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are two writes

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                answer = between.answer(asked)
                if answer is None:
                    self.close_connection = True
                    return
                status = answer if isinstance(answer, int) else 200
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, args=[0.01])
        self._thread.start()

    def answer(self, asked: Json | list[Json]) -> Any:
        if isinstance(asked, dict):
            return self._one(asked)
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

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


def refuses(code: int, message: str) -> Callable[..., Json]:
    """Return a rule that answers with an error."""
    return lambda *_: {"error": {"code": code, "message": message}}


def says(result: Any) -> Callable[..., Json]:
    """Return a rule that answers with a result."""
    return lambda *_: {"result": result}
