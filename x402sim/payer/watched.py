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
from x402sim.payer.mistakes import paid_in

Change = Callable[[httpx.Request], httpx.Request]


@dataclass(kw_only=True, slots=True)
class Watched(FlowAuth):
    """Asks, chooses a payer by the 402, and lets it pay."""

    choose: Callable[[httpx.Response], FlowAuth]
    """Returns who pays a 402; raises `PaymentFailed` for one that cannot be paid."""
    sends: Callable[[httpx.Request], None] = lambda _: None
    """Gets each request before it is sent."""
    seen: Callable[[httpx.Request, httpx.Response], None]
    """Gets each request as it was sent, and its answer, whose body may not be read yet."""
    limits: Limits
    change: Change | None = None
    """Changes the first request that pays; the answer to that is then the last."""

    def exchange(self, request: httpx.Request) -> Flow:
        """Yield the steps of one exchange, and return its last answer."""
        asked = yield from self._shown(Send(request))
        if asked.status_code != 402:
            return asked
        flow = self.choose(asked).exchange(request)
        try:
            step: Step = next(flow)
            if isinstance(step, Send) and step.request is request:
                step = flow.send(asked)  # it was asked already
            while True:
                if not isinstance(step, Send):
                    yield step
                    step = flow.send(None)
                    continue
                change = self.change if paid_in(step.request) else None
                if change is not None:
                    step = Send(change(step.request), step.ours)
                try:
                    answer = yield from self._shown(step)
                except (httpx.HTTPError, PaymentFailed) as error:
                    step = flow.throw(error)
                    continue
                if change is not None:
                    return answer
                step = flow.send(answer)
        except StopIteration as done:
            last: httpx.Response = done.value
            return last
        finally:
            flow.close()

    def _shown(self, step: Send) -> Flow:
        """Send a request, and show it and its answer."""
        self.sends(sent := copy_of(step.request))
        answer = yield from send(step)
        self.seen(sent, answer)
        return answer


def copy_of(request: httpx.Request) -> httpx.Request:
    """Return a request as it is now: a payer leaves its proof in the one that it sends."""
    method, url, headers = request.method, request.url, request.headers
    return httpx.Request(method, url, headers=headers, content=request.content)
