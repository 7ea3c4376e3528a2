// The client's waits, with a clock that is turned by hand and a socket that says what the test says. All that a real
// server can show is in minichat.test.mjs.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, describe, mock, test } from "node:test";

import { Minichat } from "./minichat.js";

/** A socket whose other end is the test. */
class Socket {
  static all = [];
  readyState = 0;
  bufferedAmount = 0;
  sent = [];

  constructor(url) {
    this.url = url;
    Socket.all.push(this);
  }

  static get last() {
    return Socket.all.at(-1);
  }

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.readyState = 3;
  }

  /** The server greets, and lists these rooms. */
  async welcome(rooms = []) {
    this.readyState = 1;
    this.onopen();
    this.says({ type: "welcome", user: "alice", session: "1", server: "local1", ping_interval_ms: 25_000 });
    this.answers("rooms", { type: "rooms", rooms, more: false });
    await settled();
  }

  says(frame) {
    this.onmessage({ data: JSON.stringify(frame) });
  }

  /** Answers the last frame of this type. */
  answers(type, frame) {
    this.says({ cid: this.asked(type).at(-1).cid, ...frame });
  }

  ends(code, reason = "") {
    this.readyState = 3;
    this.onclose({ code, reason });
  }

  asked(type) {
    return this.sent.filter((frame) => frame.type === type);
  }
}

/** Lets all promises that can settle do so: immediates are real here. */
async function settled() {
  for (let turns = 0; turns < 5; turns += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** Lets time pass in small steps; a single large one is a machine that slept. */
async function pass(ms, step = 100) {
  for (let passed = 0; passed < ms; passed += step) {
    mock.timers.tick(Math.min(step, ms - passed));
    await settled();
  }
}

const TEAM = { room: "team", open: false, head: 0, since: 1, delivered: 0, read: 0, count: 2 };
const entry = (seq, from = "bob") => ({ type: "message", room: "team", id: `${seq}`, seq, from, at: seq, body: seq });

const WAY = { origin: "local2", path: "relay", ms: 3 };

let chat;
async function start(options) {
  chat = new Minichat({ url: "http://chat.example/ws", user: "alice", WebSocket: Socket, ...options });
  chat.connect();
  await settled();
  return chat;
}
const waiting = () => chat.state.retryAt - Date.now();

beforeEach(() => {
  Socket.all = [];
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_700_000_000_000 });
  mock.method(Math, "random", () => 1);
});
afterEach(async () => {
  await chat.close();
  mock.timers.reset();
  mock.restoreAll();
});

