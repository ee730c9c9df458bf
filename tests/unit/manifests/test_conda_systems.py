"""Exports of conda environments from another system."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.step import NoSolver

OTHER = {
    "cffi=1.15.1=py39h2bbff1b_3": "Windows",
    "vs2015_runtime=14.27.29016": "Windows",
    "certifi=2021.5.30=py39hecd8cb5_0": "macOS",
    "absl-py=1.4.0=py39hca03da5_0": "macOS on Apple silicon",
}
LINUX = ("certifi=2022.12.7=py39h06a4308_0", "idna=3.4=pyhd3eb1b0_0", "python=3.9", "vcrpy=4.1", "blas=1.0=mkl")


@each_case("package", [*OTHER])
def test_a_package_for_another_system(package: str, tmp_path: Path) -> None:
    (found,) = _audit(tmp_path, "environment.yml", LINUX[0], package)
    assert (found.status, f"`{package}` is for {OTHER[package]}:" in found.message) == ("error", True)
    assert _audit(tmp_path, "environment_win.yml", package) == []
    assert _audit(tmp_path, "environment.yml", package, text="On Windows:\n") == []


def test_packages_for_linux_or_for_each_system(tmp_path: Path) -> None:
    assert _audit(tmp_path, "environment.yml", *LINUX) == []


def _audit(folder: Path, name: str, *packages: str, text: str = "") -> list[Finding]:
    rows = "".join(f"  - {each}\n" for each in ("pytorch=2.1", *packages))
    (folder / name).write_text(f"name: a\ndependencies:\n{rows}")
    guide = f"# A\n{text}```bash\nconda env create -f {name}\n```\n"
    (folder / "README.md").write_text(guide)
    found = audit_text(guide, str(folder / "README.md"), None, NoSolver()).result.findings
    return [each for each in found if each.id == "RUN275"]
