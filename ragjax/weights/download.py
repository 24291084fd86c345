"""A model on the hub, brought into the local cache: safetensors, configs and tokenizer files, nothing else."""

from collections.abc import Callable
from pathlib import Path

_WANTED = ["*.safetensors", "*.json", "*.model", "*.jinja", "merges.txt", "vocab.txt"]
_UNWANTED = ["*/*", "consolidated*"]

_LOGIN = "log in with `hf auth login` or set HF_TOKEN"
_HELP = {
    "gated": "it is gated: accept its licence at https://huggingface.co/{name}, then " + _LOGIN,
    "unknown": "the hub has no such repository (if it is a private one, " + _LOGIN + ")",
    "no config": "it has no config.json: give a repository of safetensors, or a local .gguf file",
    "offline": "it is not in the local cache and the hub cannot be reached: "
    "fetch the folder where there is a network and load that folder",
}


def fetch(name: str) -> Path:
    """The local folder of a hub model, from the cache or the network.

    Raises:
        FileNotFoundError: saying why the model cannot be had and what to do about it.
    """
    from huggingface_hub import snapshot_download

    return _asked(name, lambda: snapshot_download(name, allow_patterns=_WANTED, ignore_patterns=_UNWANTED))


def fetch_config(name: str) -> Path:
    """The config.json of a hub model and nothing else of it: what says that it can be had. Raises as `fetch` does."""
    from huggingface_hub import hf_hub_download

    return _asked(name, lambda: hf_hub_download(name, "config.json"))


def _asked(name: str, ask: Callable[[], str]) -> Path:
    """What the hub answers, or the reason why it does not."""
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        return Path(ask())
    except HFValidationError:
        reason = "it is no name that the hub allows"
    except GatedRepoError:
        reason = _HELP["gated"]
    except RepositoryNotFoundError:
        reason = _HELP["unknown"]
    except EntryNotFoundError as error:
        reason = _HELP["offline" if isinstance(error, FileNotFoundError) else "no config"]
    except OSError:
        reason = _HELP["offline"]
    raise FileNotFoundError(f"{name}: no such file or folder; as a hub model, " + reason.format(name=name))
