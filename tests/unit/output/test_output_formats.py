"""Findings, failures and errors as GitHub annotations and as SARIF."""

from __future__ import annotations

import re
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st
from support.cases import each_case
from support.output_documents import annotations, parse_workflow_commands, sarif

from envdoctor.commands.check import CheckResult
from envdoctor.commands.install import InstallDryRun
from envdoctor.commands.profiles import ProfileList
from envdoctor.commands.resolve import ProfileResolution, ResolveResult
from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.record import Record
from envdoctor.core.records import Evidence, Finding, ProbeResult, Verification
from envdoctor.core.remedies import steps
from envdoctor.core.results import CommandResult
from envdoctor.explain import Cause, Explanation
from envdoctor.locking.lock import Lock
from envdoctor.machine.recorded import machine_names, override, read_recorded
from envdoctor.output.github import annotation, to_github
from envdoctor.profiles.choice import Choice
from envdoctor.rules import RULES, evaluate

WORST = Finding(
    "DRV001",
    "nvml-driver-library-mismatch",
    "error",
    "module 570.26, library 575.51: 100% wrong\nsecond line",
    (Evidence("driver.version", "570.26", "/proc"),),
    "Reboot.",
    steps("sudo reboot"),
    "https://docs.nvidia.com/x",
)
FINDINGS = (
    WORST,
    Finding("GPU001", "ecc-or-xid", "crashed", "the rule failed: KeyError: 'x'"),
    Finding("HOST001", "shm-too-small", "warning", "64 MiB", (Evidence("storage", "64 MiB", "statvfs"),)),
    Finding("ENV001", "env-misconfig", "info", "harmless"),
    Finding("GPU002", "ecc-or-xid", "unknown", "cannot tell", (Evidence("gpus", "denied", "nvml"),)),
)
NO_CHOICE = Choice(None, "nothing fits", ())


class FindingsResult(Record, frozen=True):
    """A result with findings."""

    findings: tuple[Finding, ...]


def test_a_finding_is_an_annotation_with_its_fix() -> None:
    assert annotations(FindingsResult((WORST,))) == [
        (
            "error",
            "DRV001 driver-and-library-differ",
            f"{WORST.message}\nReboot.\n$ sudo reboot\ndriver.version: 570.26 (/proc)\nhttps://docs.nvidia.com/x",
        )
    ]


def test_a_finding_from_an_error_line_has_no_rule() -> None:
    finding = Finding("TEXT-driver-too-old", "driver-too-old", "error", "CUDA driver version is insufficient")
    assert annotations(FindingsResult((finding,))) == [("error", "TEXT-driver-too-old", finding.message)]
    assert "ruleIndex" not in sarif(FindingsResult((finding,)))["results"][0]


def test_levels_follow_the_status_and_unknown_rules_are_one_notice() -> None:
    found = annotations(FindingsResult((*FINDINGS, FINDINGS[-1])))
    assert [level for level, _, _ in found] == ["error", "error", "warning", "notice", "notice"]
    assert found[-1] == ("notice", "rules not evaluated", "GPU002: cannot tell\nGPU002: cannot tell")


def test_a_result_without_problems_prints_nothing() -> None:
    assert to_github("check", CommandResult(FindingsResult(()), 0), None) == ""
    assert to_github("profiles", CommandResult(ProfileList(()), 0), None) == ""


def test_an_error_of_the_tool_is_an_annotation() -> None:
    error = BadInput("x.json is 50% JSON", expected="JSON", hint="envdoctor check --save x.json")
    text = to_github("check", None, error)
    assert text == (
        "::error title=envdoctor check::x.json is 50%25 JSON%0Aexpected: JSON%0Ahint: envdoctor check --save x.json"
    )


@given(st.text(), st.text())
def test_escaping_is_reversible(title: str, message: str) -> None:
    line = annotation("error", title, message)
    assert "\n" not in line
    found = re.fullmatch(r"::error title=([^:,\r\n]*)::([^\r\n]*)", line)
    assert found
    back = [
        re.sub(r"%(0A|0D|3A|2C|25)", lambda code: chr(int(code[1], 16)), part, flags=re.ASCII)
        for part in found.groups()
    ]
    assert back == [title, message]


def test_profiles_that_do_not_resolve_or_fit() -> None:
    data = ResolveResult(
        (
            ProfileResolution("a", "this machine", None, (), None, "", error="no wheel of torch", hint="try b"),
            ProfileResolution("b", "h200", False, ("driver: 535, required >= 570",), None, "abc"),
            ProfileResolution("c", "h200", True, (), None, "abc"),
        )
    )
    assert annotations(data) == [
        ("error", "a does not resolve", "no wheel of torch\nhint: try b"),
        ("warning", "b does not fit h200", "driver: 535, required >= 570"),
    ]
    planned = InstallDryRun("a", "/venv", (), Lock("a", "x", "3.12", "", "cpu", ()), False, ("disk: 1, needed 20",))
    assert annotations(planned) == [("warning", "a does not fit this machine", "disk: 1, needed 20")]


