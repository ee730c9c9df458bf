"""Arguments with which commands start programs of a checkout, and that their parsers refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import AuditResult, audit_text
from envdoctor.core.records import Finding
from envdoctor.manifests.inputs.records import NothingToAudit

PARSER = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-e", "--epochs", type=int)
parser.add_argument("--eval_batch", type=int)
parser.add_argument("--eval_steps", type=int)
parser.add_argument("--shift", nargs="+", type=float)
parser.add_argument("--mode", choices=["train", "test"])
parser.add_argument("--level", type=int, choices=[0, 1])
parser.add_argument("--cache", action=argparse.BooleanOptionalAction)
parser.add_argument("--debug", action="store_true")
parser.add_argument("--lr", type=float)
"""
PARSES = "args = parser.parse_args()\n"
FIELDS = """
from dataclasses import dataclass, field
from transformers import HfArgumentParser, TrainingArguments
@dataclass
class Base:
    recompute_norms: bool = field(default=True)
@dataclass
class Own(Base, TrainingArguments):
    model_name: str = field(default="x")
"""
RANK = "parser.add_argument('--local_rank', type=int)\n"
OF_OPTION = "Write the option whose value it is"
REFUSED = {
    "----epochs 3": "train.py has no option ----epochs",
    "--epoks 3": "has no option --epoks",
    "--epochs 3 --momentum=0.9": "has no option --momentum",
    "--eval 3": "--eval of train.py is ambiguous, the start of --eval_batch and --eval_steps",
    "--mode val": "does not accept the value val of --mode",
    "--mode TRAIN": "does not accept the value TRAIN of --mode",
    "--mode=val": "does not accept the value val of --mode",
    "--level 2": "does not accept the value 2 of --level",
    "-x 3": "has no option -x",
    "--epochs 1.5": "does not accept the value 1.5 of --epochs, which is an integer",
    "--epochs=1e3": "does not accept the value 1e3 of --epochs, which is an integer",
    "--shift 1 0,1": "does not accept the value 0,1 of --shift, which is a number",
    "--debug True": "has no argument for the word True after --debug, which has no value",
    "--debug --epochs 3 4": "has no argument for the word 4:",
    "--epochs $N --epoks 3": "has no option --epoks",
    "--epochs --debug": "--epochs of train.py needs a value, and --debug follows",
    "--lr --lr 0.1": "--lr of train.py needs a value, and --lr follows",
    "--debug --mode --level 1": "--mode of train.py needs a value, and --level follows",
}
ACCEPTED = (
    "--epochs 3", "--epochs=3", "-e3", "--ep 3", "--shift -1 -.5", "--mode test", "--mode $MODE", "--no-cache",
    "--deb", "--mode {train,test}", "--level 1", "$OPTIONS", "--epochs 3 ...", "[--epoks 3]", "--help", "-- --epoks",
    "--epochs 3 | tee --epoks", "--epochs 3 # --epoks 3", '"$@"', "--mode <mode>",
    "--epochs -3", "--epochs EPOCHS", "--lr 1e-4 --debug", "--shift 1 2 3 --debug", "--lr=1", "--debug ...", "a.json",
    "--lr <rate> --debug", "--epochs=--debug", "--epochs $N --debug", "--cache --debug", "--epochs - --debug",
    "--debug @more.txt", "--mode Mode_Name", "--mode MODE", "--mode train/test", "--mode your_mode",
    "the same hyperparameters", "--lr 0.1 with the same hyperparameters", "--debug [as in the first run]",
)  # fmt: skip
# Programs whose options are not all known, or that permit unknown ones.
OPEN_PROGRAMS = {
    "it permits unknown options": PARSER + "args, rest = parser.parse_known_args()\n",
    "a library adds options": PARSER.replace("import argparse", "import lib, argparse") + "lib.a(parser)\n" + PARSES,
    "an option is computed": PARSER + "for key in load():\n    parser.add_argument(f'--{key}')\n" + PARSES,
    "the parser is in a list of a library": PARSER + "import lib\nlib.parsers += [parser]\n" + PARSES,
    "the command line is changed": PARSER + "import sys\nsys.argv.remove('--epoks')\n" + PARSES,
    "another command line is parsed": PARSER + "import lib\nargs = parser.parse_args(lib.words())\n",
    "it parses under a condition": PARSER + "import lib\nif lib.is_main:\n    args = parser.parse_args()\n",
    "an unknown parent": "import argparse, lib\nparser = argparse.ArgumentParser(parents=[lib.parent])\n" + PARSES,
    "it is another parser": PARSER.replace("import argparse", "import configargparse as argparse") + PARSES,
    "one of two parsers": PARSER.replace(
        "import argparse", "try:\n    import lib as argparse\nexcept ImportError:\n    import argparse"
    ) + PARSES,
    "a class of the checkout parses": PARSER.replace("argparse.ArgumentParser", "Own").replace(
        "import argparse", "import argparse\nclass Own(argparse.ArgumentParser):\n    def parse_args(self): pass"
    ) + PARSES,
    "the rest is for another program": PARSER + "parser.add_argument('rest', nargs=argparse.REMAINDER)\n" + PARSES,
    "a function is replaced": PARSER + "import fire\n@fire.decorator\ndef main():\n    parser.parse_args()\nmain()\n",
    "an unknown dataclass": FIELDS.replace("HfArg", "lib, HfArg") + "HfArgumentParser((lib, Own))"
    ".parse_args_into_dataclasses()\n",
    "dataclasses with the rest": FIELDS + "HfArgumentParser(Own).parse_args_into_dataclasses("
    "return_remaining_strings=True)\n",
}  # fmt: skip
# Programs that certainly refuse `--epoks`, in one or more files.
CLOSED_PROGRAMS = {
    "a function returns the parser": {
        "options.py": PARSER.replace("\nparser", "\ndef build(parser):\n    return parser\nparser", 1),
        "train.py": "from options import parser, build\ndef main():\n    args = build(parser).parse_args()\n"
        "if __name__ == '__main__':\n    main()\n",
    },
    "a class has the parser": {
        "train.py": "import argparse\nclass Base:\n    def __init__(self):\n"
        "        self.parser = argparse.ArgumentParser()\n        self.fill()\n"
        "    def fill(self):\n        self.parser.add_argument('--epochs')\n"
        "    def parse(self):\n        return self.parser.parse_args()\n"
        "class Own(Base):\n    def fill(self):\n        super().fill()\n        self.parser.add_argument('--lr')\n"
        "opt = Own().parse()\n",
    },
    "a package has the parser": {
        "own/__init__.py": "from .options import get_args\n",
        "own/options.py": PARSER.replace("import argparse", "import argparse\ndef get_args(args=None):").replace(
            "\nparser", "\n    parser"
        ) + "    if args is None:\n        return parser.parse_args()\n    return parser.parse_args(args)\n",
        "train.py": "import own\nargs = own.get_args()\n",
    },
    "a group, a parent and DeepSpeed": {
        "train.py": "import argparse, deepspeed\nparent = argparse.ArgumentParser(add_help=False)\n"
        "parent.add_argument('--lr')\nparser = argparse.ArgumentParser(parents=[parent])\n"
        "group = parser.add_argument_group('a')\nfor name in ['epochs', 'steps']:\n"
        "    group.add_argument('--' + name)\nparser = deepspeed.add_config_arguments(parser)\n" + PARSES,
    },
}  # fmt: skip


