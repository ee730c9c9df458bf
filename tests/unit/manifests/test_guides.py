"""Audits of complete guides: correct ones have no findings, outdated ones have all, and the corrections are valid."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.cases import each_case
from support.paths import DATA, ROOT
from support.recorded_results import assert_as_recorded

from envdoctor.core.errors import BadInput
from envdoctor.machine.recorded import read_recorded
from envdoctor.manifests import GuideAudit, audit_guide
from envdoctor.manifests.guide import parse_guide
from envdoctor.manifests.markdown import parse_blocks
from envdoctor.manifests.shell import parse_commands, strip_prompts
from envdoctor.manifests.shell_records import ShellState
from envdoctor.profiles import choose, read_profile

GUIDES = DATA / "guides"
TODAY = date(2026, 11, 21)
CORRECT = sorted(path.name for path in GUIDES.glob("correct-*.md"))
OUTDATED = sorted(path.name for path in GUIDES.glob("outdated-*.md"))


def audit_sample(name: str) -> GuideAudit:
    return audit_guide((GUIDES / name).read_text(encoding="utf-8"), name=name, today=TODAY)


@each_case("name", CORRECT)
def test_correct_guide_has_no_error_and_no_warning(name: str) -> None:
    audit = audit_sample(name)
    assert [(f.line, f.id, f.message) for f in audit.findings if f.status not in ("info", "ok")] == []
    assert audit.steps
    assert audit.requirements


def test_correct_guides_cover_each_kind() -> None:
    assert {"correct-x86-cu124-hf.md", "correct-x86-cu128-vllm.md", "correct-gh200-pypi.md"} <= set(CORRECT)
    assert {"correct-deutsch.md", "correct-zhongwen.md"} <= set(CORRECT)
    assert b"\r\n" in (GUIDES / "correct-deutsch.md").read_bytes()


EXPECTED = {
    "outdated-gh200.md": {
        (10, "RUN050"), (11, "RUN050"), (19, "RUN012"), (20, "RUN003"), (21, "RUN030"), (23, "RUN010"),
        (23, "RUN011"), (23, "RUN020"), (24, "RUN003"), (24, "RUN060"), (25, "RUN022"), (26, "RUN045"),
        (26, "RUN060"), (27, "RUN065"), (28, "RUN061"), (28, "RUN062"), (32, "RUN072"),
        (36, "RUN070"), (38, "RUN070"), (40, "RUN074"), (42, "RUN070"),
    },
    "outdated-verl-conda.md": {
        (5, "RUN124"), (9, "RUN010"), (10, "RUN023"), (12, "RUN064"), (19, "RUN056"), (23, "RUN003"),
    },
    "outdated-docker-pyproject.md": {(9, "RUN003"), (26, "RUN124"), (28, "RUN010")},
}  # fmt: skip


@each_case("name", OUTDATED)
def test_outdated_guide_has_the_expected_findings(name: str) -> None:
    assert {(finding.line, finding.id) for finding in audit_sample(name).findings} == EXPECTED[name]


@pytest.mark.parametrize("name", [*CORRECT, *OUTDATED])
def test_profile_of_a_guide_is_valid_and_selectable(name: str, tmp_path: Path) -> None:
    audit = audit_sample(name)
    file = tmp_path / "guide.toml"
    file.write_text(audit.profile_toml, encoding="utf-8")
    profile = read_profile(str(file))
    assert tuple(pin.spec for pin in profile.requirements) == audit.requirements
    assert profile.when.architectures == (audit.architecture,)
    assert choose(read_recorded("h200"), [profile]).candidates


@each_case("name", OUTDATED)
def test_corrected_requirements_have_no_findings(name: str) -> None:
    audit = audit_sample(name)
    title = "# GH200 aarch64" if audit.architecture == "aarch64" else "# H100"
    pins = " ".join(f"'{spec}'" for spec in audit.requirements)
    backend = " --torch-backend=cu129" if audit.architecture == "aarch64" else ""
    again = audit_guide(f"{title}\n```bash\nuv pip install {pins}{backend}\n```\n", name="again.md", today=TODAY)
    assert [(f.id, f.message) for f in again.findings if f.status in ("error", "warning")] == []


def test_open_range_is_corrected_to_a_contemporary_release() -> None:
    text = '```bash\nuv pip install "transformers>=4.57.1" trl==0.23.1 vllm==0.10.2 peft accelerate\n```\n'
    audit = audit_guide(text, name="trap.md", today=TODAY)
    assert audit.environment.distributions.value is not None
    assert audit.environment.distributions.value["transformers"].version == "5.24.0"
    assert {"transformers==4.57.1", "peft==0.17.1", "accelerate==1.11.0"} <= set(audit.requirements)


def test_open_range_is_resolved_for_the_given_day() -> None:
    text = '```bash\nuv pip install "transformers>=4.57.1" trl==0.23.1 vllm==0.10.2\n```\n'
    then = audit_guide(text, name="trap.md", today=date(2025, 10, 28))
    assert [f.id for f in then.findings if f.status in ("error", "warning")] == []


def test_given_machine_takes_precedence_over_the_guide() -> None:
    text = "# any machine\n```bash\npip install torch==2.8.0\n```\n"
    assert not audit_guide(text, name="g.md", today=TODAY).findings
    findings = audit_guide(text, name="g.md", machine=read_recorded("gh200-480gb"), today=TODAY).findings
    assert "RUN011" in {finding.id for finding in findings}


def test_environments_are_independent() -> None:
    text = """```bash
uv venv a && source a/bin/activate
uv pip install torch==2.8.0 vllm==0.10.2 'transformers<5' trl==0.23.1
uv venv b && source b/bin/activate
uv pip install transformers==5.17.0 trl==1.16.0 torch==2.11.0
source a/bin/activate
uv pip install 'peft<0.18'
```
"""
    assert [(f.id, f.message) for f in audit_guide(text, name="two.md", today=TODAY).findings] == []


def test_dockerfile_does_not_affect_later_commands() -> None:
    image = "```dockerfile\nFROM nvidia/cuda:12.8.0-devel-ubuntu22.04\nRUN pip install torch==2.8.0\n```\n"
    text = image + "```bash\npip install torch==2.11.0\n```\n"
    assert "RUN010" not in {f.id for f in audit_guide(text, name="d.md", today=TODAY).findings}


def test_a_file_that_no_command_reads_is_installed_at_its_first_line() -> None:
    text = "Save as `requirements.txt`:\n\n```text\ntransformers==5.1.0\n```\n\n```sh\npip install trl==1.9.0\n```\n"
    steps = audit_guide(text, name="g.md", today=TODAY).steps
    assert [(step.line, step.command) for step in steps] == [
        (4, "pip install -r requirements.txt"), (8, "pip install trl==1.9.0"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "is_list"),
    [
        ("transformers==4.28.1\npytorch-lightning==1.8.5\ndatasets\nsentencepiece", True),
        ("transformers==4.28.1\ndatasets\nsentencepiece", False),
        ("epoch == 1\nloss <= 2\nthe loss is small\nend of run", False),
    ],
)
def test_a_block_of_names_and_versions_is_a_list_of_packages(lines: str, *, is_list: bool) -> None:
    text = f"## Requirements\n\n```\n{lines}\n```\n\n```sh\npip install torch\n```\n"
    assert len(audit_guide(text, name="g.md", today=TODAY).steps) == 1 + is_list


def test_pin_newer_than_the_table_is_unknown() -> None:
    text = "```bash\npip install trl==9.0.0\n```\n"
    findings = audit_guide(text, name="g.md", today=date(2027, 6, 1)).findings
    assert [(f.id, f.status) for f in findings] == [("RUN001", "unknown")]


def test_commands_in_html_comments_are_no_steps() -> None:
    text = (
        "<!-- ## Setup\n\n```bash\nsh setup.sh\n```\n\n--- -->\n\n```bash\nsh setup1.sh\n```\n\n"
        "<!-- generated -->\n```bash\nsh setup2.sh\n```\n<!-- end -->\n\n"
        "<details><!-- hidden -->\n<pre>\nsh setup3.sh\n</pre></details>\n\n<!--\n```\nsh setup4.sh\n```\n"
    )
    lines = [line for block in parse_blocks(text) for line in block.lines if line[1].startswith("sh")]
    assert lines == [(10, "sh setup1.sh"), (15, "sh setup2.sh"), (21, "sh setup3.sh")]


def test_parse_blocks_of_all_forms() -> None:
    text = """# t
