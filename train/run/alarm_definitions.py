"""The detectors of the alarms, their thresholds, and the reasons for these. Standard library only.

A detector is called with the metrics of each step, in order. It returns a message and a hint to raise the alarm, True
to clear it, False to leave it as it is.

Entropy falls in every healthy run: by 73 % within the first 200 steps, while the score rises (Cui et al.,
https://arxiv.org/abs/2505.22617). Completions grow several times longer when a model learns to reason (DeepSeek-R1,
https://arxiv.org/abs/2501.12948). So neither is an alarm by itself, unless the reward does not rise.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

Metrics = Mapping[str, Any]
Verdict = tuple[str, str] | bool

# With two groups per step, as on one GPU with a large model, and 60 % of the groups with equal rewards, as is common
# late in a run, ten steps without signal happen by chance once in 27,000 times (0.36 ** 10).
SILENT_STEPS = 10
WINDOW = 10  # steps of a median or mean
ENTROPY_SHARE = 0.05  # of the start; healthy runs of the recipes ended at 0.25 (sort) and 0.08 (tes), lowest 0.07
SHORT_SHARE, LONG_SHARE = 0.3, 3.0  # of the length at the start
SIGMAS = 2.0  # standard errors of a significant difference
# Clipping makes a single large gradient harmless, so the threshold is high. Near its end a healthy run of `tes` had a
# norm of 11 times its small running median, and larger norms before. So a spike is also larger than earlier norms.
SPIKE, SPIKE_OVER, SPIKE_MEMORY, CALM = 10.0, 50, 200, 3.0
SPIKE_AFTER = 20  # steps before the median is used
# The reward of a truncated completion depends on its length, not its content: DAPO found this noise to destabilise
# training (https://arxiv.org/abs/2503.14476, section 3.4). From one half on, most completions are affected.
TRUNCATED, TRUNCATED_CLEAR = 0.5, 0.25
# Mean |log p_model - log p_vLLM| of a token. Healthy: 0.011, flat over a run of Qwen3-4B, and 0.036 where two engines
# drift apart (https://github.com/vllm-project/vime/issues/64). The threshold is far above rounding.
GAP, GAP_CLEAR, GAP_STEPS = 0.1, 0.05, 3
# PyTorch's GradScaler starts fp16 at a scale of 65536, halves it at each overflow, and skips that step: a few
# infinite norms at the start are normal (https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling).
FP16_OVERFLOWS = 5
FALLING_EVALUATIONS = 2  # in a row: one bad evaluation of few rows is chance


class NotANumber:
    """Loss, gradient norm or reward is NaN or infinite, or null after a number."""

    WATCHED = ("loss", "critic_loss", "grad_norm", "reward")

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.learning_rate = settings.get("learning_rate", 0.0)
        # verl skips an update whose norm is not finite (workers/actor/dp_actor.py), as GradScaler does.
        self.skips = settings.get("engine") == "verl"
        self.patience = FP16_OVERFLOWS if self.skips or settings.get("dtype") == "float16" else 1
        self.reported: set[str] = set()  # metrics with an earlier value: TRL reports them at every step
        self.bad_norms = self.good = 0

    def __call__(self, metrics: Metrics) -> Verdict:
        """NaN weights do not recover, so the alarm clears only after WINDOW finite steps."""
        bad = {name: metrics[name] for name in self.WATCHED if name in metrics and self._is_bad(name, metrics[name])}
        self.bad_norms = self.bad_norms + 1 if "grad_norm" in bad else 0
        if "grad_norm" in bad and self.bad_norms < self.patience:
            del bad["grad_norm"]
        self.good = 0 if bad else self.good + 1
        if not bad:
            return self.good >= WINDOW
        seen = ", ".join(f"{name} {'null' if value is None else value}" for name, value in bad.items())
        if "reward" in bad and len(bad) == 1:
            return (
                f"{seen}: the reward is not a number",
                "make the reward function return a number for every completion",
            )
        lower = max(self.learning_rate / 10, 1e-9)
        skipped = self.skips and list(bad) == ["grad_norm"]
        return (
            f"{seen}: "
            + (
                f"such updates are skipped, {self.bad_norms} in a row, and nothing is learned"
                if skipped
                else "the updated weights are lost"
            ),
            (
                f"continue from the last good checkpoint in a new run: --set learning_rate={lower:.2g} "
                "--set dtype=bfloat16 (or float32)"
            ),
        )

    def _is_bad(self, name: str, value: object) -> bool:
        if isinstance(value, int | float) and math.isfinite(value):
            self.reported.add(name)
            return False
        return value is not None or name in self.reported


class NoSignal:
    """The rewards within every group are equal: all advantages are 0 (see huggingface/trl, pull request 3502)."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.silent = 0
        self.lowest, self.highest = math.inf, -math.inf

    def __call__(self, metrics: Metrics) -> Verdict:
        """One step with a signal clears the alarm."""
        share, spread, reward = (_number(metrics, name) for name in ("frac_reward_zero_std", "reward_std", "reward"))
        if reward is not None:
            self.lowest, self.highest = min(self.lowest, reward), max(self.highest, reward)
        if share is None and spread is None:
            return False
        if not (share == 1 or spread == 0):
            self.silent = 0
            return True
        self.silent += 1
        if self.silent < SILENT_STEPS:
            return False
        at = f", mean reward {reward:.4g}" if reward is not None else ""
        return (
            (
                f"in {self.silent} steps in a row the rewards within each group were equal "
                f"(frac_reward_zero_std {_shown(share)}, reward_std {_shown(spread)}{at}): nothing is learned"
            ),
            self._hint(reward),
        )

    def _hint(self, reward: float | None) -> str:
        if reward is not None and reward == self.highest > self.lowest:
            return "the reward is the highest of this run: stop here, or use harder prompts"
        if reward is not None and reward < self.highest:
            rate = float(self.settings.get("learning_rate", 0.0)) / 10
            return f"the reward was {self.highest:.4g} before: --set learning_rate={rate:.2g}, or --set beta=0.04"
        more = 2 * int(self.settings.get("num_generations", 8))
        warmer = float(self.settings.get("temperature", 1.0)) + 0.2
        tries = [f"--set num_generations={more}", f"--set temperature={warmer:.2g}"]
        if self.settings.get("task") == "sort" or self.settings.get("sft_steps") == 0:
            tries.insert(0, f"--set sft_steps={max(40, 2 * int(self.settings.get('sft_steps', 0)))}")
        return f"some completions must be better than others: {', '.join(tries)}, easier prompts, or partial rewards"


