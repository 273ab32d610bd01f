"""The folder of a sweep: one Parquet file a task, and what made them."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from x402sim.experiments.dependencies import Dependencies
from x402sim.experiments.drive import Task
from x402sim.experiments.grid import labels_of
from x402sim.experiments.tables import MOST_WORLDS, Done, decoded
from x402sim.protocol.messages import BadMessage, decode

_NAME_LENGTH = 120
_MOST_TOLD = 5
MANIFEST = "sweep.json"
ALL_ROWS, SUMMARY = "results.parquet", "summary.csv"
"""What the command writes beside the files of the tasks."""
AGAIN = "give fresh=True (`--fresh`) to begin anew, or another folder"


class Manifest(msgspec.Struct):
    """What the files of a folder are results of.

    `depends_on` has the digests by name, of the experiment (under "") and of each value of a
    parameter that is more than its label; `unread` says what has none. `worlds` are the options of
    the worlds that were played, by cell.
    """

    experiment: str
    versions: dict[str, str]
    depends_on: dict[str, dict[str, str]]
    unread: list[str] = []
    worlds: dict[str, list[dict[str, str]]] = {}


class Folder:
    """The folder of one sweep, made if it does not exist; `parameters` are the names of all.

    Raises `OSError` if it cannot be made. `tables` raises `ValueError` for results of other
    parameters.
    """

    def __init__(self, path: Path, parameters: Sequence[str]) -> None:
        self.path, self._parameters = path, sorted(parameters)
        path.mkdir(parents=True, exist_ok=True)

    def claim(self, experiment: str, parts: Mapping[str, Dependencies]) -> str | None:
        """Write what the results depend on; return a sentence on what cannot be compared, if any.

        `parts` are the dependencies of the experiment (under ""), and of values of parameters.
        Raises `ValueError` if the folder has results of something else, and names what changed.
        """
        ours = Manifest(
            experiment,
            {name: v for each in parts.values() for name, v in each.versions.items()},
            {name: each.digests for name, each in parts.items()},
            [text for each in parts.values() for text in each.unread],
        )
        if (theirs := self._manifest()) is not None:
            self._require_same(theirs, ours)
            ours.depends_on = theirs.depends_on | ours.depends_on
            ours.worlds = theirs.worlds
        self._write_manifest(ours)
        if not ours.unread:
            return None
        return (
            f"{self.path}: a change of what follows would not be noticed when this sweep goes on, "
            f"so then {AGAIN}: {'; '.join(ours.unread)}"
        )

    def _manifest(self) -> Manifest | None:
        file = self.path / MANIFEST
        if not file.exists():
            return None
        try:
            found: Manifest = decode(file.read_bytes(), Manifest, most=1_000_000)
        except BadMessage as error:
            raise ValueError(
                f"{file} does not say what its results depend on ({error}): {AGAIN}"
            ) from error
        return found

    def _write_manifest(self, manifest: Manifest) -> None:
        self.write(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")

    def _require_same(self, theirs: Manifest, ours: Manifest) -> None:
        """Raise `ValueError` unless both depend on the same; the text names what changed."""
        if theirs.experiment != ours.experiment:
            self._refuse([f"the experiment was {theirs.experiment}, is {ours.experiment}"])
        changed = []
        for name, version in ours.versions.items():
            if name in theirs.versions and theirs.versions[name] != version:
                changed.append(f"{name} was {theirs.versions[name]}, is {version}")
        for part in ours.depends_on.keys() & theirs.depends_on.keys():
            changed += _differences(theirs.depends_on[part], ours.depends_on[part])
        if changed:
            self._refuse(list(dict.fromkeys(changed)))

    def _refuse(self, changed: Sequence[str]) -> None:
        more = f"; and {len(changed) - _MOST_TOLD} more" if len(changed) > _MOST_TOLD else ""
        changes = "; ".join(changed[:_MOST_TOLD]) + more
        raise ValueError(f"{self.path} has results of another sweep ({changes}): {AGAIN}")

    def note_worlds(self, tables: Sequence[Done]) -> None:
        """Write the options of the worlds that were played."""
        manifest = self._manifest()
        if manifest is None:
            return
        for done in tables:
            known = manifest.worlds.setdefault(done.cell, [])
            known += [each for each in done.worlds if each not in known][: MOST_WORLDS - len(known)]
        self._write_manifest(manifest)

    def clear(self) -> None:
        """Delete what sweeps have written here, and nothing else."""
        for file in (*self.path.glob("*.parquet"), self.path / SUMMARY, self.path / MANIFEST):
            is_ours = file.suffix != ".parquet" or file.name == ALL_ROWS
            if not is_ours:
                with suppress(ValueError):
                    is_ours = decoded(file.read_bytes()) is not None
            if is_ours:
                file.unlink(missing_ok=True)

    def tables(self) -> Iterator[Done]:
        """Yield the tables of the tasks that are done; raises `ValueError` for a broken file."""
        for file in sorted(self.path.glob("*.parquet")):
            try:
                done = decoded(file.read_bytes())
            except ValueError as error:
                raise ValueError(f"{file}: {error}; delete it") from error
            if done is not None:
                found, wanted = sorted(labels_of(done.cell)), self._parameters
                if found != wanted:
                    was, is_now = _listed(found), _listed(wanted)
                    self._refuse([f"the list of parameters was {was}, is {is_now}"])
                yield done

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        new = self.path / f".{name}.new"
        new.write_bytes(content)
        os.replace(new, self.path / name)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "empty"


def file_of(task: Task) -> str:
    """Return the name of a task's file: its parameters, its seeds, and a hash of both."""
    cell = ",".join(f"{name}={label}" for name, label in task.cell.labels.items())
    shown = re.sub(r"[^\w.,=+-]+", "_", cell)[:_NAME_LENGTH]
    digest = hashlib.sha256(f"{task.cell.key} {task.seeds}".encode()).hexdigest()[:8]
    first, last = task.seeds[0], task.seeds[-1]
    seeds = f"seed={first}" if first == last else f"seeds={first}-{last}"
    return ",".join(part for part in (shown, seeds, digest) if part) + ".parquet"


def _differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """Return what differs, by name."""
    both = [name for name in ours if name in theirs]
    return [
        *(f"{name} has changed" for name in both if ours[name] != theirs[name]),
        *(f"{name} is used now, and was not" for name in ours if name not in theirs),
        *(f"{name} is not used any more" for name in theirs if name not in ours),
    ]
