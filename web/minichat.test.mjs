// The client against real servers: whatever happens to them, its user sees every message once and in order.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";

import { memoryStorage, webStorage } from "./minichat.js";
import { jwt, numbers, Person } from "./testing/people.mjs";
import { Proxy } from "./testing/proxy.mjs";
import { Cluster, Server } from "./testing/servers.mjs";
import { eventually, pause } from "./testing/wait.mjs";

if (!globalThis.WebSocket) {
  // Node 20 has one behind a flag.
  const again = ["--experimental-websocket", ...process.execArgv, ...process.argv.slice(1)];
  process.exit(spawnSync(process.execPath, again, { stdio: "inherit" }).status ?? 1);
}

const SECRET = "a secret of at least thirty-two bytes";

const ends = [];
/** Ends this when all tests are over, whichever way. */
function ending(thing, end) {
  ends.unshift(() => end(thing));
  return thing;
}
after(async () => {
  for (const end of ends) await end();
});

const startServer = async (flags) => ending(await Server.start(flags), (server) => server.kill());
const startProxy = async (server) => ending(await Proxy.to(server.port), (proxy) => proxy.end());
const person = (options) => ending(new Person(options), ({ chat }) => chat.close());
/** Its send was answered. The others may have acknowledged or read it since. */
const isStored = (message) => ["sent", "delivered", "read"].includes(message?.state);
const connected = async (options) => {
  const one = person(options);
  await one.chat.connect();
  return one;
};