describe("coming back", () => {
  test("the limit of the wait doubles from 500 ms to 30 s, and falls back once a connection has held", async () => {
    await start();
    for (const limit of [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]) {
      Socket.last.ends(1006);
      assert.equal(waiting(), limit);
      await pass(limit, limit);
      assert.equal(chat.state.phase, "connecting");
    }
    await Socket.last.welcome();
    await pass(9_900);
    Socket.last.ends(1006);
    assert.equal(waiting(), 30_000, "it did not hold for long");
    await pass(30_000, 30_000);
    await Socket.last.welcome();
    await pass(10_000);
    Socket.last.ends(1006);
    assert.equal(waiting(), 500);
  });

  test("the wait is any time up to the limit", async () => {
    await start();
    Math.random.mock.mockImplementation(() => 0.25);
    Socket.last.ends(1006);
    assert.equal(waiting(), 125);
  });

  for (const [code, rule] of Object.entries({
    1000: "later",
    1001: "at once",
    1002: "no",
    1003: "no",
    1006: "later",
    1007: "no",
    1009: "no",
    1011: "later",
    4003: "no",
    4007: "at once",
    4008: "at once",
    4009: "no",
    4010: "no",
    4013: "later",
    4999: "later",
  })) {
    test(`after ${code}: ${rule}`, async () => {
      await start();
      await Socket.last.welcome();
      Socket.last.ends(Number(code), "why");
      const { phase, reason, final } = chat.state;
      assert.equal(reason, "why");
      assert.deepEqual([phase, final], rule === "no" ? ["closed", true] : ["offline", undefined]);
      if (rule !== "no") assert.equal(waiting(), rule === "at once" ? 0 : 500);
      await pass(60_000, 1_000);
      assert.equal(Socket.all.length > 1, rule !== "no");
    });
  }

  test("the server's reconnect_after_ms is obeyed, also when the app comes to the foreground", async () => {
    await start();
    await Socket.last.welcome();
    Socket.last.says({ type: "closing", reason: "going away", reconnect_after_ms: 1_200 });
    Socket.last.ends(1001);
    assert.deepEqual([waiting(), chat.state.reason], [1_200, "going away"]);
    chat.check();
    await pass(1_100);
    assert.equal(Socket.all.length, 1);
    await pass(100);
    assert.equal(Socket.all.length, 2);
    await Socket.last.welcome();
    Socket.last.says({ type: "closing", reason: "try later", reconnect_after_ms: 3_000 });
    Socket.last.ends(4013);
    assert.equal(waiting(), 3_000 + 1_000);
  });

  test("a server that welcomes and goes away at once is not hammered", async () => {
    await start();
    for (const wait of [0, 1_000, 2_000, 4_000]) {
      await Socket.last.welcome();
      Socket.last.ends(1001);
      assert.equal(waiting(), wait);
      await pass(wait + 1, wait + 1);
    }
  });

  test("the app in the foreground does not wait", async () => {
    await start();
    for (let tries = 0; tries < 6; tries += 1) {
      Socket.last.ends(1006);
      await pass(waiting(), 30_000);
    }
    Socket.last.ends(1006);
    chat.check();
    await pass(1);
    assert.equal(chat.state.phase, "connecting");
  });

  test("several URLs are used in turn", async () => {
    await start({ url: ["ws://one/ws", "ws://two/ws"] });
    for (let tries = 0; tries < 3; tries += 1) {
      Socket.last.ends(1006);
      await pass(waiting(), 30_000);
    }
    const names = Socket.all.map(({ url }) => url);
    assert.deepEqual(
      names,
      ["one", "two", "one", "two"].map((name) => `ws://${name}/ws?user=alice`),
    );
  });

  test("a token function that fails is asked again with backoff; one that gives none ends it", async () => {
    const answers = [new Error("no network"), new Error("no network"), null];
    const token = mock.fn(() => {
      const answer = answers.shift();
      if (answer) throw answer;
      return answer;
    });
    await start({ token });
    assert.deepEqual([chat.state.reason, waiting()], ["no token or URL: no network", 500]);
    await pass(500);
    assert.equal(waiting(), 1_000);
    await pass(1_000);
    assert.deepEqual([chat.state.phase, chat.state.final, token.mock.callCount()], ["closed", true, 3]);
    assert.equal(Socket.all.length, 0);
  });

  test("what a browser tells of the network and the tab is followed, and no more after the end", async () => {
    const [target, page] = [new EventTarget(), Object.assign(new EventTarget(), { visibilityState: "visible" })];
    globalThis.addEventListener = target.addEventListener.bind(target);
    globalThis.removeEventListener = target.removeEventListener.bind(target);
    globalThis.document = page;
    try {
      await start();
      await Socket.last.welcome();
      const pings = () => Socket.last.asked("ping").length;
      target.dispatchEvent(new Event("online"));
      target.dispatchEvent(new Event("pageshow"));
      page.dispatchEvent(new Event("visibilitychange"));
      assert.equal(pings(), 3);
      page.visibilityState = "hidden";
      page.dispatchEvent(new Event("visibilitychange"));
      assert.equal(pings(), 3);
      page.visibilityState = "visible";
      await pass(10_000);
      assert.equal(chat.state.phase, "offline", "no pong came");
      await chat.close();
      target.dispatchEvent(new Event("online"));
      await pass(60_000, 1_000);
      assert.equal(Socket.all.length, 1);
    } finally {
      for (const name of ["addEventListener", "removeEventListener", "document"]) delete globalThis[name];
    }
  });
});

