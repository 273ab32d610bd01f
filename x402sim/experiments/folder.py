"""The folder of a sweep: `results.parquet` has all rows, `bundle.json` their origin, and `points/`
a Parquet file for each task, from which an interrupted sweep resumes."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from x402sim.experiments.dependencies import Dependencies
from x402sim.experiments.drive import Task
from x402sim.experiments.grid import Label, labels_of
from x402sim.experiments.tables import Done, decoded, played_in, points_sha256, whole_frame
from x402sim.protocol.messages import BadMessage, decode
from x402sim.report.bundle import BUNDLE, Origin, Running, begin, carry, file_sha256, required

_MOST_TOLD = 5
POINTS, ALL_ROWS, SUMMARY = "points", "results.parquet", "summary.csv"
"""The folder of the tasks' files, and the files beside it; the command writes the summary."""
AGAIN = "give fresh=True (`--fresh`) to start over, or another folder"


class OfSweep(msgspec.Struct, tag_field="bundle", tag="sweep"):
    """The `bundle.json` of a sweep: the origin of the results in the folder.

    `depends_on` has digests by name, for the experiment (under "") and for each parameter value
    that is not its own label; `unread` names values without a digest. `grid` has the labels of each
    parameter. `seeds` has ranges, first and last (none if cells have different seeds). `points` is
    the number of saved points, and `table` the hash of all, empty until the sweep has ended.
    `files` has the hashes of the files made of all points, as `sha256sum` prints them.
    """

    experiment: str
    versions: dict[str, str]
    depends_on: dict[str, dict[str, str]]
    origin: Origin
    unread: list[str] = []
    grid: dict[str, list[Label]] = {}
    seeds: list[tuple[int, int]] = []
    points: int = 0
    table: str = ""
    files: dict[str, str] = {}


