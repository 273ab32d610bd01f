"""Execute notebooks in a fresh kernel and save them with their outputs.

Without files: all of them, some at a time. Every execution saves the same bytes, apart from images:
no timestamps, no versions, nothing about the machine.

`--full` plays the notebooks that have a full size at that size, on all cores, and saves them in
`notebooks/out` with the results of their sweeps: an execution that was interrupted goes on there.
"""

import argparse
import os
import re
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = Path(__file__).parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_NOTHING = {"text/plain": ""}
_STYLE = re.compile(r"<style scoped>.*?</style>\n", re.DOTALL)
"""The style that pandas repeats above each table; Jupyter and GitHub have styles of their own."""
QUIET = ["--log-level=ERROR"]
LONGEST_CELL_S = 300
FULL = "X402SIM_FULL"
"""The environment variable that notebooks look at: it is there for full sizes."""


def notebooks() -> list[Path]:
    """Return all notebooks, in order."""
    return sorted(FOLDER.glob("[0-9]*.ipynb"))


def read(file: Path) -> "NotebookNode":
    """Return the saved notebook."""
    import nbformat  # takes two seconds, as it compiles grammars

    return nbformat.read(file, as_version=4)


def executed(saved: "NotebookNode") -> "NotebookNode":
    """Return a copy of a notebook, executed by a kernel of this Python.

    Raises `nbclient.exceptions.CellExecutionError` if a cell raises.
    """
    import nbformat
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    fresh = deepcopy(saved)
    this_python = KernelSpecManager(kernel_dirs=[], ensure_native_kernel=True)
    client = NotebookClient(
        fresh,
        km=AsyncKernelManager(kernel_name="python3", kernel_spec_manager=this_python),
        extra_arguments=QUIET,
        timeout=None if FULL in os.environ else LONGEST_CELL_S,
        record_timing=False,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute(cleanup_kc=True)
    for cell in fresh.cells:  # what showed how far a slow run was is empty in the end
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if each.get("data") != _NOTHING]
            for data in (each.get("data", {}) for each in cell.outputs):
                if "text/html" in data:
                    data["text/html"] = _STYLE.sub("", data["text/html"])
    fresh.metadata = nbformat.from_dict(METADATA)
    return fresh


def main() -> None:
    """Execute notebooks and save them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="by default all")
    parser.add_argument("--full", action="store_true", help="at full size, into notebooks/out")
    given = parser.parse_args()
    if missing := [str(file) for file in given.files if not file.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    import nbformat

    folder, files = FOLDER, given.files
    if given.full:
        os.environ[FULL] = "1"
        folder = FOLDER / "out"
        folder.mkdir(exist_ok=True)
        files = files or [file for file in notebooks() if FULL in file.read_text()]

    def save(file: Path) -> None:
        nbformat.write(executed(read(file)), folder / file.name)

    with ThreadPoolExecutor(1 if given.full else os.cpu_count()) as kernels:
        list(kernels.map(save, files or notebooks()))  # raises what the first of them raised


if __name__ == "__main__":
    main()