describe("one server", async () => {
  const server = await startServer();
  let made = 0;
  const fresh = (word) => `${word}-${(made += 1)}`;
  const arrive = (user, options) => connected({ url: server.url, user, ...options });

  test("a direct chat is made by its first message, and is one object from the start", async () => {
    const [alice, bob] = [await arrive(fresh("alice")), await arrive(fresh("bob"))];
    const room = alice.chat.direct(bob.chat.user);
    assert.equal(room.id, null);
    const message = room.send({ text: "hello" });
    assert.deepEqual([message.state, room.messages], ["pending", [message]]);
    await eventually("the message to be stored", () => isStored(message));
    await eventually("its turn in the stream", () => alice.seen.includes(message));
    assert.equal(alice.chat.direct(bob.chat.user), room);
    assert.equal(alice.room(room.id), room);
    await bob.untilSeen(room.id, 1);
    assert.equal(bob.chat.direct(alice.chat.user), bob.room(room.id));
    bob.assertOnceInOrder();
  });

  test("a room that one is added to comes with its name, its members and what is unread", async () => {
    const [alice, bob] = [await arrive(fresh("alice")), await arrive(fresh("bob"))];
    const room = await alice.chat.create({ name: "The team" });
    room.send("before");
    await eventually("before", () => isStored(room.last));
    await room.add([bob.chat.user]);
    room.send("after");
    const there = await bob.untilRoom(room.id);
    await bob.untilSeen(room.id, 1);
    assert.deepEqual([there.name, there.count, there.unread, bob.bodies(room.id)], ["The team", 2, 1, ["after"]]);
    assert.deepEqual(await there.loadMembers(), [alice.chat.user, bob.chat.user].sort());
    await room.remove([bob.chat.user]);
    await eventually("the room to be gone", () => !bob.room(room.id));
    await eventually("one member less", () => room.count === 1);
  });

  test("history is paged backwards, merged without duplicates, and bounded", async () => {
    const [alice, storage] = [await arrive(fresh("alice")), memoryStorage()];
    const room = await alice.chat.create();
    numbers(120).forEach((number) => room.send(number));
    await alice.untilSeen(room.id, 120);
    await alice.chat.close();
    const again = await arrive(alice.chat.user, { storage, keep: 30 });
    const there = again.room(room.id);
    const [one, other] = await Promise.all([there.history(50), there.history(50)]);
    assert.equal(one, other, "what is asked for twice is loaded once");
    const last = there.send(121);
    await eventually("the last one", () => again.seen.includes(last));
    while (!there.complete) await there.history(50);
    const shown = () => there.messages.filter((message) => !message.event).map((message) => message.body);
    assert.deepEqual(shown(), numbers(121));
    there.trim();
    assert.deepEqual(shown(), numbers(30, 92));
    again.assertOnceInOrder();
  });

  test("a body that is too large fails at once, and leaves the others alone", async () => {
    const alice = await arrive(fresh("alice"));
    const room = await alice.chat.create();
    const [large, small] = [room.send("é".repeat(9_000)), room.send("small")];
    assert.deepEqual([large.state, large.error.code], ["failed", "too_large"]);
    await eventually("the small one", () => isStored(small));
    assert.equal(room.messages.at(-1), large);
    assert.ok(room.discard(large));
    assert.equal(room.messages.at(-1), small);
  });

  test("what the server refuses is failed, and can be tried again", async () => {
    const [alice, bob] = [await arrive(fresh("alice")), await arrive(fresh("bob"))];
    const room = await alice.chat.create({ open: true });
    const there = await bob.chat.join(room.id);
    await there.leave();
    await eventually("the end of it", () => !bob.chat.rooms.has(room.id)); // what waits then is given up
    const message = there.send("am I in?");
    await eventually("the refusal", () => message.state === "failed");
    assert.equal(message.error.code, "not_found");
    await bob.chat.join(room.id);
    assert.ok(there.retry(message));
    await eventually("the message to be stored", () => isStored(message));
    await alice.untilSeen(room.id, 1);
  });

  test("messages of one person keep their order, however fast they are written", async () => {
    const [alice, bob] = [await arrive(fresh("alice")), await arrive(fresh("bob"))];
    const room = alice.chat.direct(bob.chat.user);
    numbers(100).forEach((number) => room.send(number));
    await eventually("all to be stored", () => room.messages.length === 101 && isStored(room.last));
    await bob.untilSeen(room.id, 100);
    assert.deepEqual(bob.bodies(room.id), numbers(100));
    assert.deepEqual(alice.bodies(room.id), numbers(100));
    bob.assertOnceInOrder();
  });

  test("typing is shown for a while, and ends with the message", async () => {
    const [alice, bob] = [await arrive(fresh("alice")), await arrive(fresh("bob"), { typingFor: 400 })];
    const room = await alice.chat.create({ members: [bob.chat.user] });
    const there = await bob.untilRoom(room.id);
    room.sendTyping();
    await eventually("typing", () => there.typing.includes(alice.chat.user));
    await eventually("its end", () => there.typing.length === 0);
    room.send("done");
    await bob.untilSeen(room.id, 1); // or the message could end what came before it
    room.sendTyping();
    await eventually("typing again, after a message", () => there.typing.length === 1);
    room.send("again");
    await bob.untilSeen(room.id, 2);
    assert.deepEqual(there.typing, []);
  });

  test("a signal reaches who is there", async () => {
    const [alice, bob] = [await arrive(fresh("alice")), await arrive(fresh("bob"))];
    const signals = [];
    bob.chat.on("signal", (signal) => signals.push(signal));
    assert.ok(alice.chat.signal(bob.chat.user, { x: 1 }));
    await eventually("the signal", () => signals.length);
    assert.deepEqual(signals, [{ room: undefined, from: alice.chat.user, body: { x: 1 } }]);
  });

  test("a session that was replaced does not come back by itself", async () => {
    const alice = await arrive(fresh("alice"), { device: "phone" });
    const other = await arrive(alice.chat.user, { device: "phone" });
    await alice.until("closed");
    const { reason, code, final } = alice.chat.state;
    assert.deepEqual({ reason, code, final }, { reason: "replaced", code: 4009, final: true });
    await pause(500); // longer than any backoff here
    assert.equal(alice.chat.state.phase, "closed");
    assert.equal(other.chat.state.phase, "online");
    await alice.chat.connect(); // the person wants it back
    await other.until("closed");
  });

  test("what is read on one device is read on the other", async () => {
    const [alice, bob] = [await arrive(fresh("alice")), await arrive(fresh("bob"), { device: "phone" })];
    const desk = await arrive(bob.chat.user, { device: "desk" });
    const room = alice.chat.direct(bob.chat.user);
    numbers(3).forEach((number) => room.send(number));
    for (const device of [bob, desk]) {
      await eventually("all three", () => device.seen.some(({ body }) => body === 3));
      assert.equal(device.chat.direct(alice.chat.user).unread, 3);
    }
    await eventually("the room", () => room.id);
    bob.room(room.id).markRead();
    assert.equal(bob.room(room.id).unread, 0);
    const laptop = await arrive(bob.chat.user, { device: "laptop" }); // the server may not have written it yet
    const devices = [bob, desk, laptop];
    for (const device of devices) await eventually("nothing unread", () => device.room(room.id).unread === 0);
    room.send(4);
    for (const device of devices) await eventually("one unread", () => device.room(room.id).unread === 1);
  });

  test("a message goes from pending to read", async () => {
    const [alice, bob] = [await arrive(fresh("alice")), await arrive(fresh("bob"), { autoAck: false })];
    const states = [];
    alice.chat.on("update", (message) => states.push(message.state));
    const room = alice.chat.direct(bob.chat.user);
    const message = room.send("hello");
    await eventually("the message to be stored", () => room.id && message.state === "sent");
    await bob.untilSeen(room.id, 1);
    bob.room(room.id).ack();
    await eventually("delivered", () => message.state === "delivered");
    bob.room(room.id).markRead();
    await eventually("read", () => message.state === "read");
    assert.deepEqual(states, ["sent", "delivered", "read"]);
    const later = await arrive(alice.chat.user);
    const there = later.room(room.id);
    await there.history();
    assert.equal(there.last.state, "read", "also after a reload");
  });

  test("what others read while one was away is known after it", async () => {
    const [alice, bob] = [await arrive(fresh("alice")), await arrive(fresh("bob"))];
    const room = alice.chat.direct(bob.chat.user);
    const message = room.send("hello");
    await eventually("the message to be stored", () => room.id && isStored(message));
    await bob.untilRoom(room.id);
    await bob.untilSeen(room.id, 1);
    await alice.chat.close();
    bob.room(room.id).markRead();
    const other = await arrive(alice.chat.user);
    await eventually("the position to be written", async () => {
      await other.room(room.id).loadMembers();
      return other.room(room.id).positions.get(bob.chat.user).read === message.seq;
    });
    await alice.chat.connect();
    await eventually("read", () => message.state === "read");
  });

  test("a muted room says so, after a reload, too", async () => {
    const alice = await arrive(fresh("alice"));
    const room = await alice.chat.create();
    await room.mute();
    assert.ok(room.muted);
    assert.ok((await arrive(alice.chat.user)).room(room.id).muted);
    await room.mute(false);
    assert.ok(!(await arrive(alice.chat.user)).room(room.id).muted);
  });

  test("presence is told once there is a room with someone, however it comes about", async () => {
    const [alice, bob, carol] = [
      await arrive(fresh("alice")),
      await arrive(fresh("bob")),
      await arrive(fresh("carol")),
    ];
    const [one, other] = [bob.chat.user, carol.chat.user];
    const online = (user) => alice.chat.presence.get(user)?.online;
    const room = await alice.chat.create({ open: true });
    alice.chat.watch([one, other]);
    await eventually("the answers", () => online(one) === null && online(other) === null);
    alice.chat.direct(one).send("hello");
    await eventually("Bob to be online", () => online(one));
    await carol.chat.join(room.id);
    await eventually("Carol to be online", () => online(other));
    alice.chat.unwatch([one]);
    await bob.chat.close();
    await carol.chat.close();
    await eventually("Carol to be away", () => online(other) === false, 60_000);
    assert.equal(online(one), undefined);
    assert.ok(alice.chat.presence.get(other).lastSeen > 0);
  });

  test("each message that came has its trace, also the one that made its room", async () => {
    const [alice, bob] = [await arrive(fresh("alice")), await arrive(fresh("bob"), { trace: true })];
    const room = alice.chat.direct(bob.chat.user);
    room.send("hello");
    await eventually("the message", () => room.id && bob.room(room.id));
    room.send("again");
    await bob.untilSeen(room.id, 2);
    const messages = () => bob.room(room.id).messages.filter(({ body }) => body);
    await eventually("their traces", () => messages().every(({ trace }) => trace));
    assert.deepEqual(messages().length, 2);
  });

  test("10,000 missed messages come in order, and memory is bounded", async () => {
    const alice = await arrive(fresh("alice"), { inFlight: 500, outboxLimit: 10_001 });
    const bob = await arrive(fresh("bob"), { keep: 200 });
    const room = alice.chat.direct(bob.chat.user);
    room.send(0);
    await bob.untilSeen(room?.id ?? (await eventually("the room", () => room.id)), 1);
    await bob.chat.close();
    numbers(10_000).forEach((number) => room.send(number));
    await alice.untilSeen(room.id, 10_001);
    await bob.chat.connect();
    room.send("live");
    await bob.untilSeen(room.id, 10_002);
    assert.deepEqual(bob.bodies(room.id), [0, ...numbers(10_000), "live"]);
    assert.equal(bob.room(room.id).messages.length, 200);
    bob.assertOnceInOrder();
  });

  test("the cursors of many rooms go in several frames", async () => {
    const [alice, bob] = [await arrive(fresh("alice"), { answerTimeout: 120_000 }), await arrive(fresh("bob"))];
    const ids = numbers(600).map((number) => `${alice.chat.user}-${number}`);
    await Promise.all(ids.map((id) => alice.chat.create({ id, members: [bob.chat.user] })));
    await eventually("all rooms", () => bob.chat.rooms.size === 600, 90_000);
    await eventually("what made them", () => bob.seen.length === 600, 90_000);
    await bob.chat.close();
    for (const id of ids) alice.room(id).send("missed");
    await eventually("all to be stored", () => ids.every((id) => isStored(alice.room(id).last)), 90_000);
    await bob.chat.connect();
    await eventually("all that was missed", () => bob.seen.length === 1_200, 90_000);
    bob.assertOnceInOrder();
  });

  test("rooms of any id are found, and resumed", async () => {
    const [alice, bob] = [await arrive(fresh("alice")), await arrive(fresh("bob"))];
    const ids = ["a", "a-", "a-b", "a.", "A~", "~Z", "__proto__", "constructor", "z".repeat(64)];
    for (const id of ids) (await alice.chat.create({ id, members: [bob.chat.user] })).send("one");
    for (const id of ids) await bob.untilSeen(id, 1);
    await bob.chat.close();
    for (const id of ids) alice.room(id).send("two");
    await eventually("all to be stored", () => ids.every((id) => alice.room(id).last.state !== "pending"));
    await bob.chat.connect();
    for (const id of ids) await bob.untilSeen(id, 2);
    for (const id of ids) assert.deepEqual(bob.bodies(id), ["one", "two"]);
    bob.assertOnceInOrder();
  });

  test("frames that were lost on the way are read again", async () => {
    const [alice, bob] = [await arrive(fresh("alice")), await arrive(fresh("bob"), { WebSocket: losing(4, 5, 9) })];
    const room = await alice.chat.create({ members: [bob.chat.user] });
    numbers(20).forEach((number) => room.send(number));
    await bob.untilSeen(room.id, 20);
    assert.deepEqual(bob.bodies(room.id), numbers(20));
    bob.assertOnceInOrder();
    assert.deepEqual(bob.phases, ["connecting", "online"]);
  });

  test("without its own acknowledgement, what came comes again to the next instance", async () => {
    const [alice, storage] = [await arrive(fresh("alice")), memoryStorage()];
    const bob = await arrive(fresh("bob"), { storage, device: "bot", autoAck: false });
    const room = await alice.chat.create({ members: [bob.chat.user] });
    numbers(5).forEach((number) => room.send(number));
    await bob.untilSeen(room.id, 5);
    bob.room(room.id).ack(bob.seen.find((message) => message.body === 3).seq);
    await bob.chat.close();
    const next = await arrive(bob.chat.user, { storage, device: "bot", autoAck: false });
    await next.untilSeen(room.id, 2);
    assert.deepEqual(next.bodies(room.id), [4, 5]);
  });

  test("what one user left in a storage is not sent in the name of the next", async () => {
    const [alice, storage] = [await arrive(fresh("alice")), memoryStorage()];
    const bob = person({ url: "ws://127.0.0.1:1/ws", user: fresh("bob"), storage });
    bob.chat.connect();
    bob.chat.direct(alice.chat.user).send("from Bob");
    await bob.untilLost();
    await bob.chat.close();
    const carol = await arrive(fresh("carol"), { storage });
    const room = carol.chat.direct(alice.chat.user);
    assert.deepEqual(room.messages, []);
    room.send("from Carol");
    await eventually("a message", () => alice.seen.some((message) => message.body));
    assert.deepEqual(
      alice.seen.filter((message) => message.body).map(({ from, body }) => [from, body]),
      [[carol.chat.user, "from Carol"]],
    );
  });
});