describe("whether the server is there", () => {
  test("it is asked after a silence of 20 s, and given up 10 s later", async () => {
    await start();
    await Socket.last.welcome();
    await pass(19_900);
    assert.equal(Socket.last.asked("ping").length, 0);
    await pass(100);
    assert.equal(Socket.last.asked("ping").length, 1);
    await pass(9_900);
    assert.equal(chat.state.phase, "online");
    await pass(100);
    assert.deepEqual([chat.state.phase, chat.state.reason], ["offline", "the server does not answer"]);
    assert.equal(Socket.last.readyState, 3);
  });

  test("any frame is a sign of life", async () => {
    await start();
    await Socket.last.welcome();
    for (let times = 0; times < 10; times += 1) {
      await pass(15_000, 1_000);
      Socket.last.says({ type: "something new" });
    }
    assert.equal(Socket.last.asked("ping").length, 0);
    await pass(20_000);
    Socket.last.says({ type: "pong" });
    await pass(15_000);
    assert.equal(chat.state.phase, "online");
  });

  test("a machine that slept asks once more before it gives up", async () => {
    await start();
    await Socket.last.welcome();
    await pass(20_000);
    await pass(3_600_000, 3_600_000);
    assert.equal(chat.state.phase, "online");
    assert.equal(Socket.last.asked("ping").length, 2);
    Socket.last.says({ type: "pong" });
    await pass(15_000);
    assert.equal(chat.state.phase, "online");
  });

  test("a socket that opens and says nothing is given up", async () => {
    await start();
    Socket.last.readyState = 1;
    Socket.last.onopen();
    await pass(10_000);
    assert.equal(chat.state.phase, "offline");
  });

  test("what a socket still says after it was given up is not heard", async () => {
    await start();
    const [old, heard] = [Socket.last, []];
    await old.welcome([TEAM]);
    chat.on("message", (message) => heard.push(message));
    await pass(30_000);
    old.says(entry(1));
    old.ends(4009);
    assert.deepEqual([heard, chat.state.phase], [[], "offline"]);
  });
});

describe("what is sent", () => {
  const sends = () => Socket.last.asked("send").map(({ body }) => body);
  const sent = (seq) => Socket.last.answers("send", { type: "sent", room: "team", id: `${seq}`, seq, at: 1 });
  const refuse = (code, retry_after_ms) =>
    Socket.last.answers("send", { type: "error", code, message: "no", retry_after_ms });

  test("a refused message waits as long as it should, and the next ones wait behind it", async () => {
    await start();
    await Socket.last.welcome([TEAM]);
    const room = chat.rooms.get("team");
    const [one, two] = [room.send("one"), room.send("two")];
    assert.deepEqual(sends(), ["one"]);
    refuse("busy", 500);
    room.send("three");
    await pass(400);
    assert.deepEqual(sends(), ["one"]);
    await pass(100);
    refuse("unavailable", 1_000);
    await pass(1_900);
    assert.deepEqual(sends(), ["one", "one"], "a second refusal may wait longer");
    await pass(100);
    sent(1);
    refuse("not_found");
    assert.deepEqual([one.state, two.state, two.error.code], ["sent", "failed", "not_found"]);
    assert.deepEqual(sends(), ["one", "one", "one", "two", "three"]);
    const cids = Socket.last.asked("send").map(({ cid }) => cid);
    assert.equal(new Set(cids.slice(0, 3)).size, 1);
  });

  test("a message without an answer is repeated with the same cid", async () => {
    await start();
    await Socket.last.welcome([TEAM]);
    const message = chat.rooms.get("team").send("one");
    for (let times = 0; times < 3; times += 1) {
      await pass(5_000);
      Socket.last.says({ type: "pong" });
    }
    assert.deepEqual(
      Socket.last.asked("send").map(({ cid }) => cid),
      [message.cid, message.cid],
    );
  });

  test("after a reconnect, what was not answered goes first, in order", async () => {
    await start({ inFlight: 10 });
    await Socket.last.welcome([TEAM]);
    const room = chat.rooms.get("team");
    for (const body of [1, 2, 3]) room.send(body);
    Socket.last.ends(1001);
    room.send(4);
    await pass(1);
    await Socket.last.welcome([TEAM]);
    assert.deepEqual(sends(), [1, 2, 3, 4]);
  });

  test("typing is said at most every 3 s", async () => {
    await start();
    await Socket.last.welcome([TEAM]);
    const room = chat.rooms.get("team");
    for (let keys = 0; keys < 60; keys += 1) {
      room.sendTyping();
      await pass(100);
    }
    assert.equal(Socket.last.asked("typing").length, 2);
  });

  test("a hundred messages in a second are acknowledged together", async () => {
    await start();
    await Socket.last.welcome([TEAM]);
    for (let seq = 1; seq <= 100; seq += 1) {
      Socket.last.says(entry(seq));
      await pass(10, 10);
    }
    await pass(1_100);
    const acks = Socket.last.asked("ack").map(({ seq }) => seq);
    assert.ok(acks.length <= 3, `${acks}`);
    assert.equal(acks.at(-1), 100);
  });

  test("what is read without a connection is said on the next", async () => {
    await start();
    await Socket.last.welcome([TEAM]);
    for (const seq of [1, 2]) Socket.last.says(entry(seq));
    Socket.last.ends(1001);
    const room = chat.rooms.get("team");
    assert.equal(room.unread, 2);
    room.markRead();
    assert.equal(room.unread, 0);
    await pass(1);
    await Socket.last.welcome([{ ...TEAM, head: 2, delivered: 2 }]);
    assert.deepEqual(Socket.last.sent[0].cursors, { team: 2 });
    await pass(1_100);
    assert.deepEqual(
      Socket.last.asked("read").map(({ seq }) => seq),
      [2],
    );
  });

  test("what was read is said again after a reconnect, only where it was lost", async () => {
    await start();
    const rooms = ["one", "two", "three"].map((room) => ({ ...TEAM, room, head: 2 }));
    await Socket.last.welcome(rooms);
    for (const { room } of rooms.slice(0, 2)) chat.rooms.get(room).markRead(2);
    await pass(100);
    assert.equal(Socket.last.asked("read").length, 2);
    Socket.last.ends(1006);
    await pass(waiting());
    await Socket.last.welcome([rooms[0], { ...rooms[1], read: 2 }, rooms[2]]);
    await pass(5_000);
    assert.deepEqual(
      Socket.last.asked("read").map(({ room, seq }) => [room, seq]),
      [["one", 2]],
    );
  });

  test("a request is repeated where that may help, and ends with the connection or in time", async () => {
    await start();
    await Socket.last.welcome();
    const create = (id) =>
      chat.create({ id }).then(
        ({ id }) => id,
        ({ code }) => code,
      );
    const [one, two] = [create("one"), create("two")];
    Socket.last.answers("create", { type: "error", code: "unavailable", message: "", retry_after_ms: 1_000 });
    await pass(3_000);
    assert.deepEqual(
      Socket.last.asked("create").map(({ room }) => room),
      ["one", "two", "two"],
    );
    Socket.last.answers("create", { ...TEAM, type: "room", room: "two" });
    assert.equal(await two, "two");
    await pass(13_000);
    assert.equal(await one, "timeout");
    const three = create("three");
    Socket.last.ends(1006);
    assert.equal(await three, "offline");
    assert.equal(await create("four"), "offline");
  });

  test("nothing is left to happen after the end", async () => {
    await start();
    await Socket.last.welcome([TEAM]);
    const room = chat.rooms.get("team");
    room.send(1);
    Socket.last.says(entry(1));
    Socket.last.says({ type: "typing", room: "team", user: "bob" });
    room.history().catch(() => {});
    room.markRead();
    chat.watch(["bob"]);
    await chat.close();
    const [states, before] = [[], Socket.last.sent.length];
    chat.on("state", (state) => states.push(state));
    room.send(2);
    room.markRead();
    await pass(3_600_000, 60_000);
    assert.deepEqual([states, Socket.last.sent.length, Socket.all.length, room.typing], [[], before, 1, []]);
  });
});

