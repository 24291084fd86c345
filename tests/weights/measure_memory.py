"""Run in a process of its own: convert or load a folder, and print the anonymous memory that it took at most."""

import json
import sys
import threading
import time

import jax
import no_torch  # noqa: F401
import orbax.checkpoint
import transformers

from ragjax import hub
from ragjax.weights.convert import convert_model


def anonymous_bytes() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


def watch(peak: list[int], stop: threading.Event) -> None:
    while not stop.is_set():
        peak[0] = max(peak[0], anonymous_bytes())
        time.sleep(0.002)


def main(what: str, source: str, out: str, dtype: str) -> None:
    modules = (orbax.checkpoint, transformers.PreTrainedTokenizerFast, transformers.AutoTokenizer, jax.devices())
    baseline, stop = anonymous_bytes(), threading.Event()
    peak = [baseline]
    watcher = threading.Thread(target=watch, args=(peak, stop))
    watcher.start()
    kept = convert_model(source, out, dtype) if what == "convert" else hub.load(source, dtype=dtype)
    stop.set()
    watcher.join()
    print(json.dumps({"peak": peak[0] - baseline, "kept": len((kept, modules))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