def test_probes_that_failed_and_required_ones_that_did_not_pass() -> None:
    results = (
        ProbeResult("sdpa", "failed", "wrong numbers", 1.0, {"error": 0.5}, {"error": 0.016}, output="last line"),
        ProbeResult("triton_jit", "unavailable", "no GPU", 1.0),
        ProbeResult("cuda_matmul", "unavailable", "no GPU", 1.0),
        ProbeResult("torch_matmul", "passed", "fine", 1.0),
    )
    verification = Verification(
        1, "/p", "2026-11-21", "", (), "", ("cuda_matmul", "torch_matmul", "trl_grpo"), results
    )
    assert annotations(verification) == [
        ("error", "sdpa failed", "wrong numbers\nerror: 0.5, tolerance 0.016\nlast line"),
        ("error", "cuda_matmul unavailable", "no GPU"),
        ("error", "trl_grpo was not run", "the probe trl_grpo is required and has no result"),
    ]


def cause(slug: str, confidence: float) -> Cause:
    return Cause(
        cause=slug,
        title=slug,
        score=confidence,
        confidence=confidence,
        lines=("CUDA error 803",),
        line_numbers=(3,),
        findings=(),
        against="",
        fix="Reboot.",
        remedies=steps("sudo reboot"),
        check="",
        url="",
    )


def test_causes_of_an_explained_log() -> None:
    data = Explanation(causes=(cause("a", 0.9), cause("b", 0.35)), lines=1, size=1, facts=())
    message = "CUDA error 803\nReboot.\n$ sudo reboot"
    assert annotations(data) == [("error", "a (90%)", message), ("notice", "b (35%)", message)]


def test_causes_of_an_error_are_printed_with_it() -> None:
    error = EnvdoctorError("the trainer failed", hint="read the log")
    error.causes = (cause("a", 0.9),)
    found = parse_workflow_commands(to_github("train", None, error))
    assert [(level, title) for level, title, _ in found] == [("error", "envdoctor train"), ("notice", "a (90%)")]
    notes = sarif(None, error)["invocations"][0]["toolExecutionNotifications"]
    assert [note["descriptor"]["id"] for note in notes] == ["failed", "a"]


def test_findings_are_results_and_all_rules_are_described() -> None:
    run = sarif(FindingsResult(FINDINGS))
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(RULES)
    assert [(r["ruleId"], r["level"]) for r in run["results"]] == [
        ("DRV001", "error"),
        ("GPU001", "error"),
        ("HOST001", "warning"),
        ("ENV001", "note"),
    ]
    assert run["results"][0]["locations"][0]["logicalLocations"] == [
        {"name": "version", "fullyQualifiedName": "driver.version", "kind": "member"}
    ]
    notes = run["invocations"][0]["toolExecutionNotifications"]
    assert notes == [{"level": "note", "message": {"text": "cannot tell"}, "associatedRule": {"id": "GPU002"}}]


def test_fingerprints_identify_findings_independent_of_values() -> None:
    later = Finding(WORST.id, WORST.cause, "error", "other values", (Evidence("driver.version", "580.1", "/proc"),))
    prints = [
        r["partialFingerprints"]["primaryLocationLineHash"] for r in sarif(FindingsResult((WORST, later)))["results"]
    ]
    assert prints[0].split(":")[0] == prints[1].split(":")[0]
    assert prints[0] != prints[1]
    alone = sarif(FindingsResult((later,)))["results"][0]
    assert alone["partialFingerprints"]["primaryLocationLineHash"] == prints[0]


def test_output_names_the_examined_file() -> None:
    run = sarif(FindingsResult((WORST,)), file="my machines/ä:1.json")
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert unquote(place) == "my machines/ä:1.json"
    assert (
        sarif(FindingsResult((WORST,)))["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        == "envdoctor"
    )


def test_an_error_of_the_tool_is_a_notification() -> None:
    run = sarif(None, BadInput("no such file", expected="a file", hint="ls"))
    assert run["results"] == []
    invocation = run["invocations"][0]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 2)
    assert (
        invocation["toolExecutionNotifications"][0]["message"]["text"] == "no such file\nexpected: a file\nhint: ls"
    )


@each_case("name", machine_names())
def test_real_findings_of_every_machine(name: str) -> None:
    machine = override(read_recorded(name), ["driver.library=1.2.3"])
    findings = tuple(evaluate(machine))
    checked = CheckResult(machine, None, findings, len(RULES), NO_CHOICE)
    reported = [finding for finding in findings if finding.status not in ("unknown", "ok", "skipped")]
    assert len(sarif(checked)["results"]) == len(reported)
    assert len(annotations(checked)) == len(reported) + any(finding.status == "unknown" for finding in findings)
