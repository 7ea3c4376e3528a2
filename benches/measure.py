#!/usr/bin/env python3
"""Measures whole servers: starts them with a real Redis and PostgreSQL, puts load on them, notes what it cost.

  cargo build --release --bin minichat --example load --example broadcast --example skeleton
  benches/measure.py --out performance.jsonl                    all scenarios, five times each
  benches/measure.py --scenario signal --servers 1,2 --repeat 1 --seconds 2
  benches/measure.py --system before=minichat:/tmp/minichat-before --system after=minichat:target/release/minichat

NATS, which people would pick instead, is measured too where nats-server is on the PATH, or where --system gives it:

  benches/measure.py --system nats=nats:/opt/nats/nats-server --scenario signal

What is compared runs in turns, A B B A, so that what else happens on the machine meets both alike. Every run has fresh
servers, an empty Redis and an empty database. Each line of the file is one counted span of one run; the medians are
shown at the end. Needs redis-server, and PostgreSQL where a scenario says so.
"""

import argparse
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
JWT_SECRET = "a secret of measurements, long enough"
CLUSTER_SECRET = "a-secret-of-measurements"
START_LIMIT = 60.0
# How many routes a server of NATS has to each other by default, besides that of the system's account.
NATS_POOL = 3

# name: (numbers of servers, store, who can do it, arguments of the generator)
# store: cluster = Redis and PostgreSQL, sqlite = one server on its own
ALL, ROUTING, OURS = ("minichat", "broadcast", "skeleton", "nats"), ("minichat", "skeleton"), ("minichat",)
SCENARIOS = {
    # under load: a closed loop
    "signal": ((1, 2, 4, 8), "cluster", ALL, "direct --pairs 200 --window 16"),
    "signal-local": ((1,), "sqlite", ROUTING, "direct --pairs 200 --window 16 --place same"),
    "send": ((2,), "cluster", OURS, "direct --kind send --pairs 200 --window 16"),
    "send-local": ((1,), "sqlite", OURS, "direct --kind send --pairs 200 --window 16 --place same"),
    "send-many": ((1,), "sqlite", OURS, "direct --kind send --pairs 4000 --window 1 --place same"),
    "room-20-full": ((4,), "cluster", ALL, "rooms --rooms 20 --room-size 20 --window 16"),
    "room-100-full": ((4,), "cluster", ALL, "rooms --rooms 10 --room-size 100 --window 16"),
    "room-20": ((4,), "cluster", ALL, "rooms --rooms 20 --room-size 20 --window 4"),
    "room-100": ((4,), "cluster", ALL, "rooms --rooms 10 --room-size 100 --window 2"),
    "room-20-send": ((4,), "cluster", OURS, "rooms --kind send --rooms 20 --room-size 20 --window 4"),
    # at a fixed rate: an open loop
    "signal-1000": ((1, 2, 4, 8), "cluster", ALL, "direct --pairs 200 --rate 1000"),
    "send-1000": ((2,), "cluster", OURS, "direct --kind send --pairs 200 --rate 1000"),
    "send-1000-acks": ((2,), "cluster", OURS, "direct --kind send --pairs 200 --rate 1000 --acks"),
    # alone on idle servers
    "lone-send": ((2,), "cluster", OURS, "direct --kind send --pairs 1 --rate 20"),
    "lone-send-local": ((1,), "sqlite", OURS, "direct --kind send --pairs 1 --rate 20 --place same"),
    # connections
    "idle": ((2,), "cluster", ALL, "idle --connections 10000 --connect-rate 1000"),
    "connect": ((2, 8), "cluster", OURS, "idle --connections 5000 --connect-rate 500 --rooms-each 10 --cursors"),
    "storm": ((2,), "cluster", OURS, "storm --connections 10000 --connect-rate 1000 --rooms-each 10 --cursors --pairs 100 "
              "--rate 500"),
    "storm-plain": ((2,), "cluster", ALL, "storm --connections 10000 --connect-rate 1000 --pairs 100 --rate 500"),
    "stopped": ((3,), "cluster", OURS, "stopped --pairs 200 --rate 500"),
    "burst": ((2,), "cluster", ALL, "burst --pairs 200 --rate 500 --room-size 100 --burst 2000"),
    "slow": ((2,), "cluster", OURS, "slow --rooms 10 --room-size 20 --slow 2 --rate 1000 --payload 2048"),
}


GIVEN_PORTS = set()


