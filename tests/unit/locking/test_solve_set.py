"""Corrected sets of guides, solved by real uv from an index of the built-in tables on loopback."""

from __future__ import annotations

import time
from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.cases import each_case
from support.fixed_index import FixedIndex
from support.guide_cases import ARM, INDEX, sh
from support.local_packages import index_without_wheels

from envdoctor.commands.audit_fix import requirements_text, stated_target
from envdoctor.commands.audit_solve import solve_installed, solve_with
from envdoctor.download.sources import Sources
from envdoctor.locking.solve_set import solve_set
from envdoctor.locking.solved_set import SetProblems, SolvedSet, accept
from envdoctor.locking.source_releases import needs_newer_python
from envdoctor.manifests import CorrectedSet, audit_guide
from envdoctor.manifests.stated_cuda import StatedCuda

TODAY = date(2026, 11, 21)
UNREACHABLE = "http://127.0.0.1:9"


def set_of(text: str) -> CorrectedSet:
    return audit_guide(text, name="guide.md", today=TODAY).main


NIGHTLY = sh(
    f"pip install --pre torch torchvision --index-url {INDEX}nightly/cu128", "pip install vllm==0.10.2", title=ARM
)


def test_a_set_for_aarch64_keeps_a_cuda_torch(sources: Sources) -> None:
    solved = solve_set(set_of(NIGHTLY), sources)
    assert (solved.state, solved.note) == ("solved", "")
    assert solved.target == "aarch64-manylinux_2_35, Python 3.12, CUDA 12.9"
    assert solved.options == ("--torch-backend=cu129",)
    expected = {"torch==2.8.0", "torchvision==0.23.0", "vllm==0.10.2", "transformers==4.57.6"}
    assert set(solved.corrected.requirements) == expected


