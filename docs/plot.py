#!/usr/bin/env python3
"""Draws CPU per delivered message against the number of servers, from the lines that benches/measure.py writes.

  docs/plot.py performance.jsonl --scenario signal > docs/cpu.svg

Each point is the median of its runs; the bar around it goes from the least to the most. The last is shown as a figure,
too; docs/tables.py has all.
"""

import argparse
import html
import json
import math
import statistics

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 130, 40, 50
# How far apart names are at least.
LABEL = 15
COLOURS = ["#0b6e99", "#d9480f", "#2b8a3e", "#862e9c", "#5c940d"]
# What is told apart by more than its colour.
DASHES = ["", "6 4", "2 3", "8 3 2 3", "1 4"]


def read(path, scenario, span):
    """The values of each system, by number of servers."""
    systems = {}
    with open(path) as file:
        for line in map(json.loads, filter(str.strip, file)):
            if line.get("measured") == scenario and line["span"] == span and line["cpu_us_per"] is not None:
                values = systems.setdefault(line["system"], {}).setdefault(line["servers"], [])
                values.append(line["cpu_us_per"])
    return systems


def nice_step(highest):
    """A step of the scale that makes four to ten of it."""
    step = 10 ** math.floor(math.log10(highest / 4))
    return next(step * factor for factor in (1, 2, 5, 10) if highest / (step * factor) <= 8)


class Plot:
    def __init__(self, systems):
        self.systems = systems
        self.counts = sorted({count for values in systems.values() for count in values})
        highest = max(value for values in systems.values() for runs in values.values() for value in runs)
        self.step = nice_step(highest)
        self.top = math.ceil(highest / self.step) * self.step
        self.parts = []
        self.labels = []

    def x(self, count):
        """The number of servers doubles, so each step is as wide as the others."""
        low, high = math.log2(self.counts[0]), math.log2(self.counts[-1])
        share = (math.log2(count) - low) / (high - low) if high > low else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        return HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)

    def line(self, x1, y1, x2, y2, style):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>')

    def text(self, x, y, text, style=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" {style}>{html.escape(text)}</text>')

    def axes(self, title):
        self.text(LEFT, TOP - 18, title, 'font-weight="bold"')
        value = 0.0
        while value <= self.top + self.step / 2:
            y = self.y(value)
            self.line(LEFT, y, WIDTH - RIGHT, y, 'stroke="#ddd"')
            self.text(LEFT - 8, y + 4, f"{value:g}", 'text-anchor="end"')
            value += self.step
        for count in self.counts:
            self.text(self.x(count), HEIGHT - BOTTOM + 20, str(count), 'text-anchor="middle"')
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "servers", 'text-anchor="middle"')
        middle = (TOP + HEIGHT - BOTTOM) / 2
        self.text(18, middle, "CPU us per delivered message, servers and databases",
                  f'text-anchor="middle" transform="rotate(-90 18 {middle:.0f})"')

    def system(self, name, values, colour, dash):
        points = [(count, statistics.median(runs), min(runs), max(runs)) for count, runs in sorted(values.items())]
        path = " ".join(f"{self.x(count):.1f},{self.y(median):.1f}" for count, median, _, _ in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
                          f'stroke-dasharray="{dash}"/>')
        for count, median, least, most in points:
            x = self.x(count)
            self.line(x, self.y(least), x, self.y(most), f'stroke="{colour}"')
            self.parts.append(f'<circle cx="{x:.1f}" cy="{self.y(median):.1f}" r="4" fill="{colour}"/>')
        last = points[-1]
        self.labels.append((self.y(last[1]), self.x(last[0]) + 14, f"{name} {last[1]:.1f}", colour))

    def name_systems(self):
        """Names them where they end, from below: one that would cover the last goes above it."""
        lowest = math.inf
        for y, x, name, colour in sorted(self.labels, reverse=True):
            lowest = min(y, lowest - LABEL)
            self.text(x, lowest + 4, name, f'fill="{colour}"')

    def svg(self, title):
        self.axes(title)
        for index, (name, values) in enumerate(sorted(self.systems.items())):
            self.system(name, values, COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)])
        self.name_systems()
        body = "\n".join(self.parts)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
                f'aria-label="{html.escape(title)}" font-family="sans-serif" font-size="13">\n'
                f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--scenario", default="signal")
    parser.add_argument("--span", default="load")
    parser.add_argument("--title", default="Cost of a message to a user on another server")
    arguments = parser.parse_args()
    systems = read(arguments.file, arguments.scenario, arguments.span)
    if not systems:
        parser.error(f"{arguments.file} has no lines of {arguments.scenario}, {arguments.span}")
    print(Plot(systems).svg(arguments.title))


if __name__ == "__main__":
    main()
