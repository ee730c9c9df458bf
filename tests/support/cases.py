"""Many small cases in one test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def each_case(
    names: str | Sequence[str], cases: Iterable[Any], *, ids: Callable[[Any], object] | Iterable[object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test's body once for each case, as pytest.mark.parametrize does, but in one test.

    For cases that take less time than the setup of a test, and that share the test's fixtures. Every case runs, and
    the error names those that failed.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = list(cases)
    labels = list(map(ids, rows)) if callable(ids) else list(ids) if ids is not None else rows
    assert rows
    assert len(rows) == len(labels)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run_all(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            failed: list[str] = []
            for row, label in zip(rows, labels, strict=True):
                values = [row] if len(arguments) == 1 else row
                try:
                    function(**fixtures, **dict(zip(arguments, values, strict=True)))
                except (Exception, pytest.fail.Exception, BaseExceptionGroup) as error:
                    error.add_note(f"case: {label!r}")
                    failures.append(error)
                    failed.append(str(label)[:80])
            if failures:
                raise BaseExceptionGroup(
                    f"{len(failures)} of {len(rows)} cases failed: {'; '.join(failed)}", failures
                )

        signature = inspect.signature(function)
        kept = [each for each in signature.parameters.values() if each.name not in arguments]
        run_all.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        del run_all.__wrapped__  # type: ignore[attr-defined]
        return run_all

    return decorate
