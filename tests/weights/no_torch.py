"""Importing this hides torch from the process, as if it were not installed."""

import sys
from importlib.machinery import PathFinder


class TorchlessFinder(PathFinder):
    """The usual finder of installed modules, blind to one of them."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        return None if fullname.split(".")[0] == "torch" else super().find_spec(fullname, path, target)


sys.meta_path[:] = [TorchlessFinder if finder is PathFinder else finder for finder in sys.meta_path]