describe("a network that breaks", async () => {
  const server = await startServer();
  const setUp = async (options) => {
    const [alice, proxy] = [await connected({ url: server.url, user: "alice" }), await startProxy(server)];
    const bob = await connected({ url: proxy.url, user: "bob", ...options });
    const room = await alice.chat.create({ members: ["bob"] });
    return { alice, bob, proxy, room, there: await bob.untilRoom(room.id) };
  };

  test("a socket that is half open is noticed and replaced", async () => {
    const { bob, proxy, room, there } = await setUp({ pingEvery: 200, pingTimeout: 300 });
    room.send(1);
    await bob.untilSeen(room.id, 1);
    proxy.swallow();
    room.send(2);
    there.send(3);
    await bob.untilLost();
    await bob.until("online");
    await bob.untilSeen(room.id, 3);
    await eventually("all to be stored", () => isStored(there.last));
    bob.assertOnceInOrder();
    assert.ok(bob.states.some((state) => state.reason === "the server does not answer"));
  });

  test("a send whose answer was lost is stored once", async () => {
    const { alice, bob, proxy, room, there } = await setUp();
    for (const number of numbers(5)) {
      proxy.swallowAnswers();
      const message = there.send(number);
      await alice.untilSeen(room.id, number);
      assert.equal(message.state, "pending");
      proxy.cut();
      await eventually("the answer", () => isStored(message));
    }
    await bob.untilSeen(room.id, 5);
    assert.deepEqual([alice.bodies(room.id), bob.bodies(room.id)], [numbers(5), numbers(5)]);
    alice.assertOnceInOrder();
    bob.assertOnceInOrder();
  });

  test("a first message to someone, whose answer was lost, makes one chat with one message", async () => {
    const [alice, proxy] = [await connected({ url: server.url, user: "amy" }), await startProxy(server)];
    const ben = await connected({ url: proxy.url, user: "ben" });
    proxy.swallowAnswers();
    const message = ben.chat.direct("amy").send("hello");
    await eventually("the message", () => alice.seen.some(({ body }) => body));
    proxy.cut();
    await eventually("its turn in the stream", () => ben.seen.includes(message));
    assert.ok(isStored(message));
    alice.chat.direct("ben").send("hello, too");
    await Promise.all([ben, alice].map((one) => one.untilSeen(message.room, 2)));
    assert.deepEqual(
      [ben.bodies(message.room), alice.bodies(message.room)],
      [
        ["hello", "hello, too"],
        ["hello", "hello, too"],
      ],
    );
    assert.equal(ben.chat.rooms.size, 1);
    ben.assertOnceInOrder();
  });

  test("connections that are cut again and again lose and double nothing", async () => {
    const { alice, bob, proxy, room, there } = await setUp();
    const cutting = (async () => {
      for (let cuts = 0; cuts < 15; cuts += 1) {
        await bob.until("online");
        await pause(20 + 10 * cuts);
        proxy.cut();
      }
    })();
    for (const number of numbers(150)) {
      room.send(`alice ${number}`);
      there.send(`bob ${number}`);
      await pause(10);
    }
    await cutting;
    await Promise.all([alice.untilSeen(room.id, 300), bob.untilSeen(room.id, 300)]);
    assert.deepEqual(alice.bodies(room.id), bob.bodies(room.id));
    for (const name of ["alice", "bob"]) {
      const theirs = alice.bodies(room.id).filter((body) => body.startsWith(name));
      assert.deepEqual(
        theirs,
        numbers(150).map((number) => `${name} ${number}`),
        "in the order of writing, once",
      );
    }
    alice.assertOnceInOrder();
    bob.assertOnceInOrder();
    await eventually("nothing pending", () => there.messages.every((message) => message.state !== "pending"));
  });
});

