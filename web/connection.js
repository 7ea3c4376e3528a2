// The client's half of docs/protocol.md. It knows no page.

/** Whether to come back after a close, by its code; any other ending is "later". */
const CLOSES = {
  1001: "at once",
  1002: "no",
  1003: "no",
  1007: "no",
  1009: "no",
  4001: "with a fresh token",
  4003: "no",
  4007: "at once",
  4008: "at once",
  4009: "no",
  4010: "no",
  4013: "later",
};

const PING_EVERY_MS = 20_000;
/** A socket that says nothing for this long, when it was opened or after a ping, is given up. */
const SILENCE_MS = 10_000;
/** A message without an answer is sent again after this, with the same cid. */
const REPEAT_MS = 10_000;
const ACK_EVERY_MS = 1_000;
const BACKOFF_MS = { first: 500, longest: 30_000 };
/** A connection that held this long has proved itself: the backoff starts anew. */
const SETTLED_MS = 10_000;
/** The most cursors in a `hello`: below 64 KiB with the longest room ids. Other rooms begin where the user stands. */
const MAX_CURSORS = 500;

/** A fresh cid. Not by randomUUID: browsers have that on https and localhost only. */
function mark() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** What this tab has of one room's log. */
class Log {
  entries = new Map(); // seq -> entry
  traces = new Map(); // seq -> trace
  highest = 0;
  cursor = 0; // the stream has brought all up to here
  acked = 0;
  seen = 0; // the person has seen all up to here
  read = 0;
  reported = 0; // when the server was last told

  /** Moves the cursor up to `seq`, and over what is there beyond it. */
  advance(seq) {
    this.cursor = Math.max(this.cursor, seq);
    while (this.cursor > 0 && this.entries.has(this.cursor + 1)) this.cursor += 1;
  }

  /** The entries from the highest down to the first that is missing. */
  *fromTheTop() {
    for (let seq = this.highest; this.entries.has(seq); seq -= 1) yield this.entries.get(seq);
  }
}

/** One user's connection, for as long as the tab lives: sockets break and are replaced underneath.
 *  Events: state, welcome, entry, trace, and unsent when what waits for an answer has changed. */
export class Connection extends EventTarget {
  logs = new Map(); // room -> Log
  unsent = new Map(); // cid -> { frame, error? }
  phase = "ended";
  #socket = null;
  #requests = new Map(); // cid -> { resolve, reject }
  #closing = null; // the server's announcement of a close
  #tries = 0;
  #notBefore = 0; // the server asked not to come back earlier
  #timers = new Map();

  constructor(url, user) {
    super();
    Object.assign(this, { url, user });
  }

  connect() {
    this.#clear();
    this.#closing = null;
    const socket = (this.#socket = new WebSocket(this.url));
    // A socket that was given up may still speak; nobody listens.
    const current = (handle) => (event) => socket === this.#socket && handle(event);
    socket.onopen = current(() => this.#hello());
    socket.onmessage = current((event) => this.#hear(JSON.parse(event.data)));
    socket.onclose = current((event) => this.#lost(event.code, event.reason));
    this.#expect();
    this.#state("connecting");
  }

  /** Something changed outside (the network, the tab is looked at again): find out now, not at the next tick. */
  check() {
    if (this.phase === "open") this.#ping();
    if (this.phase === "waiting") this.#timer("retry", Math.max(0, this.#notBefore - Date.now()), () => this.connect());
  }

  /** Stores a message in a room or with a user, { room } or { to }. It is repeated until it is answered. */
  send(target, body) {
    const item = { frame: { type: "send", cid: mark(), ...target, body } };
    this.unsent.set(item.frame.cid, item);
    this.#post(item);
    this.#emit("unsent");
  }

  /** Asks for something. Fails with the `error` frame, or when the connection breaks. */
  request(frame) {
    if (this.phase !== "open") return Promise.reject({ message: "There is no connection at the moment." });
    const cid = mark();
    this.#write({ ...frame, cid });
    return new Promise((resolve, reject) => this.#requests.set(cid, { resolve, reject }));
  }

  /** Loads the entries before `before`, or the latest; answers whether that brought any. */
  async history(room, before) {
    const page = await this.request({ type: "history", room, before });
    page.messages.forEach((entry) => this.#take(entry));
    return page.messages.length > 0;
  }

  /** The person has seen what is there of a room. */
  saw(room) {
    const log = this.log(room);
    log.seen = log.highest;
    this.#report(room, log);
  }

  /** Whether we are in its room no more. */
  putsMeOut({ event, users }) {
    return event === "left" && users.includes(this.user);
  }

  log(room) {
    if (!this.logs.has(room)) this.logs.set(room, new Log());
    return this.logs.get(room);
  }

  #hello() {
    const cursors = {};
    for (const [room, log] of [...this.logs].filter(([, log]) => log.cursor > 0).slice(0, MAX_CURSORS)) {
      cursors[room] = log.acked = log.cursor; // a cursor is an ack, too
    }
    this.#write({ type: "hello", trace: true, cursors });
  }

  #hear(frame) {
    this.#timer("silence");
    if (frame.type === "welcome") this.#welcome(frame);
    else if (frame.type === "message") this.#message(frame);
    else if (frame.type === "sent") this.#sent(frame);
    else if (frame.type === "trace") this.#trace(frame);
    else if (frame.type === "closing") this.#closing = frame;
    else if (frame.type === "error" && this.unsent.has(frame.cid)) this.#refused(this.unsent.get(frame.cid), frame);
    else this.#answer(frame);
  }

  #welcome({ user, server }) {
    this.user = user;
    this.#timer("settled", SETTLED_MS, () => (this.#tries = 0));
    this.#timer("ping", PING_EVERY_MS, () => this.#ping());
    this.#state("open", { server });
    for (const item of this.unsent.values()) this.#post(item);
    this.#emit("welcome");
  }

  #message(entry) {
    const log = this.log(entry.room);
    log.advance(entry.seq); // the stream has no gaps: where it jumps, we were not in the room
    this.#take(entry);
    if (this.putsMeOut(entry)) this.logs.delete(entry.room);
    else this.#report(entry.room, log);
  }

  #sent({ cid, room, id, seq, at }) {
    const item = this.unsent.get(cid);
    if (!item) return; // a second answer, to a repeat
    this.#take({ room, id, seq, at, cid, from: this.user, body: item.frame.body });
    const log = this.log(room);
    log.advance(0); // only over what joins up: the answer to a repeat may be out of order
    this.#report(room, log);
  }

  /** Takes an entry, by whichever way it came. A duplicate is dropped; one of our own settles its `send`. */
  #take(entry) {
    const log = this.log(entry.room);
    if (entry.from === this.user && this.unsent.delete(entry.cid)) this.#emit("unsent");
    if (log.entries.has(entry.seq)) return;
    log.entries.set(entry.seq, entry);
    log.highest = Math.max(log.highest, entry.seq);
    this.#emit("entry", entry);
  }

