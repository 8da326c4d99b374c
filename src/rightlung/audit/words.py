"""What the words of a phrase give away about the place: see `rightlung.lexicon.wordkeys`."""

from rightlung.lexicon.findings import canonical_finding
from rightlung.lexicon.wordkeys import NamedSide, WordKey, findings_about, side_named, word_key, zones_in

__all__ = ["NamedSide", "WordKey", "canonical_finding", "findings_about", "side_named", "word_key", "zones_in"]