class Folder:
    """The folder of one sweep, created if missing; `parameters` are the names of its parameters.

    Raises `OSError` if the folder cannot be created. `tables` raises `ValueError` for results with
    other parameters.
    """

    def __init__(self, path: Path, parameters: Sequence[str]) -> None:
        self.path, self._parameters = path, parameters
        (path / POINTS).mkdir(parents=True, exist_ok=True)

    def claim(
        self,
        experiment: str,
        parts: Mapping[str, Dependencies],
        program: Running | None = None,
        missing: Sequence[str] = (),
    ) -> str | None:
        """Write the dependencies of the results; return a sentence on incomparable ones, or None.

        `parts` are the dependencies of the experiment (under "") and of parameter values; `program`
        plays the sweep, by default the running program; `missing` has sentences on files that are
        not carried. Raises `ValueError`, with the changed names, if the folder's results depend on
        something else.
        """
        calls, theirs = begin(self.path), self._manifest()
        versions = {name: v for each in parts.values() for name, v in each.versions.items()}
        digests = {name: each.digests for name, each in parts.items()}
        if theirs is not None:
            self._require_same(theirs, experiment, versions, digests)
            digests = theirs.depends_on | digests
        files = {name: file for each in parts.values() for name, file in each.files.items()}
        ours = OfSweep(
            experiment,
            {**required(), **versions},
            digests,
            carry(calls, self.path, program, files=files, missing=missing),
            [text for each in parts.values() for text in each.unread],
        )
        self._write_manifest(ours)
        if not ours.unread:
            return None
        return (
            f"{self.path}: resuming this sweep does not notice a change of the following values; "
            f"after a change, {AGAIN}: {'; '.join(ours.unread)}"
        )

    def _manifest(self) -> OfSweep | None:
        file = self.path / BUNDLE
        if not file.exists():
            return None
        try:
            found: OfSweep = decode(file.read_bytes(), OfSweep, most=1_000_000)
        except BadMessage as error:
            raise ValueError(
                f"{file} does not say what its results depend on ({error}): {AGAIN}"
            ) from error
        return found

    def _write_manifest(self, manifest: OfSweep) -> None:
        self.write(BUNDLE, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")

    def _require_same(
        self,
        theirs: OfSweep,
        experiment: str,
        versions: Mapping[str, str],
        digests: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Raise `ValueError` unless both depend on the same things; the text names the changes."""
        if theirs.experiment != experiment:
            self._refuse([f"the experiment was {theirs.experiment}, is {experiment}"])
        changed = []
        for name, version in versions.items():
            if name in theirs.versions and theirs.versions[name] != version:
                changed.append(f"{name} was {theirs.versions[name]}, is {version}")
        for part in digests.keys() & theirs.depends_on.keys():
            changed += differences(theirs.depends_on[part], digests[part])
        if changed:
            self._refuse(list(dict.fromkeys(changed)))

    def _refuse(self, changed: Sequence[str]) -> None:
        more = f"; and {len(changed) - _MOST_TOLD} more" if len(changed) > _MOST_TOLD else ""
        changes = "; ".join(changed[:_MOST_TOLD]) + more
        raise ValueError(f"{self.path} has results of another sweep ({changes}): {AGAIN}")

    def note(self, tables: Sequence[Done]) -> None:
        """Write the rows of all points in the folder, their number and their hash.

        Raises `TypeError` if a result is a number in some points and a text in others.
        """
        manifest = self._manifest()
        if manifest is None:
            return
        points = played_in(tables)
        manifest.points, manifest.table = len(points), points_sha256(points)
        manifest.grid, manifest.seeds = grid_of(points)
        rows = whole_frame(tables, self._parameters).drop(columns="trace")
        self.write(ALL_ROWS, rows.to_parquet(index=False))
        manifest.files = {ALL_ROWS: file_sha256(self.path / ALL_ROWS)}
        self._write_manifest(manifest)

    def note_summary(self) -> None:
        """Write the hash of the summary, which the command has written."""
        if (manifest := self._manifest()) is not None:
            manifest.files[SUMMARY] = file_sha256(self.path / SUMMARY)
            self._write_manifest(manifest)

    def clear(self) -> None:
        """Delete the files of sweeps, and no other files."""
        own = (self.path / name for name in (ALL_ROWS, SUMMARY, BUNDLE))
        for file in (*(self.path / POINTS).glob("*.parquet"), *own):
            file.unlink(missing_ok=True)

    def tables(self) -> Iterator[Done]:
        """Yield the tables of finished tasks; raises `ValueError` for a broken file."""
        for file in sorted((self.path / POINTS).glob("*.parquet")):
            try:
                done = decoded(file.read_bytes())
            except ValueError as error:
                raise ValueError(f"{file}: {error}; delete it") from error
            found, wanted = sorted(labels_of(done.cell)), sorted(self._parameters)
            if found != wanted:
                was, is_now = (", ".join(names) or "empty" for names in (found, wanted))
                self._refuse([f"the list of parameters was {was}, is {is_now}"])
            yield done

    def keep(self, task: Task, parquet: bytes) -> None:
        """Write the file of a task."""
        name = hashlib.sha256(f"{task.cell.key} {task.seeds}".encode()).hexdigest()[:16]
        self.write(f"{POINTS}/{name}.parquet", parquet)

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        file = self.path / name
        new = file.with_name(f".{file.name}.new")
        new.write_bytes(content)
        os.replace(new, file)


def grid_of(
    points: Iterable[tuple[str, int]],
) -> tuple[dict[str, list[Label]], list[tuple[int, int]]]:
    """Return the labels of each parameter, and the ranges of seeds if all cells share them."""
    seeds: dict[str, list[int]] = {}
    for cell, seed in points:
        seeds.setdefault(cell, []).append(seed)
    grid: dict[str, list[Label]] = {}
    for cell in seeds:
        for name, label in labels_of(cell).items():
            if label not in (known := grid.setdefault(name, [])):
                known.append(label)
    found = sorted({seed for each in seeds.values() for seed in each})
    ranges: list[tuple[int, int]] = []
    if all(sorted(each) == found for each in seeds.values()):
        for seed in found:
            follows = bool(ranges) and ranges[-1][1] == seed - 1
            ranges.append((ranges.pop()[0] if follows else seed, seed))
    return grid, ranges


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """Return a sentence for each digest that differs."""
    both = [name for name in ours if name in theirs]
    return [
        *(f"{name} has changed" for name in both if ours[name] != theirs[name]),
        *(f"{name} is used now, and was not" for name in ours if name not in theirs),
        *(f"{name} is not used any more" for name in theirs if name not in ours),
    ]
