"""How a model's own files say that a text becomes its vector: the settings that sentence-transformers keeps beside it.

`modules.json` lists the modules of such a folder in order: the transformer, a pooling, maybe a normalisation. The
pooling's own config, the transformer's limit and the prompts stand in files of their own. Here they become the facts of
an `EmbeddingConfig`. What is stated and cannot be computed here is kept by name, and refused where a text is embedded:
the same model may be loaded for something else. A folder without `modules.json` states nothing: its texts are pooled by
the mean, as sentence-transformers does too.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
LIMITS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Where the transformer's limit may stand; the first that a folder holds is read."""

SIMILARITIES = ("cosine", "dot")

_POOLINGS = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}
_INERT = {"Dropout"}
_ORDERS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
_DOCUMENTS = ("document", "passage", "corpus")  # The first of them that has a prompt is a text's.

# Keys without an effect on a text's vector; at these values the others have none either.
_WITHOUT_EFFECT = {
    PROMPTS: ("__version__",),
    LIMITS[0]: ("modality_config", "unpad_inputs"),
}
_USUAL = {
    PROMPTS: {"model_type": "SentenceTransformer"},
    LIMITS[0]: {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"},
}


@dataclass(frozen=True)
class EmbeddingConfig:
    """What a model's files state about its embeddings; the defaults are those of a model that states nothing.

    `pooling` is as in `ragjax.encode.embed`. A text has at most `max_length` tokens, special ones included; None leaves
    it to the tokenizer. `normalize` is None where nothing is stated, `similarity` too. `prompt` stands before any text,
    `query_prompt` and `document_prompt` before those of a search. `problems` are what is stated and not supported, each
    with the name of the argument whose value would take its place, None where none does.
    """

    pooling: str = "mean"
    max_length: int | None = None
    normalize: bool | None = None
    similarity: str | None = None
    prompt: str = ""
    query_prompt: str = ""
    document_prompt: str = ""
    problems: tuple[tuple[str | None, str], ...] = ()

    def require(self, name: str, given: Collection[str] = ()) -> None:
        """Raise ValueError with every problem of the model `name`, but for those that a `given` argument settles."""
        told = [problem for argument, problem in self.problems if argument not in given]
        if told:
            raise ValueError(f"{name} cannot embed texts as its files say: {'; '.join(told)}")


def modules_of(stated: Any) -> list[tuple[str, str]]:
    """Path and type of each module that a `modules.json` lists. Raises ValueError where it does not list modules."""
    try:
        modules = [(module["path"], module["type"]) for module in stated]
    except (TypeError, LookupError) as error:
        raise ValueError(f"not a list of modules, each with its path and type ({error!r})") from None
    for path, kind in modules:
        if not isinstance(path, str) or not isinstance(kind, str) or path.startswith("/") or ".." in path:
            raise ValueError(f"{kind!r} at {path!r} is no module of this folder")
    return modules


def pooling_files(stated: Any) -> list[str]:
    """The paths of the poolings' own configs. Raises as `modules_of` does."""
    return [f"{path}/config.json" for path, kind in modules_of(stated) if kind.rpartition(".")[2] == "Pooling"]


def parse_embedding(files: Mapping[str, Any]) -> EmbeddingConfig:
    """The facts in a folder's files: what stands in each (JSON values), by its path in the folder.

    Raises:
        ValueError: where `modules.json` does not list modules.
    """
    if MODULES not in files:
        return EmbeddingConfig()
    problems: list[tuple[str | None, str]] = []
    kinds = _kinds(modules_of(files[MODULES]), problems)
    pooling, masks_prompt = _pooling(files, problems)
    max_length = _max_length(files, problems)
    prompts, similarity = _searching(files.get(PROMPTS, {}), problems)
    if masks_prompt and any(prompts.values()):
        problems.append((None, f"{masks_prompt}: include_prompt is False, which is not supported"))
    return EmbeddingConfig(
        pooling=pooling,
        max_length=max_length,
        normalize="Normalize" in kinds,
        similarity=similarity,
        **prompts,
        problems=tuple(problems),
    )


def _kinds(modules: list[tuple[str, str]], problems: list) -> list[str]:
    """The names of the modules that do something, in order."""
    found, known = [], {*_ORDERS[1], *_INERT}
    for path, kind in modules:
        library, _, name = kind.rpartition(".")
        if library.split(".")[0] != "sentence_transformers" or name not in known:
            problems.append((None, f"{MODULES}: {path or 'the first'} is a {kind}, which is not supported"))
        elif name == "Transformer" and path:
            problems.append((None, f"{MODULES}: the Transformer is in {path}, where it is not read"))
        elif name not in _INERT:
            found.append(name)
    if not problems and found not in _ORDERS:
        problems.append((None, f"{MODULES}: {', '.join(found)} is not {' or '.join(map(', '.join, _ORDERS))}"))
    return found


def _pooling(files: Mapping[str, Any], problems: list) -> tuple[str, str | None]:
    """The pooling, and the path of its config where it leaves the prompt out."""
    paths = pooling_files(files[MODULES])
    if len(paths) != 1:
        return "mean", None  # Told with the modules.
    path = paths[0]
    if path not in files:
        problems.append(("pooling", f"{path}, which {MODULES} names, is missing"))
        return "mean", None
    modes, supported = _modes(files[path]), ", ".join(_POOLINGS.values())
    if len(modes) != 1 or modes[0] not in _POOLINGS.values():
        told = f"{path}: pooling_mode is {' + '.join(modes) or 'none'}; one of {supported} is supported"
        problems.append(("pooling", told))
        modes = ["mean"]
    return modes[0], None if files[path].get("include_prompt", True) else path


def _modes(config: Mapping[str, Any]) -> list[str]:
    """The poolings whose vectors are put side by side: `pooling_mode`, or else each flag, of which that of the mean is
    on where it is not stated."""
    stated = config.get("pooling_mode")
    if stated is not None:
        return [str(mode).lower() for mode in (stated if isinstance(stated, list) else [stated])]
    flags = {"pooling_mode_mean_tokens": True, **config}
    names = [key.removeprefix("pooling_mode_") for key, on in flags.items() if key.startswith("pooling_mode_") and on]
    return [_POOLINGS.get(name, name) for name in names]


def _max_length(files: Mapping[str, Any], problems: list) -> int | None:
    path = next((name for name in LIMITS if name in files), None)
    config = dict(files[path]) if path else {}
    length = config.pop("max_seq_length", None)
    _check_rest(path, LIMITS[0], config, problems)
    if length is None or (isinstance(length, int) and not isinstance(length, bool) and length > 0):
        return length
    problems.append(("max_length", f"{path}: max_seq_length is {length!r}, not a positive whole number"))
    return None


def _searching(config: Mapping[str, Any], problems: list) -> tuple[dict[str, str], str | None]:
    """The prompts, by their fields, and the similarity."""
    config = dict(config)
    prompts, default = config.pop("prompts", None) or {}, config.pop("default_prompt_name", None)
    similarity = config.pop("similarity_fn_name", None)
    _check_rest(PROMPTS, PROMPTS, config, problems)
    if not isinstance(prompts, dict) or not all(isinstance(one, str | None) for one in prompts.values()):
        problems.append((None, f"{PROMPTS}: prompts is {prompts!r}, not a text for each name"))
        prompts = {}
    elif default is not None and default not in prompts:
        problems.append((None, f"{PROMPTS}: default_prompt_name is {default!r}, which prompts has not"))
    if similarity not in (None, *SIMILARITIES):
        told = f"{PROMPTS}: similarity_fn_name is {similarity!r}; one of {', '.join(SIMILARITIES)} is supported"
        problems.append(("similarity", told))
    of_documents = next((name for name in _DOCUMENTS if name in prompts), default)
    names = {"prompt": default, "query_prompt": "query" if "query" in prompts else default}
    names["document_prompt"] = of_documents
    return {field: prompts.get(name) or "" for field, name in names.items()}, similarity


def _check_rest(path: str | None, known: str, config: Mapping[str, Any], problems: list) -> None:
    """A problem for every key that nobody took and that may change a vector; an empty value says nothing."""
    for key, value in config.items():
        if not value or key in _WITHOUT_EFFECT[known] or _USUAL[known].get(key) == value:
            continue
        problems.append((None, f"{path}: {key} is {value!r}, which is not supported"))