def free_port():
    """A port that nobody listens at, another one each time: who was given one may not listen yet."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port not in GIVEN_PORTS:
            GIVEN_PORTS.add(port)
            return port


def until(what, is_so, processes=()):
    """Waits until something is so; ends with the last words of these where one of them has ended, or it takes too long."""
    deadline = time.monotonic() + START_LIMIT
    while not is_so():
        ended = [process for process in processes if process.child.poll() is not None]
        if ended or time.monotonic() > deadline:
            words = "".join(f"\n{process.text()[-2000:]}" for process in ended or processes)
            sys.exit(f"{what}: {'the process has ended' if ended else 'not in time'}{words}")
        time.sleep(0.05)


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def has_routes(admin, peers):
    """Whether a server of NATS has its routes to so many others: for each a pool of them, and that of the system."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/routez", timeout=2) as answer:
            routes = json.load(answer)["routes"] or []
    except OSError:
        return False
    of_system = {route["remote_id"] for route in routes if route.get("account") == "$SYS"}
    pooled = sum("account" not in route for route in routes)
    return len(of_system) == peers and pooled == peers * NATS_POOL


def is_ready(admin):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def faults_of(line):
    """What is not as it should be in the whole run that this line is of. A generator that fails leaves no line."""
    return ", ".join(f"{count} {what}" for what, count in line["faults"].items())


class Process:
    """A child with its output in a file, ended at the end of the block."""

    def __init__(self, command, log, **options):
        self.log = pathlib.Path(log)
        with open(log, "wb") as output:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options)
        self.pid = self.child.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)
            try:
                self.child.wait(15)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()

    def await_start(self, what, is_so):
        """Waits for it, and leaves nothing running where it does not come."""
        try:
            until(what, is_so, [self])
        except BaseException:
            self.__exit__()
            raise

    def text(self):
        return self.log.read_text(errors="replace")


class Redis(Process):
    def __init__(self, directory):
        if shutil.which("redis-server") is None:
            sys.exit("redis-server is missing: install it (on Debian: apt-get install redis-server)")
        self.port = free_port()
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", directory]
        super().__init__(command, f"{directory}/redis.log")
        self.await_start("Redis", lambda: answers(self.port))

    def empty(self):
        subprocess.run(["redis-cli", "-p", str(self.port), "FLUSHALL"], check=True, stdout=subprocess.DEVNULL)


class Postgres(Process):
    """A PostgreSQL with its default durability: what is committed is on the disk."""

    def __init__(self, directory):
        places = os.environ["PATH"].split(":") + sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
        found = [place for place in places if all(os.path.exists(f"{place}/{tool}") for tool in ("initdb", "postgres"))]
        if not found:
            sys.exit("PostgreSQL is missing: install it (on Debian: apt-get install postgresql)")
        self.port, self.count = free_port(), 0
        data, as_user = f"{directory}/postgres", []
        os.mkdir(data)
        if os.geteuid() == 0:
            os.chmod(directory, 0o755)
            shutil.chown(data, "postgres", "postgres")
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
        setup = [f"{found[0]}/initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-D", data]
        subprocess.run(as_user + setup, check=True, stdout=subprocess.DEVNULL, cwd="/")
        command = [f"{found[0]}/postgres", "-D", data, "-k", data, "-p", str(self.port), "-c", "max_connections=200"]
        super().__init__(as_user + command, f"{directory}/postgres.log", cwd="/")
        self.await_start("PostgreSQL", lambda: "ready to accept connections" in self.text())

    def fresh_database(self):
        """Makes one, and answers its URL."""
        self.count += 1
        self.ask(f"CREATE DATABASE run_{self.count}", "CHECKPOINT")
        return f"postgres://postgres@127.0.0.1:{self.port}/run_{self.count}"

    def drop_database(self):
        """Drops the last one: what has to be cleaned in it would cost later runs."""
        self.ask(f"DROP DATABASE IF EXISTS run_{self.count} WITH (FORCE)", "CHECKPOINT")

    def ask(self, *statements):
        psql = ["psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-q"]
        subprocess.run(psql + [word for statement in statements for word in ("-c", statement)], check=True)