describe("receipts and presence", () => {
  const receipt = (user, position) => Socket.last.says({ type: "receipt", room: "team", user, ...position });
  const presence = (user, state) => Socket.last.says({ type: "presence", user, ...state });
  const asked = () => Socket.last.asked("presence").map(({ users }) => users);
  const online = () => Object.fromEntries([...chat.presence].map(([user, { online }]) => [user, online]));

  test("a state moves on when all others are there, and never back", async () => {
    await start();
    await Socket.last.welcome([{ ...TEAM, count: 3 }]);
    const room = chat.rooms.get("team");
    const message = room.send("hello");
    Socket.last.answers("send", { type: "sent", room: "team", id: "1", seq: 1, at: 1 });
    const states = () => [message.state, room.positions.get("bob")?.delivered];
    receipt("bob", { delivered: 1 });
    assert.deepEqual(states(), ["sent", 1]);
    receipt("carol", { read: 1 });
    assert.deepEqual(states(), ["delivered", 1]);
    receipt("bob", { delivered: 0, read: 0 });
    assert.deepEqual(states(), ["delivered", 1]);
    receipt("bob", { read: 1 });
    assert.equal(message.state, "read");
  });

  test("members bring their positions, where the server knows them", async () => {
    await start();
    await Socket.last.welcome([{ ...TEAM, head: 2 }]);
    const room = chat.rooms.get("team");
    const loading = room.history();
    Socket.last.answers("history", {
      type: "history",
      room: "team",
      messages: [entry(1, "alice"), entry(2, "alice")],
      more: false,
    });
    await settled();
    const receipts = [{ user: "bob", delivered: 2, read: 1 }];
    Socket.last.answers("members", { type: "members", room: "team", users: ["alice", "bob"], receipts, more: false });
    assert.deepEqual(
      (await loading).map(({ state }) => state),
      ["read", "delivered"],
    );
  });

  test("one's own receipt from another device moves what is unread", async () => {
    await start();
    await Socket.last.welcome([TEAM]);
    for (const seq of [1, 2, 3]) Socket.last.says(entry(seq));
    const room = chat.rooms.get("team");
    receipt("alice", { delivered: 3, read: 2 });
    assert.equal(room.unread, 1);
    receipt("alice", { read: 1 });
    assert.equal(room.unread, 1);
    await pass(2_000);
    assert.equal(Socket.last.asked("read").length, 0, "the server knows it");
  });

  test("presence is asked again after a reconnect, and unknown in between", async () => {
    await start();
    chat.watch(["bob"]);
    await Socket.last.welcome();
    Socket.last.says({ type: "presence", user: "bob", online: true, last_seen: 5 });
    assert.deepEqual(chat.presence.get("bob"), { user: "bob", online: true, lastSeen: 5 });
    Socket.last.ends(1001);
    assert.deepEqual(chat.presence.get("bob"), { user: "bob", online: null, lastSeen: 5 });
    await pass(1);
    await Socket.last.welcome();
    assert.deepEqual(asked(), [["bob"]]);
  });

  test("the server is told all who are watched, once for what one turn changes, and when nobody is left", async () => {
    await start();
    await Socket.last.welcome();
    chat.watch(["bob"]);
    chat.watch(["carol", "dave"]);
    await settled();
    chat.unwatch(["bob"]);
    chat.watch(["erin"]);
    await settled();
    chat.unwatch(["carol", "dave", "erin"]);
    await settled();
    assert.deepEqual(asked(), [["bob", "carol", "dave"], ["carol", "dave", "erin"], []]);
  });

  test("the 200 who were named last are watched, and of others nothing is told", async () => {
    await start();
    await Socket.last.welcome();
    const crowd = Array.from({ length: 199 }, (_, at) => `user ${at}`);
    chat.watch(["bob", "carol", ...crowd.slice(1)]);
    await settled();
    presence("bob", { online: true });
    presence("carol", { online: true });
    chat.watch(["carol", crowd[0]]);
    await settled();
    assert.deepEqual(new Set(asked()[1]), new Set([...crowd, "carol"]));
    assert.deepEqual(online(), { carol: true });
    presence("bob", { online: true });
    assert.deepEqual(online(), { carol: true });
  });

  test("presence that cannot be told is unknown, and is asked for again when there is a room more", async () => {
    await start();
    chat.watch(["bob"]);
    await Socket.last.welcome();
    presence("bob", {});
    assert.deepEqual(online(), { bob: null });
    for (const room of ["one", "two"]) {
      chat.join(room);
      Socket.last.answers("join", { ...TEAM, type: "room", room });
    }
    await pass(1_000);
    assert.deepEqual(asked(), [["bob"], ["bob"]]);
    presence("bob", { online: true });
    chat.join("three");
    Socket.last.answers("join", { ...TEAM, type: "room", room: "three" });
    await pass(1_000);
    assert.equal(asked().length, 2, "it is known");
  });

  test("presence is asked for again when someone unknown comes into a room", async () => {
    await start();
    chat.watch(["bob"]);
    await Socket.last.welcome([TEAM]);
    const joined = (seq, user) =>
      Socket.last.says({
        type: "message",
        room: "team",
        id: `${seq}`,
        seq,
        from: user,
        event: "joined",
        users: [user],
      });
    joined(1, "carol");
    await pass(1_000);
    assert.equal(asked().length, 1);
    joined(2, "bob");
    await pass(1_000);
    assert.equal(asked().length, 2);
  });

  test("a question for presence that is refused for now is asked again, as it is by then", async () => {
    await start();
    chat.watch(["bob"]);
    await Socket.last.welcome();
    Socket.last.answers("presence", { type: "error", code: "unavailable", message: "", retry_after_ms: 1_000 });
    chat.watch(["carol"]);
    await pass(3_000);
    assert.deepEqual(asked(), [["bob"], ["bob", "carol"]]);
    Socket.last.answers("presence", { type: "error", code: "unavailable", message: "", retry_after_ms: 1_000 });
    await pass(900);
    assert.equal(asked().length, 2);
    await pass(100);
    assert.deepEqual(asked()[2], ["bob", "carol"]);
  });

  test("what comes for a room before it is known is not lost: messages, receipts, traces", async () => {
    await start();
    await Socket.last.welcome();
    Socket.last.says(entry(1));
    Socket.last.says({ type: "trace", room: "team", seq: 1, ...WAY });
    receipt("bob", { delivered: 1, read: 1 });
    assert.equal(chat.rooms.size, 0);
    Socket.last.answers("rooms", { type: "rooms", rooms: [{ ...TEAM, head: 1 }], more: false });
    await settled();
    const room = chat.rooms.get("team");
    assert.deepEqual([room.messages[0].trace, room.positions.get("bob")], [WAY, { delivered: 1, read: 1 }]);
  });

  test("an older page is asked for again where what it belongs before was trimmed meanwhile", async () => {
    await start({ keep: 3 });
    await Socket.last.welcome([{ ...TEAM, head: 7, delivered: 7 }]);
    const says = (seqs) => seqs.forEach((seq) => Socket.last.says(entry(seq)));
    const answers = (seqs) => Socket.last.answers("history", { messages: seqs.map((seq) => entry(seq)), more: true });
    says([8, 9, 10]);
    chat.rooms.get("team").history(3);
    await settled();
    says([11, 12, 13]);
    answers([5, 6, 7]);
    await settled();
    assert.deepEqual(
      Socket.last.asked("history").map(({ before }) => before),
      [8, 11],
    );
    answers([8, 9, 10]);
    await settled();
    assert.deepEqual(
      chat.rooms.get("team").messages.map(({ seq }) => seq),
      [8, 9, 10, 11, 12, 13],
    );
  });

  test("a trace waits for its message while a gap is filled, and no longer than the connection", async () => {
    await start();
    const traces = [];
    chat.on("message", ({ seq, trace }) => traces.push([seq, trace]));
    await Socket.last.welcome([{ ...TEAM, head: 1 }]);
    const trace = (seq) => Socket.last.says({ type: "trace", room: "team", seq, ...WAY });
    for (const seq of [1, 3]) Socket.last.says(entry(seq));
    for (const seq of [1, 3, 4]) trace(seq);
    assert.deepEqual(chat.rooms.get("team").messages[0].trace, WAY);
    Socket.last.answers("history", { type: "history", room: "team", messages: [entry(2), entry(3)], more: false });
    await settled();
    Socket.last.ends(1001);
    await pass(1);
    await Socket.last.welcome([{ ...TEAM, head: 3 }]);
    Socket.last.says(entry(4));
    assert.deepEqual(traces, [
      [1, undefined],
      [2, undefined],
      [3, WAY],
      [4, undefined],
    ]);
  });

  test("a server that knows neither is no trouble", async () => {
    const errors = [];
    await start();
    chat.on("error", (error) => errors.push(error));
    chat.watch(["bob"]);
    await Socket.last.welcome([TEAM]);
    Socket.last.answers("presence", { type: "error", code: "unknown_type", message: "" });
    const muting = chat.rooms.get("team").mute();
    Socket.last.answers("settings", { type: "error", code: "unknown_type", message: "" });
    await assert.rejects(muting, { code: "unknown_type" });
    assert.deepEqual(errors, []);
  });
});

test("the types name what there is", async () => {
  const types = readFileSync(new URL("minichat.d.ts", import.meta.url), "utf8");
  const named = (block) => {
    const [, body] = new RegExp(`(?:class|interface) ${block} {\\n([^]*?)\\n}`).exec(types);
    return [...body.matchAll(/^  (?:readonly )?(\w+)[?:(<]/gm)].map(([, name]) => name).sort();
  };
  const has = (object) => {
    const names = [...Object.keys(object), ...Object.getOwnPropertyNames(Object.getPrototypeOf(object))];
    return names.filter((name) => !name.startsWith("_")).sort();
  };
  await start();
  await Socket.last.welcome([TEAM]);
  assert.deepEqual(has(chat), named("Minichat"));
  assert.deepEqual([...has(chat.rooms.get("team"))], named("Room").concat("constructor").sort());
});
