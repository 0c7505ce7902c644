"""Pictures, drawn from the tables and constants of the code. They are part of the page and take its colours."""

from __future__ import annotations

import math
from typing import NamedTuple

from holdfast.agent.core import RULES
from holdfast.rendezvous.known_settings import KEEP_ALIVE_ATTEMPTS, KEEP_ALIVE_INTERVAL_S
from holdfast.rendezvous.membership import FENCE_AT, STOP_AT
from source_facts import in_words


class Point(NamedTuple):
    """A place in a picture."""

    x: float
    y: float


PLACES = {
    "MEETING": Point(110, 60),
    "RUNNING": Point(430, 60),
    "FAILING": Point(750, 60),
    "DRAINING": Point(110, 260),
    "WAITING": Point(430, 260),
    "PAUSED": Point(750, 260),
    "ENDED": Point(430, 450),
}
"""Where each phase stands. One that the table has and this does not is an error."""

BENDS = {
    ("RUNNING", "MEETING"): 46.0,
    ("MEETING", "ENDED"): -300.0,
    ("RUNNING", "ENDED"): 150.0,
    ("FAILING", "ENDED"): 300.0,
    ("FAILING", "MEETING"): 110.0,
}
"""How far an arrow swings out to the left of its way, where a straight one would meet something."""

BOX = Point(136, 44)
ARROW_PX = 9.0


def states() -> str:
    """The phases of an agent and every way between them."""
    ways: dict[tuple[str, str], list[str]] = {}
    for (phase, event), (_, leads_to) in RULES.items():
        for to in leads_to:
            if to is not phase:
                ways.setdefault((phase.name, to.name), []).append(in_words(event))
    arrows = [_arrow(start, end, " or ".join(events)) for (start, end), events in ways.items()]
    boxes = [_box(name) for name in dict.fromkeys(name for way in ways for name in way)]
    return _svg(860, 500, "The phases of an agent", [*arrows, *boxes])


def _box(name: str) -> str:
    x, y = PLACES[name]
    left, top = x - BOX.x / 2, y - BOX.y / 2
    return (
        f'<g class="state {name.lower()}"><rect x="{left:g}" y="{top:g}" width="{BOX.x:g}" height="{BOX.y:g}" rx="8"/>'
        f'<text x="{x:g}" y="{y + 5:g}">{name}</text></g>'
    )


def _arrow(start: str, end: str, label: str) -> str:
    a, b = PLACES[start], PLACES[end]
    bend = BENDS.get((start, end), 0.0)
    length = math.dist(a, b)
    normal = Point((b.y - a.y) / length, -(b.x - a.x) / length)
    control = Point((a.x + b.x) / 2 + normal.x * bend, (a.y + b.y) / 2 + normal.y * bend)
    tail, tip = _at_edge(a, control), _at_edge(b, control)
    # The middle of the curve, and a little beside it.
    middle = Point((tail.x + 2 * control.x + tip.x) / 4, (tail.y + 2 * control.y + tip.y) / 4)
    path = f"M{tail.x:.1f} {tail.y:.1f} Q{control.x:.1f} {control.y:.1f} {tip.x:.1f} {tip.y:.1f}"
    return _way(path, label, Point(middle.x, middle.y + 4), f"{start}-{end}")


def _way(path: str, label: str, at: Point, way: str) -> str:
    return (
        f'<g class="way" data-way="{way}"><path d="{path}" marker-end="url(#tip)"/>'
        f'<text x="{at.x:.1f}" y="{at.y:.1f}">{label}</text></g>'
    )


def _at_edge(box: Point, towards: Point) -> Point:
    """Where the line from a box's middle towards a point leaves the box, with a little air for the arrow's tip."""
    dx, dy = towards.x - box.x, towards.y - box.y
    share = min((BOX.x / 2 + 3) / abs(dx) if dx else math.inf, (BOX.y / 2 + 3) / abs(dy) if dy else math.inf)
    return Point(box.x + dx * share, box.y + dy * share)


