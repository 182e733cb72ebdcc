"""Data in which one label is so frequent that an accuracy says little: always answering it is right almost everywhere."""

from __future__ import annotations

WARNED_MAJORITY = 0.9  # share of the labels, above which a network that learnt nothing is near any other one
SAYS_LITTLE = (
    "an operator that makes a network learn nothing loses little accuracy; balance the data, leave out the most frequent label "
    "(ignore_index), or score operators in a function of your own"
)


def majority_text(label: int | None, share: float) -> str:
    """Return in words that one label is this share of the test data."""
    return f"{share:.1%} of the test data's labels are {label}, so that always answering {label} has the accuracy {share:.3f}"


def warning_of(label: int | None, share: float | None, original: float | None) -> str | None:
    """Return a sentence on the accuracies of networks on such data; None if there is nothing to warn of.

    Args:
        label, share: the most frequent label of the test data and its share; None where it is not known.
        original: the accuracy of the trained original network; None if it was not trained.
    """
    if share is None:
        return None
    if original is not None and original <= share:
        return (
            f"The original's accuracy of {original:.3f} is not above that of always answering {label}, the most frequent label "
            f"({share:.3f}): it learnt nothing, and what operators lose says nothing."
        )
    if share > WARNED_MAJORITY:
        text = majority_text(label, share)
        return f"{text}: {SAYS_LITTLE}."
    return None
