"""`envdoctor recipes`: list the bundled recipes."""

from __future__ import annotations

from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult
from envdoctor.training import recipes
from envdoctor.training.recipes import Recipe


class RecipeList(Record, frozen=True):
    """The bundled recipes."""

    recipes: tuple[Recipe, ...]


class RecipesRequest(Record, frozen=True):
    """A recipe is a set of settings for `envdoctor train`. Your own is a TOML file.

    Example: envdoctor recipes
    """


def run(_request: RecipesRequest) -> CommandResult:
    """List every bundled recipe."""
    return CommandResult(RecipeList(tuple(recipes.read_recipe(name) for name in recipes.recipe_names())))
