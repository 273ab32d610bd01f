"""GET /.well-known/x402 names what is sold here, and nothing else."""

import pytest

from tests.rig import ORDER, ServiceRig, scene
from tests.service.standard import set_up


@pytest.mark.parametrize("agents_free", [True, False])
@scene
async def test_indexes_of_x402_find_what_is_sold(rig: ServiceRig, agents_free: bool) -> None:
    set_up(rig, decide={"agents_free": agents_free})
    told = (await rig.http.get("/.well-known/x402")).json()
    assert told["version"] == 1
    assert len(told["resources"]) == (2 if agents_free else 3)
    assert [each["resource"] for each in told["accepts"]] == told["resources"]
    for url, offered in zip(told["resources"], told["accepts"], strict=True):
        is_quote = url.endswith("/quote")
        answer = await (rig.http.post(url, json=ORDER) if is_quote else rig.http.get(url))
        assert answer.status_code == 402, url
        (asked,) = answer.json()["accepts"]
        del asked["extra"]["paymentId"]
        assert asked == offered
