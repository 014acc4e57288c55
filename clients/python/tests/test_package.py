"""The package that is published."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from conftest import ROOT

import longshore

PACKAGE = ROOT / "clients" / "python"


def test_wheel_has_types_licences_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=PACKAGE, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [name for name in names if name.endswith("METADATA")]
        fields = HeaderParser().parsestr(archive.read(metadata).decode())
        [entry_points] = [archive.read(name).decode() for name in names if name.endswith("entry_points.txt")]
    assert "longshore/py.typed" in names
    assert {name.split("/")[0] for name in names} == {"longshore", f"longshore-{longshore.__version__}.dist-info"}
    assert sorted(Path(name).name for name in names if "licenses" in name) == ["LICENSE-APACHE", "LICENSE-MIT"]
    assert (fields["Name"], fields["Version"]) == ("longshore", longshore.__version__)
    assert (fields["Requires-Python"], fields["License-Expression"]) == (">=3.10", "MIT OR Apache-2.0")
    assert not [one for one in fields.get_all("Requires-Dist", []) if "extra ==" not in one]
    assert fields["Keywords"]
    assert "longshore.pytest_plugin" in entry_points


def test_version_is_the_same_everywhere() -> None:
    assert f'version = "{longshore.__version__}"' in (PACKAGE / "pyproject.toml").read_text()
    assert f"longshore-python/{longshore.__version__}" in (PACKAGE / "src/longshore/http.py").read_text()
