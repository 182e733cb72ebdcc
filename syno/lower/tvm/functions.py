"""Small functions that generated tensor expressions carry along, each only where it is used.

They exist since TVM 0.27 rewrites the indices of one access together (`FlattenBuffer`), and where one loop variable
meets several `//` and `%` with different offsets, it takes them for one: `A[(i//2 + 1) % 7, (i%2 + 1) % 2]` is read at
the flat index `(i + 2) % 14`. It leaves alone indices in which something else than sums, `//` and `%` occurs. The only
primitive that puts an offset under a `%` is the Shift, so other operators' indices are written as they are.
"""

FUNCTIONS = {
    "rotated": '''
def rotated(index, amount, extent):
    """(index + amount) % extent, for an index in [0, extent)."""
    moved = index + amount % extent
    return tirx.Select(moved < extent, moved, moved - extent)
''',
}


def definitions(used: set[str]) -> str:
    """The source of the functions used, in the table's order; two empty lines around each."""
    return "".join(f"\n{text}" for name, text in FUNCTIONS.items() if name in used)