describe("a server that ends", () => {
  test("it is found again after a restart, and what was written meanwhile is sent in order", async () => {
    const server = await startServer();
    const [alice, bob] = [
      await connected({ url: server.url, user: "alice" }),
      await connected({ url: server.url, user: "bob" }),
    ];
    const room = await alice.chat.create({ members: ["bob"] });
    room.send(1);
    await bob.untilSeen(room.id, 1);
    await server.stop();
    await alice.untilLost();
    assert.ok(alice.states.some(({ code, reason }) => code === 1001 && reason === "going away"));
    numbers(5, 2).forEach((number) => room.send(number));
    assert.equal(room.last.state, "pending");
    await server.restart();
    await bob.untilSeen(room.id, 6);
    assert.deepEqual(bob.bodies(room.id), numbers(6));
    for (const one of [alice, bob]) one.assertOnceInOrder();
  });

  test("a server whose database began anew is not mistaken for the old one", async () => {
    const [old, young] = [await startServer(), await startServer()];
    const urls = { now: old.url };
    const [alice, bob] = ["alice", "bob"].map((user) => person({ url: () => urls.now, user }));
    await Promise.all([alice.chat.connect(), bob.chat.connect()]);
    const room = await alice.chat.join("lobby", { create: true });
    await bob.chat.join("lobby");
    numbers(10).forEach((number) => room.send(`old ${number}`));
    await bob.untilSeen("lobby", 10);
    await alice.untilSeen("lobby", 10); // or what is not answered would be sent again, to the young one
    urls.now = young.url;
    const carol = await connected({ url: young.url, user: "carol" });
    const anew = await carol.chat.create({ id: "lobby", members: ["alice", "bob"] });
    await old.kill();
    anew.send("young 1");
    await bob.untilSeen("lobby", 11);
    anew.send("young 2");
    await bob.untilSeen("lobby", 12);
    assert.deepEqual(bob.bodies("lobby").slice(10), ["young 1", "young 2"]);
    assert.deepEqual(
      bob
        .room("lobby")
        .messages.filter(({ event }) => !event)
        .map(({ body }) => body),
      ["young 1", "young 2"],
    );
  });
});

