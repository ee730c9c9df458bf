"""Usage errors: their parts, their envelope, and the present command line for a spelling of an earlier version."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from support.cases import each_case
from support.command import envdoctor, envelope

from envdoctor.cli.application import build
from envdoctor.cli.parameters import make_request
from envdoctor.cli.usage import OLD_SPELLINGS, command_of, common_options_last
from envdoctor.commands.registry import COMMANDS, Command, load_run, request_type
from envdoctor.core.errors import BadInput

SPELLINGS = {
    "plan --recipe sort --machine h200": "plan sort --machine h200",
    "plan --machine h200 --recipe=./my recipe.toml": "plan './my recipe.toml' --machine h200",
    "export --profile cpu --format dockerfile --output D": "export --as dockerfile --profile cpu --output D",
    "profiles new --from-venv ./venv --name mine": "profiles new ./venv --name mine",
    "verify --bench --venv ./venv --format json": "bench --venv ./venv --format json",
    "verify ./venv --load": "load-test ./venv",
    "verify --bench --quick": "bench",
    "train --list --format json": "recipes --format json",
    "train sort --list": "recipes",
    "pack --check run.zip": "check-pack run.zip",
}


def parse(words: list[str]) -> None:
    """Parse the words of a command line; raises BadInput."""
    name = command_of(words)
    make_request(request_type(load_run(name)), build(name).parse(words[len(name.split()) :]))


@each_case("old", list(SPELLINGS))
def test_an_earlier_spelling_gives_the_present_one(old: str) -> None:
    words = shlex.split(old.replace("./my recipe.toml", "'./my recipe.toml'"))
    with pytest.raises(BadInput, match="spelling of an earlier version") as caught:
        parse(words)
    assert caught.value.hint == f"envdoctor {SPELLINGS[old]}"
    parse(shlex.split(SPELLINGS[old]))


def test_every_earlier_spelling_has_a_case() -> None:
    shown = {(command_of(case.split()), word.partition("=")[0]) for case in SPELLINGS for word in case.split()}
    assert set(OLD_SPELLINGS) <= shown


def test_a_present_value_is_no_earlier_spelling() -> None:
    parse(["export", "cpu", "--format", "json"])
    parse(["train", "--", "--list"])


@each_case("command", COMMANDS, ids=lambda command: command.name)
def test_an_unknown_option_is_bad_input(command: Command) -> None:
    with pytest.raises(BadInput, match=r"unknown option '--frmat'; did you mean '--format'\?"):
        parse([*command.name.split(), "--frmat", "json"])


ERRORS = {
    "chek": ("", "unknown command 'chek'; did you mean 'check'?"),
    "fleet chek": ("", "unknown command 'chek'; did you mean 'check'?"),
    "check --foo": ("check", "unknown option '--foo'"),
    "check --hlep": ("check", "unknown option '--hlep'; did you mean '--help'?"),
    "check -qZ": ("check", "unknown option '-Z'"),
    "check -q-": ("check", "unknown option '--'"),
    "check --quiet=yes": ("check", "option '--quiet' does not take a value"),
    "check --color blue": ("check", "--color: 'blue' is not a valid value"),
    "train --nodes -1": ("train", "--nodes: -1 is out of range"),
    "check a b": ("check", "unexpected argument: b"),
    "check --fact": ("check", "option '--fact' requires an argument"),
    "plan --gpus many": ("plan", "--gpus: 'many' is not an integer"),
    "export": ("export", "PROFILE is missing"),
    "profiles show": ("profiles show", "NAME|FILE is missing"),
    "check a --venv b": ("check", "VENV a and --venv b differ"),
    "plan --recipe sort": ("plan", "envdoctor plan --recipe sort --format json: spelling of an earlier version"),
}


@pytest.mark.parametrize("line", ERRORS)
def test_a_usage_error_has_the_envelope(line: str, tmp_path: Path) -> None:
    command, message = ERRORS[line]
    separator = ["--format", "json"]
    words = [*separator, *line.split()] if line == "check --fact" else [*line.split(), *separator]
    done = envdoctor(*words, home=tmp_path)
    data = envelope(done)
    assert (done.returncode, data["exit_code"], data["command"], done.stderr) == (2, 2, command, "")
    assert data["error"]["message"].startswith(message)
    assert data["error"]["expected"]
    assert data["error"]["hint"].startswith("envdoctor ") or data["error"]["hint"] == "leave --venv out"


def test_the_expected_values_of_an_option_are_named(tmp_path: Path) -> None:
    def expected(line: str) -> str:
        return str(envelope(envdoctor(*line.split(), "--format", "json", home=tmp_path))["error"]["expected"])

    assert expected("check --color blue") == "one of auto, always, never"
    assert expected("train --nodes many") == "an integer, 0<=x<=100000"
    assert expected("fleet check a --deadline soon") == "a number"


def test_a_second_argument_that_may_be_an_environment_gives_the_option(tmp_path: Path) -> None:
    def hint(line: str) -> str:
        return str(envelope(envdoctor(*line.split(), "--format", "json", home=tmp_path))["error"]["hint"])

    assert hint("install cpu ./venv") == "envdoctor install cpu --format json --venv ./venv"
    assert (
        hint("train sort ./venv --set max_steps=1")
        == "envdoctor train sort --set max_steps=1 --format json --venv ./venv"
    )
    assert hint("install cpu ./venv --venv b") == "envdoctor install --help"
    assert hint("check a b") == "envdoctor check --help"


def test_nodes_and_environments_are_arguments_and_options() -> None:
    for name in ("fleet check", "fleet collective"):
        assert make_request(request_type(load_run(name)), build(name).parse(["node[1-2]"])).hosts == "node[1-2]"
    request = request_type(load_run("audit"))
    assert make_request(request, build("audit").parse(["a.txt", "--venv", "venv"])).targets == ("a.txt", "venv")
    without = {"envs", "paths", "help", "config", "completion", "mcp", "schema", "rules", "recipes", "profiles"}
    without |= {
        "gpus",
        "health",
        "update",
        "profiles show",
        "facts check",
        "resolve",
        "lock",
        "export",
        "fetch",
        "watch",
        "pack",
        "check-pack",
    }
    given = {each.name for each in COMMANDS if any("--venv" in one.flags for one in build(each.name).parameters)}
    assert given == {each.name for each in COMMANDS} - without


def test_a_usage_error_has_the_configured_format(tmp_path: Path) -> None:
    assert envelope(envdoctor("check", "--foo", home=tmp_path, ENVDOCTOR_FORMAT="json"))["exit_code"] == 2
    done = envdoctor("check", "--foo", "--format", "human", home=tmp_path, ENVDOCTOR_FORMAT="json")
    assert (done.stdout, done.stderr.splitlines()[0]) == ("", "error: unknown option '--foo'")
    unreadable = envdoctor("check", home=tmp_path, ENVDOCTOR_FORMAT="yaml")
    assert (unreadable.returncode, unreadable.stdout) == (2, "")


def test_a_usage_error_for_people_has_three_lines(tmp_path: Path) -> None:
    done = envdoctor("check", "--foo", home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: unknown option '--foo'",
        "expected: envdoctor check [OPTIONS] [VENV]",
        "hint: envdoctor check --help",
    ]


@pytest.mark.parametrize("form", ["github", "sarif"])
def test_a_format_of_findings_needs_findings(form: str, tmp_path: Path) -> None:
    done = envdoctor("profiles", "show", "cpu", "--format", form, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"error: --format {form}: envdoctor profiles show reports no findings",
        "expected: --format human or --format json",
        "hint: envdoctor profiles show cpu --format json",
    ]
    done = envdoctor("chek", "--format", form, home=tmp_path)
    assert (done.returncode, done.stderr, "unknown command" in done.stdout) == (2, "", True)


def test_common_options_may_precede_the_command() -> None:
    words = ["-q", "--format=json", "--color", "never", "profiles", "show", "cpu"]
    assert common_options_last(words) == ["profiles", "show", *words[:4], "cpu"]
    assert common_options_last(["--format", "json", "fleet", "chek"]) == ["fleet", "chek", "--format", "json"]
    assert common_options_last(["check", "-v"]) == ["check", "-v"]
    assert common_options_last(["-q"]) == ["-q"]
    assert common_options_last(["-v", "fleet", "-q", "check", "a"]) == ["fleet", "check", "-v", "-q", "a"]
    assert common_options_last(["report", "-q", "--output", "x"]) == ["report", "-q", "--output", "x"]


def test_common_options_may_follow_a_group(tmp_path: Path) -> None:
    done = envdoctor("profiles", "--format", "json", "show", "cpu", home=tmp_path)
    assert envelope(done)["data"]["profile"]["id"] == "cpu"


def test_words_are_parsed_as_by_other_programs() -> None:
    def values(name: str, *words: str) -> dict[str, object]:
        return build(name).parse(words)

    short = values("report", "-qvo", "a.html", "venv")
    assert short == values("report", "venv", "-voa.html", "--quiet") | {"quiet": True}
    assert short == {"quiet": True, "verbose": True, "output": "a.html", "venv_argument": "venv"}
    assert values("check", "--machine=a=b", "--machine", "-") == {"machine": "-"}
    assert values("check", "--", "--venv") == {"venv_argument": "--venv"}
    assert values("check", "-", "--help", "--fact", "a") == {"help": True}
    assert values("fix", "venv", "A1", "--", "a", "--", "-b")["command"] == ("a", "--", "-b")


@pytest.mark.parametrize("line", ["", "--", "fleet", "fleet --"])
def test_a_group_without_a_command_prints_its_help(line: str, tmp_path: Path) -> None:
    done = envdoctor(*line.split(), home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: envdoctor")


def test_the_configuration_applies_to_a_group_that_is_a_command(tmp_path: Path) -> None:
    assert envelope(envdoctor("profiles", home=tmp_path, ENVDOCTOR_FORMAT="json"))["command"] == "profiles"


def test_machine_and_gpu_select_different_machines() -> None:
    from envdoctor.machine.recorded import read_recorded

    selected = {flag: build("check").parse([flag, "h200"])["machine"] for flag in ("--machine", "--gpu")}
    origins = {flag: read_recorded(name).origin for flag, name in selected.items()}
    assert origins["--machine"].startswith("recorded by envdoctor")
    assert origins["--gpu"].startswith("GPU catalogue")
    with pytest.raises(BadInput, match="--gpu cannot be combined with --machine"):
        build("check").parse(["--gpu", "l4", "--machine", "h200"])
    with pytest.raises(BadInput, match="--gpu: it is empty"):
        build("check").parse(["--gpu", ""])
