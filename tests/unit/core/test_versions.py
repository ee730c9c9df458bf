"""Versions, specifiers and requirement lines, compared with `packaging`."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet
from support.cases import each_case

from envdoctor.knowledge.releases import parse_requirement
from envdoctor.knowledge.versions import is_prerelease, satisfies

VERSIONS = [
    "0.9.2", "0.10.0", "0.10.1.1", "2.8", "2.8.0", "2.8.0+cu128", "2.8.1", "2.9.0", "2.1.0a0+32f93b1",
    "2.10.0.dev20251024+cu130", "1.0rc1", "1.0", "1.0.post1", "0.0.32.post1", "3", "3.0.0", "2.0.0b2", "2.8.0rc1",
    "2.8.0.post1", "2.8.0.dev1", "4.57.1", "5.0.0rc1", "5", "1.26.4", "2024.1",
]  # fmt: skip


def test_versions_compare_like_packaging() -> None:
    compared = 0
    for bound in VERSIONS:
        for operator in ("==", "!=", "<=", ">=", "<", ">", "~="):
            if ("+" in bound and operator not in ("==", "!=")) or (operator == "~=" and "." not in bound):
                continue
            specifier = SpecifierSet(operator + bound)
            for version in VERSIONS:
                assert satisfies(version, operator + bound) == specifier.contains(version, prereleases=True), (
                    version, operator, bound,
                )  # fmt: skip
                compared += 1
    assert compared > 3000
    assert satisfies("2.8.1", "==2.8.*,!=2.8.0")
    assert satisfies("1!2.0", ">=1!1.0") is None or satisfies("1!2.0", ">=1!1.0")
    assert satisfies("a conda thing", ">=1.0") is None
    assert satisfies("1.0", "what?") is None
    for invalid in (">=3.8.*", "<3.8.*", "==3.8rc1.*", "~=3"):
        assert satisfies("3.8", invalid) is None, invalid
    assert satisfies("9" * 5000, ">=1") is None
    assert satisfies("1.0", ">=" + "9" * 5000) is None
    assert is_prerelease("2.1.0a0+32f93b1")
    assert not is_prerelease("0.0.32.post1")


@each_case(
    ("line", "expected"),
    [
        ("torch (==2.8.0)", ("torch", "==2.8.0")),
        ("Flashinfer_Python==0.5.3", ("flashinfer-python", "==0.5.3")),
        ("ray[cgraph]>=2.48.0,<3", ("ray", ">=2.48.0,<3")),
        ("numpy", ("numpy", "")),
        ("xformers==0.0.32.post1 ; platform_machine == 'x86_64'", ("xformers", "==0.0.32.post1")),
        ("vllm<0.12; extra == 'vllm'", None),
        ("torch @ https://example.invalid/torch.whl", None),
        ("", None),
        (">=1", None),
    ],
)
def test_requirement_lines(line: str, expected: tuple[str, str] | None) -> None:
    found = parse_requirement(line)
    assert (found and (found.name, found.specifier)) == expected