describe("tokens", async () => {
  const server = await startServer({ "jwt-secret": SECRET });
  const now = () => Math.floor(Date.now() / 1000);
  const good = (user, life) => jwt(SECRET, { sub: user, iat: now(), exp: now() + life });

  test("a token is renewed before it expires, without a break", async () => {
    let calls = 0;
    const alice = await connected({ url: server.url, token: async () => good("alice", (calls += 1) && 3) });
    assert.equal(alice.chat.user, "alice");
    await eventually("three tokens", () => calls >= 3);
    await pause(6_500); // the first two are over by now, with the 5 s for which the server takes them longer
    assert.deepEqual(alice.phases, ["connecting", "online"], JSON.stringify(alice.states));
  });

  test("an expired token is replaced by a fresh one", async () => {
    const tokens = [jwt(SECRET, { sub: "bob", exp: now() - 3_600 }), good("bob", 60)];
    const bob = await connected({ url: server.url, token: () => tokens.shift() });
    assert.equal(bob.chat.user, "bob");
    assert.ok(bob.states.some(({ phase, code }) => phase === "offline" && code === 4001));
  });

  test("a session whose token expires comes back with a fresh one", async () => {
    let life = 2;
    const carol = person({
      url: server.url,
      token: () => (life ? good("carol", life) : Promise.reject(new Error("no network"))),
    });
    await carol.chat.connect();
    life = 0; // the renewal fails
    await eventually("the end of the session", () => carol.states.some(({ code }) => code === 4001));
    assert.ok(carol.phases.every((phase) => phase !== "closed"));
    life = 60;
    await carol.until("online");
  });

  test("the same token again, or none, ends it, and the person is asked", async () => {
    const bad = jwt("another secret of more than thirty-two bytes", { sub: "dave", exp: now() + 60 });
    for (const token of [() => bad, () => null]) {
      const dave = person({ url: server.url, token });
      await assert.rejects(dave.chat.connect(), { code: "unauthenticated" });
      assert.deepEqual([dave.chat.state.phase, dave.chat.state.final], ["closed", true]);
    }
  });
});

