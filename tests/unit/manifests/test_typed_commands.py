"""Commands whose characters a shell reads in another way than their author."""

# ruff: noqa: RUF001  typographic characters are the subject
from __future__ import annotations

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

WRONG: dict[str, tuple[tuple[str, ...], str, list[int]]] = {
    "a long dash": (("python train.py —model base", "python a.py \\", "  –-lr 1"), "RUN241", [3, 5]),
    "a dash in an installation": (("pip install torch –upgrade",), "RUN241", [3]),
    "typographic quotes": (("python a.py --prompt “a red lion”", "pip install ‘torch>=2’"), "RUN241", [3, 4]),
    "a quote after =": (("torchrun a.py --text=“a lion”",), "RUN241", [3]),
    "source with backslashes": ((r"source venv\bin\activate", r". .\env\Scripts\activate && ls"), "RUN242", [3, 4]),
    "two activations": (("venv/scripts/activate or source venv/bin/activate",), "RUN243", [3]),
    "two installers": (
        ("pip install torch or conda install pytorch", "git clone https://a.b/c and cd c"), "RUN243", [3, 4],
    ),
    "a condition without a test": (('if -z "$A"; then', "  pip install a", "fi"), "RUN244", [3]),
    "a comparison without a test": (
        ('if "$A" == "b"; then', "ls", "elif $B -eq 1; then", "ls", "fi"), "RUN244", [3, 5],
    ),
    "a loop without a test": (("while ! -f a.txt; do", "sleep 1", "done"), "RUN244", [3]),
    "a backtick at the end": (("python train.py --lr 1`", "ls"), "RUN245", [3]),
    "a backtick at the start": (("`pip install torch",), "RUN245", [3]),
}  # fmt: skip
SOUND: dict[str, tuple[str, ...]] = {
    "quotes of text in quotes": ("python a.py --text 'a “red” lion'", 'python a.py --text "it’s — here" --x'),
    "comments and messages": (
        "# pip —upgrade “a”", "pip install a  # —b or python c", "echo “done”", "echo a or python b",
    ),
    "a dash in a name": ("git clone https://a.b/c—d", "cd 'a —b'", "python a–b.py"),
    "a text of two lines": ('python a.py --text "first', 'pip “second” —third"'),
    "a text of a file": ("cat > a.md <<EOF", "pip install “a” —b", "if -z x", "EOF"),
    "paths of a shell": ("source venv/bin/activate", r"source my\ venv/bin/activate", ". ./env.sh"),
    "an or of a program": ("python a.py --mode or --x", "grep or python.txt", "python a.py 'a or python b'"),
    "conditions": ('if [ -z "$A" ]; then', "ls", "fi", "if ! test -x a; then ls; fi"),
    "conditions of bash": ('if [[ "$A" == b ]]; then ls; fi', "if $RUN; then ls; fi", "while read -r a; do ls; done"),
    "backticks of a shell": ("python a.py --n `nproc`", "pip install a `", "  b"),
}  # fmt: skip


@each_case("name", WRONG)
def test_a_command_is_typed_wrongly(name: str) -> None:
    lines, rule, expected = WRONG[name]
    found = audit_text(sh(*lines, "pip install torch==2.6.0"), "guide.md", None, NoSolver()).result.findings
    assert [each.line for each in found if each.id == rule] == expected


@each_case("name", SOUND)
def test_a_command_that_a_shell_reads_as_it_is_meant_has_no_finding(name: str) -> None:
    found = audit_text(sh("pip install torch==2.6.0", *SOUND[name]), "guide.md", None, NoSolver()).result.findings
    assert [each.message for each in found if each.id in {rule for _, rule, _ in WRONG.values()}] == []
