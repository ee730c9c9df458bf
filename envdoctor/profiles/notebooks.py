"""Profiles that add packages to those of a notebook service, such as Google Colab, and have no environment. Pure."""

from __future__ import annotations

from envdoctor.core.errors import Refused
from envdoctor.core.records import Machine
from envdoctor.knowledge.notebook_services import current_service, service_title
from envdoctor.profiles.choice import Candidate, Condition
from envdoctor.profiles.records import NotebookImage, Profile

SERVICE = "notebook service"  # the condition of every such profile


def is_image_of(machine: Machine, image: NotebookImage) -> bool:
    """Whether the machine runs at the service of an image."""
    service = current_service(machine.environment.value or {})
    return bool(service and service.id == image.service)


def notebook_condition(machine: Machine, image: NotebookImage) -> Condition:
    """The condition that the machine runs at the service of an image."""
    service = current_service(machine.environment.value or {})
    observed = service.title if service else "none"
    holds = is_image_of(machine, image)
    return Condition(SERVICE, service_title(image.service), observed, holds, machine.environment.source)


def adds_to_notebook(candidate: Candidate) -> bool:
    """Whether the profile adds packages to those of a notebook."""
    return any(condition.name == SERVICE for condition in candidate.conditions)


def require_environment(profile: Profile) -> None:
    """Refuse a profile that has no environment of its own."""
    if profile.notebook:
        service = service_title(profile.notebook.service)
        raise Refused(
            f"profile '{profile.id}' adds packages to those of {service} and has no torch of its own",
            expected=f"`envdoctor install` in a notebook of {service} without --venv, or another profile",
            hint="envdoctor profiles",
        )
