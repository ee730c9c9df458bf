"""`envdoctor update`: newer compatibility tables for the installed version of envdoctor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from envdoctor.core.errors import EXIT_OK, BadInput, Refused
from envdoctor.core.options import Option
from envdoctor.core.record import Record
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult

if TYPE_CHECKING:
    from envdoctor.knowledge_update.package import PublicKey


class UpdateResult(Record, frozen=True, kw_only=True):
    """The tables before and after the command."""

    before: str  # version, such as 2026.12.01
    now: str
    bundled: bool  # whether the tables of this installation are used now
    source: str  # of the package; empty after a rollback
    key: str  # that signed the tables
    changed: tuple[str, ...]  # tables that differ from those before


class UpdateRequest(Record, frozen=True):
    """Installs a signed package of tables, which changes no program. Without --from, the package index has it.

    Example: envdoctor update --from envdoctor-knowledge-2026.12.01.zip
    """

    source: Annotated[str, Option("--from", "Take the package from here.", "URL|FILE|FOLDER")] = ""
    key: Annotated[
        str, Option("--key", "Accept only this Ed25519 public key (PEM), such as your company's.", "FILE")
    ] = ""
    accept_test_key: Annotated[
        bool, Option("--accept-test-key", "Also accept the key of the tests, which protects nothing.")
    ] = False
    rollback: Annotated[bool, Option("--rollback", "Use the tables before the last update again.")] = False


def run(request: UpdateRequest, reporter: Reporter) -> CommandResult:
    """Install newer tables, or go back to those before."""
    from envdoctor.knowledge.tables import FOLDER
    from envdoctor.knowledge_update.package import read_package, tables_of
    from envdoctor.knowledge_update.source import fetch_package
    from envdoctor.knowledge_update.store import install

    if request.rollback:
        return _roll_back(request)
    keys = _keys(request)
    before = tables_version()
    reporter.phase("fetch the package")
    data, source = fetch_package(request.source)
    package = read_package(data, source, keys)
    version = package.manifest.version
    if version < before:
        raise Refused(
            f"{source} has the tables {version}, older than those in use ({before})",
            expected=f"tables newer than {before}",
            hint="envdoctor update --rollback, which uses the tables before the last update",
        )
    old = tables_of(FOLDER)
    changed = [name for name in {**old, **package.tables} if old.get(name) != package.tables.get(name)]
    if version == before and changed:
        raise Refused(
            f"{source} has other tables than those in use, with the same version {version}",
            expected="a newer version for other tables",
            hint="envdoctor update --rollback, then run the command again",
        )
    if version > before:
        reporter.phase(f"try and install the tables {version}")
        install(package)
    return CommandResult(
        UpdateResult(
            before=before,
            now=version,
            bundled=version == before and not _is_installed(),
            source=source,
            key=package.key.id,
            changed=tuple(sorted(changed)),
        ),
        EXIT_OK,
    )


def tables_version() -> str:
    """The version of the tables in use."""
    from envdoctor.knowledge.installed import VERSION, version_of
    from envdoctor.knowledge.tables import FOLDER, tables_date

    return FOLDER.name if VERSION.fullmatch(FOLDER.name) else version_of(tables_date())


def _is_installed() -> bool:
    from envdoctor.knowledge.installed import BUNDLED
    from envdoctor.knowledge.tables import FOLDER

    return FOLDER != BUNDLED


def _roll_back(request: UpdateRequest) -> CommandResult:
    from envdoctor.knowledge.installed import bundled_date, version_of
    from envdoctor.knowledge_update.store import roll_back

    if request.source:
        raise BadInput(
            "--rollback and --from are both given", expected="one of them", hint="envdoctor update --rollback"
        )
    before = tables_version()
    now = roll_back().current
    version = now.version if now else version_of(bundled_date())
    key = now.key if now else ""
    return CommandResult(
        UpdateResult(before=before, now=version, bundled=not now, source="", key=key, changed=()), EXIT_OK
    )


def _keys(request: UpdateRequest) -> tuple[PublicKey, ...]:
    from envdoctor.knowledge_update.keys import key_of_file, release_keys

    if request.key:
        return (key_of_file(request.key),)
    keys = release_keys(with_test_keys=request.accept_test_key)
    if not keys:
        raise Refused(
            "this envdoctor has no release key: no package can be verified",
            expected="a key of the release in knowledge_update/keys.toml, or your own",
            hint="envdoctor update --key public.pem --from FILE",
        )
    return keys
