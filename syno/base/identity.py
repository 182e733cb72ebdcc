"""Identity of user code and data: a checksum that changes when a network, loss or data set changes.

A name does not identify code: a file is edited, a closure gets another constant, labels are repaired. `identity_of` walks
through all dependencies of a result. The result has one checksum for cache keys, and a digest of each named part, so that a
message can name the changed parts:

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
- **Objects that cannot be hashed**, such as an open connection, count by their type, and a warning names it.

What code reads from files while it runs is not seen here: the caller of `identity_of` adds the objects made from such files, as
the network with its weights, or rows of the data. Bytecode differs between versions of Python, so one study needs one version.
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

DEEPEST = 50_000  # recursion limit of a walk
MOST_NAMED = 4  # changed parts in a message


@dataclass(frozen=True)
class Identity:
    """A checksum of code and data, with a digest of each part.

    Attributes:
        checksum: over all parts; independent of their names.
        parts: digests by the part's name, as messages show it: "the function loss in my_task.py".
        unknown: types of objects that cannot be hashed, so that their changes go unnoticed.
    """

    checksum: str
    parts: Mapping[str, str]
    unknown: tuple[str, ...] = ()

    @property
    def stored(self) -> dict[str, Any]:
        """The identity as a JSON object, to be stored and compared by `changes`."""
        return {"checksum": self.checksum, "parts": dict(self.parts)}


def changes(stored: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return the names of the parts that differ between two stored identities; [] if they are the same.

    Parts of equal content are equal, whatever their names: a function may have moved to another file.
    """
    if stored.get("checksum") == current.get("checksum"):
        return []
    there, here = (dict(identity.get("parts", {})) for identity in (stored, current))
    known, new = set(there.values()), set(here.values())
    names = [name for name, digest in here.items() if there.get(name) != digest and (name in there or digest not in known)]
    names += [name for name, digest in there.items() if name not in here and digest not in new]
    return names or ["its own code"]


def in_words(names: Iterable[str]) -> str:
    """Return a clause of a message that names the changed parts: "the function loss in my_task.py changed since then"."""
    parts = list(names)
    more = f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
    return f"{', '.join(parts[:MOST_NAMED])}{more} changed since then"


def identity_of(things: Mapping[str, Any], *, weights: bool = True) -> Identity:
    """Return the identity of objects: a checksum over all of them, and a digest of each part.

    Args:
        things: the objects by their names in messages, such as "the loss".
        weights: whether parameters of networks count by their numbers; False: only by their shapes, as for a latency.

    Warns of objects that cannot be hashed.
    """
    walk, before = Walk(weights), sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEPEST))  # each function in a chain of calls takes several frames of the walk
    try:
        walk.follow(things)
    finally:
        sys.setrecursionlimit(before)
    parts = {name: digest.hexdigest() for name, digest in walk.parts.items()}
    identity = Identity(walk.whole.hexdigest(), parts, tuple(dict.fromkeys(walk.unknown)))
    if identity.unknown:
        warnings.warn(
            f"{', '.join(things)}: the content of {', '.join(identity.unknown)} cannot be hashed, so that a change of it goes "
            "unnoticed and stored results are used again; give another name after such a change",
            stacklevel=2,
        )
    return identity


_KNOWN: dict[tuple[str, tuple[int, ...]], tuple[Any, Identity]] = {}  # by paths and the addresses of their objects


def identity_of_paths(value: object) -> Identity | None:
    """Return the identity of the user code that paths `package.module:name` in a value name; None without such paths.

    It is computed once per process, before the code runs, so that caches that the code fills later do not count. Imports the
    code, and raises what `syno.base.registry.imported` raises.
    """
    paths = sorted({path for path in own_paths(value) if not path.startswith(OWN_PACKAGE)})
    if not paths:
        return None
    objects = {path: imported(path, "code") for path in paths}
    key = (" ".join(paths), tuple(map(id, objects.values())))
    if key not in _KNOWN:
        _KNOWN[key] = objects, identity_of(objects)
    return _KNOWN[key][1]


OWN_CODE = "own code"  # key among the versions in records


def version_of_code(value: object, *made: Identity) -> dict[str, str]:
    """Return {"own code": checksum} of the user code in `value` (its paths) and of the identities `made`; {} without user code.

    It is added to the versions of packages in records and keys, which stay unchanged for experiments without user code.
    """
    named = identity_of_paths(value)
    parts = [*([] if named is None else [named.checksum]), *(identity.checksum for identity in made)]
    return {OWN_CODE: checksum(" ".join(parts).encode())[:DIGITS]} if parts else {}


ROWS = 8  # sampled rows of a data set
SEED = 0  # of the rows' augmentation


def rows_of(batches: Any) -> list[Any]:
    """Return a sample of the rows of a data set, to be part of an identity: the code does not show the content of the files it
    reads.

    Args:
        batches: a loader, whose data set's rows are sampled evenly; another iterable, whose first batch is taken; or a list or
            tuple of batches, of which nothing is returned, since an identity traverses it anyway.

    Random numbers are seeded. For values that differ when a row is read twice, as by a random generator of the data set, only
    the shapes are returned. Rows that cannot be read are left out: training reports the error.
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
