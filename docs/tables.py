#!/usr/bin/env python3
"""Shows as Markdown tables what benches/measure.py has written: medians over the runs, CPU split by kind of process.

  docs/tables.py performance.jsonl --scenario signal

Columns of which nothing is known are left out.
"""

import argparse
import json
import statistics

DELIVERIES = ("scenario", "servers", "system", "runs", "delivered/s", "servers us", "Redis us", "PostgreSQL us",
              "p50 ms", "p99 ms", "max ms", "aside", "look-ups", "items", "items/message", "switches", "bytes",
              "generator %", "faulty")
CONNECTIONS = ("scenario", "servers", "system", "span", "runs", "servers us", "Redis us", "PostgreSQL us", "p50 ms",
               "p99 ms", "servers KiB", "Redis KiB", "faulty")
WORDS = ("scenario", "servers", "system", "span")


def group(lines):
    groups = {}
    for line in lines:
        groups.setdefault((line["measured"], line["servers"], line["system"], line["span"]), []).append(line)
    return groups


def median(lines, pick, digits):
    values = [value for value in map(pick, lines) if value is not None]
    return f"{statistics.median(values):,.{digits}f}" if values else ""


def of(kind, field):
    """The sum of a field over the processes of a kind; none where there are none."""
    def pick(line):
        values = [process[field] for process in line["processes"] if process["name"].startswith(kind)]
        return sum(values) if values and None not in values else None
    return pick


def kib(pick):
    return lambda line: None if pick(line) is None else pick(line) / 1024


def time(field):
    return lambda line: (line["latency_ms"] or line["connect_ms"] or {}).get(field)


def per_delivery(field):
    return lambda line: None if line[field] is None else line[field] / max(line["metrics_delivered"], 1)


def items_per_message(line):
    return line["relay_items_sent"] / line["relay_messages_sent"] if line["relay_messages_sent"] else None


def faulty(lines):
    """How many of the runs had something that should not be."""
    return sum(bool(line["faults"]) for line in lines)


def cpu(lines):
    return [median(lines, of(kind, "cpu_us_per"), 1) for kind in ("server", "redis", "postgres")]


def delivery_rows(groups):
    for (scenario, servers, system, span), lines in groups.items():
        if lines[0]["per"] == "delivery":
            name = scenario if span == "load" else f"{scenario}: {span}"
            yield [name, servers, system, len(lines),
                   median(lines, lambda line: line["delivered_per_s"], 0), *cpu(lines),
                   median(lines, time("p50"), 2), median(lines, time("p99"), 2), median(lines, time("max"), 0),
                   median(lines, lambda line: line["aside"] or None, 0),
                   median(lines, per_delivery("lookups"), 3), median(lines, per_delivery("relay_items_sent"), 3),
                   median(lines, items_per_message, 1), median(lines, of("server", "switches_per"), 2),
                   median(lines, lambda line: line["loopback_bytes_per"], 0),
                   median(lines, lambda line: 100 * line["load_share"], 0), faulty(lines)]


def connection_rows(groups):
    for (scenario, servers, system, span), lines in groups.items():
        # Spans in which nobody connects have no cost of a connect.
        if lines[0]["per"] == "connection" and span in ("connect", "return"):
            growth = "rss_growth_bytes_per_connection"
            yield [scenario, servers, system, span, len(lines), *cpu(lines), median(lines, time("p50"), 1),
                   median(lines, time("p99"), 1), median(lines, kib(of("server", growth)), 2),
                   median(lines, kib(of("redis", growth)), 2), faulty(lines)]


def show(head, rows):
    rows = [[str(cell) for cell in row] for row in rows]
    known = [number for number in range(len(head)) if any(row[number] for row in rows)]
    head, rows = [head[number] for number in known], [[row[number] for number in known] for row in rows]
    if rows:
        print("| " + " | ".join(head) + " |")
        print("|" + "|".join("---" if name in WORDS else "---:" for name in head) + "|")
        for row in rows:
            print("| " + " | ".join(row) + " |")
        print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--scenario", action="append", metavar="NAME", help="which; repeated [default: all]")
    arguments = parser.parse_args()
    with open(arguments.file) as file:
        lines = [json.loads(line) for line in file if line.strip()]
    groups = group(line for line in lines if line["measured"] in (arguments.scenario or [line["measured"]]))
    show(DELIVERIES, delivery_rows(groups))
    show(CONNECTIONS, connection_rows(groups))


if __name__ == "__main__":
    main()