  /** Sends or repeats, unless it was settled; without a connection, the next welcome does. */
  #post(item) {
    const { cid } = item.frame;
    if (this.phase !== "open" || item.error || !this.unsent.has(cid)) return;
    this.#write(item.frame);
    this.#timer(cid, REPEAT_MS, () => this.#post(item));
  }

  #refused(item, error) {
    if (error.retry_after_ms) return this.#timer(item.frame.cid, error.retry_after_ms, () => this.#post(item));
    item.error = error;
    this.#emit("unsent");
  }

  #trace(frame) {
    this.log(frame.room).traces.set(frame.seq, frame);
    this.#emit("trace", frame);
  }

  #answer(frame) {
    const request = this.#requests.get(frame.cid);
    this.#requests.delete(frame.cid);
    if (frame.type === "error") request?.reject(frame);
    else request?.resolve(frame);
  }

  /** Tells the server how far we are in a room: soon, and at most once per second. */
  #report(room, log) {
    if (this.phase !== "open" || this.#timers.has(`report ${room}`)) return;
    this.#timer(`report ${room}`, Math.max(0, log.reported + ACK_EVERY_MS - Date.now()), () => {
      const [acked, read] = [log.acked, log.read];
      if (log.cursor > acked) this.#write({ type: "ack", room, seq: (log.acked = log.cursor) });
      if (log.seen > read) this.#write({ type: "read", room, seq: (log.read = log.seen) });
      if (log.acked > acked || log.read > read) log.reported = Date.now();
    });
  }

  #ping() {
    this.#write({ type: "ping" });
    this.#expect();
    this.#timer("ping", PING_EVERY_MS, () => this.#ping());
  }

  /** Gives the socket up unless something is heard in time; its own close event could take minutes. */
  #expect() {
    if (this.#timers.has("silence")) return;
    this.#timer("silence", SILENCE_MS, () => {
      this.#socket.close();
      this.#lost(1006, "the server does not answer");
    });
  }

  #lost(code, reason) {
    this.#clear();
    this.#socket = null;
    for (const { reject } of this.#requests.values()) reject({ message: "The connection broke." });
    this.#requests.clear();
    const rule = CLOSES[code] ?? "later";
    const why = reason || this.#closing?.reason;
    if (rule === "no" || rule === "with a fresh token") return this.#state("ended", { code, why });
    const asked = this.#closing?.reconnect_after_ms ?? 0;
    const limit = Math.min(BACKOFF_MS.longest, BACKOFF_MS.first * 2 ** this.#tries);
    const wait = asked + (rule === "at once" && this.#tries === 0 ? 0 : Math.random() * limit);
    this.#tries += 1;
    this.#notBefore = Date.now() + asked;
    this.#timer("retry", wait, () => this.connect());
    this.#state("waiting", { why, until: Date.now() + wait });
  }

  #clear() {
    for (const name of this.#timers.keys()) this.#timer(name);
  }

  /** Sets a named timer in place of the one before; without `run` it only ends that. */
  #timer(name, ms, run) {
    clearTimeout(this.#timers.get(name));
    this.#timers.delete(name);
    if (run) this.#timers.set(name, setTimeout(() => (this.#timers.delete(name), run()), ms));
  }

  #write(frame) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(frame));
  }

  #state(phase, detail) {
    this.phase = phase;
    this.#emit("state", { phase, ...detail });
  }

  #emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
