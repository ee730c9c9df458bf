"""Programs that read an attribute of their namespace which no option of their parser sets: RUN298."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

PARSER = """import argparse
import project
parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("-l", "--learning-rate", type=float)
"""
READS = {  # the rest of the program, the attributes that are reported, and another file
    "present": ("args = parser.parse_args()\nprint(args.data, args.learning_rate, args.l)\n", [], ""),
    "absent": ("args = parser.parse_args()\nmain(args.data, args.use_lora)\n", ["use_lora"], ""),
    "in a function": (
        "def run(o):\n    print(o.seed, o.data)\nargs = parser.parse_args()\nrun(args)\n",
        ["seed"],
        "",
    ),
    "of another variable": ("def run(args):\n    print(args.seed)\nargs = parser.parse_args()\n", [], ""),
    "in main": ("def main():\n    args = parser.parse_args()\n    args.data.seed\n    args.seed\n", ["seed"], ""),
    "set": ("args = parser.parse_args()\nargs.seed = 1\nprint(args.seed)\n", [], ""),
    "set by another file": ("args = parser.parse_args()\nprint(args.seed)\n", [], "def f(a):\n    a.seed = 1\n"),
    "named as text": ("args = parser.parse_args()\nprint(args.seed)\n", [], "NAMES = ['seed']\n"),
    "default": ("parser.set_defaults(seed=1)\nargs = parser.parse_args()\nprint(args.seed)\n", [], ""),
    "replaced": ("args = parser.parse_args()\nargs = read(args)\nprint(args.seed)\n", [], ""),
    "unknown options": ("args, rest = parser.parse_known_args()\nprint(args.seed)\n", [], ""),
    "passed to other code": ("project.add(parser)\nargs = parser.parse_args()\nprint(args.seed)\n", [], ""),
}


@each_case("name", [*READS])
def test_attributes_of_a_namespace(name: str, tmp_path: Path) -> None:
    code, attributes, other = READS[name]
    code = f"{PARSER}{code}" + ("main()\n" if name == "in main" else "")
    write_files(tmp_path, {".git/HEAD": "", "train.py": code, "project.py": other})
    guide = tmp_path / "README.md"
    guide.write_text(sh("pip install numpy", "python train.py x"))
    found = audit_text(guide.read_text(), str(guide), None, NoSolver()).result.findings
    messages = [each.message for each in found if each.id == "RUN298"]
    assert [each.partition("has no --")[2] for each in messages] == [f"{each}: AttributeError" for each in attributes]
