"""What tests of layers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def circle(arrows: Mapping[str, Iterable[str]]) -> list[str]:
    """The files of a circle, or []. arrows: by file, those that it asks for, in the order of the search."""
    done: set[str] = set()

    def search(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        found = next(filter(None, (search(to, [*path, name]) for to in arrows[name])), [])
        done.add(name)
        return found

    return next(filter(None, (search(name, []) for name in sorted(arrows))), [])
