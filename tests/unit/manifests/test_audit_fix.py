"""`envdoctor audit --fix` for locks, lists, directories and other builds of torch. The printed commands run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.cases import each_case
from support.command import envdoctor, envelope
from support.release_index import ReleaseIndex

from envdoctor.knowledge.age import can_update

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
PROJECT = (
    f'[project]\nname = "project"\nversion = "0.1.0"\nrequires-python = "=={PYTHON}.*"\n'
    'dependencies = [\n  "vllm==0.10.2",\n  "transformers>=4.57",\n]\n'
)
PIXI = '[workspace]\nchannels = ["conda-forge"]\nplatforms = ["linux-64"]\n[dependencies]\npython = "3.12.*"\n'
POETRY = '[tool.poetry]\nname = "a"\nversion = "0"\n[tool.poetry.dependencies]\npython = "~3.12"\nvllm = "0.10.2"\n'
PINS = 'vllm = "==0.10.2"\ntransformers = "==5.1.0"\n'
FAULTY = "vllm==0.10.2\ntransformers==5.1.0\n"
V100 = ("--gpu", "v100", "--fact", "driver.version=535.105.17")


def audit(index: ReleaseIndex, folder: Path, *arguments: str) -> dict[str, Any]:
    """The result of `envdoctor audit` in a folder, with the index of the built-in tables."""
    variables = index.variables("pypi") | {"PIP_CONFIG_FILE": "/dev/null"}
    data: dict[str, Any] = envelope(
        envdoctor("audit", *arguments, "--format", "json", home=folder, cwd=folder, **variables)
    )["data"]
    return data


def run(index: ReleaseIndex, folder: Path, command: str) -> None:
    """Run a printed command as a user would."""
    variables = index.variables("pypi") | {"UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(
        shlex.split(command), cwd=folder, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def problems(data: dict[str, Any]) -> list[str]:
    audits = data.get("audits", [data])
    return [f["message"] for each in audits for f in each["findings"] if f["status"] in ("error", "warning")]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_txt", ".txt").replace("_toml", ".toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("where", ["", "sub"])
def test_a_lock_of_uv_is_corrected_in_its_manifest_and_locked_again(
    where: str, tmp_path: Path, index: ReleaseIndex
) -> None:
    write(tmp_path / where, pyproject_toml=PROJECT)
    run(index, tmp_path, f"uv lock --project {where or '.'}")
    data = audit(index, tmp_path, str(Path(where) / "uv.lock"), "--fix", ".")
    assert problems(data)
    assert data["sets"][0]["state"] == "solved"
    assert data["commands"][-1] == f"uv lock --project {where}" if where else "uv lock"
    for command in data["commands"]:
        run(index, tmp_path, command)
    assert problems(audit(index, tmp_path, where or ".")) == []


def test_a_remedy_of_a_lock_is_a_command_of_its_tool(tmp_path: Path, index: ReleaseIndex) -> None:
    write(tmp_path / "sub", pyproject_toml=PROJECT)
    run(index, tmp_path, "uv lock --project sub")
    (remedy,) = {
        c for f in audit(index, tmp_path, "sub/uv.lock")["findings"] for r in f["remedies"] for c in r["commands"]
    }
    assert remedy.startswith("uv add --project sub ")
    run(index, tmp_path, remedy + " --no-sync")
    assert problems(audit(index, tmp_path, "sub/uv.lock")) == []


def test_a_directory_is_corrected_below_the_target_and_the_lock_after_its_manifest(
    tmp_path: Path, index: ReleaseIndex
) -> None:
    write(
        tmp_path,
        app__pyproject_toml=PROJECT,
        requirements_txt=FAULTY,
        out__x="",
        sound__requirements_txt="torch==2.8.0\n",
    )
    write(tmp_path / "docker", Dockerfile="FROM python:3.12\nRUN pip install vllm==0.10.2 transformers==5.1.0\n")
    run(index, tmp_path, "uv lock --project app")
    data = audit(index, tmp_path, ".", "--fix", "out")
    by_name = {each["name"]: each for each in data["audits"]}
    assert by_name["sound/requirements.txt"]["written"] == []
    assert "out/docker/Dockerfile" in by_name["docker/Dockerfile"]["written"]
    assert "out/app/pyproject.toml" in by_name["app/pyproject.toml"]["written"]
    assert by_name["app/uv.lock"]["commands"] == [
        "cp out/app/pyproject.toml app/pyproject.toml",
        "uv lock --project app",
    ]
    for command in by_name["app/uv.lock"]["commands"]:
        run(index, tmp_path, command)
    run(index, tmp_path, "cp out/docker/Dockerfile docker/Dockerfile")
    run(index, tmp_path, "cp out/requirements.txt requirements.txt")
    (tmp_path / "out").rename(tmp_path / "build")
    assert problems(audit(index, tmp_path, ".")) == []


def test_a_list_of_all_packages_keeps_the_pins_that_the_correction_allows(
    tmp_path: Path, index: ReleaseIndex
) -> None:
    write(tmp_path, requirements_in=FAULTY)
    (tmp_path / "requirements.in").write_text(FAULTY.replace("==5.1.0", ">=5.0"))
    compiled = (
        f"uv pip compile requirements.in --output-file freeze.txt --no-header --no-annotate --python-version {PYTHON}"
    )
    run(index, tmp_path, compiled)
    (tmp_path / "requirements.in").unlink()
    before = (tmp_path / "freeze.txt").read_text()
    assert len(before.split()) > 15
    data = audit(index, tmp_path, "freeze.txt", "--fix", ".")
    assert "freeze.fixed.txt" in data["written"]
    after = (tmp_path / "freeze.fixed.txt").read_text()
    assert "transformers==4.5" in after
    assert [line.partition("==")[0] for line in after.split()] == [line.partition("==")[0] for line in before.split()]
    assert problems(audit(index, tmp_path, "freeze.fixed.txt")) == []
    table = "Package Version\n------- -------\n" + before.replace("==", " ")
    (tmp_path / "list.txt").write_text(table)
    listed = audit(index, tmp_path, "list.txt", "--fix", ".")
    assert listed["commands"] == ["uv pip install -r list.requirements.txt"]
    assert problems(audit(index, tmp_path, "list.requirements.txt")) == []


def test_a_compiled_file_is_corrected_in_its_source(tmp_path: Path, index: ReleaseIndex) -> None:
    (tmp_path / "requirements.in").write_text(FAULTY)
    run(index, tmp_path, "uv pip compile requirements.in --generate-hashes --output-file requirements.txt")
    data = audit(index, tmp_path, "requirements.txt", "--fix", ".")
    assert data["written"] == ["requirements.fixed.in"]
    for command in data["commands"]:
        run(index, tmp_path, command)
    assert "--hash=" in (tmp_path / "requirements.txt").read_text()
    assert problems(audit(index, tmp_path, "requirements.txt")) == []


def test_a_lock_without_its_manifest_states_what_is_missing(tmp_path: Path, index: ReleaseIndex) -> None:
    write(tmp_path, pyproject_toml=PROJECT)
    run(index, tmp_path, "uv lock")
    (tmp_path / "pyproject.toml").unlink()
    data = audit(index, tmp_path, "uv.lock", "--fix", ".")
    assert data["written"] == ["uv.requirements.txt"]
    assert data["notes"] == ["uv.lock itself was not corrected: pyproject.toml is not next to it"]


WITH_INDEX = {
    "requirements.txt": (
        "torch\ntorchvision\n",
        "--extra-index-url https://download.pytorch.org/whl/cu126\ntorch==2.",
    ),
    "environment.yml": (
        "dependencies:\n  - python=3.12\n  - pip:\n    - torch\n",
        "    - --extra-index-url https://download.pytorch.org/whl/cu126\n    - torch==2.",
    ),
    "Dockerfile": (
        "FROM python:3.12\nRUN pip install torch\n",
        "RUN pip install --extra-index-url https://download.pytorch.org/whl/cu126 torch==2.",
    ),
    "pixi.toml": (
        PIXI + '[pypi-dependencies]\ntorch = "*"\n',
        '[pypi-options]\nextra-index-urls = ["https://download.pytorch.org/whl/cu126"]\n',
    ),
    "setup.sh": ("uv pip install torch\n", "uv pip install --torch-backend=cu126 torch==2."),
}


@pytest.mark.parametrize("name", sorted(WITH_INDEX))
def test_the_index_of_a_build_for_the_driver_and_the_gpu_is_written(
    name: str, tmp_path: Path, index: ReleaseIndex
) -> None:
    text, written = WITH_INDEX[name]
    (tmp_path / name).write_text(text)
    data = audit(index, tmp_path, name, "--fix", ".", *V100)
    (solved,) = data["sets"]
    assert (solved["state"], solved["options"]) == ("solved", ["--torch-backend=cu126"])
    fixed = next(each for each in data["written"] if ".fixed" in each)
    assert written in (tmp_path / fixed).read_text()
    (tmp_path / name).write_text((tmp_path / fixed).read_text())
    assert problems(audit(index, tmp_path, name, *V100)) == []


def test_uv_takes_the_build_of_a_corrected_project(tmp_path: Path, index: ReleaseIndex) -> None:
    text = PROJECT.replace('  "vllm==0.10.2",\n  "transformers>=4.57",\n', '  "torch>=2.6",\n  "torchvision",\n')
    (tmp_path / "pyproject.toml").write_text(text)
    data = audit(index, tmp_path, "pyproject.toml", "--fix", ".", *V100)
    assert "pyproject.fixed.toml" in data["written"]
    fixed = (tmp_path / "pyproject.fixed.toml").read_text()
    assert tomllib.loads(fixed)["tool"]["uv"]["sources"]["torchvision"] == {"index": "pytorch-cu126"}
    (tmp_path / "pyproject.toml").write_text(fixed)
    run(index, tmp_path, "uv lock")
    locked = {row["name"]: row["version"] for row in tomllib.loads((tmp_path / "uv.lock").read_text())["package"]}
    assert locked["torch"].endswith("+cu126")
    assert locked["torchvision"].endswith("+cu126")


def test_the_driver_of_a_guide_selects_the_build(tmp_path: Path, index: ReleaseIndex) -> None:
    text = "# Nodes\n\n| Driver | 535.104.05 |\n|---|---|\n\n```bash\npip install torch transformers==4.57.6\n```\n"
    (tmp_path / "SETUP.md").write_text(text)
    data = audit(index, tmp_path, "SETUP.md", "--fix", ".")
    (solved,) = data["sets"]
    assert (solved["state"], solved["target"].rpartition(", ")[2][:7]) == ("solved", "CUDA 12")
    run(index, tmp_path, "patch -p1 -i SETUP.md.patch")
    assert problems(audit(index, tmp_path, "SETUP.md")) == []


def test_packages_are_compared_with_the_gpu_of_the_machine(tmp_path: Path, index: ReleaseIndex) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\n")
    (found,) = audit(index, tmp_path, "requirements.txt", "--gpu", "rtx5090")["findings"]
    assert (found["id"], found["line"], found["cause"]) == ("RUN057", 1, "gpu-arch-not-in-build")
    assert found["message"].startswith("on the NVIDIA GeForce RTX 5090 of the machine: torch 2.6.0")
    assert audit(index, tmp_path, "requirements.txt", "--gpu", "h100")["findings"] == []


def test_without_a_build_for_the_driver_there_is_no_set(tmp_path: Path, index: ReleaseIndex) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.9.0\n")
    data = audit(
        index, tmp_path, "requirements.txt", "--fix", ".", "--gpu", "a100", "--fact", "driver.version=470.82.01"
    )
    (solved,) = data["sets"]
    assert solved["state"] == "conflict"
    assert solved["note"] == (
        "torch 2.9.0 has no build for driver 470.82.01 and compute capability 8.0; "
        "the newest release with one is 2.7.1"
    )
    assert not [name for name in data["written"] if ".fixed" in name]


ENTRIES = {
    "poetry/pyproject.toml": (
        POETRY + 'transformers = {version = "^5.1", extras = ["torch"]}\n',
        'transformers = {version = "<=4.57.6", extras = ["torch"]}\n',
        "poetry add --directory poetry transformers==4.57.6",
    ),
    "Pipfile": ('[packages]\nvllm = "==0.10.2"\ntransformers = "==5.1.0"\n', 'transformers = "==4.57.6"\n',
                "pipenv install transformers==4.57.6"),
    "pixi.toml": (
        PIXI + f'[feature.gpu.pypi-dependencies]\n{PINS}[environments]\ngpu = ["gpu"]\n',
        'transformers = "==4.57.6"\n',
        "pixi add --pypi --feature gpu transformers==4.57.6",
    ),
}  # fmt: skip


@each_case("name", sorted(ENTRIES))
def test_entries_of_tables_and_the_commands_of_their_tools(
    name: str, tmp_path_factory: pytest.TempPathFactory, index: ReleaseIndex
) -> None:
    text, written, command = ENTRIES[name]
    folder = tmp_path_factory.mktemp("entries")
    write(folder, **{name.replace("/", "__"): text, "out__x": ""})
    data = audit(index, folder, name, "--fix", "out")
    assert [each["commands"] for f in data["findings"] for each in f["remedies"]] == [[command]]
    corrected = (folder / "out" / Path(name).name).read_text()
    assert written in corrected
    assert [a for a, b in zip(text.split("\n"), corrected.split("\n"), strict=True) if a != b] == [
        line for line in text.split("\n") if line.startswith("transformers")
    ]


DEFINED = {
    "Dockerfile": (
        'FROM python:3.12\nENV V=5.1.0\nRUN pip install vllm==0.10.2 "transformers==$V"\n',
        "ENV V=4.57.6\n",
    ),
    "job.sbatch": (
        '#!/bin/bash\nPK=(vllm==0.10.2 transformers==5.1.0)\npip install "${PK[@]}"\n',
        "PK=(vllm==0.10.2 transformers==4.57.6)\n",
    ),
    "ci.yml": (
        "env:\n  V: 5.1.0\njobs:\n  a:\n    steps:\n    - run: pip install vllm==0.10.2 transformers==${{ env.V }}\n",
        "  V: 4.57.6\n",
    ),
}


@each_case("name", sorted(DEFINED))
def test_a_version_is_corrected_where_a_variable_gets_it(
    name: str, tmp_path_factory: pytest.TempPathFactory, index: ReleaseIndex
) -> None:
    text, written = DEFINED[name]
    folder = tmp_path_factory.mktemp("defined")
    (folder / name).write_text(text)
    (folder / "out").mkdir()
    audit(index, folder, name, "--fix", "out")
    assert written in (folder / "out" / name).read_text()
    assert problems(audit(index, folder, f"out/{name}")) == []


def test_the_remedy_of_a_conda_environment_changes_its_file(tmp_path: Path, index: ReleaseIndex) -> None:
    text = "dependencies:\n  - python=3.12\n  - pip:\n    - vllm==0.10.2\n    - 'transformers==5.1.0'  # new\n"
    (tmp_path / "environment.yml").write_text(text)
    (finding,) = audit(index, tmp_path, "environment.yml")["findings"]
    edit, update = finding["remedies"][0]["commands"]
    assert update == "conda env update --file environment.yml"
    run(index, tmp_path, edit)
    assert (tmp_path / "environment.yml").read_text() == text.replace("5.1.0", "4.57.6")
    assert problems(audit(index, tmp_path, "environment.yml")) == []


def test_packages_of_conda_keep_their_names_and_builds(tmp_path: Path, index: ReleaseIndex) -> None:
    conda = "  - python=3.12\n  - numpy=1.26.4=py312hc5e2394_0\n  - typing_extensions=4.7.1\n  - tqdm=4.65.0\n"
    pip = "  - pip:\n    - vllm==0.10.2\n    - transformers==5.1.0\n    - tqdm==4.67.1\n"
    (tmp_path / "environment.yml").write_text(f"dependencies:\n{conda}{pip}")
    (tmp_path / "out").mkdir()
    audit(index, tmp_path, "environment.yml", "--fix", "out")
    written = (tmp_path / "out" / "environment.yml").read_text()
    assert "  - numpy=1.26.4=py312hc5e2394_0\n  - typing_extensions=4." in written
    assert "  - tqdm=4.65.0\n" in written
    assert "    - transformers==4.57.6\n    - tqdm==4.67.1" in written


def test_a_version_newer_than_the_tables_is_judged(tmp_path: Path, index: ReleaseIndex) -> None:
    (tmp_path / "requirements.txt").write_text("vllm==0.10.2\ntransformers==5.99.0\n")
    data = audit(index, tmp_path, "requirements.txt")
    assert {f["cause"] for f in data["findings"] if f["status"] == "error"} == {"transformers-too-new"}
    (unknown,) = [f for f in data["findings"] if f["status"] == "unknown"]
    assert unknown["message"].startswith("transformers==5.99.0 is newer than the built-in tables")
    commands = [command for remedy in unknown["remedies"] for command in remedy["commands"]]
    assert commands == (["envdoctor update"] if can_update() else [])  # without a release key it is refused


def test_a_yanked_release_is_replaced_as_the_finding_states(tmp_path: Path, index: ReleaseIndex) -> None:
    (tmp_path / "requirements.txt").write_text("requests==2.32.0\ntorch==2.8.0\n")
    data = audit(index, tmp_path, "requirements.txt", "--fix", ".")
    (finding,) = data["findings"]
    assert finding["fix"] == "Use requests==2.32.2."
    assert "requests==2.32.2" in data["sets"][0]["requirements"]
    assert (tmp_path / "requirements.fixed.txt").read_text() == "requests==2.32.2\ntorch==2.8.0\n"


def test_a_text_with_an_error_after_its_correction_has_no_set(tmp_path: Path, index: ReleaseIndex) -> None:
    write(tmp_path, requirements_txt=f"{FAULTY}-r missing.txt\n", out__x="")
    data = audit(index, tmp_path, "requirements.txt", "--fix", "out")
    (none,) = data["sets"]
    assert (none["state"], none["requirements"], none["options"]) == ("not-verified", [], [])
    assert "line 3: missing.txt does not exist" in none["note"]
    assert (data["written"], data["commands"]) == ([], [])


def test_without_problems_the_set_is_what_the_steps_install(tmp_path: Path, index: ReleaseIndex) -> None:
    write(tmp_path, requirements_txt="vllm==0.10.2\ntransformers<5\ndatasets\n", out__x="")
    data = audit(index, tmp_path, "requirements.txt", "--fix", "out")
    (found,) = data["sets"]
    assert found["state"] == "solved"
    assert {"vllm==0.10.2", "transformers==4.57.6", "torch==2.8.0"} <= set(found["requirements"])
    assert any("nothing to correct" in note for note in data["notes"])


def test_the_directory_of_the_corrections_is_created(tmp_path: Path, index: ReleaseIndex) -> None:
    write(tmp_path, requirements_txt="vllm==0.10.2\ntransformers<5\n")
    data = audit(index, tmp_path, "requirements.txt", "--fix", "new")
    assert data["written"][0] == "new/requirements.requirements.txt"
    assert (tmp_path / "new" / "requirements.requirements.txt").is_file()


def test_what_was_not_read_is_named_where_nothing_is_corrected(tmp_path: Path, index: ReleaseIndex) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    write(tmp_path, requirements_txt=f"vllm==0.10.2\ntransformers<5\ngit+https://github.com/a/own.git@{commit}\n")
    note, *_ = audit(index, tmp_path, "requirements.txt", "--fix", "out")["notes"]
    assert note.startswith("nothing to correct in requirements.txt: it has no errors or warnings in what was read; ")
    assert "not read: own (line 3)" in note


def test_the_versions_of_an_included_file_are_corrected_in_that_file(tmp_path: Path, index: ReleaseIndex) -> None:
    commands = "# vllm and transformers\npython3.12 -m venv v\n. v/bin/activate\npip install -r requirements.txt\n"
    write(tmp_path, requirements_txt=FAULTY, out__x="")
    (tmp_path / "setup.sh").write_text(f"{commands}vllm serve a\n")
    data = audit(index, tmp_path, "setup.sh", "--fix", "out")
    assert (tmp_path / "out" / "requirements.txt").read_text() == "vllm==0.10.2\ntransformers==4.57.6\n"
    assert not (tmp_path / "out" / "setup.sh").exists()
    run(index, tmp_path, data["commands"][-1])
    assert problems(audit(index, tmp_path, "setup.sh")) == []


def test_what_no_version_cures_does_not_prevent_the_correction_of_versions(
    tmp_path: Path, index: ReleaseIndex
) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path, out__x="", **{"tools__other.py": "import torch\n", "train.py": "import torch\n"})
    programs = "python train.py\npython tools/other.py\npython tools/others.py"
    write(tmp_path, **{"README.md": f"```sh\npip install vllm==0.10.2 transformers==5.1.0\n{programs}\n```\n"})
    data = audit(index, tmp_path, "README.md", "--fix", "out")
    assert "+pip install vllm==0.10.2 transformers==4.57.6" in (tmp_path / "out" / "README.md.patch").read_text()
    assert [each for each in data["notes"] if "tools/others.py is not in the checkout" in each]
