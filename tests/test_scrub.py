"""No planted secret, name or address survives; versions and ordinary lines of logs do."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import quote

import planted
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envdoctor.redact.identity import Identity, read_identity
from envdoctor.redact.naming import kind_of
from envdoctor.redact.places import expand_nodes
from envdoctor.redact.scrubber import Scrubber, removed_line

NOBODY = Identity()


def scrub(text: str, identity: Identity = NOBODY) -> str:
    return Scrubber(identity).text(text)


def assert_gone(value: str, text: str, kind: str) -> None:
    scrubber = Scrubber(NOBODY)
    scrubbed = scrubber.text(text)
    assert value not in scrubbed, scrubbed
    assert kind in scrubber.removed, scrubbed
    assert scrubber.text(scrubbed) == scrubbed, "scrubbing twice changes nothing more"


@pytest.mark.parametrize("token", planted.TOKENS.values(), ids=planted.TOKENS)
@pytest.mark.parametrize(
    "around", ["{}", "x {} y", "({})", "'{}',", "a={};", "https://x.y/?t={}&u=1", "[{}]", "/{}/", "{}\n"]
)
def test_tokens_by_their_shape(token: str, around: str) -> None:
    assert_gone(token, around.format(token), "secret")


@pytest.mark.parametrize("around", planted.NAMED)
@pytest.mark.parametrize("secret", [planted.PASSWORD, planted.WANDB_KEY, "correct-horse-7-battery", "p@ss:w0rd/x="])
def test_secrets_by_the_name_before_them(around: str, secret: str) -> None:
    written = quote(secret, safe="") if "://" in around or "proxy" in around else secret
    assert_gone(written, f"step 1\n{around.format(written)}\nstep 2", "secret")


def test_a_secret_with_blanks_in_quotes() -> None:
    assert scrub('password = "correct horse battery" # x') == 'password = "<secret>" # x'


@pytest.mark.parametrize("cut", range(0, len(planted.PRIVATE_KEY) - 40, 35))
def test_private_keys_whole_and_cut_off(cut: int) -> None:
    body = planted.PRIVATE_KEY.splitlines()
    whole = f"before\n{planted.PRIVATE_KEY}\nafter it, a line."
    assert scrub(whole).splitlines()[::2] == ["before", "after it, a line."] or "after it, a line." in scrub(whole)
    for text in (whole, f"before\n{planted.PRIVATE_KEY[: cut + 40]}", planted.PRIVATE_KEY.replace("\n", "\\n")):
        scrubbed = scrub(text)
        assert not any(line[:30] in scrubbed for line in body[1:-1]), scrubbed


def test_the_end_of_a_private_key_alone() -> None:
    tail = planted.PRIVATE_KEY.split("\n", 2)[2]
    assert scrub(tail + "\nafter").replace("\n", "") == "<secret>after"


@pytest.mark.parametrize("around", planted.USERS)
def test_users(around: str) -> None:
    assert_gone(planted.USER, f"a line\n{around.format(planted.USER)}\n", "user")


@pytest.mark.parametrize("around", planted.HOSTS)
def test_hosts(around: str) -> None:
    assert_gone(planted.HOST, f"a line\n{around.format(planted.HOST)}\n", "host")


@pytest.mark.parametrize("address", planted.ADDRESSES)
@pytest.mark.parametrize("around", planted.ADDRESSED)
def test_addresses(address: str, around: str) -> None:
    if ":" in address and around == "eth0:{}<0>":
        around = "eth0:[{}]<0>"
    scrubbed = scrub(around.format(address))
    assert address not in scrubbed, scrubbed


@pytest.mark.parametrize("email", planted.EMAILS)
def test_e_mail_addresses(email: str) -> None:
    for around in ("{}", "Author: J <{}>", "mailto:{}", "({})", "{}, x"):
        assert_gone(email, around.format(email), "email")


@pytest.mark.parametrize("uuid", planted.UUIDS)
def test_uuids(uuid: str) -> None:
    for around in ("{}", "GPU 0: NVIDIA H100 (UUID: {})", "CUDA_VISIBLE_DEVICES={},{}", "'{}'"):
        assert_gone(uuid.removeprefix("GPU-").removeprefix("MIG-"), around.format(uuid, uuid), "uuid")


def test_a_uuid_in_cuda_visible_devices_is_still_seen_to_be_one() -> None:
    assert scrub("CUDA_VISIBLE_DEVICES=GPU-8932f937-d72c") == "CUDA_VISIBLE_DEVICES=GPU-<uuid>"


@pytest.mark.parametrize("around", planted.SERIALS)
def test_serial_numbers(around: str) -> None:
    assert_gone(planted.SERIAL, around.format(planted.SERIAL), "serial")
    assert scrub("Serial Number : N/A") == "Serial Number : N/A"


def test_machine_ids() -> None:
    assert_gone(planted.MACHINE_ID[-32:], planted.MACHINE_ID, "machine")


@pytest.mark.parametrize("around", planted.JOBS)
def test_names_of_jobs_and_runs(around: str) -> None:
    assert_gone(planted.JOB, around.format(planted.JOB), "name")


@pytest.mark.parametrize("line", planted.VERSIONS.splitlines())
def test_versions_are_no_addresses(line: str) -> None:
    """Each in its list, as it is found, and most of them alone too."""
    scrubber = Scrubber(NOBODY)
    assert line in scrubber.text(planted.VERSIONS).splitlines(), scrubber.removed
    if "zz-private" not in line:
        assert scrub(line) == line


def test_a_list_of_machines_is_no_list_of_packages() -> None:
    assert scrub("node01   10.0.0.1\nnode02   10.0.0.2\n") == "node01   <address>\nnode02   <address>\n"


def test_what_the_stack_holds_is_no_address_and_no_name() -> None:
    scrubber = Scrubber(
        Identity(users=frozenset({"vllm2"})), packages=frozenset({"vllm2", "odd"}), versions=frozenset({"10.9.8.7"})
    )
    text = "vllm2 0.10.2, odd 10.1.2.3; built with 10.9.8.7"
    assert scrubber.text("odd 10.1.2.3") == "odd 10.1.2.3"
    assert scrubber.text("vllm2 0.10.2 built with 10.9.8.7") == "vllm2 0.10.2 built with 10.9.8.7", text


def test_a_site_s_name_is_no_machine_s() -> None:
    """What is learnt from www.cupy.dev is that address, and neither "www" nor a part of a package's name."""
    scrubber = Scrubber(NOBODY, packages=frozenset({"cupy-cuda12x", "rich"}))
    text = scrubber.text("see https://www.cupy.dev and https://cupy.dev/x\ncupy-cuda12x==13.6.0 cupy www")
    assert text == "see https://<host> and https://<host>/x\ncupy-cuda12x==13.6.0 cupy www"


