"""Scripts that start programs by their own directory."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.checkout_audits import findings_in_checkout

from envdoctor.manifests.script_folders import variables_of_root, with_own_folder

FOLDERS: dict[str, tuple[str, str]] = {  # the lines of tools/run.sh, and the last one afterwards
    "dirname": ('HERE=$(dirname "$0")', "HERE=tools"),
    "cd": ('export HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" &> /dev/null && pwd)"', "export HERE=tools"),
    "a resolved path": ("HERE=$(dirname $(readlink -f $0))", "HERE=tools"),
    "without its name": ("HERE=${0%/*}", "HERE=tools"),
    "above": ('ROOT="$(cd "$(dirname "$0")/.." && pwd)"', "ROOT=."),
    "above another": ('HERE=$(dirname "$0")\nROOT=$(dirname "$HERE")', "ROOT=."),
    "below another": ('HERE=$(dirname "$0")\nDATA=${HERE}/data', "DATA=tools/data"),
    "the current one": ("WORK=`pwd`", "WORK=."),
    "in a command": ('python "$(dirname "$0")/train.py"', 'python "tools/train.py"'),
    "another value": ("HERE=$(git rev-parse --show-toplevel)", "HERE=$(git rev-parse --show-toplevel)"),
    "another directory": ('HERE=$(dirname "$1")', 'HERE=$(dirname "$1")'),
    "a script that enters a directory": ('HERE=$(dirname "$0")\ncd data', "cd data"),
    "the directory that it enters": ('ROOT=$(dirname "$0")/..\ncd $ROOT\npython train.py', "python train.py"),
    "after its own directory": ('HERE=$(dirname "$0")\ncd "$HERE"\npython $HERE/../train.py', "python ./../train.py"),
    "after a part of it": ('HERE=$(dirname "$0")\ncd $HERE/data\npython ${HERE}/train.py', "python ../train.py"),
    "after an unknown one": ('HERE=$(dirname "$0")\ncd $1\npython $HERE/train.py', "python $HERE/train.py"),
}


@each_case("name", [*FOLDERS])
def test_the_directory_of_a_script(name: str) -> None:
    text, last = FOLDERS[name]
    lines = tuple(enumerate(text.split("\n"), 1))
    found = with_own_folder(lines, "tools")
    assert found[-1] == (len(lines), last)


ROOTS: dict[str, tuple[str, set[str]]] = {  # a script, and the variables that have the directory of the project
    "an argument": ('BASE=${1-"/home/me/x"}\ntorchrun ${BASE}/train.py', {"BASE"}),
    "a placeholder": ("ROOT=/path/to/x\npython $ROOT/train.py --data $ROOT/data/rows.json", {"ROOT"}),
    "a directory of the reader": ("ROOT=$HOME/x\npython $ROOT/train.py", {"ROOT"}),
    "another project": ("LM=/path/to/lm\npython $LM/pretrain.py\npython train.py", set()),
    "a directory for data": ("DATA=/path/to/data\npython train.py --data $DATA/rows.json", set()),
    "a known directory": ("ROOT=tools\npython $ROOT/train.py", set()),
}


@each_case("name", [*ROOTS])
def test_variables_with_the_directory_of_the_project(name: str) -> None:
    text, variables = ROOTS[name]
    assert variables_of_root(tuple(enumerate(text.split("\n"), 1)), {"train.py"}.__contains__) == variables


def test_a_program_below_the_directory_that_a_reader_gives_is_read(tmp_path: Path) -> None:
    files = {
        "tools/run.sh": '#!/bin/bash\nBASE=${1-"/home/me/x"}\nOPTS+=" --base ${BASE}"\n'
        'CMD="torchrun --nproc_per_node 4 ${BASE}/train.py ${OPTS} $@"\n${CMD}\n',
        "train.py": "from rows import Loader\n",
        "rows.py": "limit = 3\n",
    }
    for argument in ("/path/to/x", "${/PATH/TO/X} 2012"):
        (found,) = findings_in_checkout(tmp_path, "RUN239", files, f"bash tools/run.sh {argument}")
        assert "train.py:1 imports Loader" in found.message


def test_a_program_next_to_its_script_is_read(tmp_path: Path) -> None:
    files = {
        "tools/run.sh": '#!/bin/bash\nHERE=$(cd "$(dirname "$0")" && pwd)\ntorchrun $HERE/train.py --x 1\n',
        "tools/train.py": "from rows import Loader\n",
        "tools/rows.py": "limit = 3\n",
    }
    (found,) = findings_in_checkout(tmp_path, "RUN239", files, "bash tools/run.sh")
    assert "tools/train.py:1 imports Loader" in found.message


def test_a_program_is_read_after_its_script_enters_the_checkout(tmp_path: Path) -> None:
    files = {
        "tools/run.sh": '#!/bin/bash\nHERE="$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd )"\n'
        'ROOT="$( cd -- "$( dirname -- "$HERE" )" &> /dev/null && pwd )"\ncd $ROOT\npython -u train.py --x 1\n',
        "train.py": "from rows import Loader\n",
        "rows.py": "limit = 3\n",
    }
    (found,) = findings_in_checkout(tmp_path, "RUN239", files, "bash tools/run.sh")
    assert "train.py:1 imports Loader" in found.message
