"""The folder of a sweep: one Parquet file a task, and what made them."""

import hashlib
import inspect
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from x402sim.experiments.drive import Task
from x402sim.experiments.grid import labels_of
from x402sim.experiments.tables import Done, decoded
from x402sim.protocol.messages import decode
from x402sim.version import VERSION

_NAME_LENGTH = 120
MANIFEST = "sweep.json"


class Manifest(msgspec.Struct):
    """What the files of a folder are results of."""

    experiment: str
    source_sha256: str
    x402sim: str = VERSION


class Folder:
    """The folder of one sweep, made if it does not exist.

    Raises `ValueError` if it has results of another experiment, or of another version of it, and
    `OSError` if it cannot be made. `tables` raises it for results of other parameters.
    """

    def __init__(
        self, path: Path, experiment: Callable[..., Any], parameters: Sequence[str]
    ) -> None:
        self.path, self._parameters = path, sorted(parameters)
        path.mkdir(parents=True, exist_ok=True)
        ours = Manifest(getattr(experiment, "__name__", "experiment"), _source_sha256(experiment))
        file = path / MANIFEST
        if not file.exists():
            self.write(MANIFEST, msgspec.json.format(msgspec.json.encode(ours), indent=2) + b"\n")
            return
        theirs: Manifest = decode(file.read_bytes(), Manifest)
        for what, seen, wanted in (
            ("the experiment", theirs.experiment, ours.experiment),
            ("x402sim", theirs.x402sim, ours.x402sim),
            ("the source of the experiment, sha256", theirs.source_sha256, ours.source_sha256),
        ):
            self._require(what, seen, wanted)

    def _require(self, what: str, seen: str, wanted: str) -> None:
        if seen != wanted:
            raise ValueError(
                f"{self.path} has results of another sweep ({what} was {seen}, is {wanted}): "
                "choose another folder, or delete this one"
            )

    def tables(self) -> Iterator[Done]:
        """Yield the tables of the tasks that are done; raises `ValueError` for a broken file."""
        for file in sorted(self.path.glob("*.parquet")):
            try:
                done = decoded(file.read_bytes())
            except ValueError as error:
                raise ValueError(f"{file}: {error}; delete it") from error
            if done is not None:
                seen, wanted = sorted(labels_of(done.cell)), self._parameters
                self._require("the list of parameters", _listed(seen), _listed(wanted))
                yield done

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        new = self.path / f".{name}.new"
        new.write_bytes(content)
        os.replace(new, self.path / name)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "empty"


def name_of(task: Task) -> str:
    """Return the name of a task's file: its parameters, its seeds, and a hash of both."""
    cell = ",".join(f"{name}={label}" for name, label in task.cell.labels.items())
    shown = re.sub(r"[^\w.,=+-]+", "_", cell)[:_NAME_LENGTH]
    digest = hashlib.sha256(f"{task.cell.key} {task.seeds}".encode()).hexdigest()[:8]
    first, last = task.seeds[0], task.seeds[-1]
    seeds = f"seed={first}" if first == last else f"seeds={first}-{last}"
    return ",".join(part for part in (shown, seeds, digest) if part) + ".parquet"


def _source_sha256(experiment: Callable[..., Any]) -> str:
    """Return the hash of an experiment's source, or of its bytecode if it has none."""
    function = inspect.unwrap(getattr(experiment, "func", experiment))
    try:
        source = inspect.getsource(function).encode()
    except (OSError, TypeError):
        source = getattr(getattr(function, "__code__", None), "co_code", b"")
    return hashlib.sha256(source).hexdigest()
