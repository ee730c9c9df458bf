"""Parts of GitHub annotations and SARIF documents."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.results import CommandResult
from envdoctor.output.github import to_github
from envdoctor.output.sarif import to_sarif

COMMAND = re.compile(r"^::(error|warning|notice) title=([^:,\r\n]*)::([^\r\n]*)$")  # as GitHub's runner parses it


def parse_workflow_commands(text: str) -> list[tuple[str, str, str]]:
    """Level, title and message of each line, unescaped as GitHub's runner does."""
    found = []
    for line in text.splitlines():
        match = COMMAND.match(line)
        assert match, f"not a workflow command: {line!r}"
        assert not re.search(r"%(?!25|0A|0D|3A|2C)", match[2] + match[3]), line
        found.append((match[1], unquote(match[2]), unquote(match[3])))
    return found


def annotations(data: Any, code: int = 1) -> list[tuple[str, str, str]]:
    """The GitHub annotations of a result of `check`."""
    return parse_workflow_commands(to_github("check", CommandResult(data, code), None))


# SARIF ------------------------------------------------------------------------------------------------------------
def sarif(data: Any, error: EnvdoctorError | None = None, **options: str) -> dict[str, Any]:
    """The SARIF run of a result of `check`, after checks against the format."""
    log = json.loads(to_sarif("check", None if error else CommandResult(data, 1), error, **options))
    assert_is_sarif(log)
    run: dict[str, Any] = log["runs"][0]
    return run


def assert_is_sarif(log: dict[str, Any]) -> None:
    """Check the requirements of the official schema for the objects in use, and GitHub's additional ones."""
    assert_keys(log, need={"version", "runs"}, may={"$schema"})
    assert log["version"] == "2.1.0"
    for run in log["runs"]:
        assert_keys(run, need={"tool", "results"}, may={"invocations", "columnKind"})
        assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        driver = run["tool"]["driver"]
        assert_keys(driver, need={"name", "rules", "semanticVersion"}, may=set())
        assert re.fullmatch(r"\d+\.\d+\.\d+(?:-[\w.]+)?", driver["semanticVersion"])
        ids = [rule["id"] for rule in driver["rules"]]
        assert len(ids) == len(set(ids)) <= 20000
        for rule in driver["rules"]:
            assert_is_rule(rule)
        for result in run["results"]:
            assert_is_result(result, ids)
        for invocation in run["invocations"]:
            assert_keys(
                invocation,
                need={"executionSuccessful"},
                may={"exitCode", "commandLine", "toolExecutionNotifications"},
            )
            for notification in invocation["toolExecutionNotifications"]:
                assert_keys(notification, need={"message"}, may={"level", "associatedRule", "descriptor"})
                assert notification["level"] in ("none", "note", "warning", "error")


def assert_is_rule(rule: dict[str, Any]) -> None:
    """Check a SARIF rule against the limits of the format and of GitHub."""
    need = {"id", "name", "shortDescription", "fullDescription", "help", "defaultConfiguration"}
    assert_keys(rule, need=need, may={"helpUri", "properties"})
    for name in ("shortDescription", "fullDescription", "help"):
        assert rule[name]["text"].strip()
    assert len(rule["shortDescription"]["text"]) <= 1024
    assert len(rule["fullDescription"]["text"]) <= 1024 * 4
    assert rule["name"].isalnum()
    assert len(rule["name"]) <= 255
    assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")
    assert rule.get("helpUri", "https://").startswith("https://")


def assert_is_result(result: dict[str, Any], ids: list[str]) -> None:
    """Check a SARIF result against the format."""
    need = {"message", "ruleId", "level", "locations", "partialFingerprints"}
    assert_keys(result, need=need, may={"ruleIndex", "properties"})
    assert result["message"]["text"].strip()
    assert result["level"] in ("none", "note", "warning", "error")
    if "ruleIndex" in result:
        assert ids[result["ruleIndex"]] == result["ruleId"]
    assert all(isinstance(value, str) for value in result["partialFingerprints"].values())
    for location in result["locations"]:
        assert_keys(location, need={"physicalLocation"}, may={"logicalLocations"})
        physical = location["physicalLocation"]
        assert re.fullmatch(r"[\w.~/%-]+", physical["artifactLocation"]["uri"], re.ASCII)
        assert physical["region"]["startLine"] >= 1


def assert_keys(data: dict[str, Any], *, need: set[str], may: set[str]) -> None:
    """The objects of the schema are closed: an unknown key is an error."""
    assert need <= set(data) <= need | may, set(data) ^ need
