"""Rewards by name, added with weights: q-value, gsm8k, format:REGEX, length, and functions of a person's own.

A reward gives one number a sample, or None where it does not apply, as TRL has it. Anything else that it does (an
exception, nan, a wrong length) ends the run with the sample that did it. Standard library only.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

from data.answers import read_action, read_number
from rewards.deadline import TooLong, deadline
from rewards.q_values import q_value_reward
from rewards.user_function import UserReward, check_user_reward, is_user_reward
from settings import BadInput, suggest

Row = dict[str, Any]
Values = list[float | None]
NAMES = ["q-value", "gsm8k", "format:REGEX", "length", "module:function"]
LARGEST = 1e18  # TRL compares answers in float32, where the squares of larger ones are infinite, and trains on nan
PATTERN_SECONDS = 1.0  # for one answer: a pattern that backtracks without end is stopped and named
HARMONY = "<|channel|>"


@dataclass(frozen=True)
class Batch:
    """Samples, and what TRL gives with them."""

    rows: Sequence[Row]
    texts: Sequence[str]
    given: dict[str, Any]

    def alone(self, number: int) -> Batch:
        """One of the samples as a batch."""
        one = slice(number, number + 1)
        given = {
            key: value[one] if value is not None and key in ("prompts", "completions", "completion_ids") else value
            for key, value in self.given.items()
        }
        return Batch(self.rows[one], self.texts[one], given)


@dataclass(frozen=True)
class Part:
    """One reward: as the person named it, its column, its weight, and what gives a batch its values."""

    title: str
    column: str
    weight: float
    give: Callable[[Batch], object]


class Rewards:
    """The weighted sum of the rewards that the settings name."""

    def __init__(self, settings: dict[str, Any], tokenizer: Any = None) -> None:
        """`settings` as they are at each call: max_completion_length may be known later than this object."""
        self.settings, self.tokenizer = settings, tokenizer
        names, weights = settings["rewards"], parse_weights(settings)
        columns = name_columns(names)
        self.parts = [
            Part(name, column, weight, self._choose(name))
            for name, column, weight in zip(names, columns, weights, strict=True)
        ]
        self.fields = columns

    def score(self, rows: Sequence[Row], texts: Sequence[str], **given: Any) -> list[dict[str, Any]]:
        """{"reward": sum, "reward_NAME": each part before its weight} for every sample.

        `given` is what TRL gives a reward function: prompts, completions, completion_ids, trainer_state. Each may be
        missing, as in a look at the held-out rows.
        """
        if not rows:
            return []
        batch = Batch(rows, texts, given)
        parts = [self._run(part, batch) for part in self.parts]
        scores = []
        for number, values in enumerate(zip(*parts, strict=True)):
            told = [(part.weight, value) for part, value in zip(self.parts, values, strict=True) if value is not None]
            if not told:
                problem = "gave None: no reward applies to this sample"
                raise bad_sample(" + ".join(part.title for part in self.parts), problem, batch, number)
            total = sum(weight * value for weight, value in told)
            if not abs(total) <= LARGEST:
                raise bad_sample(" + ".join(part.title for part in self.parts), f"adds up to {total}", batch, number)
            scores.append({"reward": total, **dict(zip(self.fields, values, strict=True))})
        return scores

    def read(self, texts: Sequence[str], given: dict[str, Any]) -> list[str]:
        """The texts that answers are read from: with the marks of the channels, where the tokenizer has them.

        TRL decodes without special tokens; of harmony's channels only their bare names would be left.
        """
        ids = given.get("completion_ids")
        if self.tokenizer is None or ids is None or not self._has_channels:
            return list(texts)
        return list(self.tokenizer.batch_decode([list(one) for one in ids], skip_special_tokens=False))

    @cached_property
    def _has_channels(self) -> bool:
        """Looked up once: transformers makes a dictionary of all words for it, 0.14 s for 152,000 of them."""
        return HARMONY in self.tokenizer.get_vocab()

    def _run(self, part: Part, batch: Batch) -> Values:
        try:
            values = part.give(batch)
        except BadInput:
            raise
        except (Exception, SystemExit) as error:
            number, cause = _find_the_sample(part, batch, error)
            raise bad_sample(part.title, f"raised {cause}", batch, number) from error
        return check_values(part.title, values, batch)

    def _choose(self, name: str) -> Callable[[Batch], object]:
        own = {"q-value": self._give_q_value, "gsm8k": self._give_gsm8k, "length": self._give_length}
        if name in own:
            return own[name]
        if name.startswith("format:"):
            pattern = compile_pattern(name)
            return lambda batch: [_match(name, pattern, batch, number) for number in range(len(batch.texts))]
        function = UserReward(name, self._encode)
        return lambda batch: function.give(batch.rows, batch.texts, batch.given)

    def _give_q_value(self, batch: Batch) -> Values:
        return [
            q_value_reward(row["q"], read_action(text), self.settings) if "q" in row else None
            for row, text in zip(batch.rows, self.read(batch.texts, batch.given), strict=True)
        ]

    def _give_gsm8k(self, batch: Batch) -> Values:
        return [
            float(read_number(text) == row["reference"]) if "reference" in row else None
            for row, text in zip(batch.rows, self.read(batch.texts, batch.given), strict=True)
        ]

    def _give_length(self, batch: Batch) -> Values:
        ids = batch.given.get("completion_ids")
        counts = [len(one) for one in ids] if ids is not None else [self._count(text) for text in batch.texts]
        most, share = self.settings["max_completion_length"], self.settings["overlong_from"]
        return [None if count is None else overlong_penalty(count, most, share) for count in counts]

    def _count(self, text: str) -> int | None:
        ids = self._encode(text)
        return None if ids is None else len(ids)

    def _encode(self, text: str) -> list[int] | None:
        if self.tokenizer is None:
            return None
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def _find_the_sample(part: Part, batch: Batch, error: BaseException) -> tuple[int | None, str]:
    """The first sample that raises alone; none where only the whole batch does."""
    for number in range(len(batch.rows)):
        try:
            part.give(batch.alone(number))
        except (Exception, SystemExit) as again:
            return number, describe(again)
    return None, f"{describe(error)} (on the batch of {len(batch.rows)}, on no sample alone)"


def overlong_penalty(count: int, most: int, share: float) -> float:
    """0 up to share * most tokens, then falling evenly to -1 at `most`, where an answer is cut off.

    The soft overlong punishment of DAPO (https://arxiv.org/abs/2503.14476, equation 13).
    """
    start = share * most
    if count >= most:
        return -1.0
    return 0.0 if count <= start else (start - count) / (most - start)


def check_rewards(settings: dict[str, Any]) -> list[str]:
    """The rewards, with files of functions made absolute; an error for any that cannot be."""
    parse_weights(settings)
    checked = []
    for name in settings["rewards"]:
        if name.startswith("format:"):
            try_pattern(name, compile_pattern(name))
        elif name not in ("q-value", "gsm8k", "length"):
            if not is_user_reward(name):
                raise BadInput(
                    f"settings: rewards: unknown reward {name!r}{suggest(name, NAMES)}",
                    expected=f"of {', '.join(NAMES)} or FILE.py:function",
                    hint="--set rewards=NAME,NAME",
                )
            name = check_user_reward(name)  # noqa: PLW2901  (the same reward, with its whole path)
        checked.append(name)
    return checked


def parse_weights(settings: dict[str, Any]) -> list[float]:
    """One weight a reward: 1 each unless told."""
    names, given = settings["rewards"], settings["reward_weights"]
    hint = f"--set reward_weights={','.join('1' for _ in names)}"
    if not given:
        return [1.0] * len(names)
    try:
        weights = [float(weight) for weight in given]
    except (TypeError, ValueError):
        weights = [math.nan]
    if not all(math.isfinite(weight) for weight in weights):
        raise BadInput(f"settings: reward_weights = {given}", expected="numbers", hint=hint)
    if len(weights) != len(names):
        raise BadInput(
            f"settings: reward_weights has {len(weights)} numbers, rewards has {len(names)} names",
            expected="one weight a reward, in their order",
            hint=hint,
        )
    return weights


def name_columns(names: Sequence[str]) -> list[str]:
    """Columns of the parts: reward_q_value, reward_format, reward_FUNCTION; the second of a name ends in _2.

    So does one that the trainer has itself: reward_std, and what ends in _smooth, which is drawn as another's curve.
    """
    columns: list[str] = []
    for name in names:
        base = "reward_" + (name.split(":")[0] if name.startswith("format:") else name.rpartition(":")[2])
        base = re.sub(r"\W", "_", base)
        taken = [*columns, "reward_std", *([base] if base.endswith("_smooth") else [])]
        numbered = (f"{base}_{number}" for number in itertools.count(2))
        columns.append(next(name for name in itertools.chain([base], numbered) if name not in taken))
    return columns


def compile_pattern(name: str) -> re.Pattern[str]:
    """The pattern of `format:REGEX`; a dot takes line ends, too."""
    pattern = name.removeprefix("format:")
    try:
        return re.compile(pattern, re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadInput(
            f"settings: rewards: {name}: {error}", expected="a regular expression of Python",
            hint=r"--set rewards='format:<think>.*</think>\s*\[\d\]'",
        ) from None  # fmt: skip


def try_pattern(name: str, pattern: re.Pattern[str]) -> None:
    """Refuse a pattern that a long run of one character keeps busy without end, as (a+)+b does."""
    letters = dict.fromkeys([*"a1 \n", *re.sub(r"\\.", "", pattern.pattern)[:60]])
    for letter in letters:
        try:
            with deadline(PATTERN_SECONDS):
                pattern.fullmatch(letter * 300 + "\0")
        except TooLong:
            raise BadInput(
                f"settings: rewards: {name}: 300 times {letter!r} keep it busy for more than {PATTERN_SECONDS:g} s",
                expected="a pattern without repetitions within repetitions, such as (a+)+",
                hint="say a repetition once, or write the check as a function: --set rewards=FILE.py:function",
            ) from None


def _match(name: str, pattern: re.Pattern[str], batch: Batch, number: int) -> float:
    try:
        with deadline(PATTERN_SECONDS):
            return float(pattern.fullmatch(batch.texts[number]) is not None)
    except TooLong:
        raise bad_sample(name, f"did not come to an end in {PATTERN_SECONDS:g} s", batch, number) from None


def check_values(title: str, values: object, batch: Batch) -> Values:
    """The values as floats and Nones, one a sample; anything else is an error that names the sample."""
    if hasattr(values, "tolist"):  # an array or a tensor
        values = values.tolist()
    if not isinstance(values, (list, tuple)):
        raise bad_sample(title, f"returned {describe_value(values)}, not a list", batch, None)
    if len(values) != len(batch.rows):
        without = len(values) if len(values) < len(batch.rows) else None  # the first sample that got no value
        raise bad_sample(title, f"returned {len(values)} values for {len(batch.rows)} samples", batch, without)
    checked: Values = []
    for number, value in enumerate(values):
        plain = value
        with contextlib.suppress(ValueError, RuntimeError, AttributeError, TypeError):
            plain = value.item()  # type: ignore[attr-defined]  # numpy's and torch's scalars
        if plain is not None and not isinstance(plain, Real):
            raise bad_sample(title, f"returned {describe_value(value)} for it", batch, number)
        if plain is not None and not abs(plain) <= LARGEST:  # nan, too; and of ints any there is
            raise bad_sample(title, f"returned {describe_value(plain)} for it", batch, number)
        checked.append(None if plain is None else float(plain))
    return checked


def bad_sample(title: str, problem: str, batch: Batch, number: int | None) -> BadInput:
    """A reward's fault: which reward, at which step, on which sample."""
    state, sample = batch.given.get("trainer_state"), ""
    step = batch.given.get("step") or (state.global_step + 1 if state is not None else None)
    when = "a look at the held-out rows" if step is None else f"step {step}"
    if number is not None:
        row, text = batch.rows[number], batch.texts[number]
        sample = f"; sample {row.get('source', number)}: prompt {_cut(repr(row['prompt']))}, "
        sample += f"completion {_cut(repr(text))}"
    return BadInput(
        f"reward {title}, {when}: it {problem}{sample}",
        expected=f"a list with one number of at most {LARGEST:g} a sample, or None where the reward does not apply",
        hint="correct the reward, then start again, or go on from a checkpoint with --resume latest",
    )


def describe(error: BaseException) -> str:
    """The exception, and the last line of code it came from."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {_cut(' '.join(str(error).split()))}{place}"


def describe_value(value: object) -> str:
    """A value and its type."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no int of more than 4,300 digits
        text = f"a number of {int(value).bit_length()} bits"  # type: ignore[call-overload]
    return "None" if value is None else f"{_cut(text, 60)} ({type(value).__name__})"


def _cut(text: str, most: int = 200) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