def test_a_user_who_is_called_as_a_package_is_known_by_paths() -> None:
    scrubber = Scrubber(Identity(users=frozenset({"rich"})), packages=frozenset({"rich", "torch"}))
    text = scrubber.text(
        "/scratch/rich/x.py /venv/lib/python3.12/site-packages/rich/console.py import rich; rich==15.0"
    )
    assert text == "/scratch/<user>/x.py /venv/lib/python3.12/site-packages/rich/console.py import rich; rich==15.0"


@pytest.mark.parametrize("line", planted.HARMLESS.splitlines())
def test_harmless_lines_stay_as_they_are(line: str) -> None:
    scrubber = Scrubber(NOBODY)
    assert scrubber.text(line) == line, scrubber.removed


def test_names_learnt_in_one_place_are_taken_out_in_all() -> None:
    user, host = planted.USER, planted.HOST
    text = f"/home/{user}/x\n{user} said hello to {host}\nroot@{host}:~# x\n/data/{user}_run"
    scrubbed = scrub(text)
    assert planted.USER not in scrubbed
    assert planted.HOST not in scrubbed


def test_our_own_names_are_taken_out_wherever_they_stand() -> None:
    us = Identity(users=frozenset({"mira"}), hosts=frozenset({"athena"}), secrets=frozenset({"s3cr3t-value-of-mine"}))
    assert scrub("mira at athena: /scratch/mira/x s3cr3t-value-of-mine, admirable", us) == (
        "<user> at <host>: /scratch/<user>/x <secret>, admirable"
    )


