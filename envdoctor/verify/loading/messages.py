"""Classification of loader errors, crashes and warnings that the load test captures."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.libraries import package_of_library, package_of_symbol
from envdoctor.verify.linked_environment import demangle_all
from envdoctor.verify.loading.records import Outcome
from envdoctor.verify.probe_process import SIGNAL_MEANINGS, parse_exception

# Warnings of libraries that import successfully but run without their native kernels.
WARNING = lazy_pattern(
    r"Failed to (import|load)|undefined symbol|cannot open shared object|No module named|None of PyTorch"
    r"|bitsandbytes.*(library|binary|compiled)|native library|[Mm]ock|compiled (using|against) NumPy"
    r"|was compiled|is not compatible|incompatible|GLIBC(XX)?_[\d.]+' not found|Triton.*(not|fail)"
)
MAX_WARNINGS = 10
MAX_MESSAGE = 400  # characters
LOADER_ERROR = lazy_pattern(
    r"(?P<file>/[^\s:]+): undefined symbol: (?P<symbol>[^\s,]+)"
    r"|(?P<library>\S+): cannot open shared object file"
    r"|version `(?P<version>[^']+)' not found"
)


def describe_crash(signal_name: str, output: str) -> str:
    """Describe a death by signal with the C++ exception that the process printed, if any.

    terminate called after throwing an instance of 'c10::Error'
      what():  Tried to register multiple backend fallbacks ...
    """
    printed = re.search(r"what\(\):\s*(.+)", output) or re.search(r"(terminate called.*)", output)
    reason = printed[1][:MAX_MESSAGE] if printed else SIGNAL_MEANINGS.get(signal_name, "")
    return f"was killed by {signal_name}: {reason}"


def classify_loader_error(text: str) -> tuple[Outcome, str]:
    """The outcome and message for an error of the dynamic loader.

    /venv/vllm/_C.abi3.so: undefined symbol: _ZNK3c106SymInt6sym_neERKS0_
    libcudart.so.11.0: cannot open shared object file: No such file or directory
    /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by /venv/x.so)
    """
    found = LOADER_ERROR.search(text)
    if not found:
        return "failed", parse_exception(text)[:MAX_MESSAGE]
    if symbol := found["symbol"]:
        package = package_of_symbol(symbol)
        provider = f" (from {package})" if package else ""
        return "missing-symbol", f"needs the symbol {demangle_all([symbol])[symbol]}{provider}, which is not defined"
    if library := found["library"]:
        package = package_of_library(library)
        provider = f" (from {package})" if package else ""
        return "missing-library", f"needs {library}{provider}, which was not found"
    return "missing-version", parse_exception(text)[:MAX_MESSAGE]


def find_warnings(output: str) -> tuple[str, ...]:
    """The lines in which a library warns that it runs without native kernels, without duplicates."""
    lines = (line.strip() for line in output.splitlines())
    return tuple(dict.fromkeys(line[:MAX_MESSAGE] for line in lines if WARNING.search(line)))[:MAX_WARNINGS]