class Servers:
    """Some servers of one kind, for one run."""

    def __init__(self, kind, binary, count, store, redis, postgres):
        self.kind, self.binary, self.count, self.store = kind, binary, count, store
        self.redis, self.postgres = redis, postgres
        self.processes, self.public, self.admin, self.routes = [], [], [], []
        self.has_database = kind == "minichat" and store == "cluster"
        # Those of skeleton have to know each other from the start.
        self.relays = [f"127.0.0.1:{free_port()}" for _ in range(count)]

    def __enter__(self):
        self.home = tempfile.TemporaryDirectory(prefix="minichat-measure-")
        try:
            self.start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_all(self):
        database = self.postgres.fresh_database() if self.has_database else None
        if self.redis:
            self.redis.empty()
        for number in range(1, self.count + 1):
            self.start(number, database)
        if self.kind == "minichat":
            until("the servers", lambda: all(map(is_ready, self.admin)), self.processes)
        if self.kind in ROUTING:
            until("the streams between the servers", self.is_connected, self.processes)
        if self.kind == "nats":
            until("the routes between the servers", self.has_routes, self.processes)

    def start(self, number, database):
        port, admin = free_port(), free_port()
        self.public.append(f"127.0.0.1:{port}")
        command = [self.binary, f"--listen=127.0.0.1:{port}"]
        if self.kind == "nats":
            self.admin.append(admin)
            command = [self.binary, "--config", self.nats_config(number, port, admin)]
        redis = f"--redis=redis://127.0.0.1:{self.redis.port}" if self.redis else None
        if self.kind == "broadcast":
            command.append(redis)
        elif self.kind == "skeleton":
            command += [f"--relay-listen={self.relays[number - 1]}", *(f"--peer={relay}" for relay in self.relays)]
        elif self.kind == "minichat":
            self.admin.append(admin)
            command += [f"--admin-listen=127.0.0.1:{admin}", f"--jwt-secret={JWT_SECRET}", f"--server-id=local{number}"]
            if self.store == "cluster":
                command += [redis, f"--database={database}", f"--cluster-secret={CLUSTER_SECRET}"]
                command += [f"--relay-listen=127.0.0.1:{free_port()}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MINICHAT_")}
        self.processes.append(Process(command, f"{self.home.name}/{number}.log", cwd=self.home.name, env=environment))
        until(f"server {number}", lambda: answers(port), self.processes)

    def nats_config(self, number, port, admin):
        """Writes what a server of NATS is told, and answers where. It knows those before it; they tell of the others."""
        path, own = f"{self.home.name}/{number}.conf", free_port()
        routes = ", ".join(f'"nats://127.0.0.1:{route}"' for route in self.routes)
        self.routes.append(own)
        lines = [f"server_name: local{number}", f"listen: 127.0.0.1:{free_port()}", f"http: 127.0.0.1:{admin}",
                 f'authorization {{ token: "{CLUSTER_SECRET}" }}',
                 f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true, compression: false }}",
                 f"cluster {{ name: measured, listen: 127.0.0.1:{own}, routes: [{routes}], compression: off }}"]
        pathlib.Path(path).write_text("\n".join(lines) + "\n")
        return path

    def is_connected(self):
        return all(process.text().count("Connected to a peer") >= self.count - 1 for process in self.processes)

    def has_routes(self):
        return all(has_routes(admin, self.count - 1) for admin in self.admin)

    def __exit__(self, *_):
        for process in self.processes:
            process.child.kill()
        for process in self.processes:
            process.__exit__()
        if self.has_database:
            self.postgres.drop_database()
        self.home.cleanup()

    def load(self, arguments, generator, seconds, warm_up, out, tags):
        # What a burst brings must not wait for the thread that takes what is counted.
        threads = ["--threads=2"] if arguments.startswith("burst") and "--threads" not in arguments else []
        command = [generator, *arguments.split(), *threads, f"--seconds={seconds}", f"--warm-up={warm_up}"]
        command += [f"--server={server}" for server in self.public]
        if self.kind == "minichat":
            command += [f"--admin={port_of(admin)}" for admin in self.admin] + [f"--jwt-secret={JWT_SECRET}"]
        if self.kind == "nats":
            command += ["--dialect=nats", f"--auth-token={CLUSTER_SECRET}"]
        if arguments.startswith("stopped"):
            # It shows no metrics while it is stopped.
            command = [word for word in command if word != f"--admin={port_of(self.admin[-1])}"]
            command.append(f"--stop={self.processes[-1].pid}")
        named = [(f"server{number}", process) for number, process in enumerate(self.processes, 1)]
        if self.redis and self.kind not in ("skeleton", "nats"):
            named.append(("redis", self.redis))
        if self.postgres and self.kind == "minichat":
            named.append(("postgres", self.postgres))
        command += [f"--pid={name}={process.pid}" for name, process in named]
        command += [f"--tag={name}={value}" for name, value in tags.items()] + [f"--json={out}"]
        return subprocess.run(command).returncode


