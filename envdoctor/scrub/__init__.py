"""Taking out of a text, or of a whole record, what tells who and where somebody is, and every secret."""

from envdoctor.scrub.identity import Identity, read_identity
from envdoctor.scrub.scrubber import KINDS, Scrubber, removed_line

__all__ = ["KINDS", "Identity", "Scrubber", "read_identity", "removed_line"]