OUT = "parser.add_argument('--out', required=True)\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def _audit(checkout: Path, files: dict[str, str], *commands: str, **versions: str) -> list[Finding]:
    write_files(checkout, files)
    text = sh("pip install torch==2.8.0", *commands)
    solver = FixedSolver(FixedIndex(), {"torch": "2.8.0", **versions})
    found = audit_text(text, str(checkout / "README.md"), None, solver, python="3.12").result.findings
    return [each for each in found if each.id == "RUN200"]


@each_case("arguments", [*REFUSED])
def test_an_argument_is_refused(checkout: Path, arguments: str) -> None:
    found = _audit(checkout, {"train.py": PARSER + PARSES}, f"torchrun train.py {arguments}")
    assert [each.line for each in found] == [4]
    assert REFUSED[arguments] in found[0].message


@each_case(
    ("launcher", "is_removed"),
    [
        ("torchrun --nproc_per_node 4", True),
        ("accelerate launch", True),
        ("deepspeed --num_gpus 2", True),
        ("python -m torch.distributed.run", True),
        ("python", False),
    ],
)
def test_a_launcher_removes_two_hyphens_before_the_arguments(checkout: Path, launcher: str, is_removed: bool) -> None:
    files = {"train.py": "import argparse\nparser = argparse.ArgumentParser()\n" + OUT + RANK + PARSES}
    (checkout / "run.sh").write_text(f"A='--out o'\n{launcher} train.py -- $A\n")
    assert bool(_audit(checkout, files, "bash run.sh")) is not is_removed
    found = _audit(checkout, files, f"{launcher} train.py -- --out o --epoks 3")
    assert any("--epoks" in each.message for each in found) is is_removed


