"""A pickle read as data: mappings, plain values, and the few names that its reader knows.

A pickle is a program for a stack machine that may import and call anything. This machine has no opcode that imports,
sets attributes or makes objects of classes; it knows the names it is given and refuses all others, so that nothing in
a file can run code, and what a file says takes memory in proportion to its length. It stops at the first opcode that
it does not have.
"""

import pickletools
from collections.abc import Callable, Mapping
from typing import Any


class RefusedError(ValueError):
    """Why a file is not taken, in words that follow its name."""


def load_plain(data: bytes, names: Mapping[str, Any], persistent: Callable[[Any], Any]) -> Any:
    """The value that a pickle describes.

    Args:
        names: what each name that a pickle may state stands for; where that is a function, a pickle may call it.
        persistent: what stands for a persistent id.

    Raises:
        RefusedError: for another name or opcode, naming it, and for a pickle that is broken.
    """
    machine = _Machine(names, persistent)
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name not in _STEPS:
                raise RefusedError(f"has {opcode.name} in its pickle, which no weights need; nothing of it was run")
            _STEPS[opcode.name](machine, argument)
        return machine.stack.pop()
    except RefusedError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RefusedError(f"has a broken pickle ({error})") from None


class _Machine:
    """The stack, where marks lie on it, and what was stored for later."""

    def __init__(self, names: Mapping[str, Any], persistent: Callable[[Any], Any]) -> None:
        self.names, self.persistent = names, persistent
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def take(self, count: int) -> list[Any]:
        """The uppermost values, taken off."""
        return self._cut(len(self.stack) - count)

    def since_mark(self) -> list[Any]:
        """The values above the last mark, taken off with it."""
        return self._cut(self.marks.pop())

    def _cut(self, start: int) -> list[Any]:
        if not 0 <= start <= len(self.stack):
            raise IndexError("too few values")
        values = self.stack[start:]
        del self.stack[start:]
        return values


_Step = Callable[[_Machine, Any], None]


def _value(made: Callable[[], Any]) -> _Step:
    return lambda machine, _: machine.stack.append(made())


def _tuple(count: int) -> _Step:
    return lambda machine, _: machine.stack.append(tuple(machine.take(count)))


def _name(machine: _Machine, name: str) -> None:
    if name not in machine.names:
        raise RefusedError(f"asks for {name!r}, which is no part of weights; nothing of it was run")
    machine.stack.append(machine.names[name])


def _call(machine: _Machine, _: Any) -> None:
    function, arguments = machine.take(2)
    if not callable(function) or not isinstance(arguments, tuple):
        raise TypeError("a call of no function")
    machine.stack.append(function(*arguments))


def _forget_attributes(machine: _Machine, _: Any) -> None:
    """The attributes of a mapping (PyTorch adds the versions of its modules) are no part of it."""
    machine.take(1)
    if not isinstance(machine.stack[-1], dict):
        raise TypeError("attributes of no mapping")


def _set(machine: _Machine, items: list[Any]) -> None:
    """Put the keys and values of `items`, one after the other, into the mapping below them."""
    into = machine.stack[-1]
    if not isinstance(into, dict) or not all(isinstance(key, str | int | float | None) for key in items[::2]):
        raise TypeError("items of no mapping of plain keys")
    into.update(zip(items[::2], items[1::2], strict=True))


def _make_dict(machine: _Machine, _: Any) -> None:
    items = machine.since_mark()
    machine.stack.append({})
    _set(machine, items)


def _extend(machine: _Machine, items: list[Any]) -> None:
    if not isinstance(machine.stack[-1], list):
        raise TypeError("items of no list")
    machine.stack[-1].extend(items)


def _store(machine: _Machine, place: int | None) -> None:
    machine.memo[len(machine.memo) if place is None else place] = machine.stack[-1]


_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
_TEXTS = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")

_STEPS: Mapping[str, _Step] = {
    **dict.fromkeys((*_NUMBERS, *_TEXTS), lambda machine, value: machine.stack.append(value)),
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda machine, _: None),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _store),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda machine, place: machine.stack.append(machine.memo[place])),
    "NONE": _value(lambda: None),
    "NEWTRUE": _value(lambda: True),
    "NEWFALSE": _value(lambda: False),
    "EMPTY_DICT": _value(dict),
    "EMPTY_LIST": _value(list),
    "EMPTY_TUPLE": _tuple(0),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.since_mark())),
    "LIST": lambda machine, _: machine.stack.append(machine.since_mark()),
    "DICT": _make_dict,
    "APPEND": lambda machine, _: _extend(machine, machine.take(1)),
    "APPENDS": lambda machine, _: _extend(machine, machine.since_mark()),
    "SETITEM": lambda machine, _: _set(machine, machine.take(2)),
    "SETITEMS": lambda machine, _: _set(machine, machine.since_mark()),
    "GLOBAL": lambda machine, name: _name(machine, name.replace(" ", ".")),
    "STACK_GLOBAL": lambda machine, _: _name(machine, ".".join(machine.take(2))),
    "REDUCE": _call,
    "BUILD": _forget_attributes,
    "BINPERSID": lambda machine, _: machine.stack.append(machine.persistent(*machine.take(1))),
}