describe("a reload", async () => {
  const server = await startServer();

  /** What a browser has, as far as it is used. */
  const area = () => {
    const values = new Map();
    return {
      get length() {
        return values.size;
      },
      key: (at) => [...values.keys()][at],
      getItem: (key) => values.get(key) ?? null,
      setItem: (key, value) => void values.set(key, value),
      removeItem: (key) => void values.delete(key),
    };
  };

  test("what was written without a connection is there after a reload, and is sent once, in order", async () => {
    const [local, alice] = [area(), await connected({ url: server.url, user: "alice" })];
    const options = { user: "bob", storage: webStorage("bob/", local) };
    const first = await connected({ url: server.url, ...options });
    const room = await alice.chat.create({ members: ["bob"] });
    room.send("one");
    await first.untilSeen(room.id, 1);
    await first.chat.close();

    room.send("two");
    const offline = person({ url: "ws://127.0.0.1:1/ws", ...options });
    offline.chat.connect();
    await offline.untilLost();
    offline.chat.direct("alice").send("a direct one");
    const seen = first.seen.concat(offline.seen);
    await offline.chat.close();
    const offlineAgain = person({ url: "ws://127.0.0.1:1/ws", ...options });
    offlineAgain.chat.connect();
    await offlineAgain.untilLost();
    assert.deepEqual(
      offlineAgain.chat.direct("alice").messages.map(({ body, state }) => [body, state]),
      [["a direct one", "pending"]],
    );
    offlineAgain.chat.direct("alice").send("another one");
    await offlineAgain.chat.close();

    const second = await connected({ url: server.url, ...options });
    const direct = await eventually(
      "the direct chat",
      () => second.chat.direct("alice").id && second.chat.direct("alice"),
    );
    await eventually("both to be stored", () => direct.messages.filter(isStored).length === 2);
    await alice.untilSeen(direct.id, 2);
    assert.deepEqual(alice.bodies(direct.id), ["a direct one", "another one"]);
    await second.untilSeen(room.id, 1);
    assert.deepEqual(
      seen
        .concat(second.seen)
        .filter(({ room: id, event }) => id === room.id && !event)
        .map(({ body }) => body),
      ["one", "two"],
    );
    await second.chat.close();
    const kept = numbers(local.length, 0).map((at) => local.key(at));
    assert.deepEqual(
      kept.filter((key) => key.includes("out/")),
      [],
      "what is stored is not kept",
    );
  });

  test("a send that was written but not answered before the reload is stored once", async () => {
    const [alice, proxy, storage] = [
      await connected({ url: server.url, user: "alice" }),
      await startProxy(server),
      memoryStorage(),
    ];
    const first = await connected({ url: proxy.url, user: "bob", storage });
    const room = await alice.chat.create({ members: ["bob"] });
    await first.untilRoom(room.id);
    await eventually("what made the room", () => first.seen.some((message) => message.room === room.id));
    proxy.swallowAnswers();
    first.room(room.id).send("once");
    await alice.untilSeen(room.id, 1);
    await first.chat.close();
    const second = await connected({ url: server.url, user: "bob", storage });
    await eventually("the answer", () => isStored(second.room(room.id).last));
    await second.untilSeen(room.id, 1);
    room.send("twice");
    await Promise.all([second, alice].map((one) => one.untilSeen(room.id, 2)));
    assert.deepEqual(second.bodies(room.id), ["once", "twice"]);
    assert.deepEqual(alice.bodies(room.id), ["once", "twice"]);
  });
});

