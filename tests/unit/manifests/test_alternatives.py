"""Alternatives of a guide: each is an environment of its own, and its findings name it."""

# ruff: noqa: RUF001  full-width punctuation of Chinese guides

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from support.cases import each_case

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.manifests import audit_guide
from envdoctor.manifests.guide import parse_guide, parse_paths
from envdoctor.manifests.path_findings import join_findings

TODAY = date(2026, 11, 21)
A, B = "pip install vllm==0.10.2 transformers==4.57.1", "pip install vllm==0.19.0"


def block(command: str, indent: str = "") -> str:
    return "\n".join(f"{indent}{line}" for line in ("```bash", command, "```"))


FORMS = {
    "headings with letters": f"## Option A: stable\n{block(A)}\n## Option B: new\n{block(B)}\n",
    "headings with numbers": f"### Method 1\n{block(A)}\n### Method 2\n{block(B)}\n",
    "headings with Chinese numbers": f"## 方法一：稳定\n{block(A)}\n## 方法二：新\n{block(B)}\n",
    "Japanese plans": f"## 案A\n{block(A)}\n## 案B\n{block(B)}\n",
    "German variants": f"## Variante 1\n{block(A)}\n## Variante 2\n{block(B)}\n",
    "installers": f"### Using pip\n{block(A)}\n### Conda (recommended)\n{block(B)}\n",
    "an alternative after an option": f"## With uv\n{block(A)}\n## Alternatively, with Docker\n{block(B)}\n",
    "bold lines": f"**Option 1: stable**\n\n{block(A)}\n\n**Option 2: new**\n\n{block(B)}\n",
    "text lines": f"Option A (stable):\n\n{block(A)}\n\nOption B (new):\n\n{block(B)}\n",
    "list items": (
        f"- **Option A**: stable\n\n  {block(A, '  ').strip()}\n\n- **Option B**: new\n\n  {block(B, '  ').strip()}\n"
    ),
    "or": f"{block(A)}\n\nor\n\n{block(B)}\n",
    "a sentence with or": f"{block(A)}\n\nOr, for the new release:\n\n{block(B)}\n",
    "或者": f"{block(A)}\n\n或者\n\n{block(B)}\n",
    "conditions": f"If you have an A100:\n\n{block(A)}\n\nIf you have an H100:\n\n{block(B)}\n",
    "CUDA versions": f"For CUDA 12.8:\n\n{block(A)}\n\nFor CUDA 13.0:\n\n{block(B)}\n",
    "mkdocs tabs": f'=== "stable"\n\n{block(A, "    ")}\n\n=== "new"\n\n{block(B, "    ")}\n',
    "pymdownx tabs": f"/// tab | stable\n{block(A)}\n///\n\n/// tab | new\n{block(B)}\n///\n",
    "HTML tabs": (
        f'<Tabs>\n<TabItem value="a" label="stable">\n\n{block(A)}\n\n</TabItem>\n'
        f'<TabItem value="b" label="new">\n\n{block(B)}\n\n</TabItem>\n</Tabs>\n'
    ),
    "hfoptions": (
        f'<hfoptions id="x">\n<hfoption id="stable">\n\n{block(A)}\n\n</hfoption>\n'
        f'<hfoption id="new">\n\n{block(B)}\n\n</hfoption>\n</hfoptions>\n'
    ),
    "GitBook tabs": (
        f'{{% tabs %}}\n{{% tab title="stable" %}}\n{block(A)}\n{{% endtab %}}\n'
        f'{{% tab title="new" %}}\n{block(B)}\n{{% endtab %}}\n{{% endtabs %}}\n'
    ),
    "MyST tabs": (
        f"::::{{tab-set}}\n:::{{tab-item}} stable\n{block(A)}\n:::\n:::{{tab-item}} new\n{block(B)}\n:::\n::::\n"
    ),
    "installations of two sizes": f"**Full install**\n\n{block(A)}\n\n**Light install (7B only)**\n\n{block(B)}\n",
    "the names of releases": (
        f"To install the stable version:\n\n{block(A)}\n\nTo install from source:\n\n{block(B)}\n"
    ),
    "comments in a block": block(f"# Option 1: stable\n{A}\n# Option 2: new\n{B}") + "\n",
    "conditions in a block": block(f"# For CUDA 12.8:\n{A}\n# For CUDA 13.0:\n{B}") + "\n",
    "or in a block": block(f"{A}\n# or\n{B}") + "\n",
}


