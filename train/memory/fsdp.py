"""What FSDP2 gathers of a divided model, in bytes: all of it to answer, a layer at a time to learn."""

from __future__ import annotations

from dataclasses import dataclass

from memory.shape import Shape, count_parameters


@dataclass(frozen=True)
class Gathered:
    """Parts of a model as accelerate divides it: each layer, and what lies outside of the layers."""

    whole: int
    layer: int
    ends: int  # embeddings, the last norm and the head, which stay gathered from the forward to the backward pass

    def in_turn(self) -> int:
        """The ends, the layer that computes, and the next, which is on its way."""
        return self.ends + 2 * self.layer

    def gradients(self, size: int) -> int:
        """Of the largest part, and again in float32, in which they are added up over the GPUs."""
        largest = max(self.layer, self.ends)
        return largest + largest // size * 4


def gathered(shape: Shape, size: int) -> Gathered:
    """Bytes where a gathered number takes `size`."""
    counted = count_parameters(shape)
    layers = sum(counted[name] for name in ("attention", "mlp", "experts", "norms"))
    ends = counted["embeddings"] + counted["head"]
    return Gathered((layers + ends) * size, layers // shape.layers * size, ends * size)
