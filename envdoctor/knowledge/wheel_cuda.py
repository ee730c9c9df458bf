"""The CUDA libraries that compiled modules of wheels load: wheel_cuda.toml."""

from __future__ import annotations

from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import public_part, satisfies


class WheelCuda(TableRow, frozen=True, kw_only=True):
    """Releases of a package and the major versions of CUDA and cuDNN that their modules load."""

    package: str
    versions: str  # specifier
    cuda: str  # "12"
    effect: str  # without these libraries
    cudnn: str = ""  # "9"; empty: any, or none
    not_with: str = ""  # a package next to which this one is often installed for another purpose
    bundled: bool = False  # an extra of the package installs these libraries

    @property
    def libraries(self) -> str:
        """The libraries in words: "CUDA 12 and cuDNN 9"."""
        return f"CUDA {self.cuda}" + (f" and cuDNN {self.cudnn}" if self.cudnn else "")

    def fits(self, cuda: str, cudnn: str) -> bool:
        """Whether these major versions have the libraries; an unknown cuDNN has them."""
        return self.cuda == cuda and (not self.cudnn or cudnn in ("", self.cudnn))


def wheel_cuda_rows(package: str) -> tuple[WheelCuda, ...]:
    """The rows of a package, oldest releases first."""
    rows = load_table("wheel_cuda.toml", tuple[WheelCuda, ...], "wheel")
    return tuple(row for row in rows if row.package == package)


def packages_with_cuda() -> tuple[str, ...]:
    """The packages of the table."""
    rows = load_table("wheel_cuda.toml", tuple[WheelCuda, ...], "wheel")
    return tuple(dict.fromkeys(row.package for row in rows))


def wheel_cuda(package: str, version: str) -> WheelCuda | None:
    """The row of a release; None if it is not in the table."""
    return next((row for row in wheel_cuda_rows(package) if satisfies(public_part(version), row.versions)), None)


def fitting_wheels(package: str, cuda: str, cudnn: str) -> str:
    """The releases of a package whose modules find these libraries, as a specifier; the newest, empty if none."""
    return next((row.versions for row in reversed(wheel_cuda_rows(package)) if row.fits(cuda, cudnn)), "")