def test_without_the_pytorch_index_the_output_states_what_was_not_verified(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", UNREACHABLE)
    solved = solve_set(set_of(NIGHTLY), sources)
    assert solved.state == "solved"
    assert solved.note == "the PyTorch index was not reachable; its wheels for cu129 are those of the built-in table"
    other = solve_set(set_of(sh("uv pip install torch==2.7.1 --torch-backend=cu118")), sources)
    assert other.state == "solved"
    assert other.note == (
        "the PyTorch index was not reachable: solved with PyPI's build of torch, not verified with cu118"
    )


def test_without_the_pytorch_index_a_release_that_has_no_build_for_the_driver_is_not_chosen(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", UNREACHABLE)
    proposed = set_of(sh("pip install torch", title="# H100 with driver 570.172.08"))
    assert (proposed.requirements, proposed.cuda) == (("torch==2.14.1",), "12.6")
    missing = replace(proposed, requirements=("torch==2.14.9",))  # an index without the wheel of the proposed release
    for corrected in (proposed, missing):
        solved = solve_set(corrected, sources)
        assert (solved.state, solved.options) == ("solved", ("--torch-backend=cu126",))
        assert solved.corrected.requirements == ("torch==2.14.1",)  # 2.15.0 has builds for CUDA 13 only


def test_a_stated_cuda_version_comes_first(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", UNREACHABLE)
    stated = replace(set_of(sh("pip install torch")), stated_cuda=StatedCuda("12.1", "README.md, line 3"))
    solved = solve_set(stated, sources)
    assert solved.target.endswith(", CUDA 12.1")
    assert solved.corrected.requirements == ("torch==2.5.1",)  # older than what a set has without a reason
    assert stated_target(solved).endswith(", CUDA 12.1 (README.md, line 3)")
    newer = solve_set(replace(stated, own=("torch>=2.9",), wanted=("torch>=2.9",)), sources)
    assert newer.state == "solved"
    assert newer.target.endswith(f", CUDA {stated.cuda}")  # torch 2.9 has no build for CUDA 12.1


def test_an_unreachable_source_solves_nothing() -> None:
    solved = solve_set(set_of(sh("pip install trl==0.23.1")), Sources(index=f"{UNREACHABLE}/simple"))
    assert solved.state == "not-verified"
    assert solved.note.startswith("not solved: ")


def test_a_pin_that_another_one_excludes_gives_way_with_uvs_reason(sources: Sources) -> None:
    corrected = CorrectedSet(
        architecture="x86_64", glibc="2.35", requirements=("vllm==0.10.2", "torch==2.9.1"),
        wanted=("vllm==0.10.2", "torch==2.9.1"),
    )  # fmt: skip
    solved = solve_set(corrected, sources)
    assert solved.state == "solved"
    assert solved.corrected.requirements == ("vllm==0.10.2", "torch==2.8.0", "transformers==4.57.6")
    (dropped,) = solved.corrected.dropped
    assert dropped.name == "torch==2.9.1"
    assert "vllm==0.10.2 depends on torch==2.8.0" in dropped.reason
    unknown = CorrectedSet(
        architecture="x86_64", glibc="2.35", requirements=("vllm==0.10.2", "xunknown"),
        wanted=("vllm==0.10.2", "xunknown"),
    )  # fmt: skip
    conflict = solve_set(unknown, sources, gives_way=False)
    assert (conflict.state, conflict.note) == (
        "conflict", "xunknown was not found in the package registry; the step requires xunknown",
    )  # fmt: skip


def test_a_partial_mirror_is_no_reason_of_a_conflict(sources: Sources, tmp_path: Path) -> None:
    mirror = index_without_wheels(tmp_path, ("numpy", "2.2.6"))
    corrected = CorrectedSet(
        architecture="x86_64", glibc="2.35", python="3.12", requirements=("numpy==2.2.6", "xunknown==1.0"),
        wanted=("numpy==2.2.6", "xunknown==1.0"),
    )  # fmt: skip
    several = replace(sources, extra_indexes=(mirror,), index_strategy="unsafe-best-match")
    solved = solve_set(corrected, several, gives_way=False)
    assert (solved.state, solved.note) == (
        "conflict", "xunknown was not found in the package registry; the step requires xunknown==1.0",
    )  # fmt: skip


def test_a_version_that_the_guide_does_not_pin_may_change(sources: Sources) -> None:
    corrected = CorrectedSet(
        architecture="x86_64", glibc="2.35", python="3.12",
        requirements=("transformers==4.57.1", "numpy==2.5.5", "numba==0.61.2"),
        wanted=("transformers==4.57.1", "numpy", "numba==0.61.2"),
    )  # fmt: skip
    solved = solve_set(corrected, sources)
    assert solved.state == "solved"
    assert "numpy==2.2.6" in solved.corrected.requirements


def test_a_range_of_the_guide_that_its_pins_contradict_is_dropped_with_the_reason(sources: Sources) -> None:
    corrected = CorrectedSet(
        architecture="x86_64", glibc="2.35", python="3.12", requirements=("numpy==2.5.5", "numba==0.61.2"),
        wanted=("numpy>=2.4", "numba==0.61.2"),
    )  # fmt: skip
    solved = solve_set(corrected, sources)
    assert solved.state == "solved"
    assert set(solved.corrected.requirements) == {"numpy==2.2.6", "numba==0.61.2"}
    (dropped,) = solved.corrected.dropped
    assert dropped.name == "numpy>=2.4"
    assert "numba==0.61.2 depends on numpy" in dropped.reason


def image_set(*commands: str) -> CorrectedSet:
    lines = "\n".join(f"RUN {command}" for command in commands)
    return set_of(f"# H100\n```dockerfile\nFROM nvcr.io/nvidia/pytorch:25.08-py3\n{lines}\n```\n")


def solved_names(solved: SolvedSet) -> set[str]:
    return {text.partition("==")[0] for text in solved.corrected.requirements}


def test_a_set_for_an_image_leaves_its_torch(sources: Sources) -> None:
    solved = solve_set(image_set("pip install trl"), sources)
    assert solved.state == "solved"
    assert solved_names(solved) == {"trl"}
    assert solved.corrected.contained == {"torch": "2.8.0a0+34c6371d24.nv25.08"}


def test_a_core_package_that_contradicts_an_image_is_a_conflict_with_the_reason(sources: Sources) -> None:
    solved = solve_set(image_set("pip install trl==0.23.1 'transformers<5'", "pip install vllm==0.10.2"), sources)
    assert solved.state == "conflict"
    assert "vllm==0.10.2 depends on torch==2.8.0" in solved.note, solved.note


def test_a_package_without_a_wheel_is_solved_with_its_known_requirements(sources: Sources) -> None:
    solved = solve_set(set_of(sh("pip install deepspeed==0.15.4 flash-attn==2.8.3 torch==2.5.1 pynvml")), sources)
    assert solved.state == "solved"
    assert solved_names(solved) == {"torch", "nvidia-ml-py", "setuptools"}
    assert [each.name for each in solved.corrected.dropped] == ["flash-attn", "pynvml", "deepspeed"]
    assert "`uv pip install --no-build-isolation deepspeed==0.15.4`" in solved.corrected.dropped[-1].reason


def test_the_profile_of_a_set_has_the_solved_versions(sources: Sources) -> None:
    solved = solve_set(set_of(sh("pip install torch==2.5.1 pynvml")), sources)
    for text in solved.corrected.requirements:
        assert f'spec = "{text}"' in solved.corrected.profile_toml


def test_a_set_that_holds_today_is_kept_and_another_one_is_solved_from_the_requirements(sources: Sources) -> None:
    own = replace(
        set_of(sh("pip install numpy transformers==4.57.6")), own=("numpy", "transformers==4.57.6"),
        installed=("numpy==2.2.6", "transformers==4.57.6"),
    )  # fmt: skip

    def refuse_numpy_2(solved: SolvedSet) -> SetProblems:
        is_new = solved.versions["numpy"].startswith("2.")
        return SetProblems(("built for NumPy 1",), ("numpy<2",)) if is_new else SetProblems()

    end = time.monotonic() + 60
    assert solve_installed(own, sources, accept, end).corrected.requirements == own.installed
    solved = solve_installed(own, sources, refuse_numpy_2, end)
    assert solved.state == "solved"
    assert "numpy==1.26.4" in solved.corrected.requirements
    assert not solved.corrected.dropped


def test_a_set_has_the_packages_that_its_requirements_bring_today(sources: Sources) -> None:
    past = replace(
        corrected := set_of(sh("pip install vllm==0.10.2")), exclude_newer="2026-03-31",
        own=corrected.requirements, wanted=corrected.requirements,
    )  # fmt: skip
    checked: list[SolvedSet] = []

    def check(solved: SolvedSet) -> SetProblems:
        checked.append(solved)
        return SetProblems()

    solved = solve_set(past, sources, check)
    assert solved.state == "solved"
    assert checked[0].versions["torch"].partition("+")[0] == "2.8.0"
    assert "vllm" in checked[0].required_by["torch"]
    # The requirements file has the dependencies of that day, without those that a build of torch requires itself.
    assert solved.day == "2026-03-31"
    pinned = {text.partition("==")[0] for text in solved.dependencies}
    assert "tokenizers" in pinned
    assert not {"vllm", "torch"} & pinned
    assert not [name for name in pinned if name.startswith("nvidia-")]
    assert "\n# dependencies, of 2026-03-31 as well\n" in requirements_text(solved)


def test_a_package_that_a_release_imports_and_does_not_require_is_added(sources: Sources) -> None:
    def check(solved: SolvedSet) -> SetProblems:
        is_there = "einops" in solved.versions
        return SetProblems() if is_there else SetProblems(("transformers imports einops",), ("einops",))

    solved = solve_set(set_of(sh("pip install transformers==4.57.6")), sources, check)
    assert solved.state == "solved"
    assert solved_names(solved) == {"transformers", "einops"}


def test_a_lower_bound_without_a_solution_does_not_hinder_the_other_limits(sources: Sources) -> None:
    def check(solved: SolvedSet) -> SetProblems:
        is_new = solved.versions["numpy"].startswith("2.")
        old = "tokenizers is old"  # transformers excludes a newer one
        pins = ("tokenizers>=9", *(["numpy<2"] if is_new else []))
        return SetProblems((), pins, (old, *(["built for NumPy 1"] if is_new else [])))

    solved = solve_set(set_of(sh("pip install numpy transformers==4.57.6")), sources, check)
    assert solved.versions["numpy"] == "1.26.4"
    assert solved.note.endswith("tokenizers is old")


def test_a_missing_package_that_excludes_the_pins_is_left_out(sources: Sources) -> None:
    corrected = set_of(sh("pip install torch==2.7.1"))
    solved = solve_with(["vllm==0.10.2"], corrected, lambda each: solve_set(each, sources))
    assert solved.state == "solved"
    assert solved_names(solved) == {"torch"}
    (left,) = solved.corrected.dropped
    assert left.name == "vllm==0.10.2"
    assert left.reason.startswith("it does not fit the other requirements: ")
    added = solve_with(["einops"], corrected, lambda each: solve_set(each, sources))
    assert solved_names(added) == {"torch", "einops"}


@each_case(
    "name, version, python, expected",
    [
        ("scipy", "1.18.1", "3.11", True),  # requires Python 3.12
        ("scipy", "1.18.1", "3.12", False),
        ("numpy", "1.26.4", "3.13", False),  # an installer builds it
        ("rouge-score", "0.1.2", "3.11", False),
    ],
)
def test_a_release_for_newer_pythons_is_not_built(name: str, version: str, python: str, expected: bool) -> None:
    """uv states that the wheels of such a release are not usable, as for one that has only a source archive."""
    assert needs_newer_python(name, version, python) is expected


def test_what_is_built_after_a_set_limits_it(sources: Sources) -> None:
    """Deepspeed 0.8.3 has no wheel. Its archive requires pydantic, and its import fails with pydantic 2."""
    index = FixedIndex()
    index.requirements["deepspeed 0.8.3"] = ["pydantic", 'triton; extra == "x"']
    pins = ("deepspeed==0.8.3", "numpy==1.26.4")
    corrected = CorrectedSet(architecture="x86_64", glibc="2.35", python="3.10", requirements=pins, wanted=pins)
    solved = solve_set(corrected, sources, index=index)
    assert (solved.state, solved.note) == ("solved", "")
    (limited,) = [text for text in solved.corrected.requirements if text.startswith("pydantic==")]
    assert limited.startswith("pydantic==1.")
    assert solved.versions["deepspeed"] == "0.8.3"


def test_the_source_archive_of_a_set_is_of_its_day(sources: Sources) -> None:
    """deepspeed has no wheel: a placeholder takes the place of its newest release of that day, not of today."""
    pins = ("deepspeed", "numpy==1.26.4")
    past = CorrectedSet(
        architecture="x86_64", glibc="2.35", python="3.10", requirements=pins, own=pins, wanted=pins,
        exclude_newer="2024-06-16", oldest_day="2024-02-05",
    )  # fmt: skip
    solved = solve_set(past, sources, index=FixedIndex())
    assert (solved.state, solved.day) == ("solved", "2024-06-16")
    assert ("deepspeed", "0.14.3") in {tuple(pin.split("==")) for pin in solved.corrected.built_later}
