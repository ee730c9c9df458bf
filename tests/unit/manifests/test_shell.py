"""Shell text: what a shell would run, with unknown values left as they are written."""

from __future__ import annotations

import time

from support.cases import each_case

from envdoctor.manifests.command_wrappers import inner_script, unwrap
from envdoctor.manifests.shell import expand_word, parse_commands, without_prompt
from envdoctor.manifests.shell_records import Command, ShellState, is_known

CASES: dict[str, tuple[str, list[str]]] = {
    "array": ('P=(vllm==0.10.2 "a b")\nP+=(trl)\npip install "${P[@]}"', ["pip install vllm==0.10.2 a b trl"]),
    "element of an array": ("P=(a b)\npip install ${P[1]}", ["pip install b"]),
    "unknown array": ('pip install "${P[@]}"', ["pip install ${P[@]}"]),
    "loop over words": ("for p in torch trl; do pip install $p; done", ["pip install torch", "pip install trl"]),
    "loop over an array": ('P=(a b)\nfor p in "${P[@]}"; do x "$p"; done', ["x a", "x b"]),
    "loop over files": ("for f in *.txt; do pip install -r $f; done", ["pip install -r $f"]),
    "loop over an unknown list": ("for p in $LIST; do pip install $p; done", ["pip install $p"]),
    "function": ('f() { pip install "$1==$2"; }\nf torch 2.8.0', ["pip install torch==2.8.0"]),
    "all arguments": ('f() {\n  uv pip install "$@"\n}\nf a b', ["uv pip install a b"]),
    "function with a local variable": ("f() { local v=${1:-2.8.0}; x torch==$v; }\nf", ["x torch==2.8.0"]),
    "function that is not called": ("f() { pip install a; }\n", []),
    "split variable": ('P="a b"\npip install $P "$P"', ["pip install a b a b"]),
    "variables in one string": (
        'A="--a 1"\nB=.\nC="x ${A} ${B}/t $A $D  $B"\n$C', ["x --a 1 ./t --a 1 $D ."]),
    "empty variable": ("P=\npip install $P a", ["pip install a"]),
    "default": ("pip install torch==${V:-2.8.0} ${W-a}", ["pip install torch==2.8.0 a"]),
    "default of a known variable": ("V=1\npip install torch==${V:-2.8.0}", ["pip install torch==1"]),
    "alternative value": ("V=1\npip install ${V:+x} ${W:+y}", ["pip install x ${W:+y}"]),
    "unknown variable": ("pip install torch==$V", ["pip install torch==$V"]),
    "command substitution": ("pip install torch==$(cat v) `x`", ["pip install torch==$(cat v) `x`"]),
    "changed variable": ("V=2.8.0\npip install torch==${V%.*}", ["pip install torch==${V%.*}"]),
    "variables between dashes": ("V=cp311\npip install a-$V-$V-b.whl", ["pip install a-cp311-cp311-b.whl"]),
    "variables of a path": ("B=b\nX=$A/$B/c.$D.d\nrun $X --out=$A/$B.d", ["run $A/b/c.${D}.d --out=$A/b.d"]),
    "unset variable": ("V=1\nunset V\npip install a==$V", ["pip install a==$V"]),
    "quotes": ("""pip install 'a>=1' "b<2" c\\ d""", ["pip install a>=1 b<2 c d"]),
    "single quotes": ("V=1\necho '$V' \"\\$V\"", ["echo $V $V"]),
    "continuation": ("pip install \\\n  a \\  \n  b", ["pip install a b"]),
    "comment": ("pip install a # b\n# pip install c", ["pip install a"]),
    "bad example": ("# wrong:\npip install a\npip install b", ["pip install b"]),
    "lists": ("a && b; c & d | e || true", ["a", "b", "c", "d", "e", "true"]),
    "group and subshell": ("{ a; (cd x && b); }", ["a", "cd x", "b"]),
    "if without else": ("if [ ! -d v ]; then python -m venv v; fi", ["python -m venv v"]),
    "command as a condition": ("if ! pip show a; then pip install a; fi", ["pip show a", "pip install a"]),
    "if with else": ("if [ -d x ]; then pip install a; else pip install b; fi", ["pip install a"]),
    "known condition": ('V=b\nif [ "$V" = a ]; then x; elif [[ $V == b ]]; then y; else z; fi', ["y"]),
    "known empty value": ('V=\nif [ -z "$V" ]; then x; else y; fi', ["x"]),
    "case": ("case $X in a) pip install a ;; *) pip install b ;; esac", ["pip install a"]),
    "known case": ("X=cu128\ncase $X in cu12*) x ;; *) y ;; esac", ["x"]),
    "fallback": ("pip install a || pip install b", ["pip install a"]),
    "fallback after a test": ("command -v uv || pip install uv", ["command -v uv", "pip install uv"]),
    "while": ("while true; do a; done", ["true", "a"]),
    "redirections": ("a > f 2>&1 < g", ["a"]),
    "words after a redirection": ("a > f b", ["a b"]),
    "version without quotes": ("pip install trl>=0.23,<1 torch", ["pip install trl>=0.23,<1 torch"]),
    "placeholder": ("export T=<your token>\npip install a", ["export T=<your token>", "pip install a"]),
    "placeholder of a sentence": ("a --b <'' or the model's name, or a path to its files> c", [
        "a --b <'' or the model's name, or a path to its files> c"]),
    "heredoc": ("cat > f <<EOF && a\ntorch\nEOF\nb", ["cat", "a", "b"]),
    "unclosed quote": ("pip install a\npip install 'b", ["pip install a"]),
}  # fmt: skip


