"""Patterns of single facts in a clause: a driver, a Python, a CUDA version, a compiler, a system."""

from __future__ import annotations

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.line_facts import END

DRIVER = r"(\d{3}\.\d{2,3}(?:\.\d{2})?)"
# A number of this form next to a GPU is that of the driver: `RTX 4060 Ti, 572.16`, `2x T4 / 450.80.02`.
DRIVER_ALONE = r"((?:3[89]|[45]\d|6[0-2])\d\.\d{2,3}(?:\.\d{2})?)"
PYTHON = rf"(3\.\d{{1,2}}(?:\.\d\d?)?){END}"
MINOR = r"(\d{1,2}\.\d{1,2})"
TORCH_WITH = r"v?\d\.\d{1,2}(?:\.\d{1,2})? ?(?:\(|with |/ ?)"
NVCC = r"(?:nvcc|cuda[ -]toolkit)(?: (?:-*version|-V|is|release|->))"
VERB = r"(?:(?:is|gives|returns|prints|still|now|becomes?|变成|返回|为|是)\W*){0,2}"
MAC = r"\b(?:mac ?os(?: x)?|mac ?book|i?macs?(?: mini| pro| studio)?)\b"
# The first word for a processor.
ARCHITECTURES = {
    "arm": "aarch64", "intel": "x86_64", "i3": "x86_64", "i5": "x86_64", "i7": "x86_64", "i9": "x86_64",
    "apple": "arm64", "m1": "arm64", "m2": "arm64", "m3": "arm64", "m4": "arm64", "m5": "arm64",
}  # fmt: skip
PATTERNS = tuple(
    (path, lazy_pattern(pattern))
    for path, pattern in (
        ("driver.version", rf"(?i)(?:\b(?:drivers?|treiber)\b|驱动|ドライバー?)[^.;\d]{{0,40}}?[ :=(v]{DRIVER}{END}"),
        ("driver.version", rf"(?i)\bnvidia-?smi\b[^.;\d]{{0,30}}?[ :=(]{DRIVER}{END}"),
        ("driver.version", rf"(?i)(?<![\w.]){DRIVER}\)? (?:nvidia |game ready |studio )?driver\b"),
        ("driver.version", rf"^{DRIVER_ALONE}$"),
        (
            "driver.version",
            rf"(?i)\b(?:[ahltvp]\d{{1,4}}s?|\d{{4}}|ti|super|ada|gpu|gb)[ ,(]{{1,3}}{DRIVER_ALONE}\)?{END}",
        ),
        (
            "driver.branch",
            rf"(?i)(?:\bdrivers?|驱动)(?: version| branch)?(?: is| are)?[ :=]+(?:v|r)?(\d{{3}})(?:\.x+)?{END}",
        ),
        ("driver.branch", r"\b(?:nvidia|libnvidia)-(?:driver|compute|utils)-(\d{3})(?:-server|-open)?\b"),
        ("driver.cuda", rf"(?i)\b(?:nvidia-?smi|driver)[^.;]{{0,60}}\bcuda(?: version)?[ :=]*{MINOR}{END}"),
        (
            "driver.cuda",
            rf"(?i)\bcuda(?: version)? ?(?:\((?:nvidia-smi|driver)\)|driver(?: api)?(?: version)?)[ :=]+{MINOR}{END}",
        ),
        ("driver.cuda", rf"(?i)\bcuda(?: version)?[ :=]+{MINOR} \(?(?:from |in |by )?(?:nvidia-smi|the driver)\b"),
        (
            "stack.python_version",
            (
                r"(?i)(?<![\w-])(?:c?python|py)(?: version)?(?: (?:--version|-V))?"
                rf"(?: ?(?:->|==?|:|-|is))? {{0,12}}v?{PYTHON}"
            ),
        ),
        ("cuda.nvcc_version", rf"(?i)\b(?:cuda-)?{NVCC}{{,3}}[ :=]+v?{MINOR}(?:\.\d+)?{END}"),
        ("cuda.nvcc_version", rf"(?i)\bnvcc from [\w /.-]{{2,20}}\({MINOR}"),
        ("cuda.nvcc_version", rf"(?i)(?<!cuda )\btoolkit {MINOR}{END} (?:is |are |was )?(?:installed|in /usr)"),
        (
            "stack.torch.cuda",
            rf"(?i)\b(?:cudatoolkit|pytorch-cuda)(?: version)?[ :=]+v?{MINOR}(?:\.\d{{1,3}})?{END}",
        ),  # of conda
        (
            "stack.torch.cuda",
            rf"(?i)\bcuda(?: runtime| version)? (?:of|in) (?:py)?torch(?: is)?[ :=]+{MINOR}(?:\.\d{{1,3}})?{END}",
        ),
        (
            "stack.torch.cuda",
            rf"(?i)\b(?:py)?torch[ =:]{{1,3}}{TORCH_WITH}(?:cuda|cu) ?v?{MINOR}(?:\.\d{{1,3}})?{END}",
        ),  # `Pytorch 2.1 (cuda 11.8)`
        ("stack.torch.cuda", rf"(?i)\bcuda {MINOR} (?:build of |version of )?(?:py)?torch\b"),
        ("package torch", rf"(?i)(?<![\w./+-])(?:py)?torch(\d\.\d{{1,2}}(?:\.\d{{1,2}})?(?:\+\w+)?){END}"),
        ("cuda.compiler", r"\b(gcc (?:\([^()]{2,40}\) |version )?\d{1,2}\.\d{1,2}(?:\.\d{1,2})?)"),
        ("system.glibc", r"(?i)\b(?:glibc(?: version)?|gnu c library)[ :=-]*(2\.\d{2})\b"),
        ("stack.cuda_available", rf"(?i)(?<!mps\.)\bis_available(?:\(\))?\W{{0,6}}{VERB}(true|false)\b"),
        ("stack.torch.cuda", rf"(?i)\btorch\.version\.cuda\W{{0,4}}{VERB}(none|\d{{1,2}}\.\d{{1,2}})\b"),
        (
            "system.architecture",
            r"(?:\b|manylinux\w{4,9}_|linux_)(x86_64|aarch64|arm64|ARM(?= (?:cpu|CPU|processor|server)))\b",
        ),
        ("system.architecture", rf"(?i)\b(intel)(?:[ -]\w{{1,9}}){{0,2}}[ -]{MAC}"),
        ("system.architecture", rf"(?i){MAC}[^.;\n]{{0,30}}[ (](intel|i[3579]|m[1-5])\b"),
        ("system.architecture", r"(?i)\b(apple silicon|apple m[1-5])\b"),
    )
)
SYSTEM = lazy_pattern(
    r"""(?xi)(?<![\w.-])(windows\ ?(?:10|11) | win\ ?(?:10|11)
    | i?mac(?:\ ?book)?(?:\ (?:pro|air))?(?=\ \d{4}) | mac\ ?book(?:\ (?:pro|air))? | imac | intel\ macs?
    | mac\ (?:mini|studio|m[1-5]) | apple\ (?:silicon|m[1-5]) | macos(?:\ \d{2}(?:\.\d)?)?
    | (?:ubuntu|debian|fedora|centos(?:\ linux)?|rhel|rocky(?:\ linux)?|alma\ ?linux|linux\ mint|pop!?_os|nixos
      |arch\ linux|manjaro|opensuse)(?:\ (?:server\ |linux\ )?\d{1,2}(?:\.\d{1,2}){0,2})?
    | (?:ubuntu|debian|fedora|centos|rhel)\d{1,2}(?:\.\d{1,2}){0,2} | amazon\ linux(?:\ 2(?:023)?)?
    | windows\ server(?:\ 20\d\d)?
    | ^windows(?=$|,\ ) | (?<=on\ )windows(?=$|[,.]) | windows(?=\ (?:machine|pc|laptop|desktop|box)\b)
    )(?![\w.]*\d)"""
)
