"""The programs of a checkout that a guide, a manifest, an image or a project starts."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.program_imports import audit_imports
from support.text_files import write_files

from envdoctor.manifests.program_launches import Program, started_program
from envdoctor.manifests.shell_records import Command

PROGRAMS: dict[str, Program | None] = {
    "python train.py --lr 1": Program(script="train.py"),
    "python3 -u -W ignore tools/train.py": Program(script="tools/train.py"),
    "python -m project.train": Program(module="project.train"),
    "python -m torch.distributed.run --nproc_per_node=8 train.py": Program(
        script="train.py", launcher="torch.distributed.run"
    ),
    "torchrun --nproc_per_node 8 train.py --data x.py": Program(script="train.py", launcher="torchrun"),
    "torchrun -m project.train": Program(module="project.train", launcher="torchrun"),
    "accelerate launch --config_file a.yaml train.py": Program(script="train.py", launcher="accelerate"),
    "deepspeed --master_port=1 train.py": Program(script="train.py", launcher="deepspeed", gets_rank=True),
    "uv run python train.py": Program(script="train.py"),
    "uvicorn app.main:app --host 0.0.0.0 --port 8000": Program(module="app.main", launcher="uvicorn"),
    "python -m uvicorn main:app --reload": Program(module="main", launcher="uvicorn"),
    "gunicorn -b localhost:8000 -w 4 server:make_app()": Program(module="server", launcher="gunicorn"),
    "uvicorn main:app --app-dir src": None,
    "gunicorn --chdir=src main:app": None,
    "uvicorn --help": None,
    "python -c 1": None,
    "pip install train.py": None,
    "python $SCRIPT": None,
    "sudo ../tools/train.py": Program(script="../tools/train.py"),
}


@each_case("command", [*PROGRAMS])
def test_the_program_of_a_command(command: str) -> None:
    program = started_program(Command(1, tuple(command.split())))
    assert (program and program._replace(arguments=())) == PROGRAMS[command]


def test_the_programs_of_a_manifest(checkout: Path) -> None:
    requirements = checkout / "requirements.txt"
    assert not audit_imports(requirements, "torch==2.8.0\n")  # no program
    (checkout / "main.py").write_text("import torch\nimport project.data\nif __name__ == '__main__':\n    print()\n")
    assert [each.status for each in audit_imports(requirements, "torch==2.8.0\n")] == ["warning"]
    (checkout / "main.py").unlink()
    (checkout / "README.md").write_text("```bash\npython train.py\n```\n")
    assert "README.md:2" in str(audit_imports(requirements, "torch==2.8.0\n")[0].evidence)
    (checkout / "requirements-figures.txt").write_text("plots\n")
    assert not audit_imports(requirements, "torch==2.8.0\n")


def test_the_program_of_a_readme_is_next_to_the_manifest(checkout: Path) -> None:
    (checkout / "README.md").write_text("```bash\npython main.py\n```\n")
    (checkout / "demo").mkdir()
    (checkout / "demo/main.py").write_text("import torch\nimport plots\n")
    (found,) = audit_imports(checkout / "demo/requirements.txt", "torch==2.8.0\n")
    assert found.message.startswith("demo/main.py:2 imports plots")


def test_the_imports_of_an_application_that_a_server_starts(checkout: Path) -> None:
    (checkout / "app").mkdir()
    (checkout / "app/main.py").write_text("import torch\nimport plots\napp = plots.App()\n")
    guide = sh("pip install torch==2.8.0", "uvicorn app.main:app --port 8000")
    (found,) = audit_imports(checkout / "README.md", guide)
    assert (found.line, found.message.startswith("app/main.py:2 imports plots")) == (4, True)


STARTS: dict[str, bool] = {  # the end of a program, and whether it runs the import of `main`
    "main()\n": True,
    "if __name__ == '__main__':\n    sys.exit(main())\n": True,
    "def run():\n    main()\n\nfire.Fire(run)\n": True,
    "if len(sys.argv) > 1:\n    main()\n": False,
    "def run():\n    if sys.argv:\n        return\n    main()\n\nrun()\n": False,
    "def run():\n    yield main()\n\nrun()\n": False,
    "start(main)\n": False,
    "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n": True,
}


@each_case(("end", "is_run"), [*STARTS.items()])
def test_a_function_that_the_program_calls_at_its_start(end: str, is_run: bool, checkout: Path) -> None:
    (checkout / "train.py").write_text(f"import torch\nimport sys\n\ndef main():\n    import plots\n\n{end}")
    assert bool(audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", "python train.py"))) is is_run


GUIDES: dict[str, tuple[str, str]] = {  # a guide of the checkout, and how it starts the program
    "another guide": ("EVAL_README.md", "```bash\npython train.py\n```\n"),
    "a guide to which it links": ("README.md", "See [the evaluation](scripts/EVAL_README.md).\n"),
    "a script that it names": ("README.md", "Training is in [train.sh](scripts/train.sh).\n"),
    "a script with absolute paths": ("README.md", "```bash\nbash scripts/absolute.sh\n```\n"),
}


@each_case("name", [*GUIDES])
def test_the_programs_of_the_guides_of_a_checkout(name: str, checkout: Path) -> None:
    guide, text = GUIDES[name]
    (checkout / "pyproject.toml").write_text("[project]\nname = 'my-project'\n")
    (checkout / "scripts").mkdir(exist_ok=True)
    for other, _ in GUIDES.values():
        (checkout / other).write_text("")
    (checkout / "scripts/EVAL_README.md").write_text("```bash\npython train.py\n```\n")
    (checkout / "scripts/train.sh").write_text("torchrun --nproc_per_node 8 train.py\n")
    (checkout / "scripts/absolute.sh").write_text("ROOT=/home/me/my-project\npython ${ROOT}/train.py\n")
    (checkout / guide).write_text(text)
    assert [each.status for each in audit_imports(checkout / "requirements.txt", "torch==2.8.0\n")] == ["warning"]
    (found,) = audit_imports(checkout / "INSTALL.md", sh("pip install torch==2.8.0"))
    assert (found.status, guide in str(found.evidence)) == ("warning", True), name


@each_case(("text", "is_found"), [
    ("`train.sh` is the script for the training.", True),
    ("Training: see scripts/train.sh.", True),
    ("Run `python train.py` for the training.", True),
    ("Start setup_train.sh first.", False),  # it installs
    ("`draw.sh` draws.", False),  # one of two
])  # fmt: skip
def test_a_program_that_only_the_text_of_a_guide_names(text: str, is_found: bool, checkout: Path) -> None:
    for file in ("scripts/train.sh", "scripts/setup_train.sh", "scripts/draw.sh", "project/draw.sh"):
        (checkout / file).parent.mkdir(exist_ok=True)
        (checkout / file).write_text("torchrun --nproc_per_node 8 train.py\n")
    found = audit_imports(checkout / "README.md", f"{sh('pip install torch==2.8.0')}\n{text}\n")
    assert [each.status for each in found] == ["warning"] * is_found
    assert not found or "README.md:" in str(found[0].evidence)
    assert not audit_imports(checkout / "README.md", f"{sh('pip install torch==2.8.0 plots')}\n{text}\n", plots="1.0")


@each_case(("directory", "is_found"), [("path_to_checkpoints", True), ("other-project", False)])
def test_a_program_after_a_block_in_a_directory_of_the_reader(directory: str, is_found: bool, checkout: Path) -> None:
    text = sh("pip install torch==2.8.0", f"cd {directory} && python convert.py")
    assert not audit_imports(
        checkout / "README.md", text.replace("convert.py", "train.py")
    )  # a program of that directory
    found = audit_imports(checkout / "README.md", f"{text}\n```bash\npython train.py\n```\n")
    assert bool(found) is is_found
    assert not audit_imports(checkout / "README.md", f"{text}\n```bash\npython absent.py\n```\n")


OWN_STEPS: dict[str, tuple[str, str, bool]] = {  # a file next to a guide, a step of it, and whether it has more
    "a script that it starts": ("scripts/env_setup.sh", "bash env_setup.sh", True),
    "a command": ("scripts/notes.txt", "pip install figures-kit", True),
    "requirements next to it": ("scripts/requirements.txt", "", True),
    "the packages of the manifest": ("scripts/notes.txt", "pip install torch", False),
}


@each_case("name", [*OWN_STEPS])
def test_a_guide_of_another_folder_with_an_environment_of_its_own(name: str, checkout: Path) -> None:
    file, step, has_more = OWN_STEPS[name]
    (checkout / "scripts").mkdir(exist_ok=True)
    (checkout / file).write_text("pip install figures-kit\n")
    (checkout / "README.md").write_text("See [the training](scripts/README.md).\n")
    (checkout / "scripts/README.md").write_text(f"```bash\n{step}\npython train.py\n```\n")
    (checkout / "scripts/train.py").write_text("import torch\nimport plots\n")
    assert bool(audit_imports(checkout / "requirements.txt", "torch==2.8.0\n")) is not has_more
    (checkout / file).unlink()


def test_the_program_of_an_image_in_a_folder_that_it_copies(checkout: Path) -> None:
    (checkout / "server").mkdir()
    (checkout / "server/serve.py").write_text("import torch\nimport plots\n")
    image = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN pip install torch==2.8.0\nWORKDIR /app\n"
    starts = 'CMD ["python3", "serve.py"]\n'
    assert [each.line for each in audit_imports(checkout / "Dockerfile", f"{image}COPY server/ /app/\n{starts}")] == [
        5
    ]
    assert not audit_imports(checkout / "Dockerfile", f"{image}COPY --from=other server/ /app/\n{starts}")


CONSOLE_SCRIPTS: dict[str, tuple[str, str, str]] = {  # a file, its text, and a command
    "a table": ("pyproject.toml", '[project]\nname = "project"\n[project.scripts]\ndraw = "project.data:main"\n', ""),
    "a dotted key": ("pyproject.toml", '[project]\nname = "project"\nscripts.draw = "project.data:main"\n', ""),
    "a program with windows": ("pyproject.toml", '[project.gui-scripts]\ndraw = "project.data:main"\n', ""),
    "Poetry": ("pyproject.toml", '[tool.poetry.scripts]\ndraw = { reference = "project.data:main" }\n', "poetry run"),
    "uv": ("pyproject.toml", '[project.scripts]\ndraw = "project.data:main"\n', "uv run --extra gpu"),
    "setup.cfg": ("setup.cfg", "[options.entry_points]\nconsole_scripts =\n    draw = project.data:main\n", ""),
    "setup.py": ("setup.py", "setup(entry_points={'console_scripts': ['draw=project.data:main']})\n", ""),
}


@each_case("name", [*CONSOLE_SCRIPTS])
def test_a_program_that_the_project_installs(name: str, checkout: Path) -> None:
    file, stated, runner = CONSOLE_SCRIPTS[name]
    (checkout / file).write_text(stated)
    (checkout / "project/data.py").write_text("import torch\nfrom . import figures\n")
    found = audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", f"{runner} draw --size 3".strip()))
    assert [(each.line, each.message.partition(" ")[0]) for each in found] == [(4, "project/figures.py:2")]
    other = sh("pip install torch==2.8.0", "uv run python -m json.tool draw")
    assert not audit_imports(checkout / "README.md", other)
    (checkout / file).unlink()


@each_case(
    ("install", "is_found"),
    [
        ("pip install my-drawings", False),  # the release on the index can have another module
        ("pip install 'my-drawings[gpu]==1.2'", False),
        ("pip install my-drawings && pip install -e .", True),
        ("pip install other-drawings", True),
        ("pip install .", True),
    ],
)
def test_a_release_of_the_project_has_its_own_programs(install: str, is_found: bool, checkout: Path) -> None:
    script = '[project]\nname = "my-drawings"\n[project.scripts]\ndraw = "project.data:main"\n'
    (checkout / "pyproject.toml").write_text(script)
    (checkout / "project/data.py").write_text("import torch\nfrom . import figures\n")
    found = audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", install, "draw --size 3"))
    assert bool(found) is is_found


EMPTY = "import torch\ndef cli():\n    pass\n"
CLICK = """import torch
from .work import group
@group()
def cli():
    pass
