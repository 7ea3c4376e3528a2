"""Plays the reference scenario against the servers of docker-compose.yml, through its load balancer.

Two people are on one server, the third on the other. What one writes reaches the second directly and the third over
one relay. The frames, the servers' logs and their metrics must all say so. Then one server is killed and the other is
stopped, and nobody misses anything. tests/compose starts this; the arguments are the command that runs docker-compose.
Nothing outside Python's standard library is used.
"""

import base64
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import time
import urllib.request

BALANCER = ("127.0.0.1", 8080)
ADMIN = {"local1": "http://127.0.0.1:9601", "local2": "http://127.0.0.1:9602"}
DEADLINE_S = 20
COMPOSE = sys.argv[1:]

passed = failed = 0


def check(what, ok, detail=""):
    """Counts one expectation and says how it went."""
    global passed, failed
    passed, failed = (passed + 1, failed) if ok else (passed, failed + 1)
    print(f"ok      {what}" if ok else f"FAILED  {what}: {detail}", flush=True)


class Person:
    """A WebSocket session through the balancer, in development sign-in."""

    def __init__(self, user):
        self.user, self.seen, self.buffer = user, [], b""
        self.socket = socket.create_connection(BALANCER, timeout=DEADLINE_S)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((
            f"GET /ws?user={user} HTTP/1.1\r\nHost: localhost:8080\r\nOrigin: http://localhost:8080\r\n"
            f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        ).encode())
        while b"\r\n\r\n" not in self.buffer:
            self._fill()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise ConnectionError(f"no upgrade: {head!r} {self.buffer!r}")
        self.send(type="hello", trace=True)
        self.server = self.until("welcome", lambda frame: frame["type"] == "welcome")["server"]

    def send(self, **frame):
        self._write(0x1, json.dumps(frame).encode())

    def until(self, what, wanted):
        """The first frame, seen already or yet to come, that is wanted."""
        for frame in self.seen:
            if wanted(frame):
                return frame
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            frame = self._next_frame()
            if frame:
                self.seen.append(frame)
                if wanted(frame):
                    return frame
        raise TimeoutError(f"{self.user} got no {what}, but {self.seen}")

    def _next_frame(self):
        """The next JSON frame; None for a ping, which is answered, and after a silence of a second."""
        readable, _, _ = select.select([] if self.buffer else [self.socket], [], [], 1)
        if not readable and not self.buffer:
            return None
        opcode, payload = self._read()
        if opcode == 0x8:
            raise ConnectionError(f"{self.user} was closed: {payload!r}")
        if opcode == 0x9:
            self._write(0xA, payload)
        return json.loads(payload) if opcode == 0x1 else None

    def close(self):
        self._write(0x8, struct.pack("!H", 1000))
        self.socket.close()

    def _write(self, opcode, payload):
        mask = os.urandom(4)
        size = len(payload)
        length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + struct.pack("!H", size)
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
        self.socket.sendall(bytes([0x80 | opcode]) + length + mask + masked)

    def _read(self):
        first, size = self._take(2)
        if size == 126:
            (size,) = struct.unpack("!H", self._take(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._take(8))
        return first & 0x0F, self._take(size)

    def _take(self, count):
        while len(self.buffer) < count:
            self._fill()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def _fill(self):
        chunk = self.socket.recv(65536)
        if not chunk:
            raise ConnectionError(f"{self.user}: the connection ended")
        self.buffer += chunk


def seat(users):
    """Connects three users so that the first two share a server: (a, b, c), whatever the balancer chose."""
    for _ in range(10):
        people = [Person(user) for user in users]
        print("        " + ", ".join(f"{person.user} on {person.server}" for person in people))
        servers = [person.server for person in people]
        for c in people:
            if servers.count(c.server) == 1:
                a, b = (person for person in people if person is not c)
                return a, b, c
        for person in people:
            person.close()
    raise RuntimeError("ten times all three landed on one server")


def is_message(room, body):
    return lambda frame: frame["type"] == "message" and frame["room"] == room and frame.get("body") == body


def trace_of(room, seq):
    return lambda frame: frame["type"] == "trace" and frame["room"] == room and frame["seq"] == seq


def send(sender, room, body):
    """Sends and returns the answer."""
    cid = f"cid-{body}"
    sender.send(type="send", cid=cid, room=room, body=body)
    return sender.until("answer", lambda frame: frame.get("cid") == cid and frame["type"] in ("sent", "error"))


def expect_delivery(sender, recipient, room, sent, body, path):
    message = recipient.until("message", is_message(room, body))
    same = all(message[field] == sent[field] for field in ("id", "seq")) and message["from"] == sender.user
    check(f"{recipient.user} gets the message of {sender.user}", same, f"{message} for {sent}")
    trace = recipient.until("trace", trace_of(room, sent["seq"]))
    check(f"its path is {path}", trace["path"] == path and trace["origin"] == sender.server, trace)


def compose(*arguments):
    """What a command of docker-compose prints."""
    return subprocess.run([*COMPOSE, *arguments], capture_output=True, text=True, check=True).stdout


def log_of(server):
    return re.sub(r"\x1b\[[0-9;]*m", "", compose("logs", "--no-color", server))


def expect_log(server, text, *fields):
    """Waits for a line of a server's log that has the text and each field, such as ("recipient", "bob")."""
    patterns = [re.compile(rf'\b{name}"?[=:]\s*"?{re.escape(value)}\b') for name, value in fields]
    end = time.monotonic() + DEADLINE_S
    found = False
    while not found and time.monotonic() < end:
        lines = [line for line in log_of(server).splitlines() if text in line]
        found = any(all(pattern.search(line) for pattern in patterns) for line in lines)
    said = " ".join(f"{name}={value}" for name, value in fields)
    check(f'{server} logs "{text}" {said}', found, lines[-3:])


def expect_no_waste(server):
    with urllib.request.urlopen(f"{ADMIN[server]}/metrics", timeout=DEADLINE_S) as answer:
        text = answer.read().decode()
    wasted = re.findall(r"^\w*wasted\w*(?:\{.*\})? (\S+)$", text, re.MULTILINE)
    check(f"{server} counts no wasted relay", wasted and all(float(count) == 0 for count in wasted), wasted)


def wait_ready(server):
    """Waits until a server that was started says that it is ready."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"{ADMIN[server]}/readyz", timeout=DEADLINE_S).close()
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(f"{server} did not get ready")


def come_back(user):
    """Connects as clients do: until it goes."""
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            return Person(user)
        except ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def expect_return(person, server, missed):
    """The person, whose server has gone, on another one, and with what they missed."""
    again = come_back(person.user)
    check(f"the balancer seats {person.user} on the other server", again.server == server, again.server)
    for body in missed:
        again.until("message", is_message("team", body))
        check(f'{person.user} gets "{body}", said meanwhile', True)
    return again


def play():
    user = compose("exec", "-T", "local1", "id", "-u").strip()
    check("a server does not run as root", user != "0", user)
    first, second = Person("window-1"), Person("window-2")
    check("two windows land on different servers", first.server != second.server, first.server)
    first.close()
    second.close()

    a, b, c = seat(["alice", "bob", "carol"])
    a.send(type="create", cid="create", room="team", members=[b.user, c.user])
    answer = a.until("answer", lambda frame: frame.get("cid") == "create")
    check("the room is made", answer["type"] == "room" and answer["room"] == "team", answer)

    # Who is new in a room reads it from the store first; what comes then is sent to them.
    for person in (b, c):
        person.until("created", lambda frame: frame.get("event") == "created")

    sent = send(a, "team", "hi")
    check("the message is stored", sent["type"] == "sent", sent)
    expect_delivery(a, b, "team", sent, "hi", "local")
    expect_delivery(a, c, "team", sent, "hi", "relay")
    expect_log(a.server, "Local delivery succeeded", ("recipient", b.user))
    expect_log(a.server, "Forwarding message via gRPC", ("recipient", c.user), ("target", c.server))
    expect_log(c.server, "Received gRPC relay request", ("sender", a.user))
    expect_log(c.server, "WebSocket relay succeeded", ("recipient", c.user))

    back = send(c, "team", "hello")
    expect_delivery(c, a, "team", back, "hello", "relay")
    expect_delivery(c, b, "team", back, "hello", "relay")
    for server in ADMIN:
        expect_no_waste(server)

    compose("kill", a.server)
    missed = send(c, "team", "still there?")
    check("a message is stored while a server is dead", missed["type"] == "sent", missed)
    a = expect_return(a, c.server, ["still there?"])

    compose("start", b.server)
    wait_ready(b.server)
    compose("stop", c.server)
    check("a server that stops says so", c.until("closing", lambda frame: frame["type"] == "closing"))
    a = expect_return(a, b.server, [])
    send(a, "team", "all moved")
    expect_return(c, b.server, ["all moved"])


try:
    play()
except (OSError, RuntimeError, KeyError, subprocess.CalledProcessError) as error:
    check("the scenario goes to its end", False, repr(error))
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
