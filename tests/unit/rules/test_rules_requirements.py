"""Ranges of versions in the rules on packages, and environments that these rules do not report."""

from __future__ import annotations

from support.cases import each_case
from support.report_stack import make_machine, make_stack
from test_rules_packages import H100, findings_by_id, stack_of

from envdoctor.core.records import Distribution
from envdoctor.knowledge.releases import releases_of, required_specifier, requirements_of_release
from envdoctor.knowledge.versions import major_minor, minor_of
from envdoctor.rules.packages import torch_companion_is_for_another_torch as rule
from envdoctor.rules.requirements import agreed_range, bounded


@each_case(
    ("torch", "xformers"),
    [("2.7.1+cu128", "0.0.30+4cf69f09.d20250707"), ("2.9.0.dev20250901+cu128", "0.0.32.post1")],
)
def test_builds_for_the_installed_torch_are_not_reported(torch: str, xformers: str) -> None:
    """A build from source keeps the requirement of its release."""
    stack = stack_of(f"torch {torch}, xformers {xformers}")
    found = findings_by_id(make_machine([H100]), stack).get("PKG006")
    assert found is None or found.status == "info"


def test_llamafactory_replaces_the_method_that_trl_and_transformers_share() -> None:
    listed = "trl 0.9.6, transformers 4.49.0"
    assert "HF016" in findings_by_id(make_machine([H100]), stack_of(listed))
    assert "HF016" not in findings_by_id(make_machine([H100]), stack_of(f"{listed}, llamafactory 0.9.2"))


def test_a_release_that_the_table_lacks_has_the_requirements_of_its_neighbours() -> None:
    """The index does not list transformers 4.46.0, which was withdrawn; two sets of requirements decide none."""
    assert "4.46.0" not in releases_of("transformers")
    assert requirements_of_release("transformers", "4.46.0") == requirements_of_release("transformers", "4.46.3")
    assert requirements_of_release("transformers", "4.999.0") == ()
    assert requirements_of_release("transformers", "4.46.0.dev0") == ()


@each_case(
    ("version", "required"), [("2.2.0", True), ("2.2.0+cu121", True), ("2.2.0+cu118", False), ("2.2.0+cpu", False)]
)
def test_a_build_of_torch_requires_the_packages_of_its_cuda(version: str, required: bool) -> None:
    lines = requirements_of_release("torch", version)
    assert any(line.startswith("nvidia-nccl-cu12") for line in lines) is required
    assert any(line.startswith("triton") for line in lines)


def test_specifiers_are_short_and_have_both_bounds() -> None:
    """A trailing comma is valid in METADATA, but not in a command."""
    names = (("a", "numpy (>=1.20,)"), ("b", "numpy>=1.26,<3,!=2.0.1"), ("c", "numpy<2.3,"))
    users = tuple(Distribution(name=name, version="1", requires=(line,)) for name, line in names)
    stack = make_stack(packages={"numpy": "2.4.0"}, distributions=users)
    assert agreed_range(stack, "numpy") == (">=1.26,!=2.0.1,<2.3", True)
    assert bounded(">=0.34.0") == ">=0.34.0,<0.35"
    assert bounded("accelerate>=1.4.0") == "accelerate>=1.4.0,<2"
    assert bounded("einops") == "einops"
    assert bounded("==1.4.0") == "==1.4.0"


def test_builds_of_torch_as_evidence() -> None:
    finding = findings_by_id(make_machine([H100]), stack_of("torch 2.11.0+cu126, vllm 0.21.0"))["VLLM003"]
    assert [each.value for each in finding.evidence if each.fact == "torch"] == ["version 2.11.0+cu126, cuda 12.6"]


@each_case(
    ("listed", "pair"),
    [
        ("torch 2.7.0+cu128, torchaudio 2.11.0+cu128", "torchaudio 2.11.0 requires torch>=2.11"),
        ("torch 2.9.1, torchcodec 0.7.0", "torchcodec 0.7.0 requires torch==2.8.*"),
        ("torch 2.10.0, torchcodec 0.12.0", "torchcodec 0.12.0 requires torch>=2.11"),
        ("torch 2.0.1, torchvision 0.14.1", "torchvision 0.14.1 requires torch==1.13.1"),
        ("torch 2.0.1, torchaudio 0.13.1", "torchaudio 0.13.1 requires torch==1.13.1"),
    ],
)
def test_releases_that_do_not_name_their_torch(listed: str, pair: str) -> None:
    """torchaudio 2.11 and torchcodec declare no torch: their documentation has the pairs."""
    finding = findings_by_id(make_machine([H100]), stack_of(listed))["PKG002"]
    assert finding.status in ("error", "warning")
    assert pair.split(" requires ")[1] in finding.message


@each_case(
    "listed",
    [
        "torch 2.11.0, torchaudio 2.11.0, torchvision 0.26.0",
        "torch 2.13.0+cu130, torchaudio 2.11.0+cu130",
        "torch 2.12.0, torchcodec 0.13.0",
        "torch 2.8.0, torchcodec 0.7.0",
        "torch 2.8.0a0+5228986c39.nv25.06, torchvision 0.22.0a0+95f10a4e, triton 3.3.0+git96316ce52",
        "torch 2.8.0+gitd06a406, torchvision 0.23.0, triton 3.2.0+gite5be006a",
        "torch 2.9.1, torchaudio 2.9.0a0+eaa9e4e, torchao 0.12.0+git1234567, bitsandbytes 0.41.3.dev0",
    ],
)
def test_pairs_that_fit_and_local_builds_are_not_reported(listed: str) -> None:
    """The versions of nightlies, containers and builds from source do not show what they were built for."""
    found = findings_by_id(make_machine([H100]), stack_of(listed))
    assert not {name for name, each in found.items() if each.status in ("error", "warning")}


def test_every_pair_of_releases_in_the_tables() -> None:
    """A companion is reported with the previous and the next minor release of torch, and not with its own."""
    machine, torch_minors = (
        make_machine([H100]),
        sorted({minor_of(each) for each in releases_of("torch")}, key=major_minor),
    )
    pairs = 0
    for name in ("torchvision", "torchaudio"):
        for release in releases_of(name):
            pin = required_specifier(name, release, "torch")
            if not pin.startswith("==") or "+" in pin:
                continue
            own = pin.removeprefix("==")
            near = [minor for minor in torch_minors if minor != minor_of(own) and abs(distance(minor, own)) < 2]
            found = {
                torch: [each.status for each in rule(machine, stack_of(f"torch {torch}, {name} {release}"))]
                for torch in (own, *(f"{minor}.0" for minor in near))
            }
            assert found == {own: [], **{f"{minor}.0": ["error"] for minor in near}}, (name, release)
            pairs += len(found)
    assert pairs > 100


def distance(minor: str, release: str) -> int:
    """The number of minor releases between two releases of torch 2."""
    one, other = major_minor(minor), major_minor(release)
    return 99 if one[0] != other[0] else one[1] - other[1]


def test_release_next_to_a_nightly_torch_is_a_note_with_the_command_that_decides() -> None:
    finding = findings_by_id(make_machine([H100]), stack_of("torch 2.10.0.dev20251024+cu130, torchvision 0.24.0"))[
        "PKG002"
    ]
    assert finding.status == "info"
    assert "import torchvision" in str(finding.remedies)