def test_comments_that_start_with_for_separate_other_pins_of_the_same_packages() -> None:
    second = A.replace("0.10.2", "0.11.0").replace("4.57.1", "4.57.6")
    guide = block(f"# for vllm==0.10.2\n{A}\n# for vllm>=0.11\n{second}\npython run.py") + "\n"
    assert len(parse_paths(parse_guide(guide, "guide.md"), guide, "guide.md")) == 2
    other = guide.replace("transformers==4.57.6", "peft==0.18.0")
    assert len(parse_paths(parse_guide(other, "guide.md"), other, "guide.md")) == 1


def installs(text: str) -> list[list[str]]:
    """The install commands of each path."""
    paths = parse_paths(parse_guide(text, "guide.md"), text, "guide.md")
    return [[action.command for action in guide.actions] for guide in paths]


@each_case("form", list(FORMS))
def test_each_form_has_two_environments(form: str) -> None:
    assert installs("# Setup\n\n" + FORMS[form]) == [[A], [B]]


@each_case("form", list(FORMS))
def test_the_second_alternative_does_not_replace_the_first(form: str) -> None:
    assert [f.id for f in audit_guide(FORMS[form], name="g.md", today=TODAY).findings] == []


STEPS = (
    f"## Step 1\n{block(A)}\n## Step 2\n{block(B)}\n",
    f"## Torch\n{block(A)}\n## vLLM\n{block(B)}\n",
    f"{block(A)}\n\nNow install the rest:\n\n{block(B)}\n",
    f"For the training:\n\n{block(A)}\n\nThen:\n\n{block(B)}\n",
    block(f"# install the stack\n{A}\n# new release\n{B}"),
    f"## Method\n{block(A)}\n## Setup\n{block(B)}\n",
)


@each_case("text", STEPS)
def test_steps_are_not_alternatives(text: str) -> None:
    assert installs(text) == [[A, B]]


COMMON = f"# GH200\n{block('uv venv --python 3.12 && source .venv/bin/activate')}\n"
HIDDEN = f"""{COMMON}
## Option A: nightly

{block("uv pip install --pre torch --index-url https://download.pytorch.org/whl/nightly/cu126")}

{block("uv pip install vllm==0.10.2 'transformers<5'")}

## Option B: container

{block("docker run --gpus all -it vllm/vllm-openai:v0.10.2 bash")}

## Option C: release

{block("uv pip install torch==2.8.0 vllm==0.10.2 'transformers<5' --torch-backend=cu129")}

## Run

{block("export TORCHINDUCTOR_DISABLE=1")}
"""


def test_a_cuda_torch_that_vllm_replaces_is_found_although_a_later_option_hides_it() -> None:
    findings = audit_guide(HIDDEN, name="g.md", today=TODAY).findings
    (replaced,) = [finding for finding in findings if finding.id == "RUN010"]
    assert replaced.message.startswith(
        "Option A: nightly: a dependency (required by vllm 0.10.2) would replace torch"
    )
    assert replaced.message.endswith("with torch 2.8.0 (CPU build)")
    assert (replaced.status, replaced.line, replaced.cause) == ("error", 13, "torch-cpu-build")
    assert not [finding for finding in findings if finding.line > 14 and finding.id != "RUN022"]


def test_a_finding_on_a_step_of_all_alternatives_names_none() -> None:
    (finding,) = [f for f in audit_guide(HIDDEN, name="g.md", today=TODAY).findings if f.id == "RUN022"]
    assert finding.message == "TORCHINDUCTOR_DISABLE=1: no library reads this variable"


def test_a_finding_on_a_common_step_names_the_alternative_that_leads_to_it() -> None:
    late = f"### Option 1\n{block('pip install trl==0.23.1')}\n### Option 2\n{block('pip install trl==0.29.0')}\n"
    text = f"{late}### Code\n```python\nGRPOConfig(max_prompt_length=1)\n```\n"
    (finding,) = [f for f in audit_guide(text, name="g.md", today=TODAY).findings if f.id == "RUN070"]
    assert finding.message.startswith("Option 2: GRPOConfig(max_prompt_length=1): trl 0.29.0 does not accept it")


def test_tabs_with_the_same_names_are_followed_together() -> None:
    first = f'=== "pip"\n\n{block(A, "    ")}\n\n=== "uv"\n\n{block(B, "    ")}\n'
    second = (
        f'=== "pip"\n\n{block("pip install peft", "    ")}\n\n=== "uv"\n\n{block("uv pip install trl", "    ")}\n'
    )
    assert installs(f"{first}\nText.\n\n{second}") == [[A, "pip install peft"], [B, "uv pip install trl"]]


