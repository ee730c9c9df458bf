"""Profile files: lookup by name, extends, creation from environments, and refusal of untrusted input."""

from __future__ import annotations

import io
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import envdoctor
from support.fuzzing import mutate
from support.local_packages import write_wheel
from support.sample_environments import add_distribution, make_venv
from support.user_profiles import BASE, SHA, WHEEL, Home, bundled_text, own

from envdoctor.core.errors import EXIT_BAD_INPUT, BadInput
from envdoctor.core.records import absent, known
from envdoctor.environment.inspect import read_stack
from envdoctor.locking.uv import find_uv
from envdoctor.machine.recorded import read_recorded
from envdoctor.profiles import (
    Profile,
    list_profiles,
    profile_is_bundled,
    profile_names,
    read_candidates,
    read_profile,
    read_profiles,
)
from envdoctor.profiles.hashes import WheelHash, find_wheel_hashes, parse_direct_hash
from envdoctor.profiles.new import profile_from_stack


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def specs(profile: Profile) -> list[str]:
    return [pin.spec for pin in profile.requirements]


# Where profiles are found


def test_a_user_profile_is_found_by_name_and_listed_with_its_origin(home: Home) -> None:
    path = home.write("mine", own("mine"))
    home.write("broken", "id = ")
    assert home.read("mine").id == "mine"
    assert not profile_is_bundled("mine", home.environ)
    assert profile_is_bundled("cpu", home.environ)
    listed = {entry.name: entry for entry in list_profiles(home.environ)}
    assert (listed["mine"].origin, listed["cpu"].origin) == (str(path), "bundled")
    assert "is not TOML" in listed["broken"].problem
    assert {profile.id for profile in read_candidates(home.environ)} == {*profile_names(), "mine"}
    assert "mine" not in {profile.id for profile in read_profiles()}


def test_listed_bundled_profiles_are_valid(home: Home) -> None:
    """The list omits the checks of bundled profiles, which `read_profile` performs."""
    assert {p.id: p for p in read_candidates(home.environ)} == {name: home.read(name) for name in profile_names()}


def test_a_bundled_name_is_refused_unless_the_file_extends_it(home: Home) -> None:
    path = home.write(BASE, bundled_text())
    error = home.refusal(BASE)
    assert "two profiles are named" in error.message
    assert str(path) in error.hint
    assert read_profile(str(path)).id == BASE  # by its path it is that file
    home.write(BASE, f'extends = "{BASE}"\ndrop = ["matplotlib"]')
    assert "matplotlib>=3.9" not in specs(home.read(BASE))
    assert not profile_is_bundled(BASE, home.environ)
    listed = [entry for entry in list_profiles(home.environ) if entry.name == BASE]
    assert {entry.origin: bool(entry.problem) for entry in listed} == {"bundled": True, str(path): False}
    assert [p.id for p in read_candidates(home.environ)].count(BASE) == 1


def test_the_id_of_a_user_profile_is_its_file_name(home: Home) -> None:
    home.write("mine", own("other"))
    error = home.refusal("mine")
    assert ", line 3: id = 'other'" in error.message
    assert "did you mean 'x86-cu130'" in home.refusal("x86-cu131").message


def test_the_folder_is_below_the_home_without_xdg_or_with_a_relative_one(tmp_path: Path) -> None:
    folder = tmp_path / ".config/envdoctor/profiles"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(own("mine"))
    for extra in ({}, {"XDG_CONFIG_HOME": "relative"}):
        assert read_profile("mine", {"HOME": str(tmp_path), **extra}).id == "mine"
    shown = envdoctor("profiles", "show", "mine", "--format", "json", home=tmp_path, XDG_CONFIG_HOME="")
    assert shown.returncode == 0, shown.stdout


# What one profile takes over from another


