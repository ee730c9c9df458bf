"""What each alarm looks at, with its thresholds and why they are where they are. Standard library only.

A detector is called with the metrics of each step, in order. It answers with a message and what to try when
something is wrong, True when all is right again, False when there is nothing to say.

Two facts of the field set the tone. Entropy falls in every healthy run: by 73 % within the first 200 steps, while
the score rises (Cui et al., https://arxiv.org/abs/2505.22617), and answers grow several times longer when a model
learns to reason (DeepSeek-R1, https://arxiv.org/abs/2501.12948). So neither is an alarm by itself: only when the
reward gained nothing by it.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

Metrics = Mapping[str, Any]
Verdict = tuple[str, str] | bool

# With two groups a step, as on one GPU with a large model, and 60 % of groups of equal reward, which is common late
# in a run, ten steps in a row without signal come by chance once in 27,000 times (0.36 ** 10).
SILENT_STEPS = 10
WINDOW = 10  # steps that a level is taken over
ENTROPY_SHARE = 0.05  # of the start; healthy runs of the recipes ended at 0.25 (sort) and 0.08 (tes), lowest 0.07
SHORT_SHARE, LONG_SHARE = 0.3, 3.0  # of the length at the start
SIGMAS = 2.0  # two standard errors: what is told apart from chance
# Clipping makes one large gradient harmless, so the bar is high. Near its end a healthy run of `tes` had a norm of 11
# times its running median, which had become small; but larger ones before. So a spike is also larger than those.
SPIKE, SPIKE_OVER, SPIKE_MEMORY, CALM = 10.0, 50, 200, 3.0
SPIKE_AFTER = 20  # steps before a median means something
# Answers that are cut off get the reward of their length, not of their content: DAPO found this noise to destabilise
# training (https://arxiv.org/abs/2503.14476, section 3.4). From one half, it is most of what is learnt from.
TRUNCATED, TRUNCATED_CLEAR = 0.5, 0.25
# Mean |log p_model - log p_vLLM| of a token. Healthy: 0.011, flat over a run of Qwen3-4B, and 0.036 where two engines
# drift apart (https://github.com/vllm-project/vime/issues/64). Far from both, so that nobody is alarmed for rounding.
GAP, GAP_CLEAR, GAP_STEPS = 0.1, 0.05, 3
# PyTorch's GradScaler starts fp16 at a scale of 65536 and halves it at each overflow, skipping that step: a few
# infinite norms at the start are its way (https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling).
FP16_OVERFLOWS = 5
FALLING_LOOKS = 2  # in a row: one bad look at few rows is chance


class NotANumber:
    """Loss, gradient norm or reward that is NaN or infinite, or null where there was a number before."""

    WATCHED = ("loss", "critic_loss", "grad_norm", "reward")

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.learning_rate = settings.get("learning_rate", 0.0)
        # verl leaves an update out whose norm is not finite (workers/actor/dp_actor.py), as GradScaler does.
        self.skips = settings.get("engine") == "verl"
        self.patience = FP16_OVERFLOWS if self.skips or settings.get("dtype") == "float16" else 1
        self.told: set[str] = set()  # names that have had a value: TRL reports them at every step from then on
        self.bad_norms = self.good = 0

    def __call__(self, metrics: Metrics) -> Verdict:
        """NaN weights do not heal, so it clears only after WINDOW good steps."""
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
                "make the reward function return a number for every answer",
            )
        lower = max(self.learning_rate / 10, 1e-9)
        left_out = self.skips and list(bad) == ["grad_norm"]
        return (
            f"{seen}: "
            + (
                f"such updates are left out, {self.bad_norms} in a row, and nothing is learnt"
                if left_out
                else "weights updated with this are lost"
            ),
            (
                f"go on from the last good checkpoint in a new run: --set learning_rate={lower:.2g} "
                "--set dtype=bfloat16 (or float32)"
            ),
        )

    def _is_bad(self, name: str, value: object) -> bool:
        if isinstance(value, int | float) and math.isfinite(value):
            self.told.add(name)
            return False
        return value is not None or name in self.told


class NoSignal:
    """Every group's answers earned the same: all advantages are 0 (see huggingface/trl, pull request 3502)."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.silent = 0
        self.lowest, self.highest = math.inf, -math.inf

    def __call__(self, metrics: Metrics) -> Verdict:
        """One step with a signal clears it."""
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
                f"in {self.silent} steps in a row all answers of each group earned the same "
                f"(frac_reward_zero_std {_shown(share)}, reward_std {_shown(spread)}{at}): nothing is learnt"
            ),
            self._hint(reward),
        )

    def _hint(self, reward: float | None) -> str:
        if reward is not None and reward == self.highest > self.lowest:
            return "the reward is the highest of this run: stop here, or give it harder prompts"
        if reward is not None and reward < self.highest:
            rate = float(self.settings.get("learning_rate", 0.0)) / 10
            return (
                f"it was {self.highest:.4g} before and was lost: --set learning_rate={rate:.2g}, or --set beta=0.04"
            )
        more = 2 * int(self.settings.get("num_generations", 8))
        warmer = float(self.settings.get("temperature", 1.0)) + 0.2
        tries = [f"--set num_generations={more}", f"--set temperature={warmer:.2g}"]
        if self.settings.get("task") == "sort" or self.settings.get("warmup_steps") == 0:
            tries.insert(0, f"--set warmup_steps={max(40, 2 * int(self.settings.get('warmup_steps', 0)))}")
        return f"some answers have to be better than others: {', '.join(tries)}, easier prompts, or partial rewards"


