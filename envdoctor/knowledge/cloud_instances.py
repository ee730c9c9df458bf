"""The GPUs of the instance types of cloud providers: cloud_instances.toml."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.tables import TableRow, load_table

# A name with the form of such a type: g5.12xlarge, ml.p4d.24xlarge of SageMaker, a3-highgpu-8g, Standard_ND96asr_v4.
_TYPE = lazy_pattern(
    r"(?i)(?<![\w.-])(?:ml\.|standard_)?("
    r"(?:p|gr?)\d[a-z]{0,2}(?:-b\d{3})?\.(?:metal|\d{0,2}x?large)"
    r"|a\d-\w{4,5}gpu-\d{1,2}g|g2-standard-\d{1,2}"
    r"|n[cd]\d{1,3}[a-z]{2,4}(?:_[a-z]\d{1,3})?_v\d)(?![\w.-]*\w)"
)


class Provider(TableRow, frozen=True, kw_only=True):
    """A provider and its types, each line as TYPE COUNT NAME."""

    title: str
    instances: str


@cache
def _gpus_by_type() -> dict[str, tuple[str, int]]:
    providers = load_table("cloud_instances.toml", tuple[Provider, ...], "provider")
    rows = (line.split(" ", 2) for provider in providers for line in provider.instances.split("\n") if line)
    return {name: (gpu, int(count)) for name, count, gpu in rows}


def gpus_of_instances(text: str) -> Iterator[tuple[str, int]]:
    """The name and the number of the GPUs of each instance type that a text names: `g5.12xlarge` has 4 A10G."""
    known = _gpus_by_type()
    yield from (known[name] for match in _TYPE.finditer(text) if (name := match[1].lower()) in known)
