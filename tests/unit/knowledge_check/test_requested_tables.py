"""Which tables `facts check` reads for the names on the command line."""

from __future__ import annotations

import pytest

from envdoctor.core.errors import BadInput
from envdoctor.knowledge_check.tables import DERIVED, requested_tables, table_names


def test_all_tables_without_a_name() -> None:
    bounds = requested_tables(["bounds"])
    assert requested_tables([]) == {name: None for name in table_names() if name not in bounds}
    assert requested_tables(["bounds/spacy"]) == {"bounds/spacy": None}
    assert len(bounds) > 150
    assert set(DERIVED) <= set(table_names())


def test_tables_and_packages_by_name() -> None:
    requires = {name: None for name in table_names() if name.startswith("requires/")}
    assert len(requires) > 5
    assert requested_tables(["requires"]) == requires
    assert requested_tables(["published.toml"]) == {"published": None}
    assert requested_tables(["requires/vllm"]) == {"requires/vllm": None}
    assert requested_tables(["vllm"]) == {
        "requires/vllm": None, "published": {"vllm"}, "pythons": {"vllm"}, "names/vllm": None
    }  # fmt: skip
    assert "names/flash_attn" in requested_tables(["flash-attn"])
    assert all(name.startswith("names/") for name in requested_tables(["names"]))
    torch = requested_tables(["torch"])
    assert {"torch_builds", "torch_libraries", "guides"} <= torch.keys()
    assert torch["published"] == {"torch"}
    assert requested_tables(["vllm", "torch"])["published"] == {"vllm", "torch"}
    assert requested_tables(["published", "vllm"])["published"] is None
    with pytest.raises(BadInput, match="vlm"):
        requested_tables(["vlm"])