class Collapse:
    """Entropy or length left where it began, and the reward is no higher for it."""

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
        gained = f"while the reward went from {statistics.fmean(before):.4g} to {statistics.fmean(reward):.4g}"
        verdicts = [self._entropy(gained), self._length(gained)]
        wrong = [verdict for verdict in verdicts if not isinstance(verdict, bool)]
        return wrong[0] if wrong else all(verdicts)

    def _entropy(self, gained: str) -> Verdict:
        start, now = self._levels("entropy")
        if start is None or now is None or start <= 0:
            return True
        if now >= ENTROPY_SHARE * start:
            return now >= 2 * ENTROPY_SHARE * start
        rate = float(self.settings.get("learning_rate", 0.0)) / 3
        # DAPO's clip-higher: 0.28 above, 0.2 below, against this very collapse (section 3.1)
        return (
            f"entropy fell from {start:.3g} to {now:.3g} ({100 * now / start:.0f} % of its start) {gained}",
            f"--set learning_rate={rate:.2g}, --set epsilon_high=0.28, --set beta=0.04, or a higher temperature",
        )

    def _length(self, gained: str) -> Verdict:
        start, now = self._levels("completion_length")
        if start is None or now is None or start <= 0:
            return True
        message = f"answers went from {start:.4g} to {now:.4g} tokens {gained}"
        if now < SHORT_SHARE * start:
            return (
                message,
                "read generations.csv: an empty answer must not earn more than a wrong one; --set beta=0.04",
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


# verl's warm-up is a share of all steps, and its supervised fine-tuning has no answers to look at.
WARM_UP = {
    False: "--set lr_warmup_steps=20; see this step in generations.csv",
    True: "--set lr_warmup_share=0.05",
}


class GradientSpike:
    """A gradient norm far above its running median, and above the bound that clips it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.seen: deque[float] = deque(maxlen=SPIKE_MEMORY)
        self.calm = 0

    def __call__(self, metrics: Metrics) -> Verdict:
        """It clears after WINDOW steps below CALM medians. A norm of 0 is a step without signal: no part of it."""
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
    """Most answers were cut off before their end, for WINDOW steps."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.last: deque[float] = deque(maxlen=WINDOW)

    def __call__(self, metrics: Metrics) -> Verdict:
        """It clears when the mean of WINDOW steps is below TRUNCATED_CLEAR."""
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
        masked = "" if of_verl or self.settings.get("mask_truncated") else ", --set mask_truncated=true"
        return (
            (
                f"in {WINDOW} steps in a row at least {100 * min(self.last):.0f} % of the answers were cut off "
                f"at {length or 'their largest number of'} tokens"
            ),
            f"{longer}{length_penalty(self.settings)}{masked}",
        )


class SamplingGap:
    """vLLM samples by other probabilities than those that are trained."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.wide = 0

    def __call__(self, metrics: Metrics) -> Verdict:
        """GAP_STEPS in a row raise it, one below GAP_CLEAR clears it."""
        gap = _number(metrics, "sampling_gap")
        if gap is None:
            return False
        self.wide = self.wide + 1 if gap >= GAP else 0
        if self.wide < GAP_STEPS:
            return gap < GAP_CLEAR
        top_p = float(self.settings.get("top_p", 1.0))
        seen = f"vLLM's log-probability of a token lies {gap:.3g} from the model's (0.01 to 0.04 is usual)"
        cause = "compare with --set generation=transformers: if it learns better, vLLM does not get these weights"
        if top_p < 1:
            cause = f"--set top_p=1: {top_p:g} cuts vLLM's probabilities alone"
        return f"in {self.wide} steps in a row {seen}: the answers are not of the policy that is trained", cause


class Overfitting:
    """The held-out reward fell by more than chance since its best, while the training reward did not."""

    KINDS = ("sampled_reward", "greedy_reward")  # sampled first: it is what is trained

    def __init__(self, settings: Mapping[str, Any], rows: int) -> None:
        self.settings, self.rows = settings, max(1, rows)
        self.rewards: list[float] = []  # one number a step
        self.spread = 0.0
        self.best: dict[str, tuple[float, int, list[float]]] = {}  # held-out, step, training rewards at that time
        self.fallen: dict[str, int] = {}

    def note(self, metrics: Metrics) -> None:
        """Keep what the training earns, and how far answers' rewards lie apart."""
        reward, spread = _number(metrics, "reward"), _number(metrics, "reward_std")
        if reward is not None:
            self.rewards.append(reward)
        if spread is not None:
            self.spread = max(self.spread, spread)

    def __call__(self, step: int, metrics: Metrics, *, first: bool) -> Verdict:
        """A look; beside the one before the training stand the rewards of the first steps."""
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
        # The difference of two means over the rows, each of the answers' spread.
        noise = SIGMAS * math.sqrt(2) * self.spread / math.sqrt(self.rows)
        rewards_then = rewards_then[:WINDOW]
        if not rewards_then:
            return False
        then, now = statistics.fmean(rewards_then), statistics.fmean(self.rewards[-WINDOW:])
        fell = best - value > noise and now >= then
        self.fallen[kind] = self.fallen.get(kind, 0) + 1 if fell else 0
        if self.fallen[kind] < FALLING_LOOKS:
            return best - value < noise / 2
        rate = float(self.settings.get("learning_rate", 0.0)) / 3
        back = f"take the checkpoint near step {best_step}; " if best_step else ""
        return (
            (
                f"held-out {kind} fell from {best:.4g} (step {best_step}) to {value:.4g}, by more than chance "
                f"({noise:.2g}), while the training reward went from {then:.4g} to {now:.4g}"
            ),
            (f"{back}--set learning_rate={rate:.2g}, --set beta=0.04, fewer steps, or more training prompts"),
        )


def length_penalty(settings: Mapping[str, Any]) -> str:
    """What makes long answers earn less, by the engine's own settings."""
    if settings.get("engine") == "verl":
        return "a reward_function that takes something off near the end"
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
    return "not told" if value is None else f"{value:.3g}"
