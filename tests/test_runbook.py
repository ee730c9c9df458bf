"""Guides followed as a whole: sound ones say nothing, rotten ones say it all, and what comes out can be used."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from command import ROOT

from envdoctor.core.errors import BadInput
from envdoctor.machine.recorded import read_recorded
from envdoctor.manifests import RunbookAudit, audit_runbook
from envdoctor.manifests.markdown import parse_blocks
from envdoctor.manifests.shell import parse_commands, without_prompts
from envdoctor.profiles import choose, read_profile

GUIDES = Path(__file__).parent / "data" / "runbooks"
TODAY = date(2026, 11, 21)
SOUND = sorted(path.name for path in GUIDES.glob("sound-*.md"))
ROTTEN = sorted(path.name for path in GUIDES.glob("rotten-*.md"))


def audited(name: str) -> RunbookAudit:
    return audit_runbook((GUIDES / name).read_text(encoding="utf-8"), name=name, today=TODAY)


@pytest.mark.parametrize("name", SOUND)
def test_sound_guide_has_no_error_and_no_warning(name: str) -> None:
    audit = audited(name)
    assert [(f.line, f.id, f.message) for f in audit.findings if f.status not in ("info", "ok")] == []
    assert audit.steps
    assert audit.requirements


def test_there_are_sound_guides_of_each_kind() -> None:
    assert {"sound-x86-cu124-hf.md", "sound-x86-cu128-vllm.md", "sound-gh200-pypi.md"} <= set(SOUND)
    assert {"sound-deutsch.md", "sound-zhongwen.md"} <= set(SOUND)
    assert b"\r\n" in (GUIDES / "sound-deutsch.md").read_bytes()


EXPECTED = {
    "rotten-gh200.md": {
        (10, "RUN050"), (11, "RUN050"), (19, "RUN012"), (20, "RUN003"), (21, "RUN030"), (23, "RUN010"), (23,
        "RUN011"),
        (23, "RUN020"), (24, "RUN003"), (24, "RUN060"), (25, "RUN022"), (26, "RUN041"), (26, "RUN045"), (26,
        "RUN060"), (27, "RUN065"),
        (28, "RUN061"), (28, "RUN062"), (32, "RUN072"), (36, "RUN070"), (38, "RUN070"), (40, "RUN074"), (42,
        "RUN070"),
    },
    "rotten-verl-conda.md": {
        (5, "RUN041"), (9, "RUN010"), (10, "RUN023"), (12, "RUN064"), (19, "RUN056"), (23, "RUN003"),
    },
    "rotten-docker-pyproject.md": {(9, "RUN003"), (28, "RUN010")},
}  # fmt: skip


@pytest.mark.parametrize("name", ROTTEN)
def test_rotten_guide_is_told_line_by_line(name: str) -> None:
    found = {(f.line, f.id) for f in audited(name).findings}
    assert found == EXPECTED[name]


@pytest.mark.parametrize("name", [*SOUND, *ROTTEN])
def test_profile_of_a_guide_is_read_and_judged_like_a_bundled_one(name: str, tmp_path: Path) -> None:
    audit = audited(name)
    file = tmp_path / "guide.toml"
    file.write_text(audit.profile_toml, encoding="utf-8")
    profile = read_profile(str(file))
    assert tuple(pin.spec for pin in profile.requirements) == audit.requirements
    assert profile.when.architectures == (audit.architecture,)
    assert choose(read_recorded("h200"), [profile]).candidates


@pytest.mark.parametrize("name", ROTTEN)
def test_corrected_requirements_are_a_sound_guide(name: str) -> None:
    audit = audited(name)
    title = "# GH200 aarch64" if audit.architecture == "aarch64" else "# H100"
    pins = " ".join(f"'{spec}'" for spec in audit.requirements)
    backend = " --torch-backend=cu129" if audit.architecture == "aarch64" else ""
    again = audit_runbook(f"{title}\n```bash\nuv pip install {pins}{backend}\n```\n", name="again.md", today=TODAY)
    assert [(f.id, f.message) for f in again.findings if f.status in ("error", "warning")] == []


def test_the_trap_is_corrected_to_the_releases_of_its_time() -> None:
    text = '```bash\nuv pip install "transformers>=4.57.1" trl==0.23.1 vllm==0.10.2 peft accelerate\n```\n'
    audit = audit_runbook(text, name="trap.md", today=TODAY)
    assert audit.environment.distributions.value is not None
    assert audit.environment.distributions.value["transformers"].version == "5.23.0"
    assert {"transformers==4.57.1", "peft==0.17.1", "accelerate==1.11.0"} <= set(audit.requirements)


def test_the_day_decides_what_an_open_bound_gives() -> None:
    text = '```bash\nuv pip install "transformers>=4.57.1" trl==0.23.1 vllm==0.10.2\n```\n'
    then = audit_runbook(text, name="trap.md", today=date(2025, 10, 28))
    assert [f.id for f in then.findings if f.status in ("error", "warning")] == []


def test_the_machine_overrules_what_the_guide_says() -> None:
    text = "# any machine\n```bash\npip install torch==2.8.0\n```\n"
    assert not audit_runbook(text, name="g.md", today=TODAY).findings
    found = audit_runbook(text, name="g.md", machine=read_recorded("gh200-480gb"), today=TODAY).findings
    assert "RUN011" in {finding.id for finding in found}


def test_environments_are_kept_apart() -> None:
    text = """```bash
uv venv a && source a/bin/activate
uv pip install torch==2.8.0 vllm==0.10.2 'transformers<5' trl==0.23.1
uv venv b && source b/bin/activate
uv pip install transformers==5.17.0 trl==1.16.0 torch==2.11.0
source a/bin/activate
uv pip install 'peft<0.18'
```
"""
    assert [(f.id, f.message) for f in audit_runbook(text, name="two.md", today=TODAY).findings] == []


def test_stage_of_a_dockerfile_does_not_leak_into_the_commands_below() -> None:
    image = "```dockerfile\nFROM nvidia/cuda:12.8.0-devel-ubuntu22.04\nRUN pip install torch==2.8.0\n```\n"
    text = image + "```bash\npip install torch==2.11.0\n```\n"
    assert "RUN010" not in {f.id for f in audit_runbook(text, name="d.md", today=TODAY).findings}


def test_a_pin_beyond_the_table_is_unknown_and_no_error() -> None:
    text = "```bash\npip install trl==9.0.0\n```\n"
    found = audit_runbook(text, name="g.md", today=date(2027, 6, 1)).findings
    assert [(f.id, f.status) for f in found] == [("RUN001", "unknown")]


def test_blocks_of_every_form() -> None:
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
    found = [(number, line.strip()) for block in blocks for number, line in block.lines if "install" in line]
    assert found == [
        (3, "pip install a"), (6, "pip install b"), (9, "pip install c"), (11, 'pip install "d>1"'), (12,
        "pip install e"),
    ]  # fmt: skip


def test_shell_is_split_as_a_shell_does() -> None:
    lines = (
        (1, "export A=2.8.0 B='x y'"), (2, 'pip install "torch==${A}" \\'), (3, "   'trl>=0.23' # why"),
        (4, "cd x && MAX_JOBS=4 python -c 'import a; b' || true; echo $HOME > /dev/null 2>&1"),
        (5, "cat > r.txt <<'EOF'"), (6, "torch==2.8.0 && rm -rf /"), (7, "EOF"), (8, "pip install ${C:-vllm}"),
    )  # fmt: skip
    commands = parse_commands(lines, {})
    assert [(c.line, str(c)) for c in commands] == [
        (1, "export A=2.8.0 B=x y"), (2, "pip install torch==2.8.0 trl>=0.23"), (4, "cd x"),
        (4, "MAX_JOBS=4 python -c import a; b"), (4, "true"), (4, "echo $HOME"), (5, "cat"), (8, "pip install vllm"),
    ]  # fmt: skip
    assert commands[6].document == ((6, "torch==2.8.0 && rm -rf /"),)
    assert commands[6].output == "r.txt"


def test_sessions_show_commands_behind_prompts_only() -> None:
    lines = ((1, "(venv) user@host:~$ pip install a \\"), (2, ">   b"), (3, "pip install is fun"), (4, "$ pip list"))
    assert without_prompts(lines, console=True) == ((1, "pip install a \\"), (2, "  b"), (4, "pip list"))


def test_large_text_is_refused() -> None:
    with pytest.raises(BadInput, match="4 MiB"):
        audit_runbook("x" * ((4 << 20) + 1), name="big.md")


def test_audit_starts_nothing_and_writes_nothing(tmp_path: Path) -> None:
    text = "```bash\ntouch hit; $(touch hit2); `touch hit3`\npip install torch; bash -c 'touch hit4'\n```\n"
    code = (
        "import sys, subprocess, os\n"
        "def refuse(event, args):\n"
        "    started = event in ('os.system', 'os.exec', 'os.fork', 'os.posix_spawn')\n"
        "    if started or event.split('.')[0] in ('subprocess', 'socket'): sys.exit(7)\n"
        "sys.addaudithook(refuse)\n"
        "from envdoctor.manifests import audit_runbook\n"
        f"print(len(audit_runbook({text!r}, name='g').steps))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1
    assert not list(tmp_path.iterdir())