def test_a_profile_is_merged_with_its_base(home: Home) -> None:
    home.write(
        "mine",
        f'extends = "{BASE}"\ndrop = ["Matplotlib"]\npreference = 50\n'
        'requirements = [{ spec = "Transformers==4.57.3" }, { spec = "numpy==2.2.5" }, { spec = "wandb" }]\n'
        '[when]\ngpus = 4\n[environment]\nNCCL_DEBUG = "INFO"\n[verify]\nrequired = ["torch_matmul"]',
    )
    base, mine = read_profile(BASE, {}), home.read("mine")
    assert specs(mine) == [
        *(spec for spec in specs(base) if not spec.startswith(("transformers", "matplotlib"))),
        "Transformers==4.57.3", "numpy==2.2.5", "wandb",
    ]  # fmt: skip
    assert [pin.spec for pin in mine.constraints] == ["huggingface-hub==0.36.0", "setuptools==79.0.1"]
    assert mine.when == msgspec.structs.replace(base.when, gpus=4)
    assert mine.environment == {**base.environment, "NCCL_DEBUG": "INFO"}
    assert (mine.sources, mine.cuda, mine.train) == (base.sources, base.cuda, base.train)
    assert mine.verify.required == ("torch_matmul",)
    assert base.evidence
    assert mine.evidence == ()
    assert mine.id == "mine"
    assert mine.summary == f"{BASE} with Transformers==4.57.3, numpy==2.2.5, wandb, without matplotlib"


def test_several_levels_by_name_and_by_path(home: Home) -> None:
    home.write("team", f'extends = "{BASE}"\ndrop = ["matplotlib"]')
    home.write("lab/gpu", 'extends = "team"\nrequirements = [{ spec = "wandb" }]')
    home.write("mine", 'extends = "lab/gpu.toml"\nsources = [{ kind = "configured" }]')
    mine = home.read("mine")
    assert "wandb" in specs(mine)
    assert "matplotlib>=3.9" not in specs(mine)
    assert len(mine.sources) == 1
    (listed,) = [entry for entry in list_profiles(home.environ) if entry.name == "mine"]
    assert listed.extends == ("gpu", "team", BASE)


REFUSED_BASES = {
    "itself": ("mine", "is circular: mine -> mine"),
    "a circle": ("circle", "is circular: mine -> circle -> mine"),
    "unknown": ("x86-cu131", "did you mean 'x86-cu130'"),
    "above": ("../../x.toml", "'../../x.toml'"),
    "above in between": ("sub/../../x.toml", "extends = "),
    "absolute": ("/etc/passwd.toml", "extends = "),
    "home": ("~/x.toml", "extends = "),
    "no profile": ("sub/passwd", "extends = "),
    "link out": ("link.toml", "extends = "),
    "not there": ("bsae.toml", "did you mean 'base.toml'"),
}


@pytest.mark.parametrize("case", REFUSED_BASES)
def test_an_invalid_base_is_refused_with_the_line(case: str, home: Home, tmp_path: Path) -> None:
    requested, message = REFUSED_BASES[case]
    (tmp_path / "x.toml").write_text(own("x"))
    (home.profiles / "link.toml").symlink_to(tmp_path / "x.toml")
    home.write("base", own("base"))
    home.write("circle", 'extends = "mine"')
    path = home.write("mine", f'# of mine\nextends = "{requested}"')
    error = home.refusal("mine")
    assert message in error.message
    assert f"{path}, line 2: " in error.message or case == "a circle"


def test_the_length_of_a_chain_is_limited(home: Home) -> None:
    for number in range(1, 12):
        home.write(f"p{number}", f'extends = "{f"p{number - 1}" if number > 1 else BASE}"')
    assert home.read("p7").id == "p7"  # 8 with the bundled one
    assert "extends has more than 8 levels" in home.refusal("p8").message


DROPS = {
    "not there": ('drop = ["matplotlob"]', "did you mean 'matplotlib'"),
    "required again": ('drop = ["trl"]\nrequirements = [{ spec = "TRL==0.24.0" }]', "which the same file requires"),
}


@pytest.mark.parametrize("case", DROPS)
def test_invalid_drop_is_refused(case: str, home: Home) -> None:
    text, message = DROPS[case]
    home.write("mine", f'extends = "{BASE}"\n{text}')
    assert message in home.refusal("mine").message
    assert ", line 2: " in home.refusal("mine").message


def test_drop_needs_a_base(home: Home) -> None:
    home.write("mine", 'drop = ["trl"]\n' + own("mine"))
    assert "drop without extends" in home.refusal("mine").message


# Invalid profiles: text of a valid profile, its replacement, and the expected error