def fence() -> str:
    """The life of a lease that is not renewed: when workers stop, when they are killed, when others go on."""
    lease_s = KEEP_ALIVE_INTERVAL_S * KEEP_ALIVE_ATTEMPTS
    left, right, line = 40.0, 620.0, 70.0

    def x_of(share: float) -> float:
        return left + (right - left) * share

    def bar(kind: str, begin: float, end: float) -> str:
        return f'<rect class="{kind}" x="{begin:g}" y="{line - 12:g}" width="{end - begin:g}" height="24"/>'

    bars = [
        bar("alive", left, x_of(STOP_AT)),
        bar("ending", x_of(STOP_AT), x_of(FENCE_AT)),
        bar("nobody", x_of(FENCE_AT), right),
        bar("alive", right, right + 110),
        f'<text class="inside" x="{(left + x_of(STOP_AT)) / 2:g}" y="{line + 5:g}">workers run</text>',
        f'<text class="inside" x="{right + 55:g}" y="{line + 5:g}">others run</text>',
    ]
    marks = [
        (0.0, "renewal sent", 0, "start"),
        (STOP_AT, "told to stop", 0, "end"),
        (FENCE_AT, "killed by the keeper", 1, "middle"),
        (1.0, "the store ends the lease", 0, "start"),
    ]
    for share, words, below, anchor in marks:
        x, y = x_of(share), line + 50 if below else line - 36
        stem = (line + 12, line + 34) if below else (line - 30, line - 12)
        bars.append(f'<path class="stem" d="M{x:g} {stem[0]:g} V{stem[1]:g}"/>')
        bars.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{words}, {lease_s * share:g} s</text>')
    return _svg(760, 140, "A lease that is not renewed", bars)


def machine() -> str:
    """One machine: the agent, the keeper, the workers."""
    boxes = [
        ("agent", 40, 72, 170, 70, ("agent", "decides")),
        ("keeper", 300, 72, 170, 70, ("keeper", "starts, reaps, ends")),
        *((f"worker{n}", 560, 20 + 64 * n, 160, 46, (f"worker {n}",)) for n in range(3)),
    ]
    drawn = []
    for name, x, y, width, height, words in boxes:
        texts = "".join(
            f'<text class="{"name" if n == 0 else "role"}" x="{x + width / 2:g}" '
            f'y="{y + height / 2 + 5 + 20 * n - 10 * (len(words) - 1):g}">{word}</text>'
            for n, word in enumerate(words)
        )
        drawn.append(
            f'<g class="part {name}"><rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>{texts}</g>'
        )
    lines = [
        _way("M212 94 H294", "stop", Point(255, 86), "agent-keeper"),
        _way("M298 120 H216", "exit", Point(255, 140), "keeper-agent"),
        *(_way(f"M472 107 L554 {43 + 64 * n}", "", Point(0, 0), f"keeper-worker{n}") for n in range(3)),
    ]
    return _svg(760, 215, "The processes of one machine", [*lines, *drawn])


def _svg(width: int, height: int, title: str, parts: list[str]) -> str:
    head = (
        f'<svg class="picture" viewBox="0 0 {width} {height}" role="img" aria-label="{title}" '
        'xmlns="http://www.w3.org/2000/svg">'
        f'<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="{ARROW_PX:g}" '
        f'markerHeight="{ARROW_PX:g}" orient="auto" markerUnits="userSpaceOnUse">'
        '<path d="M0 0 L10 5 L0 10 z"/></marker></defs>'
    )
    # A page may have several pictures, and a name belongs to one thing of a page.
    drawn = "\n".join([head, *parts, "</svg>"]).replace("tip", f"tip-{title.rsplit(maxsplit=1)[-1]}")
    return f"```{{raw}} html\n{drawn}\n```"