def commands(text: str, choice: int = 0) -> list[Command]:
    return parse_commands(tuple(enumerate(text.split("\n"), 1)), ShellState(choice))


@each_case("name", CASES)
def test_commands(name: str) -> None:
    text, expected = CASES[name]
    found = [str(each) for each in commands(text) if each.words != ("export",)]
    assert found[: len(expected)] == expected
    assert len(found) == len(expected) or name == "unclosed quote"


@each_case("choice", [0, 1])
def test_a_file_that_the_shell_has(choice: int) -> None:
    state = ShellState(choice)
    state.has_file = "a/b".__eq__
    text = "V=a/b\nif [ -f $V ]; then x; else y; fi; if [ -f c ]; then u; else v; fi"
    *_, first, second = parse_commands(tuple(enumerate(text.split("\n"), 1)), state)
    assert (str(first), str(second)) == ("x", "uv"[choice])


def test_the_unknown_output_of_a_command_in_a_variable_is_one_word() -> None:
    *_, command = commands("V=\"$(sed -n 's/a \\(b\\)/\\1/p' f)\"\npip install x@v$V `V2` y")
    assert command.words == ("pip", "install", "x@v$(sed -n 's/a \\(b\\)/\\1/p' f)", "`V2`", "y")


def test_each_branch_can_be_chosen() -> None:
    text = "if x; then a; elif y; then b; else c; fi\npip install p || pip install q"
    state = ShellState()
    parse_commands(tuple(enumerate(text.split("\n"), 1)), state)
    assert state.choices == 3
    found = [[str(each) for each in commands(text, choice)][1:] for choice in range(3)]
    assert found == [["a", "pip install p"], ["b", "pip install q"], ["c", "pip install q"]]


def test_lines_heredocs_and_outputs() -> None:
    text = (
        "V=2.8.0\ncat > r.txt <<EOF\ntorch==$V\ntrl>=0.23\nEOF\n"
        "cat <<'EOF' | tee q.txt\n$V\nEOF\nf() {\n  pip install a>=1\n}\nf"
    )
    found = [each for each in commands(text) if each.words != ("export",)]
    assert [(each.line, each.name, each.output) for each in found] == [
        (2, "cat", "r.txt"), (6, "cat", ""), (6, "tee", ""), (10, "pip", ""),
    ]  # fmt: skip
    assert found[0].heredoc == ((3, "torch==2.8.0"), (4, "trl>=0.23"))
    assert found[1].heredoc == ((7, "$V"),)
    assert found[3].unquoted_bounds == ("a>=1",)


def test_variables_arrays_and_functions_are_kept_for_later_texts() -> None:
    state = ShellState()
    parse_commands(((1, "V=1; A=(x y); f() { pip install $1; }"),), state)
    assert [str(each) for each in parse_commands(((2, "f a==$V; b ${A[@]}"),), state)] == [
        "pip install a==1",
        "b x y",
    ]
    assert expand_word("image:${V}-${W}", state) == "image:1-${W}"
    assert [is_known(text) for text in ("a==1", "a==$V", "`x`", "<tag>", "a<2")] == [True, False, False, False, True]


WRAPPED = {
    "sudo -u me -E pip install a": "pip install a",
    "srun -N 1 --gpus=4 -p main python x.py": "python x.py",
    "srun --nodes 2 pip install a": "pip install a",
    "timeout -k 5 600 pip install a": "pip install a",
    "env -u X MAX_JOBS=4 /usr/bin/pip install a": "MAX_JOBS=4 pip install a",
    "poetry run pip install a": "pip install a",
    "poetry add a": "poetry add a",
    "taskset 0xff nice -n 10 pip install a": "pip install a",
    "sudo": "",
}


@each_case("text", WRAPPED)
def test_wrappers_are_removed(text: str) -> None:
    (command,) = commands(text)
    assert str(unwrap(command)) == WRAPPED[text]


def test_inner_scripts() -> None:
    scripts = [inner_script(each) for each in commands("bash -lc 'a b'; eval \"c d\"; sh x.sh; bash -c")]
    assert scripts == ["a b", "c d", "", ""]


@each_case("text", ["a@" + "b" * 100_000, "[" + "a@b" * 40_000, "1 " * 50_000, "\u279c " * 40_000, "(a) " * 30_000])
def test_a_long_line_is_no_slow_prompt(text: str) -> None:
    start = time.process_time()
    without_prompt(text)
    assert time.process_time() - start < 1.5


ADDRESS = "https://host.example/v1"


@each_case(
    ("text", "expected"),
    [
        (f"pip install {ADDRESS}/\\\na-1.whl\npip check", [(1, f"pip install {ADDRESS}/a-1.whl"), (3, "pip check")]),
        (
            f"pip install \\\n  {ADDRESS}/\\\na-1.whl \\\n  b\npip check",
            [(1, f"pip install {ADDRESS}/a-1.whl b"), (5, "pip check")],
        ),
        (f'pip install "a @ {ADDRESS}/\\\na-1.whl" c', [(1, f"pip install a @ {ADDRESS}/a-1.whl c")]),
        (f"pip install -f {ADDRESS}/ \\\na", [(1, f"pip install -f {ADDRESS}/ a")]),
        (f"pip install -f {ADDRESS}/\\\n  a", [(1, f"pip install -f {ADDRESS}/ a")]),
        (f"pip install a # of {ADDRESS}/\\\npip check", [(1, "pip install a"), (2, "pip check")]),
    ],
)
def test_an_address_of_two_rows_is_joined(text: str, expected: list[tuple[int, str]]) -> None:
    assert [(each.line, " ".join(each.words)) for each in commands(text)] == expected
