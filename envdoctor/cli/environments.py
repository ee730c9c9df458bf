"""Commands for environments: install, fetch, envs, rollback, clean, uninstall, paths, verify, archs, abi."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.cli.shared import (
    FactOption,
    Format,
    FormatOption,
    MachineOption,
    ProfileOption,
    ProgressFormat,
    ProgressOption,
    PythonOption,
    PythonVersionOption,
    VenvOption,
    app,
    finish,
    reject_combination,
)

if TYPE_CHECKING:
    from envdoctor.core.results import CommandResult
    from envdoctor.output.reporter import LazyReporter

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be removed; remove nothing.")]


@app.command()
def install(
    profile: ProfileOption = "",
    venv: VenvOption = "",
    python: PythonVersionOption = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan as shell commands and stop.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Install even if the machine does not meet the profile's conditions.")
    ] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Replace a venv not created by envdoctor; rollback can restore it.")
    ] = False,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Resolve again instead of using the locked versions.")
    ] = False,
    wheels: Annotated[
        str,
        typer.Option("--from", metavar="DIR", help="Install offline from a folder that `envdoctor fetch` filled."),
    ] = "",
    system: Annotated[
        bool, typer.Option("--system", help="Also install missing system packages (compiler, headers), as root.")
    ] = False,
    progress: ProgressOption = ProgressFormat.auto,
    format: FormatOption = Format.human,
) -> None:
    """Without --profile, the profile that fits this machine is installed.

    Example: envdoctor install --profile cpu --venv ./venv
    """
    from envdoctor.commands import install as command

    def work(reporter: LazyReporter) -> CommandResult:
        if wheels:
            ignored = {"--upgrade": upgrade}
            reject_combination("--from", ignored, reason="it uses the folder's lock", hint="envdoctor install -h")
        request = command.InstallRequest(
            profile=profile, venv=venv, python=python, wheels=wheels,
            dry_run=dry_run, force=force, adopt=adopt, system=system, upgrade=upgrade,
        )  # fmt: skip
        return command.run(request, reporter)

    finish("install", format, work, progress)


@app.command()
def fetch(
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME|FILE", help="A bundled profile, or your own TOML file.")
    ],
    dest: Annotated[str, typer.Option("--dest", metavar="DIR", help="The folder to fill.")],
    python: PythonVersionOption = "",
    arch: Annotated[
        str, typer.Option("--arch", help="x86_64 or aarch64; default: this machine's, if the profile supports it.")
    ] = "",
    glibc: Annotated[
        str,
        typer.Option("--glibc", metavar="2.NN", help="glibc of the target machine; default: the profile's oldest."),
    ] = "",
    progress: ProgressOption = ProgressFormat.auto,
    format: FormatOption = Format.human,
) -> None:
    """`envdoctor install --from DIR` then installs on a machine without network access.

    Example: envdoctor fetch --profile cpu --dest ./wheels --arch aarch64
    """
    from envdoctor.commands import fetch as command

    def work(reporter: LazyReporter) -> CommandResult:
        return command.run(profile, dest, reporter, python=python, architecture=arch, glibc=glibc)

    finish("fetch", format, work, progress)


@app.command()
def envs(format: FormatOption = Format.human) -> None:
    """Prints profile, lock, size and verification of each, and of the environments that they replaced.

    Example: envdoctor envs
    """
    from envdoctor.commands import envs as command

    finish("envs", format, lambda _: command.run())


@app.command()
def rollback(venv: VenvOption = "", format: FormatOption = Format.human) -> None:
    """Exchanges the current and the previous environment, so a second rollback undoes the first.

    Example: envdoctor rollback --venv ./venv
    """
    from envdoctor.commands import rollback as command

    finish("rollback", format, lambda _: command.run(venv))


@app.command()
def clean(
    venv: VenvOption = "",
    dry_run: DryRunOption = False,
    adopted: Annotated[
        bool, typer.Option("--adopted", help="Also remove replaced environments not created by envdoctor.")
    ] = False,
    format: FormatOption = Format.human,
) -> None:
    """Also removes leftovers of killed installs.

    Example: envdoctor clean --dry-run
    """
    from envdoctor.commands import clean as command

    finish("clean", format, lambda _: command.run(venv, dry_run=dry_run, adopted=adopted))


@app.command()
def uninstall(
    venv: VenvOption = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Remove every environment, all logs and all caches of envdoctor.")
    ] = False,
    dry_run: DryRunOption = False,
    format: FormatOption = Format.human,
) -> None:
    """The environment is removed with its previous ones. Your own profiles and uv's cache are kept.

    Example: envdoctor uninstall --venv ./venv
    """
    from envdoctor.commands import uninstall as command

    finish("uninstall", format, lambda _: command.run(venv, everything=everything, dry_run=dry_run))


@app.command()
def paths(format: FormatOption = Format.human) -> None:
    """Prints the size of each folder, and the command that removes it.

    Example: envdoctor paths
    """
    from envdoctor.commands import paths as command

    finish("paths", format, lambda _: command.run())


@app.command()
def verify(
    venv: VenvOption = "",
    python: PythonOption = "",
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PROBE", help="Run only this probe; may be repeated.")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option("--skip", metavar="PROBE", help="Skip this probe; may be repeated.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Skip probes that compile or start vLLM, unless the profile requires them."),
    ] = False,
    load: Annotated[
        bool, typer.Option("--load", help="Only load every compiled file and import the libraries; needs no GPU.")
    ] = False,
    bench: Annotated[
        bool, typer.Option("--bench", help="Only measure and grade the speed of the GPUs, within a minute.")
    ] = False,
    progress: ProgressOption = ProgressFormat.auto,
    format: FormatOption = Format.human,
) -> None:
    """Each probe computes a result in its own process and compares it with a reference.

    Example: envdoctor verify --python /opt/venv/bin/python
    """
    from envdoctor.commands import verify as command

    def work(reporter: LazyReporter) -> CommandResult:
        if bench or load:
            option = "--bench" if bench else "--load"
            ignored = {"--load": bench and load, "--quick": quick, "--only": only, "--skip": skip}
            reject_combination(option, ignored, reason="it runs no probes", hint=f"envdoctor verify {option}")
        if bench:
            return command.run_benchmark(venv, python, reporter)
        if load:
            return command.run_load_test(venv, python, reporter)
        request = command.VerifyRequest(venv, python, tuple(only or ()), tuple(skip or ()), quick)
        return command.run(request, reporter)

    finish("verify", format, work, progress)


@app.command()
def archs(
    target: Annotated[str, typer.Argument(metavar="FILE|VENV", help="A compiled file, an environment, or a folder.")],
    cc: Annotated[
        str, typer.Option("--cc", metavar="X.Y,...", help="Compute capabilities to use instead of a machine's GPUs.")
    ] = "",
    machine: MachineOption = "",
    fact: FactOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List each file with its architectures.")] = False,
    format: FormatOption = Format.human,
) -> None:
    """Prints which GPUs the files have code for, natively or as PTX. No GPU is needed.

    Example: envdoctor archs .venv --cc 9.0,12.0
    """
    from envdoctor.commands import archs as command

    finish("archs", format, lambda _: command.run(target, cc, machine, fact or [], verbose=verbose))


@app.command()
def abi(
    venv: Annotated[str, typer.Argument(metavar="VENV", help="The folder of the environment.")],
    format: FormatOption = Format.human,
) -> None:
    """Compares the libraries and symbols that the files need with the installed ones. Nothing is loaded.

    Example: envdoctor abi .venv
    """
    from envdoctor.commands import abi as command

    finish("abi", format, lambda _: command.run(venv))
