"""Scripts that a command starts and that the checkout does not have."""

from __future__ import annotations

import time
from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.manifests.inputs.records import NothingToAudit

ABSENT: dict[str, tuple[str, tuple[int, str]]] = {  # a command, and the line and the nearest file of the finding
    "another name": ("bash scripts/run_zeroscrolls.sh", (4, "scripts/run_zs.sh")),
    "no file is alike": ("python scripts/unlike.py", (4, "Name a script of the checkout")),
    "another folder": ("python measure_memory.py", (4, "Enter the directory scripts")),
    "another folder, with a module of the root": ("python draw_own.py", (4, "python -m deep.own.draw_own")),
    "another letter after cd": ("cd scripts && python measure_memroy.py", (4, "Start scripts/measure_memory.py")),
    "a part of the name": ("python lonely_tables.py", (4, "Start lonely.py")),
    "another letter": ("python lonley.py", (4, "Start lonely.py")),
    "a folder of almost the same name": ("bash script/run_zs.sh", (4, "Start scripts/run_zs.sh")),
    "another folder of the checkout": ("python scripts/draw_lines.py", (4, "Start deep/lines/draw_lines.py")),
    "a folder without a part of its name": ("python small/fit_model.py", (4, "Start small_data/fit_model.py")),
    "a wrong inner folder": ("python deep/draw/draw_lines.py", (4, "Start deep/lines/draw_lines.py")),
}
PRESENT: dict[str, tuple[str, ...]] = {
    "a file": ("python scripts/measure_memory.py",),
    "after cd": ("cd scripts", "bash run_zs.sh"),
    "without cd, a folder of another name": ("python lib/draw_lines.py",),
    "a usual name in a folder without a part of its name": ("python small/main.py",),
    "without cd": ("python lines/draw_lines.py",),
    "the program of a reader": ("accelerate launch my_training.py",),
    "a placeholder": ("python scripts/your_script.py",),
    "an output": ("echo 'import torch' > scripts/made.py", "python scripts/made.py"),
    "prose": ("# Create the file scripts/written.py", "python scripts/written.py"),
    "a download": ("wget -O scripts/fetched.py https://a.b/fetched.py", "python scripts/fetched.py"),
    "a linked project of its name": ("# https://github.com/attardi/unlike", "python scripts/unlike.py"),
    "another repository": ("git clone https://github.com/a/other", "python other/start.py"),
    "a variable": ("python scripts/$NAME.py",),
    "an absolute path": ("python /opt/scripts/start.py",),
    "a program of its own directory": ("cd deep", "../scripts/measure_memory.py"),
    "a name that no file has": ("python unlike.py",),
    "a directory that a script enters": ("bash scripts/run_zs.sh", "python scripts/measure_memory.py"),
}


def _scripts(checkout: Path, *commands: str, guide: str = "README.md") -> list[Finding]:
    for name in (
        "scripts/run_zs.sh",
        "scripts/measure_memory.py",
        "deep/lines/draw_lines.py",
        "small_data/fit_model.py",
        "small_data/main.py",
        "own_tools.py",
    ):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("cd deep\n" if name.endswith(".sh") else "\n")
    (checkout / "deep/own").mkdir(exist_ok=True)
    (checkout / "deep/own/draw_own.py").write_text("import own_tools\n")
    text = sh(*commands, "python train.py", "python lonely.py")
    (checkout / guide).write_text(text)
    found = audit_text(text, str(checkout / guide), None, FixedSolver(FixedIndex(), {}), python="3.12")
    return [each for each in found.result.findings if each.id == "RUN182"]


@each_case("name", [*ABSENT])
def test_a_command_starts_a_script_that_does_not_exist(name: str, checkout: Path) -> None:
    command, (line, fix) = ABSENT[name]
    found = _scripts(checkout, "pip install torch==2.8.0", command)
    assert [(each.line, fix in each.fix) for each in found] == [(line, True)]


