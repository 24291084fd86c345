"""What a program sets up before it works, and what it can tell afterwards about its compilations.

Nothing here runs at import. A library call never needs it; `python -m experiments.sweep` and the notebooks call
`setup()` first.
"""

import logging
import os
from collections import Counter
from pathlib import Path

import jax

LOG = logging.getLogger("ragjax")

PROGRAMS: Counter[tuple] = Counter()
"""Every program traced in this process, by (name, *shapes): what `note_program` was told."""

PROMPT_TOKENS: Counter[str] = Counter()
"""Prompt tokens read in this process: "padded", with padding and dummy rows, and "real"."""


def note_program(name: str, *shape: object) -> None:
    """Called in the body of a jitted function, hence once a trace: counts the programs a run compiles."""
    PROGRAMS[(name, *shape)] += 1


def note_padding(padded: int, real: int) -> None:
    """Count prompt tokens, with their padding and without."""
    PROMPT_TOKENS.update(padded=padded, real=real)


def describe_programs() -> str:
    """The terms that bound what was compiled: prompt lengths for prefill; modes, cache shapes and row counts for
    decoding (a mode is what is static: the members, the mix, the step counts). And what the padding of prompts cost.
    Other programs are counted by their names."""
    prefills = {key[1:] for key in PROGRAMS if key[0] == "prefill"}
    decodes = {key[1:] for key in PROGRAMS if key[0] == "decode"}
    lengths = ", ".join(str(length) for length in sorted({key[2] for key in prefills})) or "nothing"
    modes, shapes, rows = (len({key[n] for key in decodes}) for n in range(3))
    others = Counter(key[0] for key in PROGRAMS if key[0] not in ("prefill", "decode"))
    ratio = PROMPT_TOKENS["padded"] / max(PROMPT_TOKENS["real"], 1)
    return (
        f"{len(prefills)} prefill (prompts padded to {lengths}; {ratio:.2f} tokens for each real one), "
        f"{len(decodes)} decode ({modes} modes, {shapes} cache shapes, {rows} row counts)"
        + "".join(f", {count} {name}" for name, count in sorted(others.items()))
    )


def describe_error(error: Exception) -> str:
    """The kind of an error and the first line of its message."""
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


def require_backend(expected: str) -> None:
    """Stop where JAX runs on something else than expected ("tpu", "gpu", "cpu"): a plug-in that does not match falls
    back to the CPU with no more than a warning, and the work would take days.

    Raises:
      RuntimeError: naming the expected and the found backend, and the versions.
    """
    found = jax.default_backend()
    if found != expected:
        raise RuntimeError(
            f"expected a {expected.upper()} and found {found.upper()} ({jax.device_count()} devices, jax "
            f"{jax.__version__}). Choose the right runtime and restart it; do not install another jax over the "
            "one that came with it."
        )


def setup(*, cache: str | os.PathLike | None = None, level: int = logging.INFO) -> None:
    """Prepare a program: log on process 0 only, and keep compiled programs on disk.

    `cache` names the folder of the compilation cache (default `JAX_COMPILATION_CACHE_DIR`, else `.cache/jax`; the
    empty string switches it off). A folder that cannot be written is a warning, not an error.
    """
    # transformers serves tokenizers here: that it finds no PyTorch is as it should be.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    first = jax.process_index() == 0
    logging.basicConfig(format="%(message)s")
    LOG.setLevel(level if first else logging.ERROR)
    # It has a handler of its own: each of its lines would be printed twice.
    logging.getLogger("huggingface_hub").propagate = False
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR", ".cache/jax") if cache is None else os.fspath(cache)
    if not folder:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        probe = Path(folder) / f".probe-{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        LOG.warning("the compilation cache %s cannot be written (%s): compiling anew", folder, error)
        return
    jax.config.update("jax_compilation_cache_dir", str(Path(folder).resolve()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


class CompileClock:
    """Seconds spent compiling (tracing included) and programs compiled while the context is open."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.count = 0

    def _listen(self, event: str, duration: float, **_: object) -> None:
        if event in _COMPILE_EVENTS:
            self.seconds += duration
            self.count += event == _COMPILE_EVENTS[-1]

    def __enter__(self) -> "CompileClock":
        _OPEN_CLOCKS.append(self)
        if not _LISTENING:
            jax.monitoring.register_event_duration_secs_listener(_tell_clocks)
            _LISTENING.append(True)
        return self

    def __exit__(self, *_: object) -> None:
        _OPEN_CLOCKS.remove(self)


_COMPILE_EVENTS = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)
_OPEN_CLOCKS: list[CompileClock] = []
_LISTENING: list[bool] = []


def _tell_clocks(event: str, duration: float, **extra: object) -> None:
    for clock in _OPEN_CLOCKS:
        clock._listen(event, duration, **extra)