@each_case("arguments", list(ACCEPTED))
def test_an_argument_is_accepted_or_not_known(checkout: Path, arguments: str) -> None:
    assert _audit(checkout, {"train.py": PARSER + PARSES}, f"python train.py {arguments}") == []


@each_case("case", [*OPEN_PROGRAMS])
def test_a_program_can_have_further_options(checkout: Path, case: str) -> None:
    assert _audit(checkout, {"train.py": OPEN_PROGRAMS[case]}, "python train.py file --epoks 3") == []


@each_case("case", [*CLOSED_PROGRAMS])
def test_the_parser_of_several_functions(checkout: Path, case: str) -> None:
    files = CLOSED_PROGRAMS[case]
    assert _audit(checkout, files, "python train.py --epochs 3") == []
    assert ["--epoks" in each.message for each in _audit(checkout, files, "python train.py --epoks 3")] == [True]


def test_the_correction_is_the_option_that_is_like_it(checkout: Path) -> None:
    found = _audit(checkout, {"train.py": PARSER + PARSES}, "python train.py --epoks 3")
    assert found[0].fix == "Write --epochs, if it is meant."
    found = _audit(checkout, {"train.py": PARSER + PARSES}, "python train.py --epoch_kernels 3")
    assert found[0].fix == "Remove --epoch_kernels, or use an option of the program."
    found = _audit(checkout, {"train.py": PARSER + PARSES}, "python train.py --epochs=1 --epoks 3")
    assert "--epochs" not in found[0].fix


@each_case(
    "arguments, fix",
    [
        ("train --epochs 3", "Write --mode train."),
        ("vctk --lr 0.1", f"{OF_OPTION}, such as -e or --eval_batch or --eval_steps, or remove vctk."),
        ("--debug True", "Remove True."),
    ],
)  # fmt: skip
def test_a_word_can_be_the_value_of_an_option(checkout: Path, arguments: str, fix: str) -> None:
    found = _audit(checkout, {"train.py": PARSER + PARSES}, f"python train.py {arguments}")
    assert [each.fix for each in found] == [fix]


def test_a_required_option_is_missing(checkout: Path) -> None:
    files = {"train.py": PARSER + "parser.add_argument('--data', required=True)\n" + PARSES}
    found = _audit(checkout, files, "python train.py --epochs 3")
    assert "requires --data" in found[0].message
    for command in ("--data x", "--da x", "$OPTIONS", "...", "--help", "--epochs <number 2> --data x"):
        assert _audit(checkout, files, f"python train.py {command}") == []


def test_a_positional_argument_is_missing(checkout: Path) -> None:
    files = {"train.py": PARSER + "parser.add_argument('data')\nparser.add_argument('out', nargs='?')\n" + PARSES}
    for command in ("", "--epochs 3", "--shift 1 2"):
        assert "requires a value for data" in _audit(checkout, files, f"python train.py {command}")[0].message
    for command in ("x", "--epochs 3 x", "--debug x y", "-- x", "$DATA", "--help", "-e3 x", "--epochs=3 x"):
        assert _audit(checkout, files, f"python train.py {command}") == []


def test_a_later_command_names_the_missing_argument(checkout: Path) -> None:
    files = {"train.py": PARSER + "parser.add_argument('data')\n" + PARSES}
    (found,) = _audit(checkout, files, "python train.py", "python train.py data")
    assert (found.line, "requires a value for data" in found.message) == (4, True)


COMMANDS = """
import argparse
parser = argparse.ArgumentParser()
commands = parser.add_subparsers(dest="command")
train = commands.add_parser("train", aliases=["fit"])
train.add_argument("--lr", type=float)
train.add_argument("data")
commands.add_parser("test")
"""