def test_a_common_account_does_not_eat_words() -> None:
    us = Identity(users=frozenset({"root", "ubuntu", "train"}), hosts=frozenset({"localhost", "gpu"}))
    text = "root and ubuntu train on gpu at localhost"
    assert scrub(text, us) == text


def test_data_is_scrubbed_by_the_names_of_its_keys_too() -> None:
    data = {
        "settings": {"api_key": planted.PASSWORD, "steps": 5, "run_name": planted.JOB, "pin": None},
        "command": ["vllm", "serve", "--api-key", planted.PASSWORD, "--port", "8000"],
        "evidence": [{"fact": "environment.HF_TOKEN", "value": planted.WANDB_KEY, "source": "x"}],
        f"/home/{planted.USER}/x": {"value": planted.USER},
        "serial": int(planted.SERIAL),
        "password": 12345678,
        "state": "known",
        "max_tokens": 12345678,
    }
    scrubbed = Scrubber(NOBODY).data(data)
    text = json.dumps(scrubbed)
    for value in (planted.PASSWORD, planted.JOB, planted.WANDB_KEY, planted.USER, planted.SERIAL, '"password": 1'):
        assert value not in text
    assert scrubbed["settings"]["steps"] == 5
    assert (scrubbed["command"][1], scrubbed["command"][5]) == ("serve", "8000")
    assert (scrubbed["state"], scrubbed["max_tokens"]) == ("known", 12345678)


def test_counts_are_of_different_values() -> None:
    scrubber = Scrubber(NOBODY)
    scrubber.text(f"/home/jdoe42/a /home/jdoe42/b /home/other9/c {planted.TOKENS['aws']} 10.0.0.1 10.0.0.2 10.0.0.1")
    assert scrubber.removed == {"secret": 1, "user": 2, "address": 2}
    assert removed_line(scrubber.removed) == "Removed: 1 secret, 2 user names, 2 network addresses."
    assert removed_line({}).startswith("Removed: nothing")


