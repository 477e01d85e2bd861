"""Check the licence of every installed dependency: AGPL, GPL, SSPL and unknown ones fail, LGPL is listed.

Run by `make check` inside the project's environment. Exceptions are written below, each with its reason.
"""

import importlib.metadata
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

# Distributions whose metadata misleads, with the licence that their files state.
STATED: dict[str, str] = {}

# Distributions that are accepted against the rule, with the reason.
ALLOWED: dict[str, str] = {}

# Wheels that carry a separate program under another licence than their own: found by hand, listed on each run.
CARRIES: dict[str, str] = {}

_LESSER = re.compile(r"\bLGPL|lesser general public", re.IGNORECASE)
_REFUSED = re.compile(
    r"\bAGPL|affero|\bGPL|(?<!lesser )(?<!library )general public licen[sc]e|\bSSPL|server side public|"
    r"\bBUSL|business source|commons clause|elastic licen[sc]e|non-?commercial|\bCC-BY-NC|proprietary",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the check says about one distribution. `status`: ok, lesser, allowed, refused or unknown."""

    name: str
    licence: str
    status: str


def judge(name: str, licence: str) -> Verdict:
    """Classify one licence text or SPDX expression. `A OR B` passes when one side passes."""
    if name in ALLOWED:
        return Verdict(name, licence, "allowed")
    if not licence.strip() or licence.strip().upper() == "UNKNOWN":
        return Verdict(name, licence, "unknown")
    sides = re.split(r"\s+OR\s+", licence)
    statuses = [_status(side) for side in sides]
    for status in ("ok", "lesser", "refused"):
        if status in statuses:
            return Verdict(name, licence, status)
    return Verdict(name, licence, "refused")


def _status(licence: str) -> str:
    without_lesser = _LESSER.sub("", licence)
    if _REFUSED.search(without_lesser.replace("(LGPL)", "")):
        return "refused"
    return "lesser" if _LESSER.search(licence) else "ok"


def licence_of(distribution: importlib.metadata.Distribution) -> str:
    """The SPDX expression, else the classifiers, else the first line of the licence field."""
    metadata = distribution.metadata
    expression = (metadata.get_all("License-Expression") or [""])[0]
    if expression:
        return str(expression)
    classifiers = [
        value.split(" :: ")[-1]
        for value in metadata.get_all("Classifier") or []
        if value.startswith("License ::") and not value.endswith("OSI Approved")
    ]
    if classifiers:
        return "; ".join(classifiers)
    field = str((metadata.get_all("License") or [""])[0]).strip()
    return field.splitlines()[0] if field else ""


def verdicts(distributions: Iterable[importlib.metadata.Distribution]) -> list[Verdict]:
    """One verdict for each distribution, by name."""
    found: dict[str, Verdict] = {}
    for distribution in distributions:
        name = re.sub(r"[-_.]+", "-", str(distribution.metadata["Name"])).lower()
        found[name] = judge(name, STATED.get(name) or licence_of(distribution))
    return [found[name] for name in sorted(found)]


def write(line: str) -> None:
    """One line on standard output."""
    sys.stdout.write(line + "\n")


def main() -> int:
    """Write what needs attention; 1 when a licence is refused or unknown, else 0."""
    all_verdicts = verdicts(importlib.metadata.distributions())
    names = {verdict.name for verdict in all_verdicts}
    for verdict in all_verdicts:
        if verdict.status != "ok":
            reason = f" ({ALLOWED[verdict.name]})" if verdict.status == "allowed" else ""
            write(f"{verdict.status:8} {verdict.name}: {verdict.licence or 'no licence stated'}{reason}")
    for name in sorted(names & CARRIES.keys()):
        write(f"carries  {name}: {CARRIES[name]}")
    stale = sorted((ALLOWED.keys() | STATED.keys() | CARRIES.keys()) - names)
    for name in stale:
        write(f"stale    {name}: named in tools/licences.py but not installed")
    failed = [verdict.name for verdict in all_verdicts if verdict.status in ("refused", "unknown")] + stale
    write(f"licences: {len(all_verdicts)} distributions, {len(failed)} to mend")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
