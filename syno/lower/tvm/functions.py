"""Small functions that generated tensor expressions carry along, each only where it is used.

They exist because TVM 0.27 rewrites the indices of one access together (`FlattenBuffer`), and where one loop variable
meets several `//` and `%` with different offsets, it takes them for one: `A[(i//2 + 1) % 7, (i%2 + 1) % 2]` is read at
the flat index `(i + 2) % 14`. It leaves alone what is more than sums, `//` and `%`.

Only rotations need that. An Unfold below a Merge also gives `//` and `%` of sums with an offset, and no kernel with those
was found to be wrong, whether its loops were as written or fused and split: see the thorough tests.
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
