"""``rightlung protocols``: what is known of the named protocols."""

from __future__ import annotations

from rightlung.cli.output import finish, say, say_table
from rightlung.measuring.named import NAMED_PROTOCOLS, NamedProtocol, find_named_protocol
from rightlung.measuring.protocols import find_protocol
from rightlung.pages.markdown import escaped


def list_all(json: bool, markdown: bool = False) -> None:
    """List the protocols, or print all of them as Markdown."""
    found = list(NAMED_PROTOCOLS.values())
    if markdown:
        print("\n".join(markdown_of(one) for one in found), end="")
        return
    rows = [[one.name, "yes" if one.measured else "no", str(len(one.unknown)), one.title] for one in found]
    finish(json, [one.as_json() for one in found], lambda: say_table(_HEADER, rows, words=_HEADER))


def markdown_of(one: NamedProtocol) -> str:
    """Return a protocol as a section of a Markdown page."""
    lines = [f"## {one.name}", "", f"{one.title[0].upper()}{one.title[1:]}.", "", "| | |", "| --- | --- |"]
    lines += [f"| {escaped(name)} | {escaped(value)} |" for name, value in one.facts.items()]
    lists = (("not known", one.unknown), ("contradictory", one.contradictions), ("sources", one.sources))
    lines += [f"| {title} | {'<br>'.join(map(escaped, listed))} |" for title, listed in lists if listed]
    said = f"yes; hash without phrases `{find_protocol(one.name).hash}`" if one.measured else "no"
    return "\n".join([*lines, f"| measured here | {said} |", ""])


_HEADER = ["protocol", "measured here", "open questions", "what it is"]


def describe(name: str, json: bool) -> None:
    """Say what is known of a protocol, and what is not."""
    one = find_named_protocol(name)
    finish(json, one.as_json(), lambda: _say(one))


def _say(one: NamedProtocol) -> None:
    say(f"{one.name}: {one.title}")
    for name, value in one.facts.items():
        say(f"  {name}: {value}")
    for title, listed in (("not known", one.unknown), ("contradictory", one.contradictions), ("sources", one.sources)):
        if listed:
            say(f"  {title}:")
        for entry in listed:
            say(f"    - {entry}")
    if not one.measured:
        say("  settings: none, this package does not measure by it")
        return
    say("  settings, without the phrases that it is applied to:")
    for name, value in find_protocol(one.name).as_json().items():
        if value not in ("", [], None):
            say(f"    {name}: {', '.join(map(str, value)) if isinstance(value, list) else value}")