def test_a_script_in_a_folder_that_only_commands_name(checkout: Path) -> None:
    commands = ("pip install torch==2.8.0", "bash scripts/run_zs.sh", "python sets/a.py", "python sets/b.py")
    (found,) = _scripts(checkout, *commands)
    assert (found.line, found.message) == (5, "sets/a.py and sets/b.py are not in the checkout")
    assert [each.source.rpartition(" ")[2] for each in found.evidence[:2]] == ["5", "6"]
    assert not _scripts(checkout, "unzip a.zip  # has sets/", *commands)
    assert [each.line for each in _scripts(checkout, *commands[:2], "bash fetch_sets.sh a")] == [5]
    assert not _scripts(checkout, "unzip a.zip  # has fetch_sets.sh", *commands[:2], "bash fetch_sets.sh a")
    assert not _scripts(checkout, *commands[:2], "python run.py")
    assert not _scripts(checkout, "git clone https://github.com/a/other", *commands)
    own = f"git clone https://github.com/a/{checkout.name}"
    assert [each.line for each in _scripts(checkout, own, *commands)] == [6]
    permitted = ("chmod +x set_up_all.sh", "./set_up_all.sh")
    assert [each.line for each in _scripts(checkout, own, *commands[:2], *permitted)] == [7]
    assert not _scripts(checkout, own, "# writes set_up_all.sh", *commands[:2], *permitted)
    assert not _scripts(checkout, own, "git clone https://github.com/a/other", *commands[:2], *permitted)


def test_most_scripts_of_the_own_clone_are_absent(checkout: Path) -> None:
    (checkout / "scripts").mkdir()
    for name in ("test_a.py", "test_b.py", "run_example_a.py"):
        (checkout / "scripts" / name).write_text("\n")
    absent = tuple(f"python scripts/{name}" for name in ("test_gpu.py", "speed.py", "load.py", "run_example_b.py"))
    own = f"git clone https://github.com/a/{checkout.name}"
    assert [each.line for each in _scripts(checkout, own, f"cd {checkout.name}", *absent)] == [5, 8]
    assert not _scripts(checkout, "pip install torch==2.8.0", *absent[:3])
    assert not _scripts(checkout, own, "python small_data/a.py", "python small_data/b.py", "python small_data/c.py")


def test_a_script_of_a_submodule_is_there_after_a_recursive_clone(checkout: Path) -> None:
    own = f"git clone --recursive https://github.com/a/{checkout.name}"
    steps = (own, "bash scripts/run_zs.sh", "cd deep/parts/raft", "./build_all.sh", "cd ../../..")
    (checkout / "deep/parts/raft").mkdir(parents=True)
    before = _scripts(checkout, *steps)
    (checkout / ".gitmodules").write_text('[submodule "raft"]\n\tpath = deep/parts/raft\n\turl = https://a.b/raft\n')
    assert [[each.line for each in found] for found in (before, _scripts(checkout, *steps))] == [[6], []]


IMAGES: dict[
    str, tuple[tuple[str, ...], str, bool]
] = {  # instructions before CMD, its script, and whether it is absent
    "the checkout": (("COPY . /app",), "scripts/simple_count.py", True),
    "the checkout with options": (("ADD --chown=a:a ./ /app/",), "scripts/simple_count.py", True),
    "a script that is there": (("COPY . /app",), "scripts/count.py", False),
    "another folder": (("COPY src /app",), "scripts/simple_count.py", False),
    "another stage": (("COPY --from=build . /app",), "scripts/simple_count.py", False),
    "a folder with one script": (("COPY . /app",), "small/simple_count.py", False),
    "a copy": (("COPY . /app", "COPY count.py scripts/simple_count.py"), "scripts/simple_count.py", False),
    "a download": (("COPY . /app", "RUN wget -O scripts/simple_count.py a.b/c"), "scripts/simple_count.py", False),
}


@each_case("name", [*IMAGES])
def test_an_image_starts_a_script_of_the_folder_that_it_copies(name: str, checkout: Path) -> None:
    instructions, script, is_absent = IMAGES[name]
    files = ("scripts/count.py", "scripts/measure.py", "scripts/draw.py", "small/fit.py", "count.py", "src/a.py")
    write_files(checkout, dict.fromkeys(files, "\n"))
    lines = (
        "FROM python:3.12",
        "RUN pip install torch==2.8.0",
        *instructions,
        "WORKDIR /app",
        f'CMD ["python", "{script}"]',
    )
    text = "\n".join((*lines, ""))
    (checkout / "Dockerfile").write_text(text)
    found = audit_text(text, str(checkout / "Dockerfile"), None, None).result.findings
    fixes = [each.fix for each in found if each.id == "RUN182"]
    assert fixes == ["Start scripts/count.py, if it is the script that is meant."] * is_absent


