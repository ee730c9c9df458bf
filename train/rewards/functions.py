"""Rewards by name, summed with weights: q-value, gsm8k, format:REGEX, length, user functions and reward models.

A reward returns one number per sample, or None if it does not apply, as in TRL. Any other result (an exception, NaN
or Inf, a wrong length) ends the run with an error that names the sample. Standard library only.
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
from data.files import cut
from rewards.deadline import DeadlineExceeded, deadline
from rewards.environment import NAME as ENVIRONMENT
from rewards.environment import environment_rewards
from rewards.model_names import PREFIX, check_reward_model, reward_model_of, reward_models
from rewards.q_values import q_value_reward
from rewards.reward_model import RewardModel
from rewards.user_function import UserReward, check_user_reward, is_user_reward
from settings import BadInput, suggest

Row = dict[str, Any]
Values = list[float | None]
NAMES = ["q-value", "gsm8k", "format:REGEX", "length", "module:function", "model:NAME", ENVIRONMENT]
MAX_REWARD = 1e18  # TRL computes in float32, where the squares of larger values are infinite and cause NaN
PATTERN_SECONDS = 1.0  # per completion: limits patterns with catastrophic backtracking
HARMONY_MARK = "<|channel|>"
CORRECT_HINT = "correct the reward, then start again, or continue from a checkpoint with --resume latest"


@dataclass(frozen=True)
class Batch:
    """Samples, and the keyword arguments that TRL passes to reward functions."""

    rows: Sequence[Row]
    texts: Sequence[str]
    arguments: dict[str, Any]


@dataclass(frozen=True)
class RewardPart:
    """One reward: its name in the settings, its column, its weight, and the function that computes it."""

    name: str
    column: str
    weight: float
    compute: Callable[[Batch], object]


class Rewards:
    """The weighted sum of the rewards that the settings name."""

    def __init__(self, settings: dict[str, Any], tokenizer: Any = None) -> None:
        """`settings` is read at each call, since max_completion_length may be resolved later."""
        self.settings, self.tokenizer = settings, tokenizer
        self.models: list[RewardModel] = []
        names, weights = settings["rewards"], parse_weights(settings)
        self.fields = name_columns(names)
        self.parts = [
            RewardPart(name, column, weight, self._choose(name))
            for name, column, weight in zip(names, self.fields, weights, strict=True)
        ]

    def score(self, rows: Sequence[Row], texts: Sequence[str], **arguments: Any) -> list[dict[str, Any]]:
        """Return {"reward": sum, "reward_NAME": each part before its weight} for every sample.

        `arguments` are those that TRL passes to a reward function: prompts, completions, completion_ids,
        trainer_state. An evaluation passes the last two, and `evaluation`. The sum is None where no reward applies.
        """
        if not rows:
            return []
        batch = Batch(rows, texts, arguments)
        columns = [self._run(part, batch) for part in self.parts]
        all_names = " + ".join(part.name for part in self.parts)
        scores = []
        for number, values in enumerate(zip(*columns, strict=True)):
            weighted = [
                part.weight * value for part, value in zip(self.parts, values, strict=True) if value is not None
            ]
            total = sum(weighted) if weighted else None
            if total is not None and not abs(total) <= MAX_REWARD:
                raise sample_error(all_names, f"has the sum {total}", batch, number)
            scores.append({"reward": total, **dict(zip(self.fields, values, strict=True))})
        return scores

    def decode(self, texts: Sequence[str], arguments: dict[str, Any]) -> list[str]:
        """Return the texts with the special tokens of harmony channels, for tokenizers that have them.

        TRL decodes without special tokens, which reduces harmony's channels to their bare names.
        """
        ids = arguments.get("completion_ids")
        if self.tokenizer is None or ids is None or not self._has_channels:
            return list(texts)
        return list(self.tokenizer.batch_decode([list(tokens) for tokens in ids], skip_special_tokens=False))

    @cached_property
    def _has_channels(self) -> bool:
        """Cached: get_vocab builds a dictionary of the vocabulary, which takes 0.14 s for 152,000 tokens."""
        return HARMONY_MARK in self.tokenizer.get_vocab()

    def _run(self, part: RewardPart, batch: Batch) -> Values:
        try:
            values = part.compute(batch)
        except BadInput:
            raise
        except (Exception, SystemExit) as error:
            problem = f"raised {describe_exception(error)} {describe_batch(batch)}"
            raise sample_error(part.name, problem, batch, None, hint=_hint(error, batch)) from error
        return check_values(part.name, values, batch)

    def _choose(self, name: str) -> Callable[[Batch], object]:
        builtin = {"q-value": self._q_value, "gsm8k": self._gsm8k, "length": self._length}
        builtin[ENVIRONMENT] = lambda batch: environment_rewards(batch.arguments.get("environments"))
        if name in builtin:
            return builtin[name]
        if name.startswith("format:"):
            pattern = compile_pattern(name)
            return lambda batch: [_match(name, pattern, batch, number) for number in range(len(batch.texts))]
        if model := reward_model_of(name):
            return self._choose_model(model)
        function = UserReward(name, self._encode)
        return lambda batch: function.compute(batch.rows, batch.texts, batch.arguments)

    def _choose_model(self, name: str) -> Callable[[Batch], object]:
        tokenizers = dict(enumerate(self.settings["reward_processing_classes"]))
        model = RewardModel(name, tokenizers.get(len(self.models), ""), self.settings)
        self.models.append(model)
        return lambda batch: model.compute(batch.rows, batch.texts, batch.arguments)

    def _q_value(self, batch: Batch) -> Values:
        return [
            q_value_reward(row["q"], read_action(text), self.settings) if "q" in row else None
            for row, text in zip(batch.rows, self.decode(batch.texts, batch.arguments), strict=True)
        ]

    def _gsm8k(self, batch: Batch) -> Values:
        return [
            float(read_number(text) == row["reference"]) if "reference" in row else None
            for row, text in zip(batch.rows, self.decode(batch.texts, batch.arguments), strict=True)
        ]

    def _length(self, batch: Batch) -> Values:
        ids = batch.arguments.get("completion_ids")
        if ids is None:
            ids = [self._encode(text) for text in batch.texts]
        limit, share = self.settings["max_completion_length"], self.settings["overlong_from"]
        return [None if tokens is None else overlong_penalty(len(tokens), limit, share) for tokens in ids]

    def _encode(self, text: str) -> list[int] | None:
        if self.tokenizer is None:
            return None
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def overlong_penalty(tokens: int, limit: int, share: float) -> float:
    """Return 0 up to share * limit tokens, then linearly down to -1 at the limit, where completions are truncated.

    The soft overlong punishment of DAPO (https://arxiv.org/abs/2503.14476, equation 13).
    """
    start = share * limit
    if tokens >= limit:
        return -1.0
    return 0.0 if tokens <= start else (start - tokens) / (limit - start)


def check_rewards(settings: dict[str, Any]) -> list[str]:
    """Return the names of the rewards with absolute paths of user files; raise BadInput for an invalid one."""
    parse_weights(settings)
    checked = []
    for name in settings["rewards"]:
        if name.startswith("format:"):
            check_pattern(name, compile_pattern(name))
        elif model := reward_model_of(name) or (name == PREFIX and name):
            name = check_reward_model(model.removeprefix(PREFIX))  # noqa: PLW2901  (with an absolute path)
        elif name == ENVIRONMENT and not settings["environment_factory"]:
            raise BadInput(
                f"settings: rewards: {name} without environment_factory",
                expected="an environment of TRL, whose get_reward is the reward",
                hint="--set environment_factory=FILE.py:CLASS",
            )
        elif name not in ("q-value", "gsm8k", "length", ENVIRONMENT):
            if not is_user_reward(name):
                raise BadInput(
                    f"settings: rewards: unknown reward {name!r}{suggest(name, NAMES)}",
                    expected=f"one or more of {', '.join(NAMES)} or FILE.py:function",
                    hint="--set rewards=NAME,NAME",
                )
            name = check_user_reward(name)  # noqa: PLW2901  (the same reward with an absolute path)
        checked.append(name)
    tokenizers, models = settings["reward_processing_classes"], reward_models(checked)
    if tokenizers and len(tokenizers) != len(models):
        raise BadInput(
            f"settings: reward_processing_classes has {len(tokenizers)} tokenizers for {len(models)} reward models",
            expected="one tokenizer per reward model, in the same order, or none: the models' own",
            hint="leave reward_processing_classes out",
        )
    return checked


def parse_weights(settings: dict[str, Any]) -> list[float]:
    """Return one weight per reward; the default is 1."""
    names, given = settings["rewards"], settings["reward_weights"]
    hint = f"--set reward_weights={','.join('1' for _ in names)}"
    if not given:
        return [1.0] * len(names)
    try:
        weights = [float(weight) for weight in given]
    except (TypeError, ValueError):
        weights = [math.nan]
    if not all(math.isfinite(weight) for weight in weights):
        raise BadInput(f"settings: reward_weights = {given}", expected="finite numbers", hint=hint)
    if len(weights) != len(names):
        raise BadInput(
            f"settings: reward_weights has {len(weights)} numbers, rewards has {len(names)} names",
            expected="one weight per reward, in the same order",
            hint=hint,
        )
    return weights


def name_columns(names: Sequence[str]) -> list[str]:
    """Return the columns of the parts: reward_q_value, reward_format, reward_FUNCTION.

    A duplicate gets a number: reward_FUNCTION_2. So does a name that the trainer uses itself: reward_std, and names
    that end in _smooth, which are drawn as smoothed curves.
    """
    columns: list[str] = []
    for name in names:
        last = reward_model_of(name).rstrip("/").rpartition("/")[2] or name.rpartition(":")[2]
        base = "reward_" + (name.split(":")[0] if name.startswith("format:") else last)
        base = re.sub(r"\W", "_", base)
        used = [*columns, "reward_std", *([base] if base.endswith("_smooth") else [])]
        numbered = (f"{base}_{number}" for number in itertools.count(2))
        columns.append(next(column for column in itertools.chain([base], numbered) if column not in used))
    return columns


def compile_pattern(name: str) -> re.Pattern[str]:
    """Compile the pattern of `format:REGEX`; a dot matches line ends as well."""
    pattern = name.removeprefix("format:")
    try:
        return re.compile(pattern, re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadInput(
            f"settings: rewards: {name}: {error}", expected="a Python regular expression",
            hint=r"--set rewards='format:<think>.*</think>\s*\[\d\]'",
        ) from None  # fmt: skip


def check_pattern(name: str, pattern: re.Pattern[str]) -> None:
    """Refuse a pattern with catastrophic backtracking on a long run of one character, such as (a+)+b."""
    characters = dict.fromkeys([*"a1 \n", *re.sub(r"\\.", "", pattern.pattern)[:60]])
    for character in characters:
        try:
            with deadline(PATTERN_SECONDS):
                pattern.fullmatch(character * 300 + "\0")
        except DeadlineExceeded:
            raise BadInput(
                f"settings: rewards: {name}: matching {character!r} * 300 takes more than {PATTERN_SECONDS:g} s",
                expected="a pattern without nested repetitions such as (a+)+",
                hint="simplify the pattern, or write the check as a function: --set rewards=FILE.py:function",
            ) from None


def _match(name: str, pattern: re.Pattern[str], batch: Batch, number: int) -> float:
    try:
        with deadline(PATTERN_SECONDS):
            return float(pattern.fullmatch(batch.texts[number]) is not None)
    except DeadlineExceeded:
        raise sample_error(name, f"did not finish in {PATTERN_SECONDS:g} s", batch, number) from None


def check_values(name: str, values: object, batch: Batch) -> Values:
    """Return the values as floats and Nones, one per sample; anything else is an error that names the sample."""
    if hasattr(values, "tolist"):  # an array or a tensor
        values = values.tolist()
    if not isinstance(values, (list, tuple)):
        raise sample_error(name, f"returned {describe_value(values)}, not a list", batch, None)
    if len(values) != len(batch.rows):
        first_missing = len(values) if len(values) < len(batch.rows) else None
        problem = f"returned {len(values)} values for {len(batch.rows)} samples"
        raise sample_error(name, problem, batch, first_missing)
    checked: Values = []
    for number, value in enumerate(values):
        plain = value
        with contextlib.suppress(ValueError, RuntimeError, AttributeError, TypeError):
            plain = value.item()  # type: ignore[attr-defined]  # scalars of numpy and torch
        # The comparison is also false for NaN.
        if plain is not None and not (isinstance(plain, Real) and abs(plain) <= MAX_REWARD):
            shown = plain if isinstance(plain, Real) else value
            raise sample_error(name, f"returned {describe_value(shown)} for it", batch, number)
        checked.append(None if plain is None else float(plain))
    return checked


def _hint(error: BaseException, batch: Batch) -> str:
    """Return the hint for a function that expects a text where completions are messages, as its prompts are."""
    if isinstance(batch.rows[0]["prompt"], str) or not re.search(r"\b(list|dict)\b", str(error)):
        return CORRECT_HINT
    return "a completion is a list of messages here: use completion[0]['content'], or --set chat=text for plain texts"


def sample_error(name: str, problem: str, batch: Batch, number: int | None, *, hint: str = CORRECT_HINT) -> BadInput:
    """Return the error of a reward with the step and, if known, the sample."""
    step, sample = batch.arguments.get("step"), ""
    phase = f"step {step}" if step else "evaluation"
    if number is not None:
        row, text = batch.rows[number], batch.texts[number]
        sample = f"; sample {row.get('source', number)}: prompt {cut(repr(row['prompt']))}, "
        sample += f"completion {cut(repr(text))}"
    return BadInput(
        f"reward {name}, {phase}: it {problem}{sample}",
        expected=f"a list with one number per sample of at most {MAX_REWARD:g}, or None if the reward does not apply",
        hint=hint,
    )


def describe_batch(batch: Batch) -> str:
    """Return the size of a batch and its first sample; no sample is called again, which may cost or count."""
    return f"on the batch of {len(batch.rows)} samples from {batch.rows[0].get('source', 0)} on"


def describe_exception(error: BaseException) -> str:
    """Return the exception with the file and line that raised it."""
    trace, location = error.__traceback__, ""
    while trace is not None:
        location = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {cut(' '.join(str(error).split()))}{location}"


def describe_value(value: object) -> str:
    """Return a value and its type."""
    try:
        text = repr(value)
    except ValueError:  # Python does not format integers of more than 4,300 digits
        text = f"a number of {int(value).bit_length()} bits"  # type: ignore[call-overload]
    return "None" if value is None else f"{cut(text, 60)} ({type(value).__name__})"
