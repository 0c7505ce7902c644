"""Pictures, drawn from the tables and constants of the code. They are part of the page and take its colours."""

from __future__ import annotations

import math
from typing import NamedTuple

from holdfast.agent.core import RULES
from holdfast.rendezvous.backends import KEEP_ALIVE_ATTEMPTS
from holdfast.rendezvous.known_settings import KEEP_ALIVE_INTERVAL_S
from holdfast.rendezvous.membership import FENCE_AT, STOP_AT
from source_facts import in_words


class Point(NamedTuple):
    """A place in a picture."""

    x: float
    y: float


PLACES = {
    "PAUSED": Point(100, 60),
    "FAILING": Point(370, 60),
    "MEETING": Point(100, 220),
    "RUNNING": Point(370, 220),
    "WAITING": Point(640, 220),
    "ENDED": Point(880, 220),
    "DRAINING": Point(370, 380),
}
"""Where each phase stands. One that the table has and this does not is an error."""

BENDS = {
    ("RUNNING", "MEETING"): 50.0,
    ("WAITING", "MEETING"): 160.0,
    ("FAILING", "DRAINING"): 190.0,
    ("MEETING", "ENDED"): -520.0,
    ("RUNNING", "ENDED"): 130.0,
    ("PAUSED", "ENDED"): 190.0,
}
"""How far an arrow swings out to the left of its way, where a straight one would meet something."""

LABELS = {
    ("MEETING", "RUNNING"): "workers started",
    ("RUNNING", "FAILING"): "a worker failed",
    ("RUNNING", "WAITING"): "all succeeded",
    ("RUNNING", "DRAINING"): "asked to end",
    ("FAILING", "PAUSED"): "faults in a row",
    ("PAUSED", "MEETING"): "restart",
    ("FAILING", "MEETING"): "restart",
    ("DRAINING", "MEETING"): "restart",
    ("WAITING", "ENDED"): "all nodes done",
}
"""What the main ways are called. The events of each way show when the mouse rests on it, and are in the table."""

BOX = Point(136, 44)
ARROW_PX = 9.0


def states() -> str:
    """The phases of an agent and every way between them."""
    ways: dict[tuple[str, str], list[str]] = {}
    for (phase, event), (_, leads_to) in RULES.items():
        for to in leads_to:
            if to is not phase:
                ways.setdefault((phase.name, to.name), []).append(in_words(event))
    # The main ways last, so that their labels are above the others.
    in_order = sorted(ways.items(), key=lambda way: way[0] in LABELS)
    arrows = [_arrow(start, end, " or ".join(events)) for (start, end), events in in_order]
    boxes = [_box(name) for name in dict.fromkeys(name for way in ways for name in way)]
    return _svg(980, 520, "The phases of an agent", [*arrows, *boxes])


def _box(name: str) -> str:
    x, y = PLACES[name]
    left, top = x - BOX.x / 2, y - BOX.y / 2
    return (
        f'<g class="state {name.lower()}"><rect x="{left:g}" y="{top:g}" width="{BOX.x:g}" height="{BOX.y:g}" rx="8"/>'
        f'<text x="{x:g}" y="{y + 5:g}">{name}</text></g>'
    )


def _arrow(start: str, end: str, events: str) -> str:
    a, b = PLACES[start], PLACES[end]
    bend = BENDS.get((start, end), 0.0)
    length = math.dist(a, b)
    normal = Point((b.y - a.y) / length, -(b.x - a.x) / length)
    control = Point((a.x + b.x) / 2 + normal.x * bend, (a.y + b.y) / 2 + normal.y * bend)
    tail, tip = _at_edge(a, control), _at_edge(b, control)
    # The middle of the curve, and a little beside it.
    middle = Point((tail.x + 2 * control.x + tip.x) / 4, (tail.y + 2 * control.y + tip.y) / 4)
    path = f"M{tail.x:.1f} {tail.y:.1f} Q{control.x:.1f} {control.y:.1f} {tip.x:.1f} {tip.y:.1f}"
    return _way(path, LABELS.get((start, end), ""), Point(middle.x, middle.y + 4), f"{start}-{end}", events)


def _way(path: str, label: str, at: Point, way: str, events: str = "") -> str:
    text = f'<text x="{at.x:.1f}" y="{at.y:.1f}">{label}</text>' if label else ""
    title = f"<title>{events}</title>" if events else ""
    kind = "way minor" if events and not label else "way"
    return f'<g class="{kind}" data-way="{way}">{title}<path d="{path}" marker-end="url(#tip)"/>{text}</g>'


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