class Collapse:
    """Entropy or length changed much since the start, and the reward did not rise."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        names = ("entropy", "completion_length", "reward")
        self.first: dict[str, list[float]] = {name: [] for name in names}
        self.last: dict[str, deque[float]] = {name: deque(maxlen=WINDOW) for name in names}

    def __call__(self, metrics: Metrics) -> Verdict:
        """Medians of the first and of the last WINDOW steps are compared."""
        for name, first in self.first.items():
            value = _number(metrics, name)
            if value is not None:
                if len(first) < WINDOW:
                    first.append(value)
                else:
                    self.last[name].append(value)
        reward, before = list(self.last["reward"]), self.first["reward"]
        if len(reward) < WINDOW:
            return False
        if rose(before, reward):
            return True
        change = f"while the reward went from {statistics.fmean(before):.4g} to {statistics.fmean(reward):.4g}"
        verdicts = [self._entropy(change), self._length(change)]
        wrong = [verdict for verdict in verdicts if not isinstance(verdict, bool)]
        return wrong[0] if wrong else all(verdicts)

    def _entropy(self, change: str) -> Verdict:
        start, now = self._levels("entropy")
        if start is None or now is None or start <= 0:
            return True
        if now >= ENTROPY_SHARE * start:
            return now >= 2 * ENTROPY_SHARE * start
        rate = float(self.settings.get("learning_rate", 0.0)) / 3
        # DAPO's clip-higher: 0.28 above, 0.2 below, against entropy collapse (section 3.1)
        return (
            f"entropy fell from {start:.3g} to {now:.3g} ({100 * now / start:.0f} % of its start) {change}",
            f"--set learning_rate={rate:.2g}, --set epsilon_high=0.28, --set beta=0.04, or a higher temperature",
        )

    def _length(self, change: str) -> Verdict:
        start, now = self._levels("completion_length")
        if start is None or now is None or start <= 0:
            return True
        message = f"the completion length went from {start:.4g} to {now:.4g} tokens {change}"
        if now < SHORT_SHARE * start:
            return (
                message,
                "read generations.csv: an empty completion must not score higher than a wrong one; --set beta=0.04",
            )
        if now > LONG_SHARE * start:
            return (
                message,
                f"{length_penalty(self.settings)}, --set loss_type=dr_grpo, or a smaller max_completion_length",
            )
        return 1.5 * SHORT_SHARE * start <= now <= LONG_SHARE / 1.5 * start

    def _levels(self, name: str) -> tuple[float | None, float | None]:
        first, last = self.first[name], self.last[name]
        return (statistics.median(first), statistics.median(last)) if len(last) == WINDOW else (None, None)


# verl's warm-up is a share of all steps, and its supervised fine-tuning has no completions.
WARM_UP = {
    False: "--set lr_scheduler_type=constant_with_warmup --set warmup_steps=20; see this step in generations.csv",
    True: "--set warmup_ratio=0.05",
}


class GradientSpike:
    """A gradient norm far above its running median, and above the bound that clips it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.seen: deque[float] = deque(maxlen=SPIKE_MEMORY)
        self.calm = 0

    def __call__(self, metrics: Metrics) -> Verdict:
        """The alarm clears after WINDOW steps below CALM medians. A norm of 0, a step without signal, is ignored."""
        norm = _number(metrics, "grad_norm")
        if not norm:
            return False
        seen = list(self.seen)
        self.seen.append(norm)
        if len(seen) < SPIKE_AFTER:
            return False
        median, bound = statistics.median(seen[-SPIKE_OVER:]), float(self.settings.get("max_grad_norm", 1.0))
        if norm <= max(SPIKE * median, bound, *seen):
            self.calm = self.calm + 1 if norm <= CALM * median else 0
            return self.calm >= WINDOW
        self.calm = 0
        rate = float(self.settings.get("learning_rate", 0.0)) / 3
        clip = (
            f"--set max_grad_norm={2 * median:.2g}"
            if 0.01 < 2 * median < (bound or math.inf)
            else "more prompts_per_step"
        )
        return (
            f"grad_norm {norm:.4g} is {norm / median:.3g} times its running median {median:.4g}",
            f"--set learning_rate={rate:.2g}, {clip}, or {WARM_UP[self.settings.get('engine') == 'verl']}",
        )


