"""How does a story ask the control API of its world?"""

from typing import Any

from x402sim.text.printable import printable
from x402sim.world.stages.stage import OpenStage


async def asked(stage: OpenStage, method: str, path: str, body: Any) -> Any:
    """Return what the control API answers; raises `RuntimeError` if it refuses or is missing."""
    if stage.control is None:
        raise RuntimeError(f"{stage.base_url} has no control API, which {path!r} needs")
    answer = await stage.control.request(method, f"/{path}", json=body or {})
    if answer.status_code != 200:
        raise RuntimeError(f"the world refused {path!r}: {printable(answer.text)}")
    return answer.json()
