"""Real servers for tests/page: minichat twice, with one Redis and one PostgreSQL, in a folder of their own."""

import contextlib
import glob
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

DEADLINE_S = 60
TRIES = 10
SECRET = "a-secret-of-the-page-test"


def eventually(what, attempt, seconds=DEADLINE_S):
    """What `attempt` gives, as soon as that is something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = attempt()
        if result:
            return result
        time.sleep(0.05)
    raise TimeoutError(f"waited in vain for {what}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


class Process:
    """A process group of its own, which ends with the test: `end_all` kills it."""

    running = []

    def start(self, line, **more):
        self.process = subprocess.Popen(line, start_new_session=True, **{"stderr": subprocess.DEVNULL, **more})
        if self not in Process.running:
            Process.running.append(self)
        return self.process

    @staticmethod
    def end_all():
        while Process.running:
            Process.running.pop().kill()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def on_a_free_port(what, start, is_up):
    """Starts something on a port that is free, on another where someone else was quicker. Gives the port."""
    for _ in range(TRIES):
        port = free_port()
        process = start(port)
        eventually(what, lambda: process.poll() is not None or is_up(port))
        if process.poll() is None:
            return port
    raise RuntimeError(f"{what} does not start")


class Redis(Process):
    def __init__(self, folder):
        line = ["redis-server", "--bind", "127.0.0.1", "--save", "", "--dir", folder, "--port"]
        port = on_a_free_port("Redis", lambda port: self.start([*line, str(port)], stdout=subprocess.DEVNULL), accepts)
        self.url = f"redis://127.0.0.1:{port}"


class Postgres(Process):
    def __init__(self, folder):
        places = [os.path.dirname(shutil.which("initdb") or "/none/")]
        places += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
        programs = next((place for place in places if os.path.exists(f"{place}/postgres")), None)
        if not programs:
            raise RuntimeError("PostgreSQL is missing: install the package postgresql")
        # PostgreSQL does not run as root.
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"] if os.getuid() == 0 else []
        home = f"{folder}/postgres"
        os.mkdir(home)
        if as_user:
            os.chmod(folder, 0o755)
            shutil.chown(home, "postgres")
        subprocess.run([*as_user, f"{programs}/initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C",
                        "--no-sync", "-D", f"{home}/data"], check=True, stdout=subprocess.DEVNULL)
        line = [*as_user, f"{programs}/postgres", "-D", f"{home}/data", "-k", home, "-c", "listen_addresses=127.0.0.1",
                "-c", "fsync=off", "-p"]
        state = Path(home, "data", "postmaster.pid")
        port = on_a_free_port("PostgreSQL", lambda port: self.start([*line, str(port)], stdout=subprocess.DEVNULL),
                              lambda _: state.exists() and "ready" in state.read_text(encoding="utf8"))
        self.url = f"postgres://postgres@127.0.0.1:{port}/postgres"

    def each(self, number):
        """Signals the server and all the processes that it has started, which are in groups of their own."""
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True)
        for pid in [self.process.pid, *map(int, listed.stdout.split())]:
            with contextlib.suppress(ProcessLookupError):  # some come and go
                os.kill(pid, number)

    def kill(self):
        self.each(signal.SIGCONT)
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()


class Server(Process):
    """A chat server, which can be killed and started again at its address."""

    def __init__(self, binary, folder, number, redis, postgres):
        self.name = f"local{number}"
        self.line = [binary, "--server-id", self.name, "--admin-listen", "off", "--redis", redis.url, "--database",
                     postgres.url, "--cluster-secret", SECRET, "--relay-listen", "127.0.0.1:0", "--lease", "2s"]
        # It takes each variable that begins with its name for a flag.
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("MINICHAT_")}
        self.address, self.log = "127.0.0.1:0", Path(folder, f"{self.name}.log")
        self.run()

    def run(self):
        """Starts it, at its old address if it had one: there someone may need a moment to let go of the port."""
        for _ in range(TRIES):
            with self.log.open("a") as log:
                self.start([*self.line, "--listen", self.address], stdout=subprocess.PIPE, stderr=log, text=True,
                           env=self.environment)
            found = re.search(r"http://(\S+)/", "".join(itertools.islice(self.process.stdout, 2)))
            if found:
                self.address = found.group(1)
                return
            self.process.wait()
            time.sleep(0.2)
        raise RuntimeError(f"{self.name} does not start: {self.log.read_text(encoding='utf8')}")

    @property
    def url(self):
        return f"http://{self.address}/"


class Cluster:
    def __init__(self, binary, folder):
        self.redis = Redis(folder)
        self.postgres = Postgres(folder)
        self.servers = [Server(binary, folder, number, self.redis, self.postgres) for number in (1, 2)]
