"""Reports on JAX, TensorFlow, CuPy and RAPIDS: they need no torch for a verdict."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.reports import parse_report
from envdoctor.reports.coverage import measure_coverage
from envdoctor.rules import evaluate

MACHINE = "Ubuntu 22.04\nPython 3.11\nGPU: {}\nDriver Version: {}\n"


def rules_of(text: str) -> set[str]:
    report = parse_report(text)
    return {each.id for each in evaluate(report.machine, report.stack)}


@each_case(
    ("packages", "lacks_torch"),
    [
        ("jax 0.6.2\njaxlib 0.6.2\njax-cuda12-plugin 0.6.2", False),
        ("tensorflow==2.18.0\nkeras==3.6.0", False),
        ("cupy-cuda12x 13.3.0", False),
        ("cudf-cu12 24.10.1", False),
        ("jax 0.6.2\ntransformers 4.57.1", True),
        ("tensorflow==2.18.0\ntorchvision==0.20.1", True),
        ("numpy 2.1.0\npandas 2.2.3", True),
    ],
)
def test_torch_is_missing_only_from_a_report_on_its_packages(packages: str, lacks_torch: bool) -> None:
    coverage = measure_coverage(parse_report(MACHINE.format("NVIDIA A100", "550.54.15") + packages))
    assert ("torch" in {each.fact for each in coverage.missing}) is lacks_torch


@each_case(
    ("gpu", "driver", "packages", "rules"),
    [
        ("NVIDIA A100", "470.82.01", "jax 0.4.30\njax-cuda12-plugin 0.4.30", {"DRV017"}),
        ("NVIDIA A100", "550.54.15", "jax 0.4.30\njax-cuda12-plugin 0.4.30", set()),
        ("NVIDIA A100", "470.82.01", "tensorflow==2.17.1", {"DRV017"}),
        ("Tesla V100", "580.82.07", "cupy-cuda13x 13.6.0", {"GPU016"}),
        ("NVIDIA L4", "580.82.07", "cupy-cuda13x 13.6.0", set()),
    ],
)
def test_packages_state_their_cuda(gpu: str, driver: str, packages: str, rules: set[str]) -> None:
    assert rules_of(MACHINE.format(gpu, driver) + packages) & {"DRV017", "GPU016"} == rules