def test_an_alternative_inside_an_alternative_is_followed_with_the_outer_one() -> None:
    inner = f"### Option 1\n{block('pip install peft')}\n### Option 2\n{block('pip install trl')}\n"
    text = f"## Option A\n{block(A)}\n## Option B\n{block(B)}\n{inner}"
    assert installs(text) == [[A], [B, "pip install peft"], [B, "pip install trl"]]


def test_each_alternative_has_a_set_of_requirements() -> None:
    text = f"## Option A\n{block('pip install vllm==0.10.2')}\n## Option B\n{block('pip install trl==1.16.0')}\n"
    sets = audit_guide(text, name="g.md", today=TODAY).sets
    assert [(each.branch, each.requirements[0]) for each in sets] == [
        ("Option A", "vllm==0.10.2"),
        ("Option B", "trl==1.16.0"),
    ]


def test_a_set_is_named_after_the_branches_that_not_all_paths_follow_each_once() -> None:
    common = f"### Option 1\n{block('ls a')}\n### Option 2\n{block('ls b')}\n"
    script = block("if nvidia-smi; then\npip install vllm==0.10.2\nelse\npip install trl==1.16.0\nfi")
    sets = audit_guide(f"{script}\n{script}\n{script}\n{common}", name="g.md", today=TODAY).sets
    assert [each.branch for each in sets] == ["`if nvidia-smi` + Option 1", "`else of if nvidia-smi` + Option 1"]


@pytest.mark.parametrize(("name", "count"), [("requirements.txt", 1), ("other.txt", 2)])
def test_a_test_for_a_file_of_the_checkout_has_one_branch(name: str, count: int, checkout: Path) -> None:
    (checkout / "requirements.txt").write_text("vllm==0.10.2\n")
    test = f'if [ -f "$ROOT/{name}" ]; then pip install -r $ROOT/requirements.txt; else pip install trl==1.16.0; fi'
    (checkout / "setup.sh").write_text(f"{test}\n")
    (checkout / "README.md").write_text(text := block("bash setup.sh"))
    found = audit_text(text, str(checkout / "README.md"), None, None).audit
    assert len(found.traces if found else ()) == count


def test_the_machine_of_an_alternative_is_its_own() -> None:
    text = (
        f"# Install\n## Option A: GH200 (aarch64)\n{block('pip install torch==2.8.0')}\n"
        f"## Option B: H100 (x86_64)\n{block('pip install torch==2.8.0')}\n"
    )
    found = [(f.line, f.id) for f in audit_guide(text, name="g.md", today=TODAY).findings]
    assert found == [(4, "RUN011")]


def test_examples_of_the_same_command_are_alternatives() -> None:
    old, new = "# for CUDA 12\npip install torch==2.8.0", "# the newest\npip install torch==2.13.0"
    text = f"# Setup\n\n{block(old)}\n\n{block(new)}\n\n{block('pip install vllm==0.10.2')}\n"
    guide = parse_guide(text, "guide.md")
    paths = parse_paths(guide, text, "guide.md")
    assert [[branch.name for branch in path.branches] for path in paths] == [["for CUDA 12"], ["the newest"]]
    other = f"{block('pip install --pre torch')}\n\n{block('pip install vllm==0.10.2')}\n"
    assert len(parse_paths(parse_guide(other, "guide.md"), other, "guide.md")) == 1


def test_a_sentence_about_an_error_separates_no_alternatives() -> None:
    text = f"{block(A)}\nor you might encounter the following error:\n{block(chr(34) + 'KeyError' + chr(34))}\n"
    assert installs(text) == [[A]]


def test_comments_that_name_examples_separate_other_pins_of_the_same_packages() -> None:
    second = A.replace("0.10.2", "0.9.0").replace("4.57.1", "4.53.2")
    text = block(f"# with your CUDA version, e.g.\n{A}\n\n# or previous releases, e.g.\n{second}\n# etc.") + "\n"
    assert installs(text) == [[A], [second]]


def test_sections_whose_headings_differ_in_one_word_are_alternatives() -> None:
    nightly = "pip install --pre vllm transformers --index-url https://download.pytorch.org/whl/nightly/cu126"
    both = f"### Install stable release\n{block(A)}\n### Install {{}} release\n{block(nightly)}\n### Run\n"
    assert installs(both.format("nightly")) == [[A], [nightly]]
    assert installs(both.format("the updated")) == [[A, nightly]]
    assert installs(both.format("nightly").replace("vllm transformers", "trl")) == [
        [A, nightly.replace("vllm transformers", "trl")]
    ]


