"""Finds, starts and stops anvil, Foundry's test node.

The program is searched in X402SIM_ANVIL, on PATH, and in the npm package @foundry-rs/anvil. The
node is killed when this process ends.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from x402sim.chain.base import ChainError
from x402sim.chain.ledger.machine import KEPT_BLOCKS
from x402sim.chain.node import subprocess_guard
from x402sim.chain.node.evm import JsonRpcNode
from x402sim.text.environment import passing
from x402sim.text.words import as_given

VARIABLE = "X402SIM_ANVIL"
HARDFORK = "prague"
"""The EVM version; the ledger's gas prices are of the same."""
BLOCK_GAS_LIMIT = 10**12
"""High enough for every waiting transaction to fit into one block."""
BASE_FEE_WEI = 10**9
"""The base fee of block 0, or the network's if that is less; it falls, as blocks are nearly empty.
Not 0: libraries take 0 for a chain without the fees of EIP-1559."""
START_TIMEOUT_S = 20
TIMEOUT_S = 60
"""Seconds for one request, as mining ten thousand blocks takes long."""
_POLL_S = 0.01


def find_anvil() -> Path:
    """Return the path of the anvil program; raises `ChainError` saying how to get it.

    After PATH, the npm packages of the current directory and those above it are searched.
    """
    if named := os.environ.get(VARIABLE):
        if shutil.which(named):
            return Path(named)
        raise ChainError(f"{VARIABLE} is {as_given(named)}, which is not a program")
    here = Path.cwd()
    packages = [str(directory / "node_modules/.bin") for directory in (here, *here.parents)]
    found = shutil.which("anvil", path=os.pathsep.join([os.environ.get("PATH", ""), *packages]))
    if found is None:
        how = f"npm install -g @foundry-rs/anvil, or set {VARIABLE} to its path"
        raise ChainError(f"anvil was not found: {how}")
    return Path(found)


class AnvilNode:
    """A running anvil on a free port of this machine: `url` is the JSON-RPC, `rpc` a client.

    Another test node would be a class like `AnvilNode`; `controls` uses methods of anvil only.
    """

    def __init__(
        self,
        chain_id: int,
        genesis_s: int,
        program: Path | None = None,
        *,
        in_line: bool = False,
        mnemonic: str = "",
        accounts: int = 0,
        base_fee_wei: int = BASE_FEE_WEI,
    ) -> None:
        """Start a node with an empty chain; blocks until it answers.

        With `in_line`, each request blocks the process, as virtual time needs. The node signs for
        the first `accounts` of a phrase. Raises `ChainError` without an anvil (saying how to get
        one), or if the program does not start.
        """
        self._program = program or find_anvil()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        phrase = ["--mnemonic", mnemonic] if mnemonic else []
        options = *_options(chain_id, genesis_s, base_fee_wei), "--accounts", str(accounts), *phrase
        try:
            for _ in range(3):  # another process may take the port first
                self._start(*options)
                if self._comes_up():
                    break
            else:
                raise ChainError(f"anvil did not start: {self._last_line()}")
            self.rpc = JsonRpcNode(self.url, timeout_s=TIMEOUT_S, parallel=0 if in_line else 1)
            # without an interval, its own clock sometimes adds a second
            self.rpc.ask_now("anvil_setBlockTimestampInterval", 0)
        except BaseException:
            self.stop()
            raise

    def _start(self, *options: str) -> None:
        self._port = _free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        command = [str(self._program), "--port", str(self._port), *options]
        self._process = subprocess.Popen(  # noqa: S603 - the program that was found
            [sys.executable, "-I", "-S", subprocess_guard.__file__, *command],
            stdin=subprocess.PIPE,
            env=passing(os.environ),
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # this process handles Ctrl-C, then stops the node
        )

    def _comes_up(self) -> bool:
        """Wait until the node accepts connections; False if it exits or takes too long."""
        for _ in range(round(START_TIMEOUT_S / _POLL_S)):
            try:
                self._process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                        return True
            else:
                break
        self._end()
        return False

    def _last_line(self) -> str:
        self._log.seek(0)
        output = self._log.read().decode(errors="replace").strip()
        return output.splitlines()[-1] if output else f"{self._program} printed nothing"

    def _end(self) -> None:
        """Close the pipe to the guard process, which then kills the node."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def stop(self) -> None:
        """End the process and close the connections."""
        if hasattr(self, "_process"):
            self._end()
        if hasattr(self, "rpc"):
            self.rpc.close()
        self._log.close()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _options(chain_id: int, genesis_s: int, base_fee_wei: int) -> list[str]:
    return [
        *("--chain-id", str(chain_id)),
        *("--timestamp", str(genesis_s)),
        *("--hardfork", HARDFORK),
        *("--order", "fifo"),
        *("--gas-limit", str(BLOCK_GAS_LIMIT)),
        *("--block-base-fee-per-gas", str(min(BASE_FEE_WEI, base_fee_wei))),
        *("--prune-history", str(KEPT_BLOCKS)),  # in memory: anvil leaves states on disk behind
        "--auto-impersonate",
        "--disable-default-create2-deployer",
        "--quiet",
    ]