def test_too_many_positional_arguments(checkout: Path) -> None:
    files = {"train.py": PARSER + "parser.add_argument('data')\nparser.add_argument('out', nargs='?')\n" + PARSES}
    for command in ("a b c", "--debug a b c", "a --epochs 3 b c"):
        assert "has no argument for the word c" in _audit(checkout, files, f"python train.py {command}")[0].message
    for command in ("a b", "a", "--shift 1 2 3", "a b $MORE", "a b [c]", "a b > c"):
        assert "word" not in "".join(each.message for each in _audit(checkout, files, f"python train.py {command}"))
    many = {"train.py": PARSER + "parser.add_argument('data', nargs='+')\n" + PARSES}
    assert _audit(checkout, many, "python train.py a b c") == []


def test_a_positional_argument_is_no_choice(checkout: Path) -> None:
    files = {"train.py": PARSER + "parser.add_argument('stage', choices=['fit', 'eval'])\n" + PARSES}
    (found,) = _audit(checkout, files, "python train.py train --epochs 3")
    assert "does not accept the value train of stage" in found.message
    for command in ("fit", "--debug eval", "$STAGE", "<stage>", "STAGE", "fit/eval"):
        assert _audit(checkout, files, f"python train.py {command}") == []


def test_a_subcommand_that_a_program_does_not_have(checkout: Path) -> None:
    (found,) = _audit(checkout, {"train.py": COMMANDS + PARSES}, "python train.py evaluate --lr 0.1")
    assert "train.py has no subcommand evaluate" in found.message
    assert "Use one of train, fit, test." in found.fix
    for command in ("train --lr 0.1 a", "fit a", "test", "$COMMAND", "--help", "<command>", "train a b"):
        assert _audit(checkout, {"train.py": COMMANDS + PARSES}, f"python train.py {command}") == []
    further = COMMANDS + "for name in load():\n    commands.add_parser(name)\n" + PARSES
    assert _audit(checkout, {"train.py": further}, "python train.py evaluate") == []


DOCKERFILE = """FROM pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime
WORKDIR /app
COPY src/* .
{start}
"""


@each_case("start", ['CMD ["python", "train.py"]', "CMD python train.py --epochs 3"])
def test_the_command_of_an_image_lacks_required_options(checkout: Path, start: str) -> None:
    (found,) = _of_image(checkout, start)
    assert (found.line, found.status) == (4, "warning")
    assert "src/train.py requires --data and --out" in found.message


@each_case("start", ['CMD ["python", "train.py", "--data", "a", "--out", "b"]', 'ENTRYPOINT ["python", "train.py"]'])
def test_the_command_of_an_image_that_is_complete_or_gets_further_arguments(checkout: Path, start: str) -> None:
    assert _of_image(checkout, start) == []


def _of_image(checkout: Path, start: str) -> list[Finding]:
    (checkout / "src").mkdir(exist_ok=True)
    required = "".join(f"parser.add_argument('--{name}', required=True)\n" for name in ("data", "out"))
    (checkout / "src/train.py").write_text(PARSER + required + PARSES)
    (checkout / "Dockerfile").write_text(text := DOCKERFILE.format(start=start))
    found = audit_text(text, str(checkout / "Dockerfile"), None, FixedSolver(FixedIndex(), {}), python="3.12")
    return [each for each in found.result.findings if each.id == "RUN200"]


def test_a_file_of_arguments_has_the_required_ones(checkout: Path) -> None:
    files = {
        "train.py": FIELDS.replace("class Own(Base, TrainingArguments):", "class Own(Base):\n    data: str")
        + "import sys\nif sys.argv[1].endswith('.json'):\n    HfArgumentParser(Own).parse_json_file(sys.argv[1])\n"
        "else:\n    HfArgumentParser(Own).parse_args_into_dataclasses()\n"
    }
    assert _audit(checkout, files, "python train.py own.json") == []
    assert "requires --data" in _audit(checkout, files, "python train.py --model_name x")[0].message


def test_fields_of_dataclasses_are_options(checkout: Path) -> None:
    files = {"train.py": FIELDS + "HfArgumentParser((Own,)).parse_args_into_dataclasses()\n"}
    for option in ("--recompute_norms", "--no_recompute_norms", "--model-name x", "--output_dir x", "--do_train"):
        assert _audit(checkout, files, f"python train.py {option}") == []
    found = _audit(checkout, files, "python train.py --recmopute_norms")
    assert found[0].fix == "Write --recompute_norms, if it is meant."


