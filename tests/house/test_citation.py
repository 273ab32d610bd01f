"""How to cite the project is what the package says of itself."""

import tomllib

import yaml

from tests.house import ROOT
from x402sim.version import VERSION


def test_the_citation_has_the_version_the_licence_and_the_authors_of_the_package() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cited["cff-version"] == "1.2.0"
    assert (cited["type"], cited["title"], cited["version"]) == ("software", "x402sim", VERSION)
    assert (cited["abstract"], cited["license"]) == (package["description"], package["license"])
    assert cited["authors"] == package["authors"]