- ```bash title="x"
  pip install a
  ```
> ~~~ sh
> pip install b
> ~~~

    pip install c

<pre>pip install &quot;d&gt;1&quot;</pre>
1. Run `pip install e`.
2. Never run `pip install f`.
"""
    blocks = parse_blocks(text)
    commands = [(number, line.strip()) for block in blocks for number, line in block.lines if "install" in line]
    assert commands == [
        (3, "pip install a"),
        (6, "pip install b"),
        (9, "pip install c"),
        (11, 'pip install "d>1"'),
        (12, "pip install e"),
    ]


def test_indented_fences_and_tabs() -> None:
    text = (
        '=== "pip"\r\n\r\n    ```bash title="t"\r\n    pip install a\r\n    ```\r\n\r\n'
        "text\n       ```sh\n       pip install b\n       ```\n\n<details>\n<pre>\npip install c\n</pre></details>\n"
    )
    blocks = parse_blocks(text)
    found = [(block.language, number, line) for block in blocks for number, line in block.lines if line]
    assert found == [("bash", 4, "pip install a"), ("sh", 9, "pip install b"), ("", 14, "pip install c")]
    assert [block.preceding_text for block in blocks[:2]] == ['=== "pip"', '=== "pip"']


def test_parse_commands() -> None:
    lines = (
        (1, "export A=2.8.0 B='x y'"), (2, 'pip install "torch==${A}" \\'), (3, "   'trl>=0.23' # why"),
        (4, "cd x && MAX_JOBS=4 python -c 'import a; b' || true; echo $HOME > /dev/null 2>&1"),
        (5, "cat > r.txt <<'EOF'"), (6, "torch==2.8.0 && rm -rf /"), (7, "EOF"), (8, "pip install ${C:-vllm}"),
    )  # fmt: skip
    commands = parse_commands(lines, ShellState())
    assert [(c.line, str(c)) for c in commands] == [
        (1, "export A=2.8.0 B=x y"), (2, "pip install torch==2.8.0 trl>=0.23"), (4, "cd x"),
        (4, "MAX_JOBS=4 python -c import a; b"), (4, "true"), (4, "echo $HOME"), (5, "cat"), (8, "pip install vllm"),
    ]  # fmt: skip
    assert commands[6].heredoc == ((6, "torch==2.8.0 && rm -rf /"),)
    assert commands[6].output == "r.txt"


def test_strip_prompts() -> None:
    lines = ((1, "(venv) user@host:~$ pip install a \\"), (2, ">   b"), (3, "pip install is fun"), (4, "$ pip list"))
    assert strip_prompts(lines, console=True) == ((1, "pip install a \\"), (2, "  b"), (4, "pip list"))
    printed = ((1, "$ tool fix"), (2, "use a newer release:"), (3, "  $ pip install -U a"), (4, "$ pip list"))
    assert strip_prompts(printed, console=True) == ((1, "tool fix"), (4, "pip list"))
    of_root = ((1, "# ./train.sh"), (2, "# bash scripts/eval.sh --fast"))
    assert strip_prompts(of_root, console=False) == ((1, "./train.sh"), (2, "bash scripts/eval.sh --fast"))
    comments = ((1, "# ./train.sh"), (2, "# then evaluate"))
    assert strip_prompts(comments, console=False) == comments
    assert strip_prompts(printed[2:3], console=True) == ((3, "pip install -U a"),)
    prompts = ((1, "# with pip"), (2, "> pip install a"), (3, ""))
    assert strip_prompts(prompts, console=False) == ((1, "# with pip"), (2, "pip install a"), (3, ""))
    redirected = ((1, "> log.txt"), (2, "pip install a"))
    assert strip_prompts(redirected, console=False) == redirected


def test_text_above_the_size_limit_is_rejected() -> None:
    with pytest.raises(BadInput, match="4 MiB"):
        audit_guide("x" * ((4 << 20) + 1), name="big.md")


def test_audit_starts_no_process_and_writes_no_file(tmp_path: Path) -> None:
    text = "```bash\ntouch hit; $(touch hit2); `touch hit3`\npip install torch; bash -c 'touch hit4'\n```\n"
    code = (
        "import sys, subprocess, os\n"
        "def reject(event, args):\n"
        "    starts_process = event in ('os.system', 'os.exec', 'os.fork', 'os.posix_spawn')\n"
        "    if starts_process or event.split('.')[0] in ('subprocess', 'socket'): sys.exit(7)\n"
        "sys.addaudithook(reject)\n"
        "from envdoctor.manifests import audit_guide\n"
        f"print(len(audit_guide({text!r}, name='g').steps))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 1
    assert not list(tmp_path.iterdir())


def test_audits_are_as_recorded() -> None:
    for name in [*CORRECT, *OUTDATED]:
        audit = replace(audit_sample(name), traces=())  # of the interpreter, for a trial
        assert_as_recorded(f"guides/{name.removesuffix('.md')}", {"audit": audit})


def test_an_environment_is_judged_before_a_later_step_replaces_its_packages() -> None:
    text = (
        "```bash\npip install vllm==0.10.2\nvllm serve x\n```\n\n## Data\n\n```bash\npip install vllm==0.33.0\n```\n"
    )
    broken = "vLLM 0.10.2 does not work with transformers 5.24.0"
    found = audit_guide(text, name="g.md", today=TODAY).findings
    assert [(f.line, f.id) for f in found if broken in f.message] == [(2, "RUN003")]
    unused = audit_guide(text.replace("vllm serve x\n", ""), name="g.md", today=TODAY).findings
    assert [f for f in unused if broken in f.message] == []


def test_a_dependency_that_a_project_may_limit_is_no_error() -> None:
    (found,) = audit_guide("```bash\npip install vllm==0.10.2\npip install -e '.[dev]'\n```\n", name="g.md").findings
    assert (found.id, found.status) == ("RUN003", "warning")
    assert "unless `pip install -e .[dev]` of line 3 limits it" in found.message


def test_a_commit_is_no_token() -> None:
    commit = "221d388cc5a836fa189305785ed7e887cea8b510"
    for line in (f"git checkout {commit}", f"pip install git+https://github.com/huggingface/trl@{commit}"):
        assert "RUN062" not in {f.id for f in audit_guide(f"```bash\n{line}\n```\n", name="g.md").findings}
    for line in (f"export WANDB_API_KEY={commit}", f"wandb login {commit}", "hf auth login --token hf_x"):
        assert "RUN062" in {f.id for f in audit_guide(f"```bash\n{line}\n```\n", name="g.md").findings}, line


SHELL = {
    "commands": "conda install mpi4py\npip install torch==2.8.0",
    "the start of a program": "# train\npython train.py \\\n\t--config a.yaml\npip install torch==2.8.0",
    "a variable": "CUDA_VISIBLE_DEVICES=0 python train.py --lr 1\ncd app\npip install torch==2.8.0",
}
CODE = {
    "valid code": "import torch\npip = 1",
    "code that is not valid": "import torch\nprint torch\npip install torch==2.8.0",
    "an expression": "python == 3\nuv = [",
    "an output": ">>> x\nconda 1",
}


@pytest.mark.parametrize("language", ["python", "py"])
def test_commands_in_a_block_of_python(language: str) -> None:
    for code in SHELL.values():
        guide = parse_guide(f"```{language}\n{code}\n```\n", "README.md")
        assert "pip install torch==2.8.0" in [command.text for command in guide.commands]
        assert not guide.unread
    for code in CODE.values():
        assert not parse_guide(f"```{language}\n{code}\n```\n", "README.md").commands