def test_the_words_of_a_name_are_joined_in_another_order(checkout: Path) -> None:
    for name in ("fit_tables.py", "fit_all_tables.py"):
        (checkout / name).write_text("\n")
    starts = {"tablesfit": "fit_tables.py", "tablesallfit": "fit_all_tables.py", "tablesall": ""}
    for name, fix in starts.items():
        found = _scripts(checkout, "pip install torch==2.8.0", f"python {name}.py", f"# {name}.py")
        assert [each.fix for each in found] == ([f"Start {fix}, if it is the script that is meant."] if fix else [])


def test_the_script_of_another_step_is_not_the_one_that_is_meant(checkout: Path) -> None:
    for name in ("run_7b_small", "run_13b_small", "run_large_7b"):
        (checkout / "scripts").mkdir(exist_ok=True)
        (checkout / f"scripts/{name}.sh").write_text("\n")
    commands = ("pip install torch==2.8.0", "bash scripts/run_large_7b.sh", "bash scripts/run_large_7b_small.sh")
    assert [each.fix for each in _scripts(checkout, *commands)] == [
        "Start scripts/run_7b_small.sh, if it is the script that is meant."
    ]


def test_the_folder_whose_name_is_most_alike_has_the_script(checkout: Path) -> None:
    names = ("deep/gpt/prepare_rows.py", "deep/openlines/prepare_rows.py")
    write_files(checkout, dict.fromkeys(names, "import torch\n"))
    (found,) = _scripts(checkout, "python deep/lines2/prepare_rows.py")
    for name in names:
        (checkout / name).unlink()
    assert found.fix == "Start deep/openlines/prepare_rows.py, if it is the script that is meant."


def test_a_directory_is_named_below_an_unknown_one(checkout: Path) -> None:
    install, start = "pip install torch==2.8.0", "bash ./run_zeros.sh"
    for folder, lines in ((f"{checkout.name}/scripts", [5]), (f"{checkout.name}/absent", []), ("scripts", [])):
        found = _scripts(checkout, install, f"cd <your_path>/{folder}", start, "bash run_zs.sh")
        assert [each.line for each in found] == lines


def test_a_folder_can_be_a_part_of_a_checkout(checkout: Path) -> None:
    (checkout / ".git").rmdir()
    commands = ("pip install torch==2.8.0", "bash scripts/run_zeroscrolls.sh")
    assert not _scripts(checkout, *commands, guide="SETUP.md")
    assert [each.line for each in _scripts(checkout, *commands)] == [4]  # a README next to code: an unpacked archive


RETURNS: dict[str, tuple[tuple[str, ...], bool]] = {  # the first block, and whether the next one is in the checkout
    "an unknown directory": (
        ("git clone https://github.com/a/api $API", "cd $API/python", "python setup.py install"),
        True,
    ),
    "two of them": (("cd ${ROOT}/lib", "make", "cd $API", "python3 setup.py install --user"), True),
    "the clone of another project": (("git clone https://github.com/a/api", "cd api", "python build.py"), False),
    "no directory": (("pip install torch==2.8.0",), True),
}


@each_case("name", [*RETURNS])
def test_the_next_block_runs_in_the_checkout_again(name: str, checkout: Path) -> None:
    commands, returns = RETURNS[name]
    first = (
        f"git clone https://github.com/a/{checkout.name}",
        "pip install torch==2.8.0",
        *commands,
        "```",
        "```bash",
    )
    starts = ("python scripts/absent_tables.py", "python scripts/measure_memory.py")
    assert len(_scripts(checkout, *first, *starts)) == returns
    if name != "no directory":
        assert not _scripts(checkout, *first, starts[0])


OWN_FILES: dict[str, tuple[str, bool]] = {  # the command, and whether the start is reported
    "a configuration of the checkout": ("accelerate launch --config_file small_data/fsdp.yaml run.py", True),
    "in a folder of its own": ("deepspeed run.py --deepspeed ./small_data/fsdp.yaml", True),
    "one that the checkout does not have": ("accelerate launch --config_file small_data/other.yaml run.py", False),
    "an example": ("accelerate launch --config_file examples/fsdp.yaml run.py", False),
    "no file": ("accelerate launch run.py", False),
}


