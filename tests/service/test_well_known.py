"""GET /.well-known/x402 names what is sold here, and nothing else."""

import asyncio

import pytest

from tests.rig import ORDER, ServiceRig
from x402sim.spec.decisions import Decisions


@pytest.mark.parametrize("agents_free", [True, False])
def test_indexes_of_x402_find_what_is_sold(agents_free: bool) -> None:
    async def story() -> None:
        rig = ServiceRig(decisions=Decisions(agents_free=agents_free))
        try:
            told = (await rig.http.get("/.well-known/x402")).json()
            assert told["version"] == 1
            assert len(told["resources"]) == (2 if agents_free else 3)
            for url in told["resources"]:
                is_quote = url.endswith("/quote")
                answer = await (rig.http.post(url, json=ORDER) if is_quote else rig.http.get(url))
                assert answer.status_code == 402, url
        finally:
            await rig.http.aclose()
            await rig.parts.http.aclose()
            rig.service.store.close()

    asyncio.run(story())