class Truncation:
    """Most completions were truncated, for WINDOW steps."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.last: deque[float] = deque(maxlen=WINDOW)

    def __call__(self, metrics: Metrics) -> Verdict:
        """The alarm clears when the mean of WINDOW steps is below TRUNCATED_CLEAR."""
        share = _number(metrics, "truncated")
        if share is None:
            return False
        self.last.append(share)
        if len(self.last) < WINDOW:
            return False
        if min(self.last) < TRUNCATED:
            return statistics.fmean(self.last) < TRUNCATED_CLEAR
        length = int(self.settings.get("max_completion_length", 0))
        longer = f"--set max_completion_length={2 * length}, " if length else ""
        of_verl = self.settings.get("engine") == "verl"
        masked = (
            ""
            if of_verl or self.settings.get("mask_truncated_completions")
            else ", --set mask_truncated_completions=true"
        )
        return (
            (
                f"in {WINDOW} steps in a row at least {100 * min(self.last):.0f} % of the completions were truncated "
                f"at {length or 'the maximum number of'} tokens"
            ),
            f"{longer}{length_penalty(self.settings)}{masked}",
        )


class SamplingGap:
    """vLLM's sampling probabilities differ from those of the trained model."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.wide = 0

    def __call__(self, metrics: Metrics) -> Verdict:
        """GAP_STEPS in a row raise the alarm, one below GAP_CLEAR clears it."""
        gap = _number(metrics, "sampling_gap")
        if gap is None:
            return False
        self.wide = self.wide + 1 if gap >= GAP else 0
        if self.wide < GAP_STEPS:
            return gap < GAP_CLEAR
        top_p = float(self.settings.get("top_p", 1.0))
        seen = f"vLLM's log-probabilities differ by {gap:.3g} per token from the model's (0.01 to 0.04 is usual)"
        cause = "compare with --set use_vllm=false: if it learns better, vLLM does not get the trained weights"
        if top_p < 1:
            cause = f"--set top_p=1: {top_p:g} truncates vLLM's distribution alone"
        return f"in {self.wide} steps in a row {seen}: the sampling policy is not the trained one", cause


