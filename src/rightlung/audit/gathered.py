"""What an audit keeps of the targets of all blocks: counts, the hash of the phrases, and the prior."""

from __future__ import annotations

from dataclasses import dataclass, field

from rightlung.audit.subgroups import ATTRIBUTES
from rightlung.measuring import Targets
from rightlung.measuring.targets import phrase_set_of
from rightlung.models.blind.prior import LocationPrior, PriorRow


@dataclass
class Gathered:
    """What is known of the targets of all blocks so far, and the prior that is learned from them."""

    prior: LocationPrior
    digests: int = 0
    kinds: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    regions: set[str] = field(default_factory=set)
    patients: set[str] = field(default_factory=set)
    problems: dict[str, None] = field(default_factory=dict)
    studies: int = 0
    phrases: int = 0
    with_target: int = 0
    studies_without_patient: int = 0

    @classmethod
    def of(cls, targets: Targets) -> Gathered:
        """Return what one block's targets tell, and learn the prior from them."""
        phrases, prior = targets.phrases.values(), LocationPrior(source=targets.source)
        for one in phrases:
            if mask := one.masks.get("own"):
                pixels = targets.store.read([mask.place])[0]
                prior.add(PriorRow(one.patient, one.text, one.findings, pixels, mask.side))
        known = {name for name in ATTRIBUTES if any(name in person for person in targets.persons.values())}
        return cls(
            prior, targets.digests, {*targets.kinds}, known, targets.regions, {one.patient for one in phrases},
            dict.fromkeys(targets.problems), len({one.study for one in phrases}), len(phrases),
            sum("own" in one.masks for one in phrases), targets.studies_without_patient,
        )  # fmt: skip

    def add(self, other: Gathered) -> None:
        """Take in another block."""
        self.prior.merge(other.prior)
        for name, value in vars(other).items():
            if isinstance(value, set | dict):
                getattr(self, name).update(value)
            elif isinstance(value, int):
                setattr(self, name, getattr(self, name) + value)

    @property
    def phrase_set(self) -> str:
        """The hash of all phrases and their targets."""
        return phrase_set_of(self.digests)
