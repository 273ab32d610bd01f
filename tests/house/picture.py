"""The README's plot: `python -m tests.house.picture` draws it anew if its journal has changed.

It carries the hash of the journal it was drawn from, so that a test sees when it is old.
"""

import hashlib
import io

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.house import ROOT
from x402sim import Run
from x402sim.report import plots
from x402sim.report.plots.figure import png

JOURNAL = ROOT / "tests" / "golden" / "replay.ndjson"
PICTURE = ROOT / "scenarios" / "replay.png"


def journal_hash() -> str:
    return hashlib.sha256(JOURNAL.read_bytes()).hexdigest()


def drawn_from() -> str:
    with Image.open(PICTURE) as image:
        return str(image.info["journal"])


def draw() -> None:
    image = Image.open(io.BytesIO(png(plots.sequence(Run.load(JOURNAL)).figure, dpi=130)))
    about = PngInfo()
    about.add_text("journal", journal_hash())
    image.save(PICTURE, pnginfo=about, optimize=True)


if __name__ == "__main__" and drawn_from() != journal_hash():
    draw()