describe("a cluster of two", async () => {
  const cluster = ending(await Cluster.of(2), (all) => all.end());
  const [one, other] = cluster.servers;

  test("the server that one is connected to is killed while messages flow: everyone sees each once, in order", async () => {
    const alice = await connected({ url: cluster.urls, user: "alice" });
    const bob = await connected({ url: [...cluster.urls].reverse(), user: "bob" });
    assert.equal(alice.chat.state.server, "local1");
    assert.equal(bob.chat.state.server, "local2");
    const room = await alice.chat.create({ members: ["bob"] });
    const there = await bob.untilRoom(room.id);
    const writing = (async () => {
      for (const number of numbers(200)) {
        room.send(`alice ${number}`);
        there.send(`bob ${number}`);
        await pause(15);
      }
    })();
    await alice.untilSeen(room.id, 60);
    await one.kill();
    await eventually("the other server", () => alice.chat.state.server === "local2");
    await alice.untilSeen(room.id, 160);
    await one.restart();
    await bob.untilSeen(room.id, 260);
    await other.kill();
    await writing;
    await Promise.all([alice.untilSeen(room.id, 400), bob.untilSeen(room.id, 400)]);
    for (const someone of [alice, bob]) await eventually("local1", () => someone.chat.state.server === "local1");
    assert.deepEqual(alice.bodies(room.id), bob.bodies(room.id));
    for (const name of ["alice", "bob"]) {
      const theirs = alice.bodies(room.id).filter((body) => body.startsWith(name));
      assert.deepEqual(
        theirs,
        numbers(200).map((number) => `${name} ${number}`),
      );
    }
    for (const someone of [alice, bob]) someone.assertOnceInOrder();
    await other.restart();
  });

  test("presence is right after the other's server was killed, and after one's own was", async () => {
    const frames = [];
    const alice = await connected({ url: cluster.urls, user: "amy", WebSocket: noting(frames) });
    const bob = await connected({ url: other.url, user: "ben" });
    await alice.chat.create({ members: ["ben"] });
    alice.chat.watch(["ben"]);
    const online = () => alice.chat.presence.get("ben")?.online;
    await eventually("Ben to be online", () => online() === true);
    await other.kill();
    await eventually("Ben to be away", () => online() === false);
    await other.restart();
    await bob.until("online");
    await eventually("Ben to be back", () => online() === true);

    const told = [];
    alice.chat.on("presence", (presence) => told.push(presence.online));
    const before = asked(frames).length;
    await one.kill();
    await eventually("the other server", () => alice.chat.state.server === "local2");
    await eventually("Ben to be online again", () => online() === true);
    assert.deepEqual([told[0], told.at(-1)], [null, true]);
    assert.deepEqual(asked(frames).slice(before), [["ben"]]);
    await one.restart();
  });

  test("what was read is said again when the server that was told is killed at once", async () => {
    const alice = await connected({ url: other.url, user: "ann" });
    const rooms = await Promise.all(numbers(3).map(() => alice.chat.create({ members: ["bo"] })));
    const said = [];
    const reads = () => said.filter(({ type }) => type === "read");
    const bob = await connected({ url: cluster.urls, user: "bo", WebSocket: noting(said) });
    assert.equal(bob.chat.state.server, "local1");
    for (const room of rooms) room.send("hello");
    for (const { id } of rooms) await bob.untilSeen(id, 1);
    for (const { id } of rooms.slice(0, 2)) bob.room(id).markRead();
    await eventually("it to be said", () => reads().length === 2);
    await one.kill();
    await eventually("the other server", () => bob.chat.state.server === "local2");
    const desk = await connected({ url: other.url, user: "bo" });
    for (const { id } of rooms) await desk.room(id).history(); // what is not loaded counts, also what made the room
    const unread = () => rooms.map(({ id }) => desk.room(id).unread);
    await eventually(
      () => `one unread room, not ${unread()}`,
      () => `${unread()}` === "0,0,1",
    );
    assert.ok(reads().length <= 4, "once more for each that was lost");
    await one.restart();
  });
});

