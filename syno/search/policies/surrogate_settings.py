"""The constants of the policy `surrogate`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, computed_field

from syno.search.policies.contract import PolicySettings
from syno.search.policies.earlier import content


class SurrogateSettings(PolicySettings):
    """Constants of the search by a model."""

    beginners: Annotated[int, Field(ge=1)] = 4
    """how many operators are evaluated before the model is asked; those of `learn_from` count"""
    beginner_walks: Annotated[int, Field(ge=1)] = 32
    """each of the first operators is, of so many random ones, the one that reads, applied twice, most nearly what a convolution
    with a window of 3 reads; of these the one that reads most, with the most FLOPs"""
    walks: Annotated[int, Field(ge=1)] = 16
    """random operators among which the model chooses; fewer where many trials run at once"""
    mutations: Annotated[int, Field(ge=0)] = 16
    """mutations of the best operators among which the model chooses, too"""
    parents: Annotated[int, Field(ge=1)] = 8
    """how many of the best operators are mutated"""
    trees: Annotated[int, Field(ge=2)] = 32
    """how many trees the model has"""
    most_rows: Annotated[int, Field(ge=16)] = 256
    """how many operators of a study the model learns from at most: a quarter are the best, the others a random sample"""
    learn_from: tuple[str, ...] = ()
    """folders of earlier searches, such as results/quickstart, whose trials the model learns from, too. Their rewards are taken
    as they are, so the reward should be alike. The study remembers what they hold and is not resumed with other trials"""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def learnt(self) -> dict[str, str]:
        """Checksums of the trials of `learn_from`."""
        return {given: content(given) for given in self.learn_from}