@each_case("name", [*OWN_FILES])
def test_a_usual_name_is_that_of_the_project_with_a_file_of_the_checkout(name: str, checkout: Path) -> None:
    for file in ("small_data/fsdp.yaml", "examples/fsdp.yaml", "lonely.py"):
        (checkout / file).parent.mkdir(exist_ok=True)
        (checkout / file).write_text("\n")
    command, is_reported = OWN_FILES[name]
    assert bool(_scripts(checkout, "pip install torch==2.8.0", command)) is is_reported


IN_TEXT: dict[str, tuple[tuple[str, ...], bool]] = {  # the lines of a guide, and whether the start is reported
    "a sentence": (("Use the `bash scripts/run_zeros.sh` file for the tables.",), True),
    "a script that is there": (("Use the `bash scripts/run_zs.sh` file for the tables.",), False),
    "a block without a language": (("```", "nohup bash scripts/run_zeros.sh &> a.out &", "```"), True),
    "the only start, with a folder of almost the same name": (("```", "deepspeed script/fit_tables.py", "```"), True),
    "the only start, of a usual name": (("```", "deepspeed script/train.py", "```"), False),
    "a folder that the text names": (("```", "streamlit run pages/fit_tables.py", "```"), False),
}


@each_case("name", [*IN_TEXT])
def test_starts_in_the_text_and_in_blocks_without_a_language(name: str, checkout: Path) -> None:
    lines, is_reported = IN_TEXT[name]
    for script in ("scripts/run_zs.sh", "scripts/fit_tables.py"):
        (checkout / script).parent.mkdir(exist_ok=True)
        (checkout / script).write_text("\n")
    start = () if "only" in name else ("`python scripts/fit_tables.py`", "")
    text = "\n".join(("# Tables", "", "`pip install torch==2.8.0`", "", *start, *lines, ""))
    (checkout / "README.md").write_text(text)
    found = audit_text(text, str(checkout / "README.md"), None, FixedSolver(FixedIndex(), {}), python="3.12")
    assert any(each.id == "RUN182" for each in found.result.findings) is is_reported


BENCH = "pip install git+https://github.com/labs/zero-bench.git@v1"


@each_case(("commands", "is_found"), [
    ((BENCH, "python ../zero-bench/main.py --task a"), True),
    ((BENCH, "cd scripts", "python ../../zero-bench/main.py"), False),
    ((BENCH, "git clone https://github.com/labs/zero-bench ../zero-bench", "python ../zero-bench/main.py"), False),
    (("pip install zero-bench", "python ../zero-bench/main.py"), False),
    ((BENCH, "python ../other/main.py"), False),
])  # fmt: skip
def test_pip_makes_no_checkout_of_a_project(commands: tuple[str, ...], is_found: bool, checkout: Path) -> None:
    found = [each for each in _scripts(checkout, *commands) if "zero-bench" in each.message]
    assert [each.status for each in found] == ["warning"] * is_found


def test_a_long_line_with_the_name_of_a_script_is_read_in_bounded_time(checkout: Path) -> None:
    start_time = time.process_time()
    long = "# run_zeroscrolls.sh " + "> " * 30_000
    assert _scripts(checkout, long, "pip install torch==2.8.0", "bash scripts/run_zeroscrolls.sh")
    assert time.process_time() - start_time < 5


@each_case("name", [*PRESENT])
def test_a_script_that_exists_or_is_made(name: str, checkout: Path) -> None:
    assert not _scripts(checkout, "pip install torch==2.8.0", *PRESENT[name])


UNNAMED: dict[str, tuple[tuple[str, ...], bool]] = {  # the lines of a guide, and whether the start is reported
    "the only start": (("`python main.py --lr 1`",), True),
    "a block of code": (("```bash", "pip install torch==2.8.0", "python main.py", "```"), True),
    "with a folder": (("`bash ./main.sh a`",), True),
    "a directory that is entered": (("```bash", "cd app", "python main.py", "```"), False),
    "a directory that the text names": (("In the folder app:", "", "`python main.py`"), False),
    "the path of a file of the directory": (("`python main.py` reads app/settings.yaml",), False),
    "a container": (("```bash", "docker run -it a/b", "python main.py", "```"), False),
    "another project": (("`python test.py`",), False),
    "a snippet that a reader saves": (("Save it into a file named `main.py` and run `python main.py`.",), False),
    "a snippet that a reader copies": (("Copy this to main.py, then run `python main.py`.",), False),
    "an output": (("It saves files.", "", "`python main.py`"), True),
}


