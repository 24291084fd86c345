"""A model on the hub, brought into the local cache: weights, configs and tokenizer files, nothing else.

Folders in it are left alone, but for the config of the pooling that a `modules.json` names.

The weights are safetensors; only where a repository has none of a model, PyTorch's files are fetched.
"""

import errno
import json
from collections.abc import Callable
from pathlib import Path

from ragjax.models.embedding_config import MODULES, pooling_files
from ragjax.weights.safetensors_reader import SAFETENSORS

_WANTED = ["*.safetensors", "*.json", "*.model", "*.jinja", "merges.txt", "vocab.txt"]
_TORCH_WEIGHTS = ["pytorch_model.bin", "pytorch_model-*.bin"]
_UNWANTED = ["*/*", "consolidated*"]

# No room, or no right to write, in the cache: nothing that the hub or the network is to blame for.
_OF_THIS_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS}

_LOGIN = "log in with `hf auth login` or set HF_TOKEN"
_ELSEWHERE = "fetch the folder where there is a network and load that folder"
_NO_WEIGHTS = "give a repository of safetensors or of pytorch_model.bin, or a local .gguf file"
_HELP = {
    "invalid": "it is no name that the hub allows",
    "gated": "it is gated: accept its licence at https://huggingface.co/{name}, then " + _LOGIN,
    "gated from token": "it is gated, and the account of your token has no access: accept its licence at "
    "https://huggingface.co/{name} with that account, and let the token read gated repositories",
    "unknown": "the hub has no such repository (if it is a private one, " + _LOGIN + ")",
    "unknown to token": "the hub has no such repository, or your token does not open it: check the name, and at "
    "https://huggingface.co/settings/tokens what the token may read",
    "token": "the hub refused your token, which is wrong or has expired: make one at "
    "https://huggingface.co/settings/tokens and " + _LOGIN + " (an open model needs none: log out, or unset HF_TOKEN)",
    "forbidden": "the hub forbids it: log in with a token that may read this repository, see "
    "https://huggingface.co/settings/tokens",
    "no config": "it has no config.json: " + _NO_WEIGHTS,
    "no weights": "no weights came of it ({had}): either the repository has none ("
    + _NO_WEIGHTS
    + "), or the hub does not answer (no network, a token that it refuses) and the local cache has no more of it ("
    + _ELSEWHERE
    + ")",
    "offline": "it is not whole in the local cache and the hub cannot be reached: " + _ELSEWHERE,
}


def fetch(name: str) -> Path:
    """The local folder of a hub model, from the cache or the network.

    Raises:
        FileNotFoundError: saying why the model cannot be had and what to do about it.
        OSError: the cache on this machine cannot be written.
    """
    folder = _snapshot(name, _WANTED)
    if folder is None or not SAFETENSORS.is_in(folder):
        folder = _snapshot(name, _WANTED + _TORCH_WEIGHTS)
    # Without a network the cache answers with what it has, be it a config alone that a check has left there.
    if folder is None or not _has_weights(folder):
        had = sorted(path.name for path in folder.iterdir()) if folder else []
        raise _refused(name, "no weights", had=f"only {', '.join(had)}" if had else "no file at all")
    _fetch_pooling(name, folder)
    return folder


def _fetch_pooling(name: str, folder: Path) -> None:
    """Fetch the config of the pooling that the model's `modules.json`, where it has one, names.

    A broken `modules.json` is refused when the folder is opened.
    """
    try:
        wanted = pooling_files(json.loads((folder / MODULES).read_text()))
    except (FileNotFoundError, ValueError):
        return
    if not all((folder / path).is_file() for path in wanted):
        _snapshot(name, wanted, unwanted=None)


def _snapshot(name: str, patterns: list[str], unwanted: list[str] | None = _UNWANTED) -> Path | None:
    """The folder with the files of a hub model that the patterns name."""
    from huggingface_hub import snapshot_download

    return _asked(name, lambda: snapshot_download(name, allow_patterns=patterns, ignore_patterns=unwanted))


def _has_weights(folder: Path) -> bool:
    return any(path for pattern in ("*.safetensors", *_TORCH_WEIGHTS) for path in folder.glob(pattern))


def fetch_config(name: str) -> Path:
    """The config.json of a hub model and nothing else of it: what says that it can be had. Raises as `fetch` does."""
    path = fetch_small(name, "config.json")
    if path is None:
        raise _refused(name, "no config")
    return path


def fetch_small(name: str, file: str) -> Path | None:
    """One file of a hub model, None if the repository has no such file. Raises as `fetch` does."""
    from huggingface_hub import hf_hub_download

    try:
        return _asked(name, lambda: hf_hub_download(name, file))
    except FileNotFoundError:
        if _has_weights_in_cache(name):
            return None  # The model was fetched with all its small files, and this one was not among them.
        raise


def _has_weights_in_cache(name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return False
    return isinstance(config, str) and _has_weights(Path(config).parent)


def _asked(name: str, ask: Callable[[], str]) -> Path | None:
    """What the hub answers, None for a file that the repository has not; else the reason, by its kind."""
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HFValidationError,
        HTTPError,
        RepositoryNotFoundError,
    )

    try:
        return Path(ask())
    except HFValidationError:
        kind = "invalid"
    except GatedRepoError:
        kind = "gated from token" if _has_token() else "gated"
    except RepositoryNotFoundError:
        kind = "unknown to token" if _has_token() else "unknown"
    except EntryNotFoundError as error:
        if not isinstance(error, FileNotFoundError):
            return None
        kind = _kind_of_status(error.__cause__)
    except (OSError, HTTPError) as error:
        if getattr(error, "errno", None) in _OF_THIS_MACHINE:
            raise
        kind = _kind_of_status(error)
    raise _refused(name, kind)


def _kind_of_status(error: BaseException | None) -> str:
    """What an answer that is no file means: 401 for a token that is not valid, 403 for one that may not."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return {401: "token", 403: "forbidden"}.get(status, "offline")


def _has_token() -> bool:
    from huggingface_hub import get_token

    return get_token() is not None


def _refused(name: str, kind: str, **details: str) -> FileNotFoundError:
    reason = _HELP[kind].format(name=name, **details)
    return FileNotFoundError(f"{name}: no such file or folder; as a hub model, {reason}")
