"""Secrets of a foreign text are removed from everything that is printed."""

from __future__ import annotations

import json
from pathlib import Path

from support.cases import each_case
from support.command import envdoctor

from envdoctor.redact.output import without_secrets

SECRET = "hunter2-Xy9"
LOGS = (
    f"password={SECRET}", f"DB_PASSWORD='{SECRET}'", f'"api_key": "{SECRET}"', f"api-key = {SECRET}",
    f"Authorization: Bearer {SECRET}", f"authorization: Basic {SECRET}", f"Cookie: session={SECRET}",
    f"aws_secret_access_key = {SECRET}", f"https://me:{SECRET}@host.example/x", f"me:{SECRET}@host.example:8080",
    f"me:{SECRET}@host.example", f"tool --token {SECRET}", f"tool --password={SECRET}", f"curl -u me:{SECRET} http://x",
    f"https://bucket.example/x?X-Amz-Signature={SECRET}&y=1", f"HF_TOKEN={SECRET}", f"export WANDB_API_KEY={SECRET}",
    f"password {SECRET}", f"WANDB_API_KEY {SECRET}", f"cannot read https:/me:{SECRET}@h/x", f"secret: {SECRET}",
    "AKIAABCDEFGHIJKLMNOP", "-----BEGIN PRIVATE KEY-----\nMIIB" + "A" * 60,
)  # fmt: skip
KEPT = (
    "12.3 tokens/s", "token 5 of 7", "max_tokens=100", "pad_token: <pad>", "eos_token=</s>", "HF_TOKEN=hf_...",
    "export HF_TOKEN=$(cat ~/.token)", "export HF_TOKEN=$TOKEN", "KeyError: 'weight'", "password: required",
    "data = gsm8k:main@refs/convert/parquet", "NAME:CONFIG@REVISION", "tool --token TOKEN", "git@github.com:x/y.git",
    "key: value", "auth: failed", "tokenizer=gpt2", "verl@4d1c9e6", "torch==2.8.0 @ https://x.example/torch.whl",
    "cutlass::half_t secret", "PYTHONPATH=/a:/b@c", "WARNING key=H100", "2026-11-25 10:20:30@host",
    "HF_TOKEN is not set", "password authentication failed for user2", "token 128k", "MAX_TOKENS 4096",
)  # fmt: skip


@each_case("text", LOGS)
def test_a_secret_is_not_printed(text: str) -> None:
    shown = without_secrets(f"before {text} after\nnext line")
    assert SECRET not in shown
    assert "AKIA" not in shown
    assert "MIIB" not in shown
    assert shown.startswith("before ")
    assert shown.endswith("next line")


@each_case("text", KEPT)
def test_other_text_is_kept(text: str) -> None:
    assert without_secrets(text) == text


def test_explain_prints_no_secret_of_a_log(tmp_path: Path) -> None:
    lines = [f"torch.OutOfMemoryError: CUDA out of memory. {text.partition(chr(10))[0]}" for text in LOGS]
    (tmp_path / "train.log").write_text("\n".join(lines))
    for form in ("human", "json", "github", "sarif"):
        done = envdoctor("explain", "train.log", "--format", form, home=tmp_path)
        assert SECRET not in done.stdout + done.stderr, form
        if form in ("json", "sarif"):
            json.loads(done.stdout)
    for number, line in enumerate(lines):
        (tmp_path / "train.log").write_text(line)
        done = envdoctor("explain", "train.log", "--format", "json", home=tmp_path)
        assert SECRET not in done.stdout, number
        assert json.loads(done.stdout)["data"]["causes"][0]["cause"] == "gpu-oom"


def test_check_saves_and_prints_no_secret(tmp_path: Path) -> None:
    token = "aB3dE6gH9jK2mN5pQ8sT1vW4"
    variables = {
        "CUDA_VISIBLE_DEVICES": f"sk-proj-{token}",
        "LD_LIBRARY_PATH": f"/x/ghp_{token}",
        "NCCL_DEBUG": f"nvapi-{token}",
    }
    envdoctor("check", "--save", "m.json", home=tmp_path, **variables)
    saved = (tmp_path / "m.json").read_text()
    assert token not in saved
    assert '"LD_LIBRARY_PATH": "/x/***"' in saved
    done = envdoctor("check", "--machine", f"https://u:{SECRET}@h/x", home=tmp_path)
    assert done.returncode != 0
    assert SECRET not in done.stdout + done.stderr