OTHER_SYSTEMS = (
    f"{block(A)}\n\n(Only for Windows) You may need this as well.\n\n{block('pip install pywin32')}\n",
    f"{block(A)}\n\nOn Windows, run\n\n{block('pip install pywin32')}\n",
    f"{block(A)}\n\n**Windows users:**\n{block('pip install pywin32')}\n",
    f"## Setup for macOS\n\n### Packages\n\n{block('pip install torch')}\n\n## Linux\n\n{block(A)}\n",
    f"## Windows demo install guide\n\n- {block('pip install pywin32', '  ').strip()}\n\n## Linux\n\n{block(A)}\n",
    f"{block(A)}\n\n## Apple Silicon (M1/M2 Chips)\n\nPyTorch 1.13 has it.\n\n{block('pip install torch==1.13.0')}\n",
    f"{block(A)}\n\n### Windows ML\n\nTo use it, run\n\n{block('pip install onnxruntime-windowsml')}\n",
    f"## Windows\n\nRun this first.\n\n{block('pip install triton-windows')}\n\n## Others\n\n{block(A)}\n",
    f"{block(A)}\n<details><summary>For Windows users</summary>\n\n#### B\n\n{block('pip install b')}\n</details>\n",
    f"{block(A)}\n<details>\n<summary>For <b>Ascend NPU</b></summary>\n\nA\n\n{block('pip install b')}\n</details>\n",
    f"{block(A)}\n\n## AMD ROCm\n\n{block('pip install b')}\n",
)
EACH_SYSTEM = (
    f"{block(A)}\n<details><summary>Windows</summary>\n\nUse WSL.\n</details>\n\n{block('pip install peft')}\n",
    f"{block(A)}\n<details><summary>Linux and Windows</summary>\n\n{block('pip install peft')}\n</details>\n",
    f"{block(A)}\n\nOn Linux and Windows, run\n\n{block('pip install peft')}\n",
    f"{block(A)}\n\nWindows is not supported.\n\n{block('pip install peft')}\n",
    f"## Linux\n\n{block(A)}\n\n### Windows\n\nUse WSL.\n\nQuick Start\n-----------\n\n{block('pip install peft')}\n",
    f"## Linux / Windows\n\n{block(A)}\n\n## Windows Subsystem for Linux\n\n{block('pip install peft')}\n",
)


@each_case("text", OTHER_SYSTEMS)
def test_a_block_for_another_system_is_not_followed_and_reported_as_unread(text: str) -> None:
    assert installs(text) == [[A]]
    (path,) = parse_paths(parse_guide(text, "guide.md"), text, "guide.md")
    assert "for another system" in path.unread[0]


@each_case("text", EACH_SYSTEM)
def test_a_block_for_linux_as_well_is_followed(text: str) -> None:
    assert installs(text) == [[A, "pip install peft"]]


def test_a_guide_for_one_other_system_is_read() -> None:
    assert installs(f"# Setup\n## Windows\n{block(A)}\n") == [[A]]


def test_a_script_that_two_paths_run_has_each_finding_once() -> None:
    guide = parse_guide("# X\n```bash\n. ./setup.sh --basic\npip install b\n. ./setup.sh --demo\n```\n", "a.md")
    paths = [guide, guide._replace(name="a.md")]

    def joined(rule: str, *messages: str) -> list[int]:
        found = [
            Finding(rule, "c", "error", text, (), "f", line=line) for line, text in zip((3, 5), messages, strict=True)
        ]
        return [
            each.line for each in join_findings([(path, [each]) for path, each in zip(paths, found, strict=True)])
        ]

    assert joined("RUN040", "`nvdiff` is built without torch", "`nvdiff` is built without torch") == [3]
    assert joined("RUN040", "`nvdiff` is built without torch", "`setup.sh` is built without torch") == [3, 5]
    assert joined("RUN010", "`nvdiff>=1` replaces b of line 1", "`nvdiff>=1` replaces b of line 4") == [3]
    assert joined("RUN061", "`nvdiff` was removed", "`nvdiff` was removed") == [3, 5]
    read = "x.py imports plyfile, which none of the {} packages that were read has; not read: {}"
    found = [Finding("RUN181", "c", "unknown", read.format(n, n), (), "f", line=5) for n in (160, 173)]
    assert len(join_findings([(path, [each]) for path, each in zip(paths, found, strict=True)])) == 1