describe("the documentation", async () => {
  const server = await startServer();

  test("its example for Node is a chat", async () => {
    const page = readFileSync(new URL("../docs/clients.md", import.meta.url), "utf8");
    const [, example] = /```js\n(import[^]*?)```/.exec(page);
    const dir = ending(mkdtempSync(join(tmpdir(), "minichat-example-")), (path) => rmSync(path, { recursive: true }));
    const module = new URL("minichat.js", import.meta.url).href;
    const file = join(dir, "chat.mjs");
    writeFileSync(file, example.replace("./minichat.js", module).replace("localhost:8080", server.address));
    const [alice, bob] = [
      ["alice", "bob"],
      ["bob", "alice"],
    ].map((names) => {
      const child = spawn(process.execPath, ["--experimental-websocket", file, ...names], {
        stdio: ["pipe", "pipe", "ignore"],
      });
      ending(child, () => child.kill());
      const ended = new Promise((resolve) => child.once("close", resolve));
      const one = { child, ended, output: "" };
      child.stdout.setEncoding("utf8").on("data", (chunk) => (one.output += chunk));
      return one;
    });
    alice.child.stdin.end("hello\nagain\n");
    assert.equal(await alice.ended, 0);
    await eventually("what Alice wrote", () => bob.output.includes("again"));
    assert.equal(bob.output, "alice: hello\nalice: again\n");
    bob.child.stdin.end();
    assert.equal(await bob.ended, 0);
  });
});

/** A WebSocket that notes what it sends. */
function noting(frames) {
  return class extends WebSocket {
    send(text) {
      frames.push(JSON.parse(text));
      super.send(text);
    }
  };
}

/** Of whom presence was asked, frame by frame. */
function asked(frames) {
  return frames.filter(({ type }) => type === "presence").map(({ users }) => users);
}

/** A WebSocket that loses the messages of these seqs, once. */
function losing(...seqs) {
  const lost = new Set(seqs);
  return class extends WebSocket {
    set onmessage(run) {
      super.onmessage = (event) => {
        const { type, seq } = JSON.parse(event.data);
        if (type !== "message" || !lost.delete(seq)) run(event);
      };
    }
  };
}
