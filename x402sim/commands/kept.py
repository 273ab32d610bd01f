"""What `pay` has signed and not finished, in a folder that outlives its process.

A file for each purchase, by method, URL and body. It is written before an authorization is sent,
and removed when what it paid for was read to its end.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec

from x402sim.payer.purchases import Unfinished
from x402sim.protocol.networks import Network


class KeptPurchase(msgspec.Struct, kw_only=True):
    """What is not finished of one purchase; `network` is a name."""

    url: str
    network: str
    unfinished: Unfinished


@dataclass(frozen=True, slots=True)
class Kept:
    """The purchases in a folder, which is made if it is not there."""

    folder: Path

    def read(self, request: httpx.Request) -> KeptPurchase | None:
        """Return what is not finished of a purchase, if anything; raises `ValueError`."""
        file = self._file(request)
        try:
            found = msgspec.json.decode(file.read_bytes(), type=KeptPurchase)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as wrong:
            raise ValueError(
                f"--state-dir: {file} cannot be read: {wrong}. It may hold an authorization that "
                "can still be used: remove it only if you may pay again"
            ) from wrong
        return found if found.unfinished.payments else None

    def write(self, request: httpx.Request, network: Network, unfinished: Unfinished) -> None:
        """Write down what is not finished, or remove what is; raises `OSError`."""
        file = self._file(request)
        if not unfinished.payments:
            file.unlink(missing_ok=True)
            return
        found = KeptPurchase(url=str(request.url), network=network.name, unfinished=unfinished)
        self.folder.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        # for its owner alone: a payment id is proof of payment for anyone who has it
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(msgspec.json.format(msgspec.json.encode(found)))
            out.flush()
            os.fsync(out.fileno())
        new.replace(file)

    def _file(self, request: httpx.Request) -> Path:
        named = b"\0".join((request.method.encode(), str(request.url).encode(), request.content))
        return self.folder / f"pay-{hashlib.sha256(named).hexdigest()[:32]}.json"
