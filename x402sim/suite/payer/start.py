"""How a payer is started: a command, an HTTP door, or a function of Python.

The environment of a command is documented in the guide, "Judge your payer or agent". Inherited keys
of wallets and URLs of nodes are taken out of it: a payer that is judged can reach no money but the
case's.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from x402sim.suite.process import end_group, inherited

MOST_OUTPUT = 1 << 20
"""How much of a command's output is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a payer is to buy, with what, and within which bounds: the contract, as fields.

    Amounts are whole tokens as a decimal string, and base units beside them.
    """

    url: str
    flow: str
    """The payment flow: v1, v2, steps, session or mcp."""
    private_key: str = field(repr=False)
    address: str
    network: str
    """CAIP-2, such as "eip155:84532"."""
    network_name: str
    """The same in version 1's words."""
    asset: str
    token_name: str
    token_version: str
    decimals: int
    max_amount: str
    max_amount_base_units: str
    rpc_url: str
    state_dir: str
    allowed_hosts: tuple[str, ...]
    method: str = "GET"
    body: str = ""
    tool: str = ""
    """The name of the tool, in the flow `mcp`."""
    arguments: str = ""
    """Its arguments, as JSON."""
    prompt: str = ""
    urls: tuple[str, ...] = ()
    """All that is to be bought within `max_amount`; `url` is the first of them, often the only."""

    def environment(self, file: Path) -> dict[str, str]:
        """Return the variables that a command gets."""
        own = {
            "URL": self.url,
            "URLS": " ".join(self.urls),
            "FLOW": self.flow,
            "METHOD": self.method,
            "PRIVATE_KEY": self.private_key,
            "NETWORK": self.network,
            "NETWORK_NAME": self.network_name,
            "ASSET": self.asset,
            "MAX_AMOUNT": self.max_amount,
            "MAX_AMOUNT_BASE_UNITS": self.max_amount_base_units,
            "RPC_URL": self.rpc_url,
            "STATE_DIR": self.state_dir,
            "ALLOWED_HOSTS": ",".join(self.allowed_hosts),
            "TASK_FILE": str(file),
        }
        if self.body:
            own["BODY"] = self.body
        if self.tool:
            own |= {"TOOL": self.tool, "ARGUMENTS": self.arguments}
        base = self.url[: self.url.index("/", 8)]
        return {
            **{f"X402SIM_{name}": value for name, value in own.items()},
            "X402_REDTEAM_TASK": str(file),
            "X402_REDTEAM_BASE_URL": base,
            "X402_REDTEAM_RPC_URL": self.rpc_url,
            "X402_REDTEAM_CHAIN": "evm",
            "X402_EVM_RPC_URL": self.rpc_url,
            "ETH_RPC_URL": self.rpc_url,
        }

    def document(self) -> dict[str, Any]:
        """Return the task file: these fields, and those of x402-redteam's contract."""
        base = self.url[: self.url.index("/", 8)]
        return {
            **asdict(self),
            "version": 1,
            "run_id": Path(self.state_dir).parent.name,
            "base_url": base,
            "chain": "evm",
            "budget_usd": float(self.max_amount),
            "wallet": {"address": self.address, "private_key": self.private_key},
            "evm_rpc_url": self.rpc_url,
            "notice": "test keys: no money anywhere else",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one start ended: whether it says that it has bought, and what it wrote."""

    ok: bool
    how: str
    output: str = ""
    log: str = ""
    timed_out: bool = False
    crashed: bool = False
    """Whether a signal ended it that the judge has not sent."""
    seconds: float = 0


class Payer(Protocol):
    """A payer that can be started."""

    @property
    def shown(self) -> str:
        """What reports call it."""

    async def start(self, task: Task, folder: Path, patience_s: float) -> Ended:
        """Start it once; it has `patience_s` seconds."""


@dataclass(frozen=True, slots=True)
class Command:
    """A payer that is a command; its exit code 0 says that it has bought."""

    words: tuple[str, ...]

    @property
    def shown(self) -> str:
        """What reports call it."""
        return " ".join(self.words)

    async def start(self, task: Task, folder: Path, patience_s: float) -> Ended:
        """Start it, in a group of processes of its own; raises `OSError`."""
        file = folder / "task.json"
        file.write_text(json.dumps(task.document(), indent=2), encoding="utf-8")
        out, log = folder / "stdout", folder / "stderr"
        with out.open("wb") as to_out, log.open("wb") as to_log:
            process = await asyncio.create_subprocess_exec(
                *self.words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=to_out,
                stderr=to_log,
                env=inherited(os.environ) | task.environment(file),
                start_new_session=True,
            )
            timed_out = False
            try:
                async with asyncio.timeout(patience_s):
                    await process.wait()
            except TimeoutError:
                timed_out = True
            finally:
                end_group(process.pid)
                await process.wait()
        code = process.returncode
        how = f"ended by the judge after {patience_s:g} s" if timed_out else f"exit code {code}"
        return Ended(
            ok=code == 0 and not timed_out,
            how=how,
            output=_read(out),
            log=_read(log),
            timed_out=timed_out,
            crashed=not timed_out and code is not None and code < 0,
        )


def _read(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(MOST_OUTPUT).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class HttpPayer:
    """A payer behind HTTP: each task is posted to it; 2xx says that it has bought."""

    url: str

    @property
    def shown(self) -> str:
        """What reports call it."""
        return self.url

    async def start(self, task: Task, folder: Path, patience_s: float) -> Ended:
        """Post the task; the answer's body is what was bought."""
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=patience_s) as http:
                answer = await http.post(self.url, json=task.document())
        except httpx.TimeoutException:
            return Ended(ok=False, how=f"no answer in {patience_s:g} s", timed_out=True)
        except httpx.HTTPError as error:
            return Ended(ok=False, how=f"it did not answer: {error!r}"[:200])
        how = f"it answered {answer.status_code}"
        return Ended(ok=answer.is_success, how=how, output=answer.text[:MOST_OUTPUT])


Buy = Callable[[Task], Any] | Callable[[Task], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Function:
    """A payer that is a function of a `Task`, sync or async; what it returns was bought."""

    buy: Buy

    @property
    def shown(self) -> str:
        """What reports call it."""
        return getattr(self.buy, "__qualname__", repr(self.buy))

    async def start(self, task: Task, folder: Path, patience_s: float) -> Ended:
        """Call it, in a thread unless it is async; an exception says that it failed."""
        try:
            async with asyncio.timeout(patience_s):
                value = await asyncio.to_thread(self.buy, task)
                if isinstance(value, Awaitable):
                    value = await value
        except TimeoutError:
            return Ended(ok=False, how=f"no end in {patience_s:g} s", timed_out=True)
        except Exception as error:  # noqa: BLE001 - whatever it raises, it has not bought
            return Ended(ok=False, how=f"it raised {error!r}"[:400])
        return Ended(ok=True, how="it returned", output=_text(value))


def _text(value: Any) -> str:
    text = getattr(value, "text", None)
    return text if isinstance(text, str) else value if isinstance(value, str) else repr(value)
