"""The service's calls to a facilitator about payments by Permit2, in version 2 of the standard."""

from typing import Any

import httpx

from x402sim.http.bounded import Limits
from x402sim.http.exchange import Request, Transport, Url
from x402sim.protocol import x402
from x402sim.protocol.crypto import from_hex, parse_address
from x402sim.protocol.permit2_payments import FACILITATOR, METHOD, PERMIT2_METHOD, UPTO, sponsorings
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable, send
from x402sim.service.upstream.facilitator import read_answer
from x402sim.service.upstream.standard import StandardEndpoints


class UptoFacilitator(StandardEndpoints):
    """One facilitator that settles by Permit2."""

    def __init__(self, to: Transport, url: str, *, verify: Limits, settle: Limits) -> None:
        super().__init__(to, url, verify=verify, settle=settle)
        self._supported_url = Url.of(httpx.URL(f"{url.rstrip('/')}/supported"))
        self._extras = dict[tuple[str, str], dict[str, str]]()
        self.sponsorings: dict[str, Any] | None = None
        """The facilitator's sponsorings as extensions of a 402, once `extra_of` has asked."""

    async def extra_of(self, scheme: str, network: str) -> dict[str, str]:
        """Return what `extra` of an offer has beside the domain: the transfer method, or in `upto`
        the account that settles, as /supported has it.

        /supported is asked once. Raises `Unavailable`, also for a scheme that is not listed.
        """
        if (known := self._extras.get((scheme, network))) is not None:
            return known
        url = self._supported_url
        request = Request("GET", url, [(b"host", url.netloc)], b"")
        response = await send(self._to, request, self._verify)
        supported = read_answer(response, url, x402.Supported)
        self.sponsorings = sponsorings(supported.extensions)
        for kind in supported.kinds:
            if (kind.scheme, kind.network) != (scheme, network):
                continue
            account = (kind.extra or {}).get(FACILITATOR)
            if scheme != UPTO:
                return self._extras.setdefault((scheme, network), {METHOD: PERMIT2_METHOD})
            if isinstance(account, str):
                try:
                    parse_address(account)
                except ValueError as wrong:
                    raise Unavailable(f"{FACILITATOR} of /supported: {wrong}") from wrong
                return self._extras.setdefault((scheme, network), {FACILITATOR: account})
        raise Unavailable(f"the facilitator settles no {scheme} on {network}")

    async def settled_used(self, payment: Any, wanted: x402.RequirementsV2) -> x402.Settlement:
        """Ask to settle the used amount, which `wanted` has; raises as `settle`."""
        status, answer = await self.settled(payment, wanted)
        if answer.success:
            try:
                from_hex(answer.transaction, 32)
            except ValueError as wrong:
                raise OutcomeUnknown(f"settle names no transaction: {wrong}") from wrong
            if status != 200 or answer.amount not in (None, wanted.amount):
                told = f"{answer.amount} for {wanted.amount}"
                raise OutcomeUnknown(f"settle answered {status}, and settled {told}")
        return answer
