"""A flow that is watched: it asks first, and lets the 402 choose who pays it.

Each request is shown as it is sent, and once more with its answer; a request that pays may be
changed on its way, to see how the server refuses it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import httpx

from x402sim.http.bounded import Limits
from x402sim.payer.errors import PaymentFailed
from x402sim.payer.flow import Flow, FlowAuth, Send, Step, send
from x402sim.protocol.x402 import PAYMENT_HEADERS


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request as it was sent, and its answer; the answer's body may not be read yet."""

    request: httpx.Request
    response: httpx.Response


Choose = Callable[[httpx.Response], FlowAuth]
"""Returns who pays a 402; raises `PaymentFailed` for one that cannot be paid."""
Change = Callable[[httpx.Request], httpx.Request]


def pays(request: httpx.Request, pay_path: str) -> bool:
    """Tell whether a request pays: the settlement of two steps, or a payment in one."""
    return request.url.path == pay_path or any(
        name in request.headers for name in PAYMENT_HEADERS.values()
    )


class Watched(FlowAuth):
    """Asks, chooses a payer by the 402, and lets it pay.

    `sends` gets each request before it is sent, `seen` each exchange. With `change`, the first
    request that pays is changed by it, and its answer is the last.
    """

    def __init__(
        self,
        choose: Choose,
        *,
        sends: Callable[[httpx.Request], None],
        seen: Callable[[Exchange], None],
        limits: Limits,
        pay_path: str = "/api/pay",
        change: Change | None = None,
    ) -> None:
        self.limits = limits
        self._choose, self._change, self._pay_path = choose, change, pay_path
        self._sends, self._seen = sends, seen

    def exchange(self, request: httpx.Request) -> Flow:
        """Yield the steps of one exchange, and return its last answer."""
        asked = yield from self._shown(Send(request))
        if asked.status_code != 402:
            return asked
        flow = self._choose(asked).exchange(request)
        try:
            step: Step = next(flow)
            if isinstance(step, Send) and step.request is request:
                step = flow.send(asked)  # it was asked already
            while True:
                if not isinstance(step, Send):
                    yield step
                    step = flow.send(None)
                    continue
                is_last = self._change is not None and pays(step.request, self._pay_path)
                if self._change is not None and is_last:
                    step = Send(self._change(step.request), step.ours)
                try:
                    answer = yield from self._shown(step)
                except (httpx.HTTPError, PaymentFailed) as error:
                    step = flow.throw(error)
                    continue
                if is_last:
                    return answer
                step = flow.send(answer)
        except StopIteration as done:
            last: httpx.Response = done.value
            return last
        finally:
            flow.close()

    def _shown(self, step: Send) -> Flow:
        """Send a request, and show it and its answer."""
        sent = httpx.Request(
            step.request.method,
            step.request.url,
            headers=step.request.headers,
            content=step.request.content,
        )
        self._sends(sent)
        answer = yield from send(step)
        self._seen(Exchange(sent, answer))
        return answer
