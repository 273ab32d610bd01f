"""How to cite the project is what the package says of itself."""

import tomllib

import yaml

from tests.house import ROOT
from x402sim.version import AUTHORS, VERSION, YEAR, citation


def test_the_citation_has_the_version_the_licence_and_the_authors_of_the_package() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cited["cff-version"] == "1.2.0"
    assert (cited["type"], cited["title"], cited["version"]) == ("software", "x402sim", VERSION)
    assert (cited["abstract"], cited["license"]) == (package["description"], package["license"])
    assert cited["authors"] == package["authors"] == [{"name": AUTHORS}]
    assert cited["date-released"].year == YEAR


def test_the_text_that_cites_has_what_the_file_has_and_of_other_versions_no_year() -> None:
    assert citation() == f"{AUTHORS} ({YEAR}): x402sim, version {VERSION} [software]"
    assert citation("0.0.9") == f"{AUTHORS}: x402sim, version 0.0.9 [software]"
    assert citation(None) == f"{AUTHORS}: x402sim [software]"