def test_a_field_that_the_release_of_transformers_does_not_have(checkout: Path) -> None:
    files = {"train.py": FIELDS + "HfArgumentParser(Own).parse_args_into_dataclasses()\n"}
    command = "python train.py --evaluation_strategy no"
    assert _audit(checkout, files, command) == []
    assert _audit(checkout, files, "pip install transformers==4.40.0", command, transformers="4.40.0") == []
    found = _audit(checkout, files, "pip install transformers==5.0.0", command, transformers="5.0.0")
    assert "transformers 5.0.0 does not have this field" in found[0].message
    assert "--eval_strategy" in found[0].fix


def test_a_command_that_a_blank_after_a_backslash_ends(checkout: Path) -> None:
    """RUN081 names the blank; the word after it is no argument."""
    command = "python train.py --epochs 3 \\ \n    --lr 1"
    assert _audit(checkout, {"train.py": PARSER + PARSES}, command) == []


def test_a_program_of_the_same_name_accepts_the_option(checkout: Path) -> None:
    files = {"train.py": PARSER + PARSES, "other/train.py": PARSER.replace("epochs", "epoks") + PARSES}
    assert _audit(checkout, files, "python train.py --epoks 3") == []


def test_an_action_of_the_program_can_take_no_value(checkout: Path) -> None:
    own = "class Own(argparse.Action):\n    pass\nparser.add_argument('--own', action=Own)\n"
    assert not _audit(checkout, {"train.py": PARSER + own + PARSES}, "python train.py --own --debug")


TEXT = """# Train
```bash
python train.py $OPTIONS
```

Further settings of {what}:
- epochs: `--epochs 3`
- mode: `--mode train` and `--debug`
- {option}

"""


@each_case("option", ["`--epoks`", "`--momentum 0.9`"])
def test_the_text_names_an_option_that_the_program_does_not_have(checkout: Path, option: str) -> None:
    (checkout / "train.py").write_text(PARSER + PARSES)
    found = _of_text(checkout, TEXT.format(what="the training", option=option))
    assert [(each.line, each.status) for each in found] == [(9, "warning")]


def test_the_text_names_an_option_by_almost_its_name(checkout: Path) -> None:
    (checkout / "train.py").write_text(PARSER + "parser.add_argument('--enable_token_merging')\n" + PARSES)
    text = "# Train\n```bash\npython train.py $OPTIONS\n```\n\nAdd `{}` to your training arguments.\n\n"
    for option in ("--enable_tome_merging", "--enable_tokn_merging x", "--enable_token_mergings"):
        found = _of_text(checkout, text.format(option))
        assert ["Write --enable_token_merging" in each.fix for each in found] == [True], option
    sound = ("--enable_token_merging", "--enable-token-merging", "--enable_token", "--disable_merging", "--epoks")
    for option in sound:
        assert _of_text(checkout, text.format(option)) == []


def test_options_of_the_text_that_are_those_of_another_program(checkout: Path) -> None:
    (checkout / "train.py").write_text(PARSER + PARSES)
    (checkout / "test.py").write_text("parser.add_argument('--other-one')\nparser.add_argument('--more_data')\n")
    others = ("`--other_one`", "`--other-one`", "`--more-data`", "`--epoks` and `--momentum` removed")
    for option in ("`--level 1`", "--epoks", *others, "`--epoks`, `--a`, `--b`", "`--gpus all` of docker"):
        assert _of_text(checkout, TEXT.format(what="the training", option=option)) == []
    (checkout / "train.py").write_text(OPEN_PROGRAMS["it permits unknown options"])
    assert _of_text(checkout, TEXT.format(what="the training", option="`--epoks`")) == []


def _of_text(checkout: Path, text: str) -> list[Finding]:
    solver = FixedSolver(FixedIndex(), {"torch": "2.8.0"})
    text += sh("pip install torch==2.8.0")
    found = audit_text(text, str(checkout / "README.md"), None, solver, python="3.12").result.findings
    return [each for each in found if each.id == "RUN201"]