@cli.command()
def pre_draw():
    from project.figures import plot
@cli.command("other")
def unused():
    print()
"""
ENTRIES: dict[str, tuple[str, str, bool]] = {  # the module of an entry point, the command, and whether it needs plots
    "a subcommand": (CLICK, "draw pre-draw", True),
    "another subcommand": (CLICK, "draw other", False),
    "its help": (CLICK, "draw --help", False),
    "the function": ("import torch\ndef cli():\n    from .figures import plot\n", "draw", True),
    "a function that it calls": (
        "import torch\ndef cli():\n    run()\ndef run():\n    import project.figures\n", "draw", True,
    ),
    "a function of another module": ("import torch\nfrom project.work import cli\n", "draw", True),
    "a function that it does not call": (f"{EMPTY}def run():\n    import plots\n", "draw", False),
    "only as a script": (f"{EMPTY}if __name__ == '__main__':\n    import plots\n", "draw", False),
    "a condition": ("import sys, torch\ndef cli():\n    if sys.argv[2:]:\n        import plots\n", "draw", False),
    "a handler": (
        "import torch\ndef cli():\n    try:\n        import plots\n    except ImportError:\n        pass\n",
        "draw", False,
    ),
    "a module": ("import torch\nif __name__ == '__main__':\n    import plots\n", "python -m project", True),
}  # fmt: skip


@each_case("name", [*ENTRIES])
def test_the_functions_with_which_a_program_starts(name: str, checkout: Path) -> None:
    text, command, is_found = ENTRIES[name]
    (checkout / "pyproject.toml").write_text('[project.scripts]\ndraw = "project.__main__:cli"\n')
    (checkout / "project/__init__.py").write_text("")
    (checkout / "project/__main__.py").write_text(text)
    (checkout / "project/work.py").write_text("def cli():\n    import project.figures\n")
    found = audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", command))
    assert [each.status for each in found] == (["error"] if is_found else [])


def test_the_entry_points_of_an_audited_project(checkout: Path) -> None:
    project = '[project]\nname = "project"\ndependencies = ["torch==2.8.0"]\n'
    assert not audit_imports(checkout / "pyproject.toml", project)
    (checkout / "project/__main__.py").write_text(CLICK)
    scripts = f'{project}[project.scripts]\ndraw = "project.__main__:cli"\n'
    assert not audit_imports(checkout / "pyproject.toml", scripts)
    (checkout / "README.md").write_text("Then `draw pre-draw` draws the figures.\n")
    (found,) = audit_imports(checkout / "pyproject.toml", scripts)
    assert (found.status, "README.md:1: draw pre-draw" in str(found.evidence)) == ("warning", True)


NESTED = {
    "run/all.sh": "bash run/one.sh\nbash run/two.sh\nbash run/all.sh\n",
    "run/one.sh": "torchrun --nproc_per_node 2 lonely.py\n",
    "run/two.sh": "accelerate launch \\\n  tools/score.py --fast\n",
    "tools/score.py": "import plots\n",
}


@each_case(("text", "messages"), [
    ("Then use `run/one.sh` and [the scores](run/two.sh).", ["lonely.py:1 tables", "tools/score.py:1 plots"]),
    ("Run `run/all.sh` for all tables.", ["lonely.py:1 tables", "tools/score.py:1 plots"]),
    ("The scripts are in `run`.", []),
])  # fmt: skip
def test_the_programs_of_scripts_that_the_text_names(text: str, messages: list[str], checkout: Path) -> None:
    """The guide starts another program in a step."""
    write_files(checkout, NESTED | {"main.py": "import torch, chain, torchvision\n"})
    steps = sh("pip install torch==2.8.0 chain torchvision", "python main.py")
    guide = f"{steps}\n# Training\n\n{text}\n"
    found = audit_imports(checkout / "README.md", guide, chain="0.9", torchvision="0.23.0")
    assert {each.status for each in found} <= {"warning"}
    assert sorted(each.message.split(",")[0].replace("imports ", "") for each in found) == messages


def test_a_script_starts_other_scripts(checkout: Path) -> None:
    write_files(checkout, NESTED | {"main.py": "import torch, chain, torchvision\n"})
    steps = sh("pip install torch==2.8.0 chain torchvision", "python main.py", "bash run/all.sh")
    found = audit_imports(checkout / "README.md", steps, chain="0.9", torchvision="0.23.0")
    assert [(each.line, each.status) for each in found] == [(5, "error"), (5, "error")]