IMAGE = '[notebook]\npackages = ["torch==2.11.0+cu128"]\nservice = "colab"\ndate = "2026-08-19"\nurl = ""\n[verify]'
BAD = {
    "extends misspelt": ("schema = 1", 'schema = 1\nextend = "cpu"', "'extends'"),
    "loader": ("VLLM_USE_FLASHINFER_SAMPLER", "LD_PRELOAD", "environment.LD_PRELOAD cannot be set"),
    "python path": ("VLLM_USE_FLASHINFER_SAMPLER", "PYTHONPATH", "environment.PYTHONPATH cannot be set"),
    "another index": ("VLLM_USE_FLASHINFER_SAMPLER", "UV_INDEX_URL", "environment.UV_INDEX_URL cannot be set"),
    "proxy": ("VLLM_USE_FLASHINFER_SAMPLER", "https_proxy", "environment.https_proxy cannot be set"),
    "variable with spaces": ("VLLM_USE_FLASHINFER_SAMPLER", '"A; rm -rf ~"', "environment = 'A; rm -rf ~'"),
    "command in a value": ('SAMPLER = "0"', 'SAMPLER = "$(id)"', "'$(id)'"),
    "newline in a value": ('SAMPLER = "0"', 'SAMPLER = "0\\nLD_PRELOAD=x"', "'0\\nLD_PRELOAD=x'"),
    "address": ('"vllm==0.10.2"', '"vllm @ https://example.org/x.whl"', "is a URL without a hash"),
    "local address": ('"vllm==0.10.2"', '"vllm @ file:///tmp/x.whl"', "is a URL without a hash"),
    "checkout": ('"vllm==0.10.2"', '"git+https://example.org/x"', "'git+https://example.org/x'"),
    "local path": ('"vllm==0.10.2"', '"./x.whl"', "'./x.whl'"),
    "file as a name": ('"vllm==0.10.2"', '"six-1.0-py3-none-any.whl"', "names a file"),
    "archive as a name": ('"vllm==0.10.2"', '"six.tar.gz"', "names a file"),
    "other file": ('"vllm==0.10.2"', '"-r /etc/passwd"', "'-r /etc/passwd'"),
    "option": ('"vllm==0.10.2"', '"--index-url https://example.org"', "'--index-url https://example.org'"),
    "second line": ('"vllm==0.10.2"', '"vllm==0.10.2\\n--index-url https://example.org"', "\\n--index-url"),
    "expanded": ('"vllm==0.10.2"', '"vllm===${HOME}"', "has ==="),
    "expanded marker": ('"vllm==0.10.2"', "'vllm; os_name == \"${HOME}\"'", "has $"),
    "option in a constraint": ('"numpy==2.2.6"', '"-e ."', "'-e .'"),
    "id above": (f'id = "{BASE}"', 'id = "../x"', "'../x'"),
    "id of dots": (f'id = "{BASE}"', 'id = ".."', "'..'"),
    "id as an option": (f'id = "{BASE}"', 'id = "-rf"', "'-rf'"),
    "escape sequence": ('title = "x86', 'title = "\\u001b[2Jx86', "'\\x1b[2Jx86"),
    "NUL": ('title = "x86', 'title = "\\u0000x86', "'\\x00x86"),
    "right to left": ('title = "x86', 'title = "\\u202ex86', "'\\u202ex86"),
    "escape sequence in a key": ("[environment]", '[environment]\n"\\u001b[2J" = "1"', "'\\x1b[2J'"),
    "nested": ("[train]", "[train]\na.b.c.d.e.f.g.h = 1", "nested 7 deep"),
    "architecture above": ('["x86_64"]', '["../../x"]', "'../../x'"),
    "recipe as a file": ('recipe = "sort"', 'recipe = "/etc/passwd"', "'/etc/passwd'"),
    "negative disk": ("disk_gb = 20.0", "disk_gb = -1", "when.disk_gb = -1"),
    "negative GPUs": ("gpus = 1", "gpus = -1", "when.gpus = -1"),
    "NaN": ("disk_gb = 20.0", "disk_gb = nan", "when.disk_gb is too large or not a number"),
    "infinite": ("disk_gb = 20.0", "disk_gb = inf", "when.disk_gb is too large or not a number"),
    "huge": ("disk_gb = 20.0", "disk_gb = 1" + "0" * 400, "when.disk_gb is too large"),
    "more digits than Python reads": ("gpus = 1", "gpus = 1" + "0" * 5000, "is not TOML"),
    "text for a number": ("gpus = 1", 'gpus = "1"', "Expected `int`, got `str`"),
    "date without quotes": (
        'exclude_newer = "2025-10-28"',
        "exclude_newer = 2025-10-28",
        "exclude_newer = 2025-10-28",
    ),
    "no such date": ('exclude_newer = "2025-10-28"', 'exclude_newer = "2025-02-30"', "no such date"),
    "evidence of no date": ('date = "2026-11-21"', 'date = "yesterday"', "evidence[0].date"),
    "digits of another script": ('glibc = "2.31"', 'glibc = "2.\u0663\u0661"', "when.glibc"),
    "backend": ('backend = "cu128"', 'backend = "--index"', "sources[1].backend = '--index'"),
    "image of another service": ("[verify]", IMAGE.replace("colab", "cola"), "one of: kaggle, colab"),
    "option in an image": ("[verify]", IMAGE.replace("torch", "-e ."), "'-e .==2.11.0+cu128'"),
    "image without torch": ("[verify]", IMAGE.replace("torch", "numpy"), "notebook.packages has no torch"),
    "source of a script": ("https://github.com/vllm-project", "javascript:alert(1)//", "requirements[0].url"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_its_line(case: str, home: Home) -> None:
    old, new, message = BAD[case]
    text = bundled_text().replace(old, new, 1)
    assert text != bundled_text()
    path = home.write("mine", text.replace(f'id = "{BASE}"', 'id = "mine"'))
    error = home.refusal("mine")
    assert message in error.message + error.expected
    first = next(n for n, line in enumerate(text.split("\n"), 1) if line not in bundled_text().split("\n"))
    line = error.message.removeprefix(f"{path}, line ").partition(":")[0]
    assert not line.isdigit() or abs(int(line) - first) <= 2
    assert line.isdigit() or "is not TOML" in error.message


def test_the_command_line_refuses_an_injected_command(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(bundled_text().replace("VLLM_USE_FLASHINFER_SAMPLER", "LD_PRELOAD"))
    done = envdoctor("install", "--profile", path, "--dry-run", home=tmp_path)
    assert done.returncode == EXIT_BAD_INPUT
    assert "Traceback" not in done.stderr
    assert "LD_PRELOAD" in done.stderr


WHEELS = {
    "no sha256": (f'sha256 = "{SHA}"\n', "", "missing required field `sha256`"),
    "short sha256": (SHA, SHA[:40], "wheels[0].sha256"),
    "http": ("https://", "http://", "wheels[0].url"),
    "password": ("https://", "https://me:secret@", "wheels[0].url"),
    "no wheel": ('file = "flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"',
                 'file = "flash_attn_3.whl"', "wheels[0].file"),
    "other folder": ('file = "flash', 'file = "../flash', "wheels[0].file"),
    "other project": ('name = "flash-attn"', 'name = "torch"', "is a wheel of flash-attn"),
    "renamed": ("/v2.8.3/flash_attn-2.8.3", "/v2.8.3/flash_attn-2.8.2", "wheels[0].url ends with"),
}  # fmt: skip


@pytest.mark.parametrize("case", WHEELS)
def test_an_untrusted_wheel_is_refused(case: str, home: Home) -> None:
    old, new, message = WHEELS[case]
    home.write("mine", own("mine") + WHEEL)
    assert home.read("mine").wheels[0].name == "flash-attn"
    assert old in WHEEL
    home.write("mine", own("mine") + WHEEL.replace(old, new))
    assert message in home.refusal("mine").message
    assert ", line " in home.refusal("mine").message


def test_slow_files_are_refused_immediately(home: Home) -> None:
    started = time.process_time()
    for text in ("a." * 60_000 + "a = 1", "x = " + "[" * 100_000, "# " + "x" * 300_000, "x = {a = " * 5_000):
        home.write("mine", text)
        home.refusal("mine")
    (home.profiles / "endless.toml").symlink_to("/dev/zero")
    assert "is not a regular file" in home.refusal("endless").message
    assert time.process_time() - started < 20


PIECES = ['extends = "cpu"\n', 'drop = ["torch"]\n', "[[wheels]]\n", "[when]\n", "nan", "\\u0000", "\\ud800", '"""',
          "-1", "1e400", "9" * 5000, "2025-02-30", "a.b.c = 1\n", "\x1b[2J", "{}", "[]", "true", "=" * 3]  # fmt: skip
TEXTS = [bundled_text(name) for name in profile_names()] + [
    f'extends = "{BASE}"\ndrop = ["matplotlib"]\nrequirements = [{{ spec = "wandb" }}]\n[when]\ngpus = 2\n' + WHEEL
]


@given(st.sampled_from(TEXTS), st.integers(0, 1 << 32), st.lists(st.sampled_from(PIECES), max_size=3))
def test_a_mutated_profile_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str, seed: int, pieces: list[str]
) -> None:
    text = mutate(text, seed) if seed % 3 else text
    for number, piece in enumerate(pieces):
        at = (seed * (number + 7)) % (len(text) + 1)
        text = text[:at] + piece + text[at:]
    path = tmp_path_factory.getbasetemp() / "mutated.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    started = time.process_time()
    refusal = None
    try:
        assert msgspec.json.encode(read_profile(str(path), {}))
    except BadInput as error:  # anything else is a failure
        refusal = error
    assert refusal is None or (refusal.exit_code, refusal.kind) == (EXIT_BAD_INPUT, "bad-input")
    assert refusal is None or refusal.message.isprintable()
    assert time.process_time() - started < 10


# Profiles from environments


def stack_at(folder: Path, cuda: str = "12.8") -> tuple[Path, Any]:
    """trl requires transformers and torch, two packages require each other, and one is from a checkout."""
    venv = folder / "venv"
    site = make_venv(venv, version="3.12.4")
    (site / "torch").mkdir()
    (site / "torch/version.py").write_text(
        f"__version__ = '2.8.0'\ncuda = {f'{cuda!r}' if cuda else 'None'}\nhip = None\n"
    )
    add_distribution(site, "torch", "2.8.0" if cuda else "2.8.0+cpu")
    add_distribution(site, "trl", "0.23.1", headers="Requires-Dist: transformers>=4\nRequires-Dist: torch>=2")
    add_distribution(site, "transformers", "4.57.1", headers="Requires-Dist: numpy")
    add_distribution(site, "numpy", "2.2.6")
    add_distribution(site, "chicken", "1.0", headers="Requires-Dist: egg")
    add_distribution(site, "egg", "1.0", headers="Requires-Dist: chicken")
    add_distribution(site, "pip", "25.0")
    info = add_distribution(site, "verl", "0.7.0")
    (info / "direct_url.json").write_text(
        '{"url": "https://example.org/verl.git", "vcs_info": {"commit_id": "4d1c9e6f0000"}}'
    )
    return venv, read_stack(venv, None, {})


@pytest.mark.parametrize("cuda", ["12.8", ""])
def test_a_profile_from_an_environment_is_valid(cuda: str, tmp_path: Path) -> None:
    venv, stack = stack_at(tmp_path, cuda)
    text = profile_from_stack(
        stack, read_recorded("h200"), "lab", hashes=find_wheel_hashes(venv, {"HOME": str(tmp_path)})
    )
    (tmp_path / "lab.toml").write_text(text)
    profile = read_profile(str(tmp_path / "lab.toml"))
    torch = "torch==2.8.0" if cuda else "torch==2.8.0+cpu"
    assert specs(profile) == [torch, "chicken==1.0", "trl==0.23.1"]
    assert [pin.spec for pin in profile.constraints] == ["egg==1.0", "numpy==2.2.6", "transformers==4.57.1"]
    assert "# Left out: verl 0.7.0: installed from verl@4d1c9e6f0000, not from an index" in text
    assert (profile.python.versions, profile.evidence) == (("3.12",), ())
    assert profile.when.architectures == ("x86_64",)
    assert profile.cuda == (None if not cuda else profile.cuda)
    assert (profile.when.gpus, profile.when.compute_capability) == ((1, "9.0") if cuda else (0, ""))
    kinds = [(source.kind, source.backend) for source in profile.sources]
    assert kinds == ([("configured", ""), ("torch-index", "cu128")] if cuda else [("torch-index", "cpu")])
    assert ("cuda_matmul" in profile.verify.required) == bool(cuda)
    assert "Known SHA-256 of wheels: none; of 6." in text


def test_untrusted_metadata_is_not_written_to_a_profile(tmp_path: Path) -> None:
    venv, _ = stack_at(tmp_path)
    site = venv / "lib/python3.12/site-packages"
    for name, version in (("evil", '1.0"\x1b]0;x'), ("Evil\x1b[2J two", "1.0"), ("fine", "1.0.dev0+x.y")):
        info = site / f"{name[:4]}{len(version)}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\n")
    text = profile_from_stack(read_stack(venv, None, {}), read_recorded("h200"), "lab")
    assert all(line.isprintable() for line in text.split("\n"))
    specs = {entry["spec"] for entry in tomllib.loads(text)["requirements"]}
    assert specs >= {"fine==1.0.dev0+x.y", "trl==0.23.1"}
    assert not [spec for spec in specs if "evil==" in spec or "two" in spec]  # evil3 is the name of its folder


UNFIT = {
    "ROCm": ({"hip": known("6.4", "test"), "cuda": absent("test")}, "ROCm"),
    "unknown CUDA": ({"cuda": known("11.3", "test")}, "11.3"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_an_unsupported_environment_is_refused(case: str, tmp_path: Path) -> None:
    _, stack = stack_at(tmp_path)
    changes, message = UNFIT[case]
    torch = msgspec.structs.replace(stack.torch.value, **changes)
    with pytest.raises(BadInput, match=message):
        profile_from_stack(msgspec.structs.replace(stack, torch=known(torch, "test")), read_recorded("h200"), "lab")
    with pytest.raises(BadInput, match="--name"):
        profile_from_stack(stack, read_recorded("h200"), "../lab")


def test_a_wheel_from_a_url_keeps_its_url_and_hash(tmp_path: Path) -> None:
    venv, _ = stack_at(tmp_path)
    wheel = tomllib.loads(WHEEL)["wheels"][0]
    info = add_distribution(venv / "lib/python3.12/site-packages", "flash-attn", "2.8.3+cu12torch2.8cxx11abitrue")
    direct = {"url": wheel["url"], "archive_info": {"hashes": {"sha256": SHA}}}
    (info / "direct_url.json").write_bytes(msgspec.json.encode(direct))
    found = find_wheel_hashes(venv, {"HOME": str(tmp_path)})
    assert found["flash-attn"].sha256 == SHA
    text = profile_from_stack(read_stack(venv, None, {}), read_recorded("h200"), "lab", hashes=found)
    (tmp_path / "lab.toml").write_text(text)
    (kept,) = read_profile(str(tmp_path / "lab.toml")).wheels
    assert (kept.file, kept.url, kept.sha256) == (wheel["file"], wheel["url"], SHA)


def test_hashes_after_real_installs_with_uv_and_pip(tmp_path: Path) -> None:
    """uv installs a wheel of an index into a virtual environment; the hash is that of the file."""
    import hashlib

    from support.local_packages import Index, serve

    wheel = write_wheel(tmp_path / "wheels", "alpha", "1.0")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    environ = {"UV_CACHE_DIR": str(tmp_path / "cache"), "HOME": str(tmp_path), "PATH": "/usr/bin", "NO_PROXY": "*"}
    venv = tmp_path / "venv"
    subprocess.run([find_uv(), "venv", "-q", "--python", sys.executable, venv], env=environ, check=True)
    with serve(Index({"main": tmp_path / "wheels"})) as web:
        command = [find_uv(), "pip", "install", "-q", "-p", venv, "--index-url", web.url(), "alpha"]
        subprocess.run(command, env=environ, check=True)
    found = find_wheel_hashes(venv, environ)
    assert found["alpha"] == WheelHash("1.0", digest, "uv's cache, whose copy has the same RECORD")
    assert find_wheel_hashes(venv, {**environ, "UV_CACHE_DIR": str(tmp_path / "none")}) == {}
    (record,) = venv.glob("lib/python3*/site-packages/alpha-1.0.dist-info/RECORD")
    record.unlink()  # a link into the cache
    with zipfile.ZipFile(io.BytesIO(wheel.read_bytes())) as archive:
        changed = archive.read("alpha-1.0.dist-info/RECORD").replace(b"sha256=", b"sha256=X", 1)
    record.write_bytes(changed)
    assert find_wheel_hashes(venv, environ) == {}
    (venv / "envdoctor-lock.txt").write_text(f"alpha==1.0 --hash=sha256:{SHA}\n")
    assert find_wheel_hashes(venv, environ)["alpha"].sha256 == SHA


def test_direct_urls_of_uv_have_no_hash() -> None:
    assert parse_direct_hash(b'{"url": "https://example.org/a.whl", "archive_info": {}}', "1.0") is None
    assert parse_direct_hash(b"[" * 100_000, "1.0") is None
