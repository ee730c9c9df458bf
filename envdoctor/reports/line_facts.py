"""Facts of complete lines, although a part of them is about what does not work: a result, a failure, a driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.section import distribution_name

MAX_LINE = 600
END = r"(?![\w.]*\d)"  # no more digits follow
# What a command installed, in words: `pip install torch -> 2.9.0+cu130`, `uv pip install vllm gave 0.11.0`.
INSTALL_RESULT = lazy_pattern(
    r"\bpip\d? (?:install|show) (?:-U |--upgrade )?(torch|vllm|transformers|trl|flash-attn|xformers|sglang)"
    r"[`'\"]?\s{0,2}(?:->|=>|\u2192|gave|gives|installs|installed|: Version:|\()\s{0,2}(?:me )?(?:torch )?"
    r"(\d[\w.]{2,20}(?:\+\w{2,20})?)(?![\w.]*\w)"
)


# torch finds no GPU, in words: `torch 2.5.1+cu124 sees nothing`, `device_count() is 0`, `CUDA is gone`.
FINDS_NO_GPU = lazy_pattern(
    r"""(?xi)\b(?:py)?torch(?:\ \d[\w.+]*)?\ (?:(?:still|now|then|only|suddenly)\ )?(?:
      (?:sees|finds|detects|shows|reports|has|gives)
        \ (?:nothing|none|0\ (?:gpus?|devices?)|no\ (?:cuda|gpus?|devices?|cards?))
      | (?:does\ n[o']t|doesn't|cannot|can't|can\ not)\ (?:see|find|detect|recogni[sz]e)
        \ (?:the|my|any|a)\ (?:gpus?|cards?|cuda|devices?)
      |:?\ ?(?:cuda:?\ )?false\b)
    | \btorch\ \d[\w.+]*:?\ cuda\ (?:false|(?:is\ )?not\ available)\b
    | \bdevice_count(?:\(\))?\W{0,4}(?:is|gives|returns|prints)?\W{0,2}0\b(?![.\d])
    | \bcuda\ (?:is|was)\ (?:gone|lost|no\ longer\ available|unavailable)\b
    | \bcuda\ (?:device\ )?is\ (?:still\ )?not\ ava\w{1,4}able\b
    | \bcuda\ (?:is\ )?not\ available[,;.]?\ (?:running|falling\ back|using|defaulting|switching)\b
    | \bis_available(?:\(\))?(?:\ (?:is|becomes|turns)\ (?:now\ )?|\W{0,4})false\b
    | torch\S{0,30}(?:检测不到|识别不到|找不到|无法识别)\s?(?:gpu|显卡|cuda)"""
)
# No other component has a version of three numbers of this form.
DRIVER_NUMBER = lazy_pattern(
    rf"(?<![\w.=/-])(?<!fabricmanager )((?:3[89]|[45]\d|6[0-2])\d\.\d{{2,3}}\.\d{{2}}){END}"
    r"(?!\)? (?:or|and) (?:newer|later|higher|above))"
)
OF_OTHER_DRIVER = lazy_pattern(
    r"(?i)\b(?:needs?|requires?|required|least|minimum|recommend\w*|should|would|will|want|try|tried|tested|works?"
    r"|worked|before|previous(?:ly)?|from|than|older|newer|latest|download\w*|release\w*|colleague|other|another|fabric"
    r"|nvidia-fabricmanager|wheel|package|said|says|docs?)\b[^.;]{0,60}$|[<>]=?\s?$"
)
NATIVE_WINDOWS = lazy_pattern(r"(?i)\bnative(?:ly on)? windows\b")
NOT_OBSERVED = lazy_pattern(
    r"(?i)\b(?:if|when|whenever|unless|in case|should|would|could|may|expected|before|previous(?:ly)?|earlier|was"
    r"|fixed|solved|macos|mac|mps|cpu[- ]only|rocm|assert)\b"
)


def values_of_lines(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Facts of complete lines, although a part of them is about what does not work."""
    for text in texts:
        yield from ((f"package {distribution_name(match[1])}", match[2]) for match in INSTALL_RESULT.finditer(text))
        if NATIVE_WINDOWS.search(text):
            yield "system.os", "windows"
        if _finds_no_gpu(text):
            yield "stack.cuda_available", "false"
        if len(text) <= MAX_LINE:
            drivers = ((match[1], text[: match.start()]) for match in DRIVER_NUMBER.finditer(text))
            yield from (
                ("driver.version", number) for number, before in drivers if not OF_OTHER_DRIVER.search(before)
            )


def _finds_no_gpu(text: str) -> bool:
    """Whether a line states that torch finds no GPU, and not when or where it would not."""
    found = FINDS_NO_GPU.search(text) if len(text) <= MAX_LINE else None
    return found is not None and not NOT_OBSERVED.search(text)