def port_of(admin):
    return f"127.0.0.1:{admin}"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="performance.jsonl", help="file to which the lines are appended")
    parser.add_argument("--scenario", action="append", help="one of: " + ", ".join(SCENARIOS) + "; repeated; default all")
    parser.add_argument("--servers", help="numbers of servers, such as 1,2,4,8; default those of the scenario")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--warm-up", type=float, default=3)
    parser.add_argument("--load", default=str(ROOT / "target/release/examples/load"), help="the generator")
    parser.add_argument("--load-args", default="", help="more arguments for it, such as '--threads 2'")
    parser.add_argument("--system", action="append", metavar="NAME=KIND:BINARY", help="what is compared; KIND is minichat, "
                        "broadcast, skeleton or nats; repeated; default those of target/release, and nats-server of the PATH")
    arguments = parser.parse_args()
    release = ROOT / "target/release"
    defaults = [f"minichat=minichat:{release}/minichat", f"broadcast=broadcast:{release}/examples/broadcast"]
    if os.path.exists(f"{release}/examples/skeleton"):
        defaults.append(f"skeleton=skeleton:{release}/examples/skeleton")
    if shutil.which("nats-server"):
        defaults.append("nats=nats:nats-server")
    named = rf"(\w+)=({'|'.join(ALL)}):(.+)"
    arguments.system = [re.fullmatch(named, text) or sys.exit(f"not understood: {text}")
                        for text in arguments.system or defaults]
    # What is no path is looked for on the PATH.
    arguments.system = [(name, kind, shutil.which(binary) or binary) for name, kind, binary in
                        (match.groups() for match in arguments.system)]
    for binary in [arguments.load] + [binary for _, _, binary in arguments.system]:
        if not os.access(binary, os.X_OK):
            sys.exit(f"{binary} is missing: cargo build --release --bin minichat --example load --example broadcast "
                     "--example skeleton; for NATS go install github.com/nats-io/nats-server/v2@latest")
    for name in arguments.scenario or []:
        if name not in SCENARIOS:
            sys.exit(f"there is no scenario {name}")
    if arguments.servers and not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", arguments.servers):
        sys.exit(f"--servers: not understood: {arguments.servers}; numbers from 1 on, such as 1,2,4,8")
    if not any(runs(arguments)):
        sys.exit("nothing to run: none of these systems can do any of these scenarios, or --repeat is below 1")
    return arguments


def runs(arguments):
    """All runs, in turns: scenario, number of servers, round, system."""
    for name in arguments.scenario or SCENARIOS:
        counts, store, kinds, load = SCENARIOS[name]
        if arguments.servers and store == "cluster":
            counts = [int(count) for count in arguments.servers.split(",")]
        for count in counts:
            for turn in range(1, arguments.repeat + 1):
                # Every other round the other way round: what one leaves behind is not always the same one's to bear.
                for system, kind, binary in arguments.system[::1 if turn % 2 else -1]:
                    if kind in kinds:
                        yield name, store, load, count, turn, system, kind, os.path.abspath(binary)


def medians(lines):
    """Shows the median of each number that matters, by what was run."""
    groups = {}
    for line in lines:
        groups.setdefault((line["measured"], line["servers"], line["system"], line["span"]), []).append(line)
    print(f"\n{'scenario':16} {'n':>2} {'system':10} {'span':8} {'runs':>4} {'per s':>9} {'CPU us per':>10} "
          f"{'p50 ms':>8} {'p99 ms':>8} {'look-ups':>8} {'bytes per':>9} {'faulty':>6}")
    for (name, count, system, span), group in groups.items():
        def median(pick):
            values = [value for value in map(pick, group) if value is not None]
            return f"{statistics.median(values):.3f}" if values else "-"

        def times(line):
            return line["latency_ms"] or line["connect_ms"] or {}

        print(f"{name:16} {count:2} {system:10} {span:8} {len(group):4} "
              f"{median(lambda line: line['delivered_per_s']):>9} {median(lambda line: line['cpu_us_per']):>10} "
              f"{median(lambda line: times(line).get('p50')):>8} {median(lambda line: times(line).get('p99')):>8} "
              f"{median(lambda line: line['lookups'] and line['lookups'] / max(line['metrics_delivered'], 1)):>8} "
              f"{median(lambda line: line['loopback_bytes_per']):>9} {sum(faults_of(line) != '' for line in group):6}")


def lines_of(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.strip()]


def main():
    arguments = parse()
    out = os.path.abspath(arguments.out)
    before = len(lines_of(out)) if os.path.exists(out) else 0
    failed = 0
    with tempfile.TemporaryDirectory(prefix="minichat-measure-") as home, Redis(home) as redis, Postgres(home) as postgres:
        for name, store, load, count, turn, system, kind, binary in runs(arguments):
            print(f"\n== {name}, {count} servers, {system}, round {turn}", flush=True)
            alone = store == "sqlite"
            with Servers(kind, binary, count, store, None if alone else redis, None if alone else postgres) as servers:
                tags = {"measured": name, "system": system, "round": turn, "store": store, "cpus": os.cpu_count()}
                load = f"{load} {arguments.load_args}"
                ran = servers.load(load, arguments.load, arguments.seconds, arguments.warm_up, out, tags) == 0
                faults = faults_of(lines_of(out)[-1]) if ran else "the generator failed"
                if faults:
                    failed += 1
                    print(f"A FAULTY RUN: {faults}", flush=True)
    medians(lines_of(out)[before:] if os.path.exists(out) else [])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
