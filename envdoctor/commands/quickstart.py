"""`envdoctor quickstart`: check this machine, install a profile, verify it, and train its default recipe."""

from __future__ import annotations

import os
import time
from typing import Annotated

from envdoctor.commands import install, train, verify
from envdoctor.commands.check import CheckResult, check_machine
from envdoctor.commands.install import InstallRequest, chosen_profile
from envdoctor.commands.train import TrainRequest, TrainResult
from envdoctor.commands.verify import VerifyRequest
from envdoctor.core.errors import EXIT_NO, Refused
from envdoctor.core.options import Option, ProfileArgument, VenvOption
from envdoctor.core.record import Record
from envdoctor.core.records import Verification
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.install.install import InstallResult
from envdoctor.knowledge.notebook_services import current_service
from envdoctor.profiles import read_profile
from envdoctor.training.recipes import read_recipe


class QuickstartResult(Record, frozen=True):
    """Results of all four steps."""

    checked: CheckResult
    installed: InstallResult
    verification: Verification
    trained: TrainResult
    seconds: dict[str, float]


class QuickstartRequest(Record, frozen=True, kw_only=True):
    """Checks this machine, installs the profile that fits, verifies it, and trains a recipe.

    Example: envdoctor quickstart
    """

    profile: ProfileArgument = ""
    venv: VenvOption = ""
    recipe: Annotated[
        str,
        Option("--recipe", "Train this recipe, such as add; default: that of the profile.", "RECIPE"),
    ] = ""


def run(request: QuickstartRequest, reporter: Reporter) -> CommandResult:
    """Run the four steps. If a probe fails, the result is the verification and nothing is trained."""
    seconds: dict[str, float] = {}
    start = time.monotonic()

    def record_time(step: str) -> None:
        nonlocal start
        now = time.monotonic()
        seconds[step] = now - start
        start = now

    if (service := current_service(os.environ)) and not request.venv:
        raise Refused(
            f"{service.title}: quickstart installs, verifies and trains in an environment of its own",
            expected="the single steps in the Python of the notebook; --venv PATH for programs apart from it",
            hint="envdoctor install",
        )
    if request.recipe:
        read_recipe(request.recipe)  # an unknown name ends the command before the installation
    reporter.phase("Checking this machine")
    checked = check_machine()
    record_time("check")
    profile = read_profile(request.profile) if request.profile else chosen_profile(checked.choice)
    installed: InstallResult = install.run(
        InstallRequest(profile=request.profile or profile.id, venv=request.venv), reporter
    ).data
    record_time("install")
    reporter.phase("Verifying the environment")
    verification: Verification = verify.run(VerifyRequest(venv=installed.venv, quick=True), reporter).data
    record_time("verify")
    if not verification.passed:
        return CommandResult(verification, EXIT_NO)
    recipe = request.recipe or profile.train.recipe
    reporter.phase(f"Training {recipe}")
    trained: TrainResult = train.run(TrainRequest(recipe=recipe, venv=installed.venv), reporter).data
    record_time("train")
    return CommandResult(QuickstartResult(checked, installed, verification, trained, seconds))
