"""The base of all records."""

import msgspec


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all records."""