def test_the_identity_of_this_process(tmp_path: Path) -> None:
    us = read_identity(
        {"USER": "mira", "HOME": "/data/people/mira2", "MY_API_KEY": "abcdefgh1", "PATH": "/usr/bin", "A_TOKEN": ""}
    )
    assert {"mira", "mira2"} <= us.users
    assert us.secrets == {"abcdefgh1"}
    assert us.hosts


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("HF_TOKEN", "secret"),
        ("hub_token", "secret"),
        ("apiKey", "secret"),
        ("AWS_ACCESS_KEY_ID", "secret"),
        ("KEY", "secret"),
        ("DB_PASSWORD", "secret"),
        ("pad_token", None),
        ("max_tokens", None),
        ("token_ids", None),
        ("key", None),
        ("PWD", None),
        ("TOKENIZERS_PARALLELISM", None),
        ("forward_pass", None),
        ("author", None),
        ("image_token", None),
        ("monkey", None),
        ("SLURM_JOB_NODELIST", "host"),
        ("MASTER_ADDR", "host"),
        ("MASTER_PORT", None),
        ("REDIS_HOST", "host"),
        ("node_rank", None),
        ("run_name", "name"),
        ("model_name", None),
        ("SLURM_JOB_PARTITION", None),
        ("USER", "user"),
        ("board_serial", "serial"),
    ],
)
def test_what_names_say_of_their_values(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


def test_slurm_s_lists_of_nodes() -> None:
    assert expand_nodes("gpu[01-03,7],login1") == ["gpu01", "gpu02", "gpu03", "gpu7", "login1"]
    assert len(expand_nodes("n[0-99999999]")) == 256
    assert "gpu02" not in scrub("SLURM_JOB_NODELIST=gpu[01-03]\ngpu02 is down, gpu02:12:34")


PLANTS = st.sampled_from(
    [
        *((value, value) for value in planted.TOKENS.values()),
        *((around.format(planted.PASSWORD), planted.PASSWORD) for around in planted.NAMED),
        *((around.format(planted.USER), planted.USER) for around in planted.USERS),
        *((around.format(planted.HOST), planted.HOST) for around in planted.HOSTS),
        *((value, value) for value in (*planted.ADDRESSES, *planted.EMAILS)),
        *((value, value[4:]) for value in planted.UUIDS),
        *((around.format(planted.SERIAL), planted.SERIAL) for around in planted.SERIALS),
    ]
)
LINES = st.sampled_from(
    [*planted.VERSIONS.splitlines(), *planted.HARMLESS.splitlines(), "", "    ", "é ü 日本 🚀 İstanbul"]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(LINES, st.text(max_size=60)), max_size=6), st.lists(PLANTS, min_size=1, max_size=4), st.data()
)
def test_nothing_planted_survives_anywhere(
    lines: list[str], plants: list[tuple[str, str]], data: st.DataObject
) -> None:
    lines = list(lines)
    for text, _ in plants:
        lines.insert(data.draw(st.integers(0, len(lines))), text)
    scrubbed = scrub("\n".join(lines))
    for _, value in plants:
        assert value not in scrubbed


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    scrub(text)


LOG = (
    "[rank0]:[W1121 10:00:00.123456 ProcessGroupNCCL.cpp:1250] zeus-node-07:202016:202235 [0] NCCL INFO NET/Socket : "
    "Using [0]eth0:10.0.0.5<0> /home/alice9/x.py 2026-11-21 10:00:01,123 loss=0.123 step: 12 num_tokens: 4096\n"
)


def test_ten_megabytes_take_two_seconds() -> None:
    """1.6 to 1.9 s on a 2-core virtual machine; twice that is allowed, since others' machines are slower."""
    text = LOG * (10_000_000 // len(LOG))
    began = time.process_time()  # other processes of this machine do not count
    scrubbed = scrub(text)
    assert time.process_time() - began < 20
    assert "alice9" not in scrubbed


@pytest.mark.parametrize(
    "unit",
    [
        "@",
        "a@",
        "://",
        "a://b",
        "://a@",
        "eyJ",
        "=",
        "a=",
        "token=",
        "'token': '",
        "token='",
        "HF_TOKEN=",
        "1.",
        "1.1.1.1 ",
        "a:",
        "-",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "/home/a",
        "hf_",
        "sk-",
        "ab:cd:ef:",
        "2001:",
        ":",
        ".com",
        "a-1.com ",
        "[a]:1",
        "\n",
        "AKIA",
        "serial",
        "serial number",
        "id=1(",
        "x 1.2.3.4\n",
        "GPU-",
        "0123abcd-",
        "Bearer ",
        "\\",
        '\\"',
        "ssh ",
        "logged in as:",
        " -u a:",
        "wandb.ai/",
        "machine-id ",
        "authorization: ",
        "gpu[0-9],",
        "A" * 64 + "\n",
        "é",
        "İ",
        "run ",
    ],
)
def test_no_text_takes_long(unit: str) -> None:
    """A pattern that goes back and forth would take minutes for these 200,000 characters."""
    text = unit * (200_000 // len(unit))
    began = time.process_time()
    scrub(text)
    assert time.process_time() - began < 12