def test_a_program_drops_an_option(checkout: Path) -> None:
    others = "--epochs 3 --lr 1 --eval_batch 2 --mode test"
    parses = PARSER + "args, _ = parser.parse_known_args()\n"
    found = _audit(checkout, {"train.py": parses}, f"python train.py {others} --queue 5")
    assert [(each.line, each.status) for each in found] == [(4, "warning")]
    assert "train.py has no option --queue: parse_known_args drops it" in found[0].message
    assert not _audit(checkout, {"train.py": parses}, "python train.py --epochs 3 --queue 5")  # of another program
    for text in (
        "import lib\nlib.use(queue=1)\n",
        "second = argparse.ArgumentParser()\n",
        "args, rest = parser.parse_known_args()\n",
    ):
        assert not _audit(checkout, {"train.py": parses + text}, f"python train.py {others} --queue 5")
    for parse in ("args, rest = parser.parse_known_args()", "args, _ = parser.parse_known_args(words())"):
        assert not _audit(checkout, {"train.py": PARSER + parse}, f"python train.py {others} --queue 5")


def test_a_guide_without_packages_that_starts_programs_of_its_checkout(checkout: Path) -> None:
    (checkout / "train.py").write_text(PARSER + PARSES)

    def audit(*commands: str) -> AuditResult:
        return audit_text(sh(*commands), str(checkout / "README.md"), None, None).result

    result = audit("python train.py --epochs 3")
    assert not result.findings
    assert result.coverage.unread == ("the packages of its programs: no step that was read names them",)
    assert not audit("pip install torch==2.8.0", "python train.py --epochs 3").coverage.unread
    with pytest.raises(NothingToAudit):
        audit("python other.py --epochs 3")
    (checkout / ".git").rmdir()  # other files of the project can be absent
    with pytest.raises(NothingToAudit):
        audit("python train.py --epochs 3")


def test_the_arguments_of_a_console_script(checkout: Path) -> None:
    body = (PARSER + PARSES).strip().replace("\n", "\n    ").replace("import argparse\n    ", "")
    files = {
        "pyproject.toml": '[project.scripts]\ndraw = "project.cli:main"\n',
        "project/cli.py": f"import argparse\ndef main(argv=None):\n    {body}\n",
    }
    found = _audit(checkout, files, "draw --epochs 3", "uv run draw --epoks 3", "draw")
    assert [(each.line, each.message.partition(":")[0]) for each in found] == [
        (5, "project/cli.py has no option --epoks")
    ]
    files["project/cli.py"] = "from project.data import main\n"  # which has no parser
    assert not _audit(checkout, files, "draw --epoks 3")


LAUNCH = "python -m torch.distributed.launch --nproc_per_node=2"
RANKS = {  # a release of torch, further options of the program, a launcher, and a part of the message
    "no option": ("2.8.0", "", LAUNCH, "no option --local-rank, which torch.distributed.launch adds"),
    "no option, of an old torch": ("1.13.1", "", LAUNCH, "no option --local_rank, which"),
    "another spelling": ("2.8.0", RANK, LAUNCH, "no option --local-rank, which torch.distributed.launch of torch 2"),
    "of an old torch": ("1.13.1", RANK, LAUNCH, ""),
    "both spellings": ("2.8.0", RANK.replace("'--", "'--local-rank', '--"), LAUNCH, ""),
    "of the environment": ("2.8.0", "", f"{LAUNCH} --use_env", ""),
    "of torchrun": ("2.8.0", "", "torchrun --nproc_per_node=2", ""),
    "an unknown option": ("2.8.0", "", f"{LAUNCH} $OPTIONS", ""),
    "deepspeed": ("2.8.0", "", "deepspeed --num_gpus 2", "no option --local_rank, which deepspeed adds"),
    "deepspeed with an option": ("2.8.0", RANK, "deepspeed --num_gpus 2", ""),
    "deepspeed without a rank": ("2.8.0", "", "deepspeed --no_local_rank", ""),
}


@each_case("name", [*RANKS])
def test_a_launcher_adds_the_rank(name: str, tmp_path: Path) -> None:
    torch, options, launcher, expected = RANKS[name]
    write_files(tmp_path, {".git/config": "", "train.py": PARSER + options + PARSES})
    text = sh(f"pip install torch=={torch}", f"{launcher} train.py --lr 1")
    (tmp_path / "README.md").write_text(text)
    found = audit_text(text, str(tmp_path / "README.md"), None, None, python="3.10")
    messages = [each.message for each in found.result.findings if each.id == "RUN200"]
    assert [expected in each for each in messages] == ([True] if expected else [])