@each_case("name", [*UNNAMED])
def test_a_program_is_started_outside_of_a_directory_that_the_guide_does_not_name(name: str, checkout: Path) -> None:
    lines, is_reported = UNNAMED[name]
    for file in ("app/main.py", "app/main.sh"):
        (checkout / file).parent.mkdir(exist_ok=True)
        (checkout / file).write_text("print()\n")
    text = "\n".join(("# Start", "", *lines, ""))
    (checkout / "README.md").write_text(text)
    try:
        found = audit_text(text, str(checkout / "README.md"), None, FixedSolver(FixedIndex(), {})).result.findings
    except NothingToAudit:
        found = ()
    starts = [each for each in found if each.id == "RUN182"]
    assert [(each.status, "directory app first" in each.fix) for each in starts] == [("warning", True)] * is_reported


@each_case(
    ("sentence", "reported"),
    [
        ("Then run `python scripts/unlike.py --size 4`.", True),
        ("Then run `bash scripts/run_zs.sh`, and `python scripts/measures.py`.", True),
        ("Then run `bash scripts/run_zs.sh` and `python scripts/measure_memory.py`.", False),
        ("Do not run `python scripts/unlike.py`: it is gone.", False),
        ("Write `python scripts/your_script.py` for your own.", False),
        ("`python other/start.py` is a program of another project.", False),
    ],
)
def test_a_command_in_the_text_starts_a_script(sentence: str, reported: bool, checkout: Path) -> None:
    _scripts(checkout)
    text = f"{sh('pip install torch==2.8.0', 'python scripts/measure_memory.py')}\n{sentence}\n"
    (checkout / "README.md").write_text(text)
    found = audit_text(text, str(checkout / "README.md"), None, FixedSolver(FixedIndex(), {}), python="3.12")
    assert [each.status for each in found.result.findings if each.id == "RUN182"] == (["warning"] if reported else [])


def test_the_text_names_a_script_as_a_command(checkout: Path) -> None:
    _scripts(checkout)  # writes the files of the checkout
    codes = ("./scripts/mount.sh", "./scripts/run_zs.sh", "./scripts/sync.sh --all", "./mount.sh")
    for number, code in enumerate(codes):
        text = f"{sh('pip install torch==2.8.0', 'python train.py')}\n2. Run `{code}` then.\n"
        (checkout / "README.md").write_text(text)
        found = audit_text(text, str(checkout / "README.md"), None, FixedSolver(FixedIndex(), {}), python="3.12")
        rules = [(each.status, each.line) for each in found.result.findings if each.id == "RUN182"]
        assert rules == ([("warning", 7)] if number in (0, 2) else [])


USUAL = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--eval')\np.add_argument('--data-path')\n"
LEFT_OUT = {  # the text of a section, and whether the finding names the folder of the program
    "the options of a program": ("## Evaluation\n", "python main.py --eval --data_path=x", True),
    "a folder that the section names": ("## Evaluation\nIn `small`:\n", "python main.py --eval --data_path=x", False),
    "another option": ("## Evaluation\n", "python main.py --eval --data_path=x --lr 1", False),
    "one option": ("## Evaluation\n", "python main.py --eval", False),
    "a directory that a step enters": ("## Evaluation\n", "cd small\npython main.py --eval --data_path=x", False),
}


@each_case("name", [*LEFT_OUT])
def test_a_program_in_a_folder_has_the_options(name: str, checkout: Path) -> None:
    section, commands, is_found = LEFT_OUT[name]
    write_files(checkout, {"small/main.py": USUAL, "small/run.sh": "cd <path>/small\npython main.py --eval --lr 1\n"})
    text = sh("pip install torch==2.8.0", "bash small/run.sh") + f"\n{section}\n```sh\n{commands}\n```\n"
    (checkout / "README.md").write_text(text)
    found = audit_text(text, str(checkout / "README.md"), None, None, python="3.12").result.findings
    assert [each.status for each in found if each.id == "RUN182"] == ["warning"] * is_found
