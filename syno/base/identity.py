"""What own code and data *are*: a checksum, by which the result of a changed network, loss or data set is told from a new one.

The same name says little: a file is edited, a closure gets another constant, labels are repaired. `identity_of` follows what a
result depends on, and returns one checksum for keys, and a digest for each named part, so that a message can say what changed:

>>> def loss(model, batch, scale=2.0): return scale * model(batch).mean()
>>> before = identity_of({"the loss": loss})
>>> loss.__defaults__ = (3.0,)
>>> after = identity_of({"the loss": loss})
>>> before.checksum == after.checksum, changes(before.stored, after.stored)
(False, ['the function loss'])

- **Code counts by its meaning**: the bytecode that is loaded, without lines, comments, docstrings, annotations and the names of
  local variables. (The text on the disk may be newer than what runs, and functions of a notebook have none.) Followed are
  defaults, closures, decorators, partial functions, bound methods, callable objects, base classes, attributes of classes, and
  the functions, classes, constants and modules that the code reads, also in modules that these import; and the statements that
  run as these modules are imported, which may set what other code reads. Names and places of the user's files do not count.
- **Installed packages** count by name and version.
- **Values count by content**: tensors and arrays by shape, type and numbers, those of more than `WHOLE_BYTES` by a sample. Sets
  have no order; dicts have one, since layers or columns may be made in it, but attributes and keyword arguments have none.
- **What changes by itself does not count**: the state of generators of random numbers, caches, variables outside of a function
  that it writes or appends to, iterators, gradients, the mode and the device of a network, and how many processes load data.
- **What cannot be described**, such as an open connection, counts by its type, and a warning names it.

What code reads from files while it runs is not seen here: whoever asks for an identity adds what is made of them, such as the
network with its weights, or rows of the data. Bytecode differs between versions of Python, so one study needs one version.
Nothing depends on addresses, the order of sets or Python's `hash`, so all processes and machines find the same.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from syno.base.files import checksum
from syno.base.identity_walk import DIGITS, Walk
from syno.base.registry import OWN_PACKAGE, imported, own_paths
from syno.base.user_code import unchanged_process

DEEPEST = 50_000  # calls of Python functions in each other
MOST_NAMED = 4  # changed parts in a message


@dataclass(frozen=True)
class Identity:
    """A checksum of code and data, with a digest of each part.

    Attributes:
        checksum: of all that it consists of; it does not depend on the names of parts.
        parts: a digest of each part by its name, as a message says it: "the function loss in my_task.py".
        unknown: the types of things that cannot be described, whose changes are not noticed.
    """

    checksum: str
    parts: Mapping[str, str]
    unknown: tuple[str, ...] = ()

    @property
    def stored(self) -> dict[str, Any]:
        """The identity as JSON, for `changes`."""
        return {"checksum": self.checksum, "parts": dict(self.parts)}


def changes(stored: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return the names of the parts that differ between two stored identities; [] if they are the same.

    Parts of equal content are the same, whatever their names: a function may have moved to another file.
    """
    if stored.get("checksum") == current.get("checksum"):
        return []
    there, here = (dict(one.get("parts", {})) for one in (stored, current))
    known, new = set(there.values()), set(here.values())
    names = [name for name, digest in here.items() if there.get(name) != digest and (name in there or digest not in known)]
    names += [name for name, digest in there.items() if name not in here and digest not in new]
    return names or ["its own code"]


def in_words(names: Iterable[str]) -> str:
    """Return a clause of a message that names the changed parts: "the function loss in my_task.py changed since then"."""
    found = list(names)
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"{', '.join(found[:MOST_NAMED])}{more} changed since then"


def identity_of(things: Mapping[str, Any], *, weights: bool = True) -> Identity:
    """Return the identity of values: a checksum over all of them, and a digest of each part.

    Args:
        things: by their names in messages, such as "the loss".
        weights: whether the numbers in the parameters of networks count, or only their shapes, as for a latency.

    Warns of what cannot be described.
    """
    walk, before = Walk(weights), sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEPEST))  # a function that calls one that calls one: many calls here for each
    try:
        walk.follow(things)
    finally:
        sys.setrecursionlimit(before)
    parts = {name: digest.hexdigest() for name, digest in walk.parts.items()}
    found = Identity(walk.whole.hexdigest(), parts, tuple(dict.fromkeys(walk.unknown)))
    if found.unknown:
        warnings.warn(
            f"{', '.join(things)}: what is in {', '.join(found.unknown)} cannot be described, so that results are used again "
            "where only that has changed; give another name then",
            stacklevel=2,
        )
    return found


_KNOWN: dict[tuple[str, tuple[int, ...]], tuple[Any, Identity]] = {}  # by paths, and the addresses of what is there


def identity_of_paths(value: object) -> Identity | None:
    """Return the identity of the code behind the paths `package.module:name` in a value; None without paths outside of Syno.

    It is computed once per process, before the code runs: caches that the code fills later are no change. Imports the code:
    raises as `syno.base.registry.imported`.
    """
    paths = sorted({path for path in own_paths(value) if not path.startswith(OWN_PACKAGE)})
    if not paths:
        return None
    found = {path: imported(path, "code") for path in paths}
    key = (" ".join(paths), tuple(map(id, found.values())))
    if key not in _KNOWN:
        _KNOWN[key] = found, identity_of(found)
    return _KNOWN[key][1]


OWN_CODE = "own code"  # among the versions in records


def version_of_code(value: object, *made: Identity) -> dict[str, str]:
    """Return the checksum of the user's code that paths in a value name, and of its objects, as a version; {} without any.

    It stands beside the versions of packages in records and keys: those without a user's own code are as they were.
    """
    found = identity_of_paths(value)
    parts = [*([] if found is None else [found.checksum]), *(one.checksum for one in made)]
    return {OWN_CODE: checksum(" ".join(parts).encode())[:DIGITS]} if parts else {}


ROWS = 8  # of a data set that are looked at
SEED = 0  # of the random numbers of their augmentation


def rows_of(batches: Any) -> list[Any]:
    """Return some rows of data, for an identity: what the data's code makes of files cannot be told from the code.

    Of a loader, they are rows of its data set, evenly spaced; else the first batch, unless all batches are in a list, which an
    identity goes through itself. Random numbers are those of one seed. Of values that differ when a row is made again, as by a
    generator of the data set's own, only the shapes are returned. Rows that cannot be made are left out: trainings say why.
    """
    dataset = getattr(batches, "dataset", batches)
    if isinstance(dataset, list | tuple):
        return []
    count: int | None
    try:
        count = len(dataset)
    except TypeError:  # a stream
        count = None

    def draw() -> list[Any]:
        with unchanged_process(SEED):
            if count is None or not hasattr(dataset, "__getitem__"):
                return list(islice(iter(dataset), 1 if dataset is batches else ROWS))
            places = dict.fromkeys((count - 1) * place // (ROWS - 1) for place in range(ROWS)) if count else ()
            return [dataset[place] for place in places]

    try:
        return [count, *_stable(draw(), draw())]
    except Exception:
        return [count]


def _stable(first: Any, second: Any) -> Any:
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return {key: _stable(first[key], second[key]) for key in first}
    if isinstance(first, list | tuple) and isinstance(second, list | tuple) and len(first) == len(second):
        return [_stable(*pair) for pair in zip(first, second, strict=True)]
    if identity_of({"": first}).checksum == identity_of({"": second}).checksum:
        return first
    return [type(first).__name__, *map(str, getattr(first, "shape", ()))]
