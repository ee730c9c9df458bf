"""Notebook services with a preinstalled CUDA torch: notebook_services.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping

from envdoctor.knowledge.tables import TableRow, load_table, read_table

FILE = "notebook_services.toml"
INSTALL_TORCH = "uv pip install --python {} torch --torch-backend=auto"  # into the Python of a notebook without torch


class NotebookService(TableRow, frozen=True, kw_only=True):
    """A service, the variable by which it is recognised, and how a user restarts the Python of a notebook."""

    id: str
    title: str
    variable: str
    restart: str
    image: str  # what is preinstalled


def notebook_services() -> tuple[NotebookService, ...]:
    """All services."""
    return load_table(FILE, tuple[NotebookService, ...], "service")


def current_service(environ: Mapping[str, str]) -> NotebookService | None:
    """The service in which this process runs."""
    return next((service for service in notebook_services() if environ.get(service.variable)), None)


def service_title(name: str) -> str:
    """The title of a service by its id."""
    return next((service.title for service in notebook_services() if service.id == name), name)


def preinstalled_release(service: str, package: str) -> str:
    """The release of a package that a service has by its id; empty if the table does not have it."""
    image = next((each.image for each in notebook_services() if each.id == service), "")
    found = re.search(rf"(?<![\w-]){re.escape(package)} (\d+\.[\w.+]*\w)", image)
    return found[1] if found else ""


def is_kept(package: str) -> bool:
    """Whether an installation keeps the installed version of a package: torch, its companions, CUDA's libraries."""
    table = read_table(FILE)["table"]
    return package in table["keep"] or package.startswith(tuple(table["keep_prefixes"]))
