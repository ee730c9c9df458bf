"""Secrets in forms that no format of a token shows are removed from output and from quoted lines."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.explained import explain_text
from support.paths import TRAIN

from envdoctor.redact.identity import read_identity
from envdoctor.redact.output import without_secrets
from envdoctor.redact.redactor import Redactor
from envdoctor.redact.run_files import RunFileRedactor

S = "hunter2Zq9XkPw"
ERROR = "torch.AcceleratorError: CUDA error: the provided PTX was compiled with an unsupported toolchain."
ONE_LINE = (
    f"PGPASSWORD={S} psql", f"-Dpassword={S}", f"password[]={S}", f"token[0]={S}", f"token.value={S}",
    f'password = """{S}"""', f"password\u00a0=\u00a0{S}", f"password\uff1d{S}", f"password%3D{S}",
    f"SharedAccessSignature={S}", f"Pwd={S};", f"_auth={S}", f"token\t{S}", f"<password>{S}</password>",
    f'<add key="password" value="{S}"/>', f'<token value="{S}"/>', f"ApiKey {S}", f"passw\\u006frd={S}",
    f'{{"name":"HF_TOKEN","value":"{S}"}}', f"{{'name': 'HF_TOKEN', 'value': '{S}'}}", f"https:\\/\\/u:{S}@h",
    f"https:%2F%2Fu:{S}@h", f"//u:{S}@h/x", f'Authorization: Digest username="u", response="{S}"',
    f'Digest username="u", response="{S}"', f'login("{S}")', f"sshpass -p {S}", f"docker login -u x -p {S}",
    f"wandb login {S}", f"AccountKey={S}", f'"password" : "{S}"', f"curl -H 'Authorization: token {S}' x",
)  # fmt: skip
LINES = (
    f"password=\\\n{S}", f"token: >-\n  {S}", f"password: |\n  {S}", f'"password":\n  "{S}"', f"password=\r\n {S}",
    f"--password\n{S}", f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{S}", f"-----BEGIN RSA PRIVATE KEY-----\n{S}",
    f"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n\n{S}", f"name: HF_TOKEN\n  value: {S}",
)  # fmt: skip
KEPT = (
    "pad_token = <pad>", "max_tokens: 512", "Enter the password:\nLoading the model", "tokens per second: 1024.5",
    "name: gpu\n  value: 8", "PWD=/home/u/x", "key: value", "inspect.signature = (self, x)", "keys\t12 values",
    "https://example.org/a//b", "cat a.txt | docker login -u x --password-stdin", "login(user)", "token\nNext line",
    "<tokens>12</tokens>", "a digest of 64 characters", "special_tokens_map.json saved", "// comment: a@b",
    "the token ids\n12345678", "Warning: token: unexpected",
)  # fmt: skip


@pytest.mark.parametrize("text", [*ONE_LINE, *LINES])
def test_a_secret_is_removed(text: str) -> None:
    assert S not in without_secrets(text)
    assert S not in Redactor(read_identity()).text(text)
    assert S not in RunFileRedactor().text(text)


@pytest.mark.parametrize("text", [*ONE_LINE, *LINES])
def test_explain_quotes_a_line_without_it(text: str) -> None:
    for log in (f"{text} {ERROR}\n", f"first line\n{text} {ERROR}\nlast\n"):
        explained = explain_text(log)
        assert explained.causes
        assert S not in without_secrets(str(explained.causes))


def test_the_trainer_prints_and_records_none(tmp_path: Path) -> None:
    """In a process without envdoctor on its path, as in the environment of a stack."""
    code = (
        "import json, pathlib, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from run.directory import RunDirectory\n"
        "from run.redaction import redact_standard_streams, without_secrets\n"
        "texts, kept = json.load(sys.stdin)\n"
        "assert all(without_secrets(text) == text for text in kept)\n"
        "redact_standard_streams()\n"
        "run = RunDirectory(pathlib.Path(sys.argv[2]))\n"
        "for text in texts:\n"
        "    print(text)\n"
        "    run.write_event('error', message=text)\n"
    )
    texts = json.dumps([[*ONE_LINE, *LINES], KEPT])
    arguments = [sys.executable, "-I", "-S", "-c", code, str(TRAIN), str(tmp_path)]
    done = subprocess.run(arguments, input=texts, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    stored = (tmp_path / "events.jsonl").read_text()
    assert [json.loads(line)["event"] for line in stored.splitlines()] == ["error"] * (len(ONE_LINE) + len(LINES))
    assert S not in done.stdout + stored


@pytest.mark.parametrize("text", KEPT)
def test_other_texts_are_kept(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "text", ["<a ", "name: A ", "login ", "//a:", "Digest ", "password=\n", "\\u0070", "a\t", "</"]
)
def test_the_time_is_linear(text: str) -> None:
    started = time.process_time()
    without_secrets(text * (300_000 // len(text)) + "password=x")
    assert time.process_time() - started < 3
