"""Parses the name of a stage, as on the command line. No other code does."""

from x402sim.text.suggest import near_url, unknown
from x402sim.world.stages.deployment import Deployment
from x402sim.world.stages.in_process import InProcess
from x402sim.world.stages.stage import Stage


def parse_stage(text: str) -> Stage:
    """Return the stage that `text` names: "in-process", "tcp", or the URL of a service.

    Raises `ValueError` that lists the possible names and suggests the nearest.
    """
    if text.startswith(("http://", "https://")):
        return Deployment(text)
    if text == "tcp":
        from x402sim.world.stages.tcp import Tcp  # with uvicorn, which few worlds need

        return Tcp()
    if text != "in-process":
        possible = ["in-process", "tcp", "http://HOST:PORT"]
        raise ValueError(unknown("stage", text, possible) + near_url(text))
    return InProcess()