class Overfitting:
    """The held-out reward fell significantly below its best value, while the training reward did not fall."""

    KINDS = ("sampled_reward", "greedy_reward")  # sampled first: the trained distribution

    def __init__(self, settings: Mapping[str, Any], rows: int) -> None:
        self.settings, self.rows = settings, max(1, rows)
        self.rewards: list[float] = []  # one per step
        self.spread = 0.0
        self.best: dict[str, tuple[float, int, list[float]]] = {}  # held-out reward, step, training rewards then
        self.fallen: dict[str, int] = {}

    def note(self, metrics: Metrics) -> None:
        """Record the training reward, and the largest standard deviation within a step."""
        reward, spread = _number(metrics, "reward"), _number(metrics, "reward_std")
        if reward is not None:
            self.rewards.append(reward)
        if spread is not None:
            self.spread = max(self.spread, spread)

    def __call__(self, step: int, metrics: Metrics, *, first: bool) -> Verdict:
        """Check an evaluation; the baseline evaluation is compared with the rewards of the first steps."""
        verdicts = [
            self._kind(kind, step, value, first=first)
            for kind in self.KINDS
            if (value := _number(metrics, kind)) is not None
        ]
        wrong = [verdict for verdict in verdicts if not isinstance(verdict, bool)]
        return wrong[0] if wrong else bool(verdicts) and all(verdicts)

    def _kind(self, kind: str, step: int, value: float, *, first: bool) -> Verdict:
        best, best_step, rewards_then = self.best.get(kind, (-math.inf, 0, []))
        if value >= best:
            self.best[kind] = (value, step, self.rewards if first else self.rewards[-WINDOW:])  # the list grows
            self.fallen[kind] = 0
            return True
        # The standard error of the difference of two means over the rows.
        noise = SIGMAS * math.sqrt(2) * self.spread / math.sqrt(self.rows)
        rewards_then = rewards_then[:WINDOW]
        if not rewards_then:
            return False
        then, now = statistics.fmean(rewards_then), statistics.fmean(self.rewards[-WINDOW:])
        fell = best - value > noise and now >= then
        self.fallen[kind] = self.fallen.get(kind, 0) + 1 if fell else 0
        if self.fallen[kind] < FALLING_EVALUATIONS:
            return best - value < noise / 2
        rate = float(self.settings.get("learning_rate", 0.0)) / 3
        back = f"use the checkpoint near step {best_step}; " if best_step else ""
        return (
            (
                f"held-out {kind} fell from {best:.4g} (step {best_step}) to {value:.4g}, significantly "
                f"({noise:.2g}), while the training reward went from {then:.4g} to {now:.4g}"
            ),
            (f"{back}--set learning_rate={rate:.2g}, --set beta=0.04, fewer steps, or more training prompts"),
        )


def length_penalty(settings: Mapping[str, Any]) -> str:
    """The hint for a penalty on long completions, by the settings of the engine."""
    if settings.get("engine") == "verl":
        return "a reward_function with a penalty near the end"
    return "--set rewards=...,length (a penalty near the end)"


def rose(before: list[float], after: list[float]) -> bool:
    """Whether the mean rose by more than SIGMAS standard errors of the difference."""
    error = math.sqrt(statistics.variance(before) / len(before) + statistics.variance(after) / len(after))
    return statistics.fmean(after) - statistics.fmean(before) > max(SIGMAS * error, 1e-9)


def _number(metrics: Metrics, name: str) -> float | None:
    """The metric where it is a finite number."""
    value = metrics.get(name)
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
