"""The keys whose signatures `envdoctor update` accepts: keys.toml, and a key that the user names."""

from __future__ import annotations

import base64
import tomllib
from pathlib import Path

import msgspec

from envdoctor.core.errors import BadInput
from envdoctor.core.files import read_file
from envdoctor.core.paths import expand_home
from envdoctor.knowledge_update.package import PublicKey


def release_keys(*, with_test_keys: bool) -> tuple[PublicKey, ...]:
    """The keys of this envdoctor."""
    content = tomllib.loads((Path(__file__).parent / "keys.toml").read_text(encoding="utf-8"))
    keys = msgspec.convert(content["key"], tuple[PublicKey, ...])
    return tuple(key for key in keys if with_test_keys or not key.test)


def key_of_file(name: str) -> PublicKey:
    """An Ed25519 key in PEM, as `openssl pkey -pubout` writes it. Raises BadInput for anything else."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    path = expand_home(name)
    try:
        key = load_pem_public_key(read_file(path))
    except OSError as error:
        raise _no_key(path, error.strerror or str(error)) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _no_key(path, "no public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise _no_key(path, f"a key of another kind ({type(key).__name__.strip('_')})")
    return PublicKey(id=path.name, public=base64.b64encode(key.public_bytes_raw()).decode())


def _no_key(path: Path, problem: str) -> BadInput:
    hint = "openssl pkey -in private.pem -pubout -out public.pem"
    return BadInput(f"{path}: {problem}", expected="an Ed25519 public key in PEM", hint=hint)
