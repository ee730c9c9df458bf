"""What the loader, a dying process and a library that warns have to say."""

from __future__ import annotations

import re

from envdoctor.knowledge.libraries import package_of_library, package_of_symbol
from envdoctor.verify.abi import read_names
from envdoctor.verify.loading.records import Outcome
from envdoctor.verify.runner import SIGNAL_MEANINGS, parse_exception

# Lines of libraries that import all the same and then do without their kernels.
WARNINGS = re.compile(
    r"Failed to (import|load)|undefined symbol|cannot open shared object|No module named|None of PyTorch"
    r"|bitsandbytes.*(library|binary|compiled)|native library|[Mm]ock|compiled (using|against) NumPy"
    r"|was compiled|is not compatible|incompatible|GLIBC(XX)?_[\d.]+' not found|Triton.*(not|fail)"
)
WARNINGS_KEPT = 10
MESSAGE = 400
DYNAMIC = re.compile(
    r"(?P<file>/[^\s:]+): undefined symbol: (?P<symbol>[^\s,]+)"
    r"|(?P<library>\S+): cannot open shared object file"
    r"|version `(?P<version>[^']+)' not found"
)


def death_words(name: str, output: str) -> str:
    """A death by signal, with what was said before it.

    terminate called after throwing an instance of 'c10::Error'
      what():  Tried to register multiple backend fallbacks ...
    """
    said = re.search(r"what\(\):\s*(.+)", output) or re.search(r"(terminate called.*)", output)
    return f"was killed by {name}: " + (said[1][:MESSAGE] if said else SIGNAL_MEANINGS.get(name, ""))


def judge_words(text: str) -> tuple[Outcome, str]:
    """What the loader's own words mean.

    /venv/vllm/_C.abi3.so: undefined symbol: _ZNK3c106SymInt6sym_neERKS0_
    libcudart.so.11.0: cannot open shared object file: No such file or directory
    /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by /venv/x.so)
    """
    found = DYNAMIC.search(text)
    if not found:
        return "failed", parse_exception(text)[:MESSAGE]
    if symbol := found["symbol"]:
        owner = package_of_symbol(symbol)
        readable = read_names([symbol])[symbol]
        return "missing-symbol", f"needs {readable}" + (f", which {owner} should have" if owner else "")
    if library := found["library"]:
        owner = package_of_library(library)
        return "missing-library", f"needs {library}, which is nowhere" + (f"; it is in {owner}" if owner else "")
    return "missing-version", parse_exception(text)[:MESSAGE]


def matters(output: str) -> tuple[str, ...]:
    """Lines that say that a library goes on without its kernels, each once."""
    lines = (line.strip() for line in output.splitlines())
    return tuple(dict.fromkeys(line[:MESSAGE] for line in lines if WARNINGS.search(line)))[:WARNINGS_KEPT]
