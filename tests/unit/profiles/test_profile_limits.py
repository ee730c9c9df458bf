"""Values of profiles and of `profiles new` at their limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.cases import each_case

from envdoctor.machine.recorded import read_recorded
from envdoctor.profiles.checks import MAX_DEPTH, MAX_ENTRIES, MAX_LENGTH, MAX_NUMBER, check_values, escaped
from envdoctor.profiles.hashes import _record_hashes, parse_direct_hash
from envdoctor.profiles.new import _when
from envdoctor.reports import parse_report

GIB = 1 << 30


@each_case(
    ("value", "expected"),
    [
        (["x"] * MAX_ENTRIES, []), (["x"] * (MAX_ENTRIES + 1), [f"at most {MAX_ENTRIES}"]),
        ("x" * MAX_LENGTH, []), ("x" * (MAX_LENGTH + 1), [f"at most {MAX_LENGTH}"]),
        (MAX_NUMBER, []), (-MAX_NUMBER, []), (MAX_NUMBER * 2, [f"a number of at most {MAX_NUMBER:.0f}"]),
        ({"x" * (MAX_LENGTH + 1): 1}, [f"at most {MAX_LENGTH}"]),
        (json.loads('{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH), []),
        (json.loads('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1)), [f"at most {MAX_DEPTH}"]),
    ],
)  # fmt: skip
def test_plain_values_at_their_limits(value: object, expected: list[str]) -> None:
    assert [problem.expected for problem in check_values(value)] == expected


def test_untrusted_text_is_cut_after_80_characters() -> None:
    assert escaped("x" * 80) == repr("x" * 80)
    assert escaped("x" * 81) == repr("x" * 80 + "...")


@each_case(
    ("size", "line"),
    [
        (0, "disk_gb = 1.0  # not measured"),
        (1, "disk_gb = 0.1  # 0.0 GiB installed, and as much for wheels and cache"),
        (5 * GIB, "disk_gb = 10.0  # 5.0 GiB installed, and as much for wheels and cache"),
        (5 * GIB + 1, "disk_gb = 10.1  # 5.0 GiB installed, and as much for wheels and cache"),
    ],
)
def test_the_disk_of_a_new_profile_holds_the_environment_and_its_cache(size: int, line: str) -> None:
    stack = parse_report("torch==2.8.0\n").stack
    assert stack is not None
    assert line in _when(stack, read_recorded("cpu-2core"), "", size)


@each_case(
    ("archive", "found"),
    [
        ({"hashes": {"sha256": "a" * 64}}, "a" * 64), ({"hash": "sha256=" + "b" * 64}, "b" * 64),
        ({"hashes": {"sha256": "a" * 63}}, None), ({"hashes": {"sha256": "a" * 65}}, None),
        ({"hashes": {"md5": "a"}}, None), ({}, None),
    ],
)  # fmt: skip
def test_the_hash_of_a_direct_url(archive: dict[str, Any], found: str | None) -> None:
    data = json.dumps({"url": "https://x/a.whl", "archive_info": archive}).encode()
    result = parse_direct_hash(data, "1")
    assert (result and result.sha256) == found


def test_hashes_of_a_record_without_rewritten_files(tmp_path: Path) -> None:
    rows = (
        "a.py,sha256=x,1\nb.py,,\nc.py,sha256=z\nd\na-1.data/scripts/e,sha256=y,1\na-1.dist-info/RECORD,sha256=w,1\n"
    )
    (tmp_path / "RECORD").write_text(rows)
    assert _record_hashes(tmp_path) == {"a.py": "sha256=x", "c.py": "sha256=z"}
