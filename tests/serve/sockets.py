"""JSON-RPC over WebSocket, by the library `websockets`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import ClientConnection, connect

PATIENCE_S = 10


class Socket:
    """A connection by the library `websockets`."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._sent = 0
        self.notifications: list[Any] = []
        """The notifications that came before an answer."""

    def send(self, method: str, *params: Any) -> int:
        self._sent += 1
        asked = {"jsonrpc": "2.0", "id": self._sent, "method": method, "params": params}
        self.connection.send(json.dumps(asked))
        return self._sent

    def read(self) -> Any:
        return json.loads(self.connection.recv(PATIENCE_S))

    def ask(self, method: str, *params: Any) -> Any:
        number = self.send(method, *params)
        while (answer := self.read()).get("id") != number:
            self.notifications.append(answer["params"])
        return answer

    def next(self) -> Any:
        """Return the next notification: the subscription's id and its result."""
        newest = self.notifications.pop(0) if self.notifications else self.read()["params"]
        return newest["subscription"], newest["result"]


@contextmanager
def talking(url: str, **options: Any) -> Iterator[Socket]:
    with connect(url.replace("http", "ws", 1), proxy=None, compression=None, **options) as to:
        yield Socket(to)
