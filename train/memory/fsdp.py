"""The memory of parameters that FSDP2 gathers: the full model to generate, one layer at a time to train."""

from __future__ import annotations

from dataclasses import dataclass

from memory.shape import ModelShape, count_parameters


@dataclass(frozen=True)
class GatheredSizes:
    """Bytes of the parts that accelerate shards: each layer, and the parameters outside the layers."""

    model: int
    layer: int
    ends: int  # embeddings, last norm and head, which stay gathered from the forward to the backward pass

    def during_training(self) -> int:
        """Return the bytes gathered at once: the ends, the current layer and the prefetched next one."""
        return self.ends + 2 * self.layer

    def gradients(self, size: int) -> int:
        """Return the bytes of the largest part's gradients, and of their float32 copy for the reduction."""
        largest = max(self.layer, self.ends)
        return largest + largest // size * 4


def gathered_sizes(shape: ModelShape, size: int) -> GatheredSizes:
    """Return the gathered sizes for parameters of `size` bytes each."""
    counts = count_parameters(shape)
    layers = sum(counts[name] for name in ("attention", "mlp", "experts", "norms"))
    ends = counts["embeddings"] + counts["head"]
    return GatheredSizes((layers + ends) * size, layers // shape.layers * size, ends * size)
