"""What was read reaches the terminal without control characters, without secrets, and quoted in commands."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from support.collect_env_reports import torch_report
from support.command import envdoctor
from support.sample_environments import add_distribution, make_venv

from envdoctor.core.command_line import command_line
from envdoctor.core.printable import printable, printable_json, without_invisible
from envdoctor.explain import explain
from envdoctor.machine.recorded import machine_json, read_recorded
from envdoctor.output.envelope import json_text
from envdoctor.redact.output import without_secrets
from envdoctor.redact.run_files import RunFileRedactor
from envdoctor.reports import parse_report

INVISIBLE = "\u200b\u200d\u2060\u2064\u00ad\u034f\ufe0f\U000e0041\U000e0101\u3164"
ESCAPES = f"\x1b]0;title\x07 \x1b[2J \x9b31m \x85 \u202e \u2066 \x7f \r \x08 \ufeff {INVISIBLE}"
ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e01ef]"
)
TOKEN = "hf_" + "a1B2" * 8
SECRETS = {
    "token": (TOKEN, TOKEN),
    "password": ("https://me:pa55word@hub.example/x", "pa55word"),
    "signature": ("https://s3.example/x?X-Amz-Signature=0123456789abcdef&part=2", "0123456789abcdef"),
    "azure": ("https://x.blob.example/y?sv=2026&sig=AbCdEf%2B123456", "AbCdEf"),
    "bearer": ("Authorization: Bearer abcdefghijklmnop1234", "abcdefghijklmnop1234"),
}
ERROR = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


def test_characters_that_act_are_removed_or_escaped() -> None:
    assert not ACTING.search(printable(ESCAPES))
    assert printable("a\tb\nc é 漢") == "a\tb\nc é 漢"
    text = json.dumps({"x": ESCAPES + "\U000e0041"}, ensure_ascii=False)
    assert not ACTING.search(printable_json(text))
    assert json.loads(printable_json(text)) == json.loads(text)


def hidden(text: str) -> str:
    """The text with invisible characters and a colour code within its words."""
    return "".join(f"{letter}{INVISIBLE[at % len(INVISIBLE)]}" for at, letter in enumerate(text)) + "\x1b[0m"


@pytest.mark.parametrize("text", [hidden(ERROR), ERROR.replace("image", "im\x1b[31mage\x1b]8;;x\x07")])
def test_invisible_characters_hide_no_error(text: str) -> None:
    found, plain = (explain(io.BytesIO(each.encode())).causes[0] for each in (text, ERROR))
    assert found.cause == plain.cause


def test_invisible_characters_hide_no_secret() -> None:
    redactor = RunFileRedactor()
    for text, secret in SECRETS.values():
        for shown in (without_secrets(hidden(text)), redactor.text(hidden(text)), json_text({"x": hidden(text)})):
            assert secret not in re.sub(r"\\u[0-9a-f]{4}", "", without_invisible(shown))


def test_a_pasted_report_with_invisible_characters() -> None:
    report = parse_report("\n".join(hidden(line) for line in torch_report({}, {}).splitlines()))
    assert report.machine == parse_report(torch_report({}, {})).machine


@pytest.mark.parametrize("form", ["human", "json", "github"])
def test_a_log_with_escapes_and_secrets(form: str, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(f"{ERROR} {ESCAPES} {' '.join(text for text, _ in SECRETS.values())}\n")
    done = envdoctor("explain", "x.log", "--format", form, home=tmp_path)
    assert "no kernel image" in done.stdout
    assert not ACTING.search(done.stdout + done.stderr)
    assert not [secret for _, secret in SECRETS.values() if secret in done.stdout]


@pytest.mark.parametrize("form", ["human", "json", "github", "sarif"])
def test_names_in_an_environment_and_a_machine_with_escapes(form: str, tmp_path: Path) -> None:
    site = make_venv(tmp_path / "venv")
    folder = add_distribution(site, "alpha", "1.0", headers=f"Requires-Dist: torch{ESCAPES}>=99")
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: 1.0{ESCAPES}\n")
    machine = machine_json(read_recorded("h100")).replace("H100", "H100" + json.dumps(ESCAPES)[1:-1])
    (tmp_path / "machine.json").write_text(machine)
    for command in ("check", "abi", "profiles new", "check --machine ./machine.json"):
        options = ["--format", form] if "new" not in command and (form != "sarif" or "check" in command) else []
        done = envdoctor(*command.split(), "--venv", "venv", *options, home=tmp_path)
        assert done.returncode in (0, 1, 2, 3), done.stderr
        assert not ACTING.search(done.stdout + done.stderr), command


def test_secrets_are_removed_and_other_text_is_kept() -> None:
    for text, secret in SECRETS.values():
        assert secret not in without_secrets(text)
    for text in ("pip install torch @ https://example.org/x.whl", "git+ssh://example.org/a?b=c", "a" * 64,
                 "https://example.org/simple/?format=json", "task-1234567890123456", "Basic usage"):  # fmt: skip
        assert without_secrets(text) == text


def test_a_variable_with_a_secret_is_never_printed(tmp_path: Path) -> None:
    done = envdoctor("explain", f"{ERROR} my-own-secret-1234", home=tmp_path, HF_TOKEN="my-own-secret-1234")
    assert "no kernel image" in done.stdout
    assert "my-own-secret" not in done.stdout


def test_commands_are_quoted() -> None:
    for word in ("a b", "$(id)", "`id`", "a;b", "a'b", "a\nb", "\x1b[2J"):
        line = command_line("envdoctor", "watch", word)
        assert len(shlex.split(line)) == 3
        assert line.isprintable()
    assert command_line("envdoctor", "watch", "runs/x") == "envdoctor watch runs/x"


def test_a_log_puts_no_command_into_a_fix(tmp_path: Path) -> None:
    marker = tmp_path / "pwned"
    for name in (f"$(touch {marker})", f"x;touch {marker};", f"`touch {marker}`"):
        texts = (f"ModuleNotFoundError: No module named '{name}'", f"ImportError: {name}.so: undefined symbol: x",
                 f"ERROR: No matching distribution found for {name}", f"OSError: {name} is not a local folder",
                 f"RuntimeError: The NVIDIA driver on your system is too old (found version {name})",
                 f"ImportError: {name}>=1.0 is required")  # fmt: skip
        for text in texts:
            data = json.loads(envdoctor("explain", text, "--format", "json", home=tmp_path).stdout)["data"]
            for cause in (data or {}).get("causes", ()):
                commands = [each for remedy in cause["remedies"] for each in remedy["commands"]]
                for line in (*commands, cause["fix"], cause["check"]):
                    if "touch" in line:
                        subprocess.run(
                            ["bash", "-c", line], cwd=tmp_path, capture_output=True, check=False, timeout=20
                        )
                assert not marker.exists(), (text, cause)


def test_own_paths_with_spaces_are_quoted_in_hints(tmp_path: Path) -> None:
    folder = tmp_path / "my $(id) folder"
    folder.mkdir()
    (folder / "file").write_text("x")
    for command in (("check", "--venv", folder / "file"), ("watch", folder / "file"), ("install", "--venv", folder)):
        done = envdoctor(*command, home=tmp_path)
        hint = done.stderr.partition("hint: ")[2]
        assert "$(id)" not in hint or "'" in hint, done.stderr


def test_a_job_file_has_no_line_of_a_path(tmp_path: Path) -> None:
    for run in ("runs/x\ntouch pwned", "x\r", "x\x1b[2J"):
        options = ("--launcher", "slurm", "--nodes", "2", "--gpus", "1", "--dry-run", "--python", "/usr/bin/python3")
        done = envdoctor("train", "sort", "--run", run, *options, home=tmp_path)
        assert done.returncode == 2
        assert "has control characters" in done.stderr
    for option in ("--container", "--module", "--partition", "--nodelist"):
        done = envdoctor("train", "sort", "--run", "runs/y", *options, option, "x\npwn", home=tmp_path)
        assert "has control characters" in done.stderr, option
    done = envdoctor("train", "sort", "--run", "runs/a b;c", *options, home=tmp_path)
    assert "#SBATCH --job-name='a b;c'" in done.stdout, done.stdout + done.stderr


def test_a_line_break_of_a_machine_file_starts_no_line(tmp_path: Path) -> None:
    data = json.loads(machine_json(read_recorded("h200")))
    text = "x)\n::error::owned\n\u2028$ rm -rf ~"
    data |= {"origin": text, "name": text}
    data["system"]["os"]["value"] = data["driver"]["version"]["value"] = text
    data["gpus"]["value"][0]["name"]["value"] = text
    (tmp_path / "m.json").write_text(json.dumps(data))
    for command in ("check", "health", "check --verbose"):
        done = envdoctor(*command.split(), "--machine", "m.json", home=tmp_path)
        assert not [line for line in done.stdout.splitlines() if line.strip().startswith(("::", "$ rm"))], done.stdout
