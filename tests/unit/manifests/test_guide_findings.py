"""Each guide rule detects its faults, on the right line and with the right cause."""

from __future__ import annotations

from datetime import date

from support.cases import each_case
from support.guide_cases import ARM, FAULTS, INDEX, Fault, sh
from support.recorded_results import assert_as_recorded
from support.remedies import commands_of

from envdoctor.commands import explain
from envdoctor.core.records import Finding
from envdoctor.knowledge.causes import causes
from envdoctor.machine.recorded import read_recorded
from envdoctor.manifests import GUIDE_RULES, audit_guide
from envdoctor.manifests.guide import parse_guide
from envdoctor.manifests.records import build_machine
from envdoctor.manifests.selected_python import interpret_guide
from envdoctor.resolution.requirement import parse_wheel_name

TODAY = date(2026, 11, 21)


@each_case("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_detected(fault: Fault) -> None:
    findings = audit_guide(fault.text, name="guide.md", today=TODAY).findings
    detected = [finding for finding in findings if finding.id == fault.id]
    assert detected, [(finding.line, finding.id, finding.message) for finding in findings]
    assert (fault.line, fault.cause) in [(finding.line, finding.cause) for finding in detected], detected
    for finding in detected:
        assert finding.status in GUIDE_RULES[fault.id].severities
        assert finding.message
        assert finding.fix
        assert finding.evidence
    assert any(fault.expected_text in finding.message + finding.fix for finding in detected), detected
    assert not [finding for finding in findings if finding.status == "crashed"]


# Old tables, a package index, files or workflows: test_index_checks.py, test_resolved_guides.py,
# test_input_features.py, test_services.py, test_wheel_contents.py, test_damaged_manifests.py,
# test_needs_of_builds.py, test_batch_jobs.py, test_absent_parts.py, test_standard_names.py,
# test_commands_without_effect.py, test_python_ranges.py, test_program_imports.py, test_started_scripts.py,
# test_absent_files.py, test_absent_configs.py, test_entered_directories.py, test_program_calls.py,
# test_called_needs.py, test_absent_inputs.py, test_script_paths.py, test_hydra_overrides.py, test_stated_variables.py
# test_absent_modules.py, test_unsearched_modules.py, test_absent_own_names.py, test_typed_commands.py,
# test_unentered_clones.py, test_absent_tool_files.py, test_copied_programs.py, test_wheel_pages.py,
# test_read_files.py, test_conda_names.py, test_absent_links.py, test_cxx_standards.py, test_conda_builds.py,
# test_script_directories.py, test_compiled_gpus.py, test_needed_pythons.py, test_namespace_attributes.py
NEED_MORE = {
    *(f"RUN{number}" for number in (*range(215, 220), *range(241, 252))),
    "RUN008", "RUN015", "RUN016", "RUN017", "RUN048", "RUN078", "RUN079", "RUN080", "RUN091", "RUN100", "RUN101",
    "RUN109", "RUN112", "RUN118", "RUN120", "RUN121", "RUN122", "RUN123", "RUN124", "RUN130", "RUN131", "RUN132",
    "RUN133", "RUN134", "RUN135", "RUN136", *(f"RUN{number}" for number in range(150, 179)),
    "RUN181", "RUN182", "RUN185", "RUN186", "RUN187", "RUN188", "RUN189", "RUN195", "RUN196", "RUN205", "RUN215",
    "RUN200", "RUN201", "RUN207", "RUN208", "RUN216",
    *(f"RUN{number}" for number in (220, 221, 222, 223, 224, 225, 230, 231, 232, 233, 234, 237, 238, 239)),
    *(f"RUN{number}" for number in (*range(255, 261), *range(264, 270), 275, 279, 285, 290, *range(292, 299))),
}  # fmt: skip


def test_each_rule_has_a_fault_and_a_known_cause() -> None:
    assert {fault.id for fault in FAULTS} == set(GUIDE_RULES) - NEED_MORE
    assert {rule.cause for rule in GUIDE_RULES.values()} | {fault.cause for fault in FAULTS} <= set(causes())
    assert all(rule.check.__doc__ for rule in GUIDE_RULES.values())


@each_case("identifier", [*GUIDE_RULES, "RUN090"])
def test_each_rule_is_explained(identifier: str) -> None:
    documentation = explain.run(explain.ExplainRequest(text=identifier)).data
    assert (documentation.id, documentation.cause in causes()) == (identifier, True)
    assert documentation.title
    assert documentation.text


def test_audits_are_as_recorded() -> None:
    found = {}
    for fault in FAULTS:
        audit = audit_guide(fault.text, name="guide.md", today=TODAY)
        steps = [[step.line, step.command] for step in audit.steps]
        found[fault.name] = [steps, audit.requirements, [each for each in audit.findings if each.id == fault.id]]
    assert_as_recorded("guide-faults", found)


def test_a_conflict_between_two_packages_without_a_requirement_of_the_guide() -> None:
    """torchvision 0.22.0 requires torch 2.7.0, and torchaudio 2.8.0 requires torch 2.8.0; torch is not named."""
    audit = audit_guide("```bash\nuv pip install torchvision==0.22.0 torchaudio==2.8.0\n```\n", name="guide.md")
    conflict = next(finding for finding in audit.findings if finding.id == "RUN002")
    assert "torchvision 0.22.0 requires torch==2.7.0 and torchaudio 2.8.0 requires torch==2.8.0" in conflict.message
    assert (conflict.line, conflict.cause) == (2, "torch-companion-mismatch")
    assert "Use torch==2.7.0, which torchvision requires" in conflict.fix


def test_the_command_for_a_conflict_keeps_the_build_of_the_step() -> None:
    """xformers 0.0.20 requires torch 2.0.1: the pins of torch 2.0.0 get no command of their own."""
    found = findings_of(sh("pip install torch==2.0.0+cu118 torchvision==0.15.1+cu118 xformers==0.0.20"))
    ((command,),) = [remedy.commands for remedy in found["RUN002"].remedies]
    assert command == "uv pip install torch==2.0.1 torchvision==0.15.2 --torch-backend=cu118"
    assert found["RUN014"].fix == "Use the PyTorch index: --torch-backend=cu118."
    assert found["RUN014"].remedies == ()


def test_the_command_for_a_conflict_has_the_companions_of_its_torch() -> None:
    """The newest torchaudio requires no torch: without a release, uv installs it next to torch 2.4."""
    found = findings_of(sh("pip install torch==2.5.1 torchaudio==2.4.0 torchvision==0.19.0"))
    ((command,),) = [remedy.commands for remedy in found["RUN002"].remedies]
    assert command == "uv pip install torch==2.4.0 torchaudio==2.4.0 torchvision==0.19.0"


def test_the_machine_of_a_guide_has_its_architecture() -> None:
    guide = parse_guide("```bash\npip install torch==2.8.0\n```\n", "guide.md")
    machine = build_machine(interpret_guide(guide, read_recorded("gh200-480gb"), "2026-11-23"))
    assert machine.system.architecture.value == "aarch64"
    assert machine.system.wsl.state == "absent"


@each_case(
    ("lines", "expected"),
    [
        (["a==1", "b>=2"], True), (["a==1"], False), (["a==1", "b"], False), (["a==1", "b==2", "c"], True),
        (["a==1", "b==2", "c", "d"], True), (["a==1", "b==2", "c", "d", "e", "f"], False),
        (["a==1", "b==2", "-r other.txt", "# comment"], True),
        (["a==1", "b==2", "CUDA_HOME=/usr/local/cuda true"], False), (["a==1", "b==2", "$ ls"], False),
        (["a==1", "b==2", "AB= c"], True), (["a==1", "b==2", "conda x"], False),
        (["a==1", "b==2", "(venv) $ ls"], False),
    ],
)  # fmt: skip
def test_a_block_of_requirements_has_versions_on_enough_lines(lines: list[str], expected: bool) -> None:
    guide = parse_guide("```text\n" + "\n".join(lines) + "\n```\n", "guide.md")
    assert bool(interpret_guide(guide, None, "2026-11-23").installs) is expected


def test_conda_exchanges_the_python_of_the_active_environment() -> None:
    steps = (
        "conda create -n a python=3.12",
        "conda activate a",
        "conda install python~=3.10.12 pip",
        "pip install trl",
    )
    trace = interpret_guide(parse_guide(sh(*steps), "guide.md"), None, "2026-11-23")
    assert [(install.before.name, install.before.python) for install in trace.installs] == [("a", "3.10")]


def test_the_release_on_an_index_for_other_gpus_is_not_known() -> None:
    for index, version in (("rocm6.4", ""), ("cu128", "2.11.0")):
        guide = parse_guide(sh(f"pip install torch torchaudio --index-url {INDEX}{index}"), "guide.md")
        (state,) = interpret_guide(guide, None, "2026-11-23").final_states
        assert {state.packages[name].version for name in ("torch", "torchaudio")} == {version}


def findings_of(text: str) -> dict[str, Finding]:
    """The findings of a guide by rule, with the last one of each rule."""
    return {finding.id: finding for finding in audit_guide(text, name="guide.md", today=TODAY).findings}


NIGHTLY = f"pip install --pre torch torchvision torchaudio --index-url {INDEX}nightly/cu128"


def test_a_replaced_nightly_is_not_pinned_and_the_required_release_is_installed_for_cuda() -> None:
    found = findings_of(sh(NIGHTLY, "pip install vllm==0.10.2", title=ARM))
    replaced = found["RUN010"]
    assert "would replace torch" in replaced.message
    assert "with torch 2.8.0 (CPU build)" in replaced.message
    assert (
        replaced.fix
        == "vllm 0.10.2 requires torch==2.8.0. Install it for CUDA 12.9 in the same command, in place of line 3."
    )
    assert commands_of(replaced) == ("uv pip install vllm==0.10.2 torch==2.8.0 --torch-backend=cu129",)


@each_case(
    ("first", "place"), [("torch torchvision", "in place of line 3."), ("torch einops", "without torch in line 3.")]
)
def test_a_step_keeps_its_other_packages_where_torch_is_replaced(first: str, place: str) -> None:
    nightly = NIGHTLY.replace("torch torchvision torchaudio", first)
    assert findings_of(sh(nightly, "pip install vllm==0.10.2", title=ARM))["RUN010"].fix.endswith(place)


def test_torchvision_and_torchaudio_have_no_findings_of_their_own_where_torch_is_replaced() -> None:
    audit = audit_guide(sh(NIGHTLY, "pip install vllm==0.10.2", title=ARM), name="guide.md", today=TODAY)
    assert [finding.line for finding in audit.findings if finding.id == "RUN010"] == [4]


def test_a_nightly_is_replaced_by_the_release_that_the_other_pins_require() -> None:
    found = findings_of(sh(NIGHTLY, "pip install vllm==0.10.2 'transformers<5'", title="# H100"))
    command = "uv pip install torch=={} torchvision torchaudio --torch-backend=cu128"
    assert commands_of(found["RUN012"]) == (command.format("2.8.0"),)
    alone = findings_of(sh(NIGHTLY, title="# H100"))
    assert commands_of(alone["RUN012"]) == (command.format("2.11.0"),)
    # An open torch of an earlier step is no reason for another CUDA version than that of the nightly build.
    after = findings_of(sh("pip install 'torch>=2.0' timm", NIGHTLY, title="# H100"))
    assert commands_of(after["RUN012"]) == (command.format("2.11.0"),)


def test_the_release_for_a_nightly_is_built_for_a_cuda_version_of_the_driver() -> None:
    later = sh(f"pip install --pre torch --index-url {INDEX}nightly/cu132", title="# H100 with driver 570.172.08")
    assert commands_of(findings_of(later)["RUN012"]) == ("uv pip install torch==2.14.1 --torch-backend=cu126",)
    too_old = sh(f"pip install --pre torch --index-url {INDEX}nightly/cu132", "pip install torch==2.15.0",
                 title="# H100 with driver 570.172.08")  # fmt: skip
    finding = findings_of(too_old)["RUN012"]
    assert (finding.fix, commands_of(finding)) == ("Use a release.", ())


def test_the_torch_of_an_image_is_not_offered_for_an_older_driver() -> None:
    run = "docker run --gpus all -it nvcr.io/nvidia/pytorch:26.01-py3 bash"
    too_old = findings_of(sh(run, "pip install peft", title="# RTX 5090 with driver 570.172.08"))["RUN051"]
    assert "or use a torch for CUDA 12" in too_old.fix
    assert commands_of(too_old) == ()


def test_the_torch_of_an_image_is_not_pinned() -> None:
    run = "docker run --gpus all -it nvcr.io/nvidia/pytorch:25.08-py3 bash"
    replaced = findings_of(sh(run, "pip install vllm==0.10.2"))["RUN010"]
    assert "Use an image that contains vllm==0.10.2, or keep the image's torch" in replaced.fix
    assert commands_of(replaced) == ()
    run = run.replace("25.08", "25.02")  # without the constraints that keep its torch
    again = findings_of(sh(run, f"pip install torch --index-url {INDEX}cu129 --upgrade"))["RUN010"]
    assert again.fix == "nvcr.io/nvidia/pytorch:25.02-py3 contains torch: omit it from this step."


def test_a_wheel_with_a_refused_name_is_saved_under_a_valid_one() -> None:
    url = "https://host.example/flash_attn_3-3.0.0b1-cp39-abi3-linux_aarch64-2.7.1-12.8.whl"
    found = findings_of(sh(f"wget {url} -O fa3.whl", title=ARM))
    valid = "flash_attn_3-3.0.0b1-cp39-abi3-linux_aarch64.whl"
    assert commands_of(found["RUN030"]) == (f"wget {url} -O {valid}",)
    assert parse_wheel_name(valid)
    unknown = findings_of(sh("wget https://host.example/download -O fa3.whl"))["RUN030"]
    assert commands_of(unknown) == ()


def test_a_build_without_the_option_is_not_blamed_on_it() -> None:
    clone = "git clone https://github.com/Dao-AILab/flash-attention && cd flash-attention"
    found = findings_of(sh("python3.12 -m venv v && . v/bin/activate", clone, "python setup.py install"))["RUN041"]
    assert "--no-build-isolation" not in found.message + found.fix
    assert "by `setup.py` needs torch" in found.message


def test_findings_are_worded_for_an_environment_that_does_not_exist_yet() -> None:
    for fault in FAULTS:
        for finding in audit_guide(fault.text, name="guide.md", today=TODAY).findings:
            assert " is installed" not in finding.message + finding.fix, fault.name


def test_companions_come_from_the_index_of_torch() -> None:
    text = sh(f"uv pip install torch torchvision torchaudio --index-url {INDEX}cu121", "pip install xformers")
    found = findings_of(text)
    assert "would replace torch 2.5.1 (CUDA 12.1)" in found["RUN010"].message
    alone = sh(f"uv pip install torch torchvision torchaudio --index-url {INDEX}cu121")
    assert not findings_of(alone)


def test_a_lower_bound_newer_than_the_pins_is_kept() -> None:
    text = sh("pip install torch==2.6.0 'transformers>=4.53.1' accelerate==0.26.0")
    requirements = audit_guide(text, name="guide.md", today=TODAY).requirements
    assert [each for each in requirements if each.startswith("transformers==")] == ["transformers==4.53.1"]


def test_a_range_of_the_toolkit_of_conda_selects_no_build() -> None:
    text = sh("conda install 'pytorch>2.0' 'pytorch-cuda>=11.7' -c pytorch -c nvidia", "pip install transformers")
    assert "but 2.5.1 would be installed" in findings_of(text)["RUN003"].message


def test_a_release_whose_requirements_are_unknown_is_no_correction() -> None:
    finding = findings_of(sh("pip install transformers==4.49.0", "pip install datasets==5.2.0"))["RUN003"]
    assert "transformers==" not in str(finding.remedies)


def test_an_older_release_of_what_requires_a_dependency_is_a_correction() -> None:
    text = sh("pip install transformers==4.49.0", "pip install 'datasets>=5.1'")
    assert "datasets" not in str(findings_of(text)["RUN003"].remedies)  # each of them requires huggingface-hub 1
    text = sh("pip install transformers==4.49.0", "pip install datasets")
    assert "datasets==5.0.1" in str(findings_of(text)["RUN003"].remedies)


def test_cudatoolkit_selects_the_build_of_an_old_torch() -> None:
    assert "RUN056" not in findings_of(sh("conda install pytorch==1.7.1 cudatoolkit=11.0 -c pytorch"))
    assert "RUN056" in findings_of(sh("conda install pytorch cudatoolkit=11.3 -c pytorch"))
    both = findings_of(sh("conda install pytorch pytorch-cuda=12.1 cudatoolkit -c pytorch -c nvidia"))
    assert both["RUN056"].status == "info"


def test_the_build_of_another_project_has_requirements_of_its_own() -> None:
    clone = "git clone https://github.com/example/extension && cd extension"
    assert "RUN041" not in findings_of(
        sh("python3.12 -m venv v && . v/bin/activate", clone, "python setup.py install")
    )


@each_case(
    ("step", "fix", "commands"),
    [
        (
            "vllm==0.8.2 xgrammar==0.1.16",
            "vllm 0.8.2 requires xgrammar==0.1.16, so that the requirements cannot be installed", [],
        ),
        ("vllm==0.10.2 xgrammar==0.1.99", "Use xgrammar==0.1.23: vllm 0.10.2 requires xgrammar==0.1.23.", ["0.1.23"]),
        ("xgrammar==0.1.16", "Use xgrammar==0.1.13.", ["0.1.13"]),
        ("transformers==4.57.6 xgrammar==0.1.16", "Use xgrammar==0.1.13.", ["0.1.13"]),
        ("--no-deps vllm==0.8.2 xgrammar==0.1.16", "vllm 0.8.2 requires", []),  # as the packages of a lock
    ],
)  # fmt: skip
def test_no_release_is_proposed_that_a_pin_of_the_step_excludes(step: str, fix: str, commands: list[str]) -> None:
    findings = audit_guide(sh(f"pip install {step}"), name="guide.md", today=TODAY).findings
    (found,) = (each for each in findings if each.id == "RUN001")
    assert found.fix.startswith(fix)
    assert [line for each in found.remedies for line in each.commands] == [
        f"uv pip install xgrammar=={version}" for version in commands
    ]


@each_case(
    ("step", "commands"),
    [
        ("torch==1.10.0+cu113 torchvision==0.11.0+cu113 -f https://download.pytorch.org/whl/torch_stable.html",
         ["uv pip install torchvision==0.11.1 --torch-backend=cu113"]),
        ("torch==1.10.0 torchvision==0.11.0 --index-url https://download.pytorch.org/whl/cu113",
         ["uv pip install torchvision==0.11.1 --torch-backend=cu113"]),
        ("torch==1.10.0 torchvision==0.11.0", ["uv pip install torchvision==0.11.1"]),
    ],
)  # fmt: skip
def test_the_release_in_place_of_a_withdrawn_one_has_the_build_of_its_step(step: str, commands: list[str]) -> None:
    findings = audit_guide(sh("conda create -n x python=3.8", f"pip install {step}"), name="guide.md").findings
    (found,) = (each for each in findings if each.id == "RUN001")
    assert [line for each in found.remedies for line in each.commands] == commands


@each_case(
    ("steps", "expected"),
    [
        (("torch==1.13.1 torchvision==0.14.1", "torch==2.0.1"), "uv pip install torch==2.0.1 torchvision==0.15.2"),
        (("torch==2.0.1", "torchvision==0.14.1"), ""),  # its dependency replaces torch: RUN010
        (("torch==2.0.1 torchvision==0.15.2",), ""),
    ],
)  # fmt: skip
def test_the_companions_of_a_torch_that_a_later_step_pins(steps: tuple[str, ...], expected: str) -> None:
    guide = sh("conda create -n x python=3.10", *(f"pip install {step}" for step in steps))
    found = [each for each in audit_guide(guide, name="guide.md", today=TODAY).findings if each.id == "RUN004"]
    commands = [line for each in found for remedy in each.remedies[:1] for line in remedy.commands]
    assert commands == [expected] * bool(expected)


@each_case(
    ("pin", "is_reported"),
    [
        ("torch==1.8.1+{cuda_version}", True),
        ("torch==1.8.1+cu${CUDA}", True),
        ("torch==1.8.1+<cuda>", True),
        ("torch==$TORCH", False),
        ("torch==1.8.$PATCH", False),
        ("torch==1.9.1+{cuda_version}", False),
    ],
)
def test_a_pin_whose_build_alone_is_unknown(pin: str, is_reported: bool) -> None:
    guide = sh("conda create -n x python=3.8", f"pip install '{pin}' torchaudio==0.9.1")
    findings = audit_guide(guide, name="guide.md", today=TODAY).findings
    assert any("torchaudio 0.9.1 requires torch==1.9.1" in each.message for each in findings) == is_reported
