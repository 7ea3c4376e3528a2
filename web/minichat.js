/**
 * The client's half of docs/protocol.md: one module, no dependencies, for browsers, Node and React Native.
 *
 *     const chat = new Minichat({ url: "wss://chat.example/ws", token: () => fetchToken() });
 *     chat.on("message", (message, room) => console.log(room.id, message.from, message.body));
 *     await chat.connect();
 *     chat.direct("bob").send({ text: "hello" });
 *
 * How the parts hold together: `Link` keeps one socket alive and replaces it, `Minichat` takes the frames apart and
 * knows the rooms, a `Room` has a `Log` (what came, in order) and an `Outbox` (what is to go, in order). Names with an
 * underscore are for this file only. All text from the server is data: show it as text, never as HTML.
 */

/** Whether to come back after a close, by its code. Any other ending is "later". */
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
};

/** The options that have defaults; `minichat.d.ts` says what each is. Times are in milliseconds. */
const DEFAULTS = {
  keep: 1_000,
  outboxLimit: 1_000,
  inFlight: 1, // with more, a message that is refused for now could end up behind the next
  autoAck: true,
  ackEvery: 1_000,
  pingEvery: 20_000,
  pingTimeout: 10_000,
  connectTimeout: 10_000,
  tokenTimeout: 30_000,
  answerTimeout: 15_000,
  backoff: [500, 30_000],
  settleAfter: 10_000, // a connection that held for this long has proved itself: the backoff starts anew
  typingEvery: 3_000,
  typingFor: 6_000,
};

const MAX_FRAME_BYTES = 65_536;
const MAX_BODY_BYTES = 16_384;
/** Entries of a page; people who are watched. */
const PAGE = 200;
/** Below the size of a frame with the longest room ids. */
const CURSORS_PER_HELLO = 500;
/** Frames held per room while it is looked up or a gap is filled. Entries beyond that are read again. */
const MAX_HELD = 1_000;
/** Above this many members there are no receipts. */
const RECEIPTS_UP_TO = 32;
/** Tokens refused in a row, each a new one, before it is left to the person. */
const MAX_REFUSED_TOKENS = 3;
const MAX_RETRIES = 5;
/** Volatile frames are dropped while this many bytes wait in the socket. */
const CLOGGED_BYTES = 65_536;
const SAVE_AFTER = 250;
/** What comes within this time is acknowledged together. */
const REPORT_AFTER = 50;
/** Those of whom nothing could be told are asked for again so long after there are others to meet. */
const ASK_AGAIN_AFTER = 500;
const CLOSE_AFTER_ERROR = 200;
/** Timers cannot be set for longer. */
const LONGEST_TIMER = 2 ** 31 - 1;
/** All characters of room ids, in their order, and the most that there are in one. */
const ID_CHARACTERS = "-.0123456789:@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";
const MAX_ID = 64;

/** What went wrong, with a code of the protocol's table or `offline`, `timeout`, `outbox_full`. */
export class ChatError extends Error {
  constructor(code, message, retryAfter) {
    super(message);
    Object.assign(this, { name: "ChatError", code, retryAfter });
  }
}

// ---------------------------------------------------------------------------------------------------- small helpers

/** 128 random bits. They need to be unique per sender, not secret: React Native has no `crypto` by itself. */
function newCid() {
  const bytes = new Uint8Array(16);
  if (globalThis.crypto?.getRandomValues) crypto.getRandomValues(bytes);
  else bytes.forEach((_, at) => (bytes[at] = Math.random() * 256));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function utf8Length(text) {
  let bytes = text.length;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    // Each half of a surrogate pair is two of its four bytes.
    if (unit > 0x7f) bytes += unit > 0x7ff && (unit < 0xd800 || unit > 0xdfff) ? 2 : 1;
  }
  return bytes;
}

function tooLarge(body) {
  return utf8Length(JSON.stringify(body)) > MAX_BODY_BYTES;
}

/** JSON that may be of another's making; undefined where it is none. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** What a JWT says, unchecked; nothing where it cannot be read, which costs only the foresight. */
function claimsOf(token) {
  try {
    const bytes = atob(token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/"));
    const escaped = Array.from(bytes, (byte) => `%${byte.charCodeAt(0).toString(16).padStart(2, "0")}`).join("");
    return JSON.parse(decodeURIComponent(escaped));
  } catch {
    return {};
  }
}

/** The greatest text below a room id, so that a page of one room after it begins with that room. */
function justBelow(id) {
  const stem = id.slice(0, -1);
  const last = ID_CHARACTERS.indexOf(id.at(-1));
  return last > 0 ? (stem + ID_CHARACTERS[last - 1]).padEnd(MAX_ID, "~") : stem || undefined;
}

/** Where `seq` is, or would go, in entries that are in order. */
function placeOf(entries, seq) {
  let [low, high] = [0, entries.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (entries[middle].seq < seq) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A function that does this at the end of the turn: once, however often it was called. */
function oncePerTurn(run) {
  let due = false;
  const go = () => {
    due = false;
    run();
  };
  return () => {
    if (!due) queueMicrotask(go);
    due = true;
  };
}

/** Calls functions by the name of what happened. */
class Emitter {
  #listeners = new Map();

  on(event, run) {
    const all = this.#listeners.get(event) ?? new Set();
    this.#listeners.set(event, all);
    const listener = (...details) => run(...details); // the same function may listen twice
    all.add(listener);
    return () => void all.delete(listener);
  }

  emit(event, ...details) {
    for (const listener of [...(this.#listeners.get(event) ?? [])]) {
      try {
        listener(...details);
      } catch (error) {
        // A fault of the listener is not to stop the protocol; it surfaces as uncaught.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}

/** Timers by name: one that is set anew takes the place of the old one. */
class Timers {
  #running = new Map();

  set(name, ms, run) {
    this.clear(name);
    const expire = () => {
      this.#running.delete(name);
      run();
    };
    this.#running.set(name, setTimeout(expire, Math.min(ms, LONGEST_TIMER)));
  }

  has(name) {
    return this.#running.has(name);
  }

  clear(name) {
    clearTimeout(this.#running.get(name));
    this.#running.delete(name);
  }

  clearAll() {
    for (const name of [...this.#running.keys()]) this.clear(name);
  }
}

// ---------------------------------------------------------------------------------------------------------- storage

/** Keeps nothing beyond this object; what two clients get in turn is a reload without a browser. */
export function memoryStorage() {
  const values = new Map();
  return {
    load: () => [...values],
    set: (key, value) => void values.set(key, value),
    remove: (key) => void values.delete(key),
  };
}

/** Keeps in `localStorage`, under keys that begin with `prefix`; name the user in it where several share a browser. */
export function webStorage(prefix = "minichat/", area = globalThis.localStorage) {
  return {
    load: () => {
      const keys = Array.from({ length: area.length }, (_, at) => area.key(at)).filter((key) => key.startsWith(prefix));
      return keys.map((key) => [key.slice(prefix.length), area.getItem(key)]);
    },
    set: (key, value) => area.setItem(prefix + key, value),
    remove: (key) => area.removeItem(prefix + key),
  };
}

/** A storage that works one call at a time and never throws: without it, a chat still works until the reload. */
class Store {
  #adapter;
  #report;
  /** Ends when all that was asked for so far is done. */
  idle = Promise.resolve();

  constructor(adapter, report) {
    this.#adapter = adapter;
    this.#report = report;
  }

  load() {
    return this.#then(async () => new Map(await this.#adapter.load()));
  }

  set(key, value) {
    this.#then(() => this.#adapter.set(key, JSON.stringify(value)));
  }

  remove(key) {
    this.#then(() => this.#adapter.remove(key));
  }

  #then(run) {
    const done = this.idle.then(run);
    this.idle = done.then(
      () => {},
      (error) => this.#report(error),
    );
    return done.catch(() => new Map());
  }
}

// ------------------------------------------------------------------------------------------------------- connection

/** The token: kept while it is good, and asked for when it is not. */
class Credentials {
  #ask;
  #token = null;
  #until = 0;
  #refused = null;
  /** When a fresh one should be had, by this machine's clock. */
  renewAt = Infinity;
  /** Whom the token names. */
  user;

  constructor(ask) {
    this.#ask = typeof ask === "function" ? ask : () => ask;
  }

  /** The token to connect with; null where there is none (any more). */
  async current() {
    return this.#token !== null && Date.now() < this.#until ? this.#token : this.renew();
  }

  async renew() {
    const token = (await this.#ask()) || null;
    if (token === this.#refused) return null; // it would be refused again
    if (token === this.#token) return token;
    const { sub, iat, exp } = token ? claimsOf(token) : {};
    const now = Date.now();
    // By the issuer's clock alone, where it says both: this machine's may be wrong.
    // They are whole seconds: one is taken off.
    const issued = typeof iat === "number" ? iat * 1000 : now;
    const life = typeof exp === "number" ? exp * 1000 - issued - 1_000 : Infinity;
    Object.assign(this, { user: sub, renewAt: now + life * 0.8 });
    this.#until = now + life;
    this.#token = token;
    return token;
  }

  /** The server did not take it, or not any longer. */
  refuse() {
    this.#refused = this.#token;
    this.#token = null;
  }
}

/**
 * One user's connection: sockets break and are replaced underneath.
 *
 * `events` are: `hello(user, token)`, which gives the first frames, `welcome(frame)`, `frame(frame)` for all others,
 * `lost()` where there was a welcome, and `state(state)`.
 */
class Link {
  #options;
  #timers;
  #events;
  #credentials;
  #socket = null;
  #attempt = 0; // what an earlier one still brings is not heard
  #turn = 0; // how many URLs were used
  #tries = 0; // connections since one has proved itself
  #refusals = 0; // tokens refused since the last welcome
  #notBefore = 0; // the server asked not to come back earlier
  #closing = null; // its announcement of a close
  #phase = "closed";

  constructor(options, timers, events) {
    this.#options = options;
    this.#timers = timers;
    this.#events = events;
    this.#credentials = options.token === undefined ? null : new Credentials(options.token);
  }

  start() {
    if (this.#phase !== "closed") return;
    this.#tries = this.#refusals = 0;
    this.#connect();
  }

  /** Ends it. */
  stop(reason, code, final = false) {
    this.#drop();
    this.#state({ phase: "closed", reason, code, final });
  }

  /** Gives the socket up and comes back by the rules. */
  restart(reason) {
    if (this.#phase === "online") this.#lost(1006, reason);
  }

  /** Something changed outside (the network, the tab is looked at again): finds out now, not at the next tick. */
  check() {
    if (this.#phase === "online") this.#ping();
    if (this.#phase !== "offline") return;
    this.#timers.set("retry", Math.max(0, this.#notBefore - Date.now()), () => this.#connect());
  }

  /** Writes a frame where there is an open socket, and says whether it did. */
  write(frame, { volatile = false } = {}) {
    const open = this.#socket?.readyState === 1;
    if (!open || (volatile && this.#socket.bufferedAmount > CLOGGED_BYTES)) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  async #connect() {
    const attempt = (this.#attempt += 1);
    this.#closing = null;
    this.#expect(this.#options.tokenTimeout, "there was no token or URL in time");
    this.#state({ phase: "connecting" });
    let url, token;
    try {
      [url, token] = await Promise.all([this.#nextUrl(), this.#credentials?.current()]);
    } catch (error) {
      if (attempt === this.#attempt) this.#lost(1006, `no token or URL: ${error?.message ?? error}`);
      return;
    }
    if (attempt !== this.#attempt) return;
    if (token === null) return this.stop("there is no valid token", 4001, true);
    try {
      this.#open(url, token);
    } catch (error) {
      this.stop(`${url}: ${error.message}`, undefined, true); // no URL of a WebSocket
    }
  }

  #open(url, token) {
    const attempt = this.#attempt;
    const current = (handle) => (event) => attempt === this.#attempt && handle(event);
    this.#timers.clear("silence");
    this.#expect(this.#options.connectTimeout);
    const WebSocket = this.#options.WebSocket ?? globalThis.WebSocket;
    const socket = (this.#socket = new WebSocket(url));
    socket.onopen = current(() => this.#hello(token));
    socket.onmessage = current((event) => this.#hear(event.data));
    socket.onclose = current((event) => this.#lost(event.code, event.reason));
    socket.onerror = current(() => {
      // The close follows at once, but not in Node 20.
      this.#timers.clear("silence");
      this.#expect(CLOSE_AFTER_ERROR);
    });
  }

  async #nextUrl() {
    const { url, token, user } = this.#options;
    const turn = this.#turn;
    this.#turn += 1;
    const given = typeof url === "function" ? await url(turn) : Array.isArray(url) ? url[turn % url.length] : url;
    const whole = (given ?? `${location.origin}/ws`).replace(/^http/, "ws");
    if (token !== undefined || user === undefined) return whole;
    return `${whole}${whole.includes("?") ? "&" : "?"}user=${encodeURIComponent(user)}`;
  }

  #hello(token) {
    const user = this.#credentials ? this.#credentials.user : this.#options.user;
    for (const frame of this.#events.hello(user, token)) this.write(frame);
  }

  #hear(data) {
    this.#timers.clear("silence");
    const frame = Object(parsed(data));
    if (frame.type === "closing") this.#closing = frame;
    else if (frame.type === "welcome") this.#welcome(frame);
    else if (this.#phase === "online") this.#events.frame(frame);
    if (this.#phase === "online") this.#timers.set("ping", this.#options.pingEvery, () => this.#ping());
    else if (this.#phase === "connecting") this.#expect(this.#options.connectTimeout);
  }

  #welcome(frame) {
    this.#refusals = 0;
    this.#timers.set("settled", this.#options.settleAfter, () => (this.#tries = 0));
    if (this.#credentials) this.#renewLater();
    this.#events.welcome(frame); // before anyone hears of it: they may send
    this.#state({ phase: "online", server: frame.server });
  }

  #renewLater(atLeast = 1_000) {
    const wait = Math.max(atLeast, this.#credentials.renewAt - Date.now());
    if (wait === Infinity) return;
    this.#timers.set("token", wait, async () => {
      const attempt = this.#attempt;
      const token = await this.#credentials.renew().catch(() => null);
      if (attempt !== this.#attempt) return;
      if (token) this.write({ type: "hello", token });
      // None, or the old one again: not at once.
      this.#renewLater(Date.now() < this.#credentials.renewAt ? 1_000 : 10_000);
    });
  }

  #ping() {
    this.write({ type: "ping" });
    this.#expect(this.#options.pingTimeout);
    this.#timers.set("ping", this.#options.pingEvery, () => this.#ping());
  }

  /** Gives the socket up unless something is heard in time; its own close event could take minutes. */
  #expect(ms, reason = "the server does not answer") {
    if (this.#timers.has("silence")) return;
    const due = Date.now() + ms;
    this.#timers.set("silence", ms, () => {
      // Far too late: the machine has slept, and an answer may lie unread. Ask once more.
      if (this.#phase === "online" && Date.now() > due + ms) this.#ping();
      else this.#lost(1006, reason);
    });
  }

  /** Forgets the socket, whatever it still says. */
  #drop() {
    this.#attempt += 1;
    for (const name of ["silence", "ping", "settled", "token", "retry"]) this.#timers.clear(name);
    const socket = this.#socket;
    this.#socket = null;
    const wasOnline = this.#phase === "online";
    this.#phase = "offline";
    if (socket && socket.readyState < 2) socket.close();
    if (wasOnline) this.#events.lost();
  }

  #lost(code, said) {
    const reason = said || this.#closing?.reason || "the connection broke";
    const rule = CLOSES[code] ?? "later";
    const asked = this.#closing?.reconnect_after_ms ?? 0;
    this.#drop();
    if (rule === "no") return this.stop(reason, code, true);
    if (rule === "with a fresh token") {
      this.#credentials?.refuse();
      this.#refusals += 1;
      if (!this.#credentials || this.#refusals >= MAX_REFUSED_TOKENS) return this.stop(reason, code, true);
    }
    const [first, longest] = this.#options.backoff;
    const limit = Math.min(longest, first * 2 ** this.#tries);
    const soon = rule !== "later" && this.#tries === 0;
    const wait = asked + (soon ? 0 : Math.random() * limit);
    this.#tries += 1;
    this.#notBefore = Date.now() + asked;
    this.#timers.set("retry", wait, () => this.#connect());
    this.#state({ phase: "offline", reason, code, retryAt: Date.now() + wait });
  }

  #state(state) {
    this.#phase = state.phase;
    this.#events.state(state);
  }
}

// ------------------------------------------------------------------------------------------------------------ rooms

/** What this client has of one room's log, and how far the stream has come. */
class Log {
  #engine;
  #room;
  #take;
  #allowed;
  #ahead = new Map(); // seq -> answers to repeats, of places that the stream has not reached
  #held = [];
  #overflowed = false;
  #filling = false;
  #run = 0; // grows when the connection is lost: what was asked before counts no more
  /** Messages in the order of seq. */
  messages = [];
  /** All up to here has been handed out. 0: not known yet, the first entry tells. */
  cursor;

  /** `take(entry)` hands an entry out and gives the message it has become. */
  constructor(engine, room, cursor, take) {
    this.#engine = engine;
    this.#room = room;
    this.#take = take;
    this.#allowed = engine.options.keep;
    this.cursor = cursor;
  }

  /**
   * Takes what the stream brings. It has no gaps and no duplicates; after a reconnect, a repeat or a rejoin there may
   * be either, and both are put right here. `repeat`: the answer to a repeated send, which may name any place.
   */
  stream(entry, repeat = false) {
    if (this.#filling) return this.#hold(entry, repeat);
    if (entry.seq <= this.cursor) return;
    if (repeat && entry.seq !== this.cursor + 1) this.#ahead.set(entry.seq, entry);
    else if (this.cursor === 0 || entry.seq === this.cursor + 1) this.#next(entry);
    else {
      this.#hold(entry, repeat);
      this.fill();
    }
  }

  /** Reads what follows the cursor, up to what is held, and then takes that. */
  async fill() {
    if (this.#filling) return;
    this.#filling = true;
    const run = this.#run;
    try {
      let page;
      do {
        this.#overflowed = false;
        page = await this.#ask({ after: this.cursor, limit: PAGE });
        if (run !== this.#run) return;
        this.#takeAll(page.messages);
      } while (this.#overflowed || (page.more && !(this.#held[0]?.[0].seq <= this.cursor + 1)));
    } catch (error) {
      if (run !== this.#run) return;
      // Who is no member any more cannot read, but what came is theirs. Otherwise the stream begins anew at the cursor.
      if (error.code !== "not_found") {
        this.lost();
        return this.#engine.restart("a gap could not be filled");
      }
    }
    this.#release();
  }

  /** Puts a message at its place; false where there is one. */
  insert(message) {
    const at = placeOf(this.messages, message.seq);
    if (this.messages[at]?.seq === message.seq) return false;
    this.messages.splice(at, 0, message);
    return true;
  }

  find(seq) {
    const found = this.messages[placeOf(this.messages, seq)];
    return found?.seq === seq ? found : undefined;
  }

  /** Loads the page before the first message that is here; gives its entries and whether there are others before. */
  async older(limit) {
    const first = this.messages[0]?.seq ?? (this.cursor > 0 ? this.cursor + 1 : undefined);
    const page = await this.#ask({ before: first, limit });
    // What it is to be put before was trimmed meanwhile: there would be a hole.
    if (first < this.messages[0]?.seq) return this.older(limit);
    this.#allowed += page.messages.length;
    return page;
  }

  /** Drops the oldest beyond what is kept; with `all`, also of what was asked for. */
  trim(all = false) {
    if (all) this.#allowed = this.#engine.options.keep;
    const excess = this.messages.length - this.#allowed;
    if (excess > 0) this.messages.splice(0, excess);
    return excess > 0;
  }

  /** The connection is lost: the next one streams from the cursor. */
  lost() {
    this.#run += 1;
    this.#filling = false;
    this.#held = [];
  }

  #ask(range) {
    return this.#engine.request({ type: "history", room: this.#room.id, ...range });
  }

  #next(entry) {
    this.cursor = entry.seq;
    this.#ahead.delete(entry.seq);
    this.#take(entry);
    this.#goOn();
  }

  /** Takes what is there already and has its turn now. */
  #goOn() {
    const following = this.#ahead.get(this.cursor + 1);
    if (following) this.#next(following);
  }

  #hold(entry, repeat) {
    if (this.#held.length < MAX_HELD) this.#held.push([entry, repeat]);
    else this.#overflowed = true;
  }

  /** Takes entries between which nothing is, as long as nobody who hears of one ends the connection. */
  #takeAll(entries) {
    const run = this.#run;
    for (const entry of entries) if (run === this.#run && entry.seq > this.cursor) this.#next(entry);
  }

  #release() {
    const held = this.#held;
    this.#held = [];
    this.#filling = false;
    const repeats = held.filter(([, repeat]) => repeat);
    for (const [entry] of repeats) if (entry.seq > this.cursor) this.#ahead.set(entry.seq, entry);
    this.#takeAll(held.filter(([, repeat]) => !repeat).map(([entry]) => entry));
    this.#goOn();
  }
}

/** What is to be sent to one room, in order. */
class Outbox {
  #engine;
  #room;
  #timer = `outbox ${newCid()}`;
  items = []; // { cid, target: { room } or { to }, order, message, flying, tries, refusals }

  constructor(engine, room) {
    this.#engine = engine;
    this.#room = room;
  }

  /** Takes a message that is to be sent, or was before a reload. */
  add(item) {
    this.items.push({ ...item, flying: false, refusals: 0 });
    this.#engine.outgoing.set(item.cid, this.#room);
    this.#save(item);
    this.pump();
  }

  find(cid) {
    return this.items.find((item) => item.cid === cid);
  }

  /** Sends what may go now. */
  pump() {
    if (!this.#engine.online() || this.#engine.timers.has(this.#timer)) return;
    let flying = 0;
    for (const item of this.items) {
      if (flying >= this.#engine.options.inFlight) return;
      if (item.message.state === "failed") continue;
      flying += 1;
      if (!item.flying) this.#send(item);
    }
  }

  /** Takes a message out, since it is stored. */
  settle(cid) {
    const item = this.#take((one) => one.cid === cid);
    if (item) this.pump();
    return item?.message;
  }

  refuse(cid, error) {
    const item = this.find(cid);
    this.#engine.timers.clear(cid);
    item.flying = false;
    if (error.retryAfter === undefined) return this.#fail(item, error);
    // At least what was asked for; longer, and spread, where it goes on.
    const more = Math.random() * error.retryAfter * Math.min(item.refusals, MAX_RETRIES);
    item.refusals += 1;
    this.#engine.timers.set(this.#timer, error.retryAfter + more, () => this.pump());
  }

  #fail(item, error) {
    Object.assign(item.message, { state: "failed", error });
    this.#save(item);
    this.#room._updated(item.message);
    this.pump();
  }

  /** Sends a failed one again, behind the others. */
  retry(message) {
    const item = this.#take((one) => one.message === message && message.state === "failed");
    if (!item) return false;
    if (message.error.code === "cid_reused") message.cid = item.cid = newCid();
    Object.assign(message, { state: "pending", error: undefined });
    this.add({ ...item, order: this.#engine.order(), tries: 0 }); // nothing was stored: it is as new
    this.#room._updated(message);
    return true;
  }

  /** Drops one that has failed, or was never sent. Of any other nobody knows whether it is stored. */
  discard(message) {
    return Boolean(this.#take((one) => one.message === message && (message.error || one.tries === 0)));
  }

  /** This user is not in the room any more: what was not sent never will be. */
  abandon() {
    const error = new ChatError("not_found", "you are not in this room any more");
    for (const { message } of [...this.items]) {
      this.#take((item) => item.message === message);
      this.#room._updated(Object.assign(message, { state: "failed", error }));
    }
  }

  #save({ cid, target, order, tries, message: { body, at, error } }) {
    const kept = error && { code: error.code, message: error.message };
    this.#engine.store.set(`out/${cid}`, { target, order, tries, body, at, error: kept });
  }

  lost() {
    this.#engine.timers.clear(this.#timer);
    for (const item of this.items) {
      item.flying = false;
      this.#engine.timers.clear(item.cid);
    }
  }

  #send(item) {
    const { cid, target, message } = item;
    item.flying = this.#engine.write({ type: "send", cid, ...target, body: message.body });
    if (!item.flying) return;
    item.tries += 1;
    if (item.tries === 1) this.#save(item); // whether it was ever sent must outlive a reload
    const repeat = () => {
      item.flying = false;
      this.pump();
    };
    this.#engine.timers.set(cid, this.#engine.options.answerTimeout, repeat);
  }

  /** Takes the first item that fits out of this, and out of all that knows of it. */
  #take(fits) {
    const at = this.items.findIndex(fits);
    if (at < 0) return undefined;
    const [item] = this.items.splice(at, 1);
    this.#engine.timers.clear(item.cid);
    this.#engine.outgoing.delete(item.cid);
    this.#engine.store.remove(`out/${item.cid}`);
    return item;
  }
}

/** A conversation, as this user sees it. `minichat.d.ts` says what each field is; they are to be read only. */
class Room {
  #engine;
  #shown = null; // what `messages` last gave
  #older = null; // the page that is being loaded
  #typedAt = 0;
  #countedAt = 0; // `count` is right as of this seq
  #base = 0; // where the stream begins, as long as it has brought nothing
  #resumed; // the cursor in the last `hello`
  #acked;
  #ackWanted;
  #readSaid = 0; // what is stored, or was said on this connection
  #traces = new Map(); // seq -> the trace of a message whose turn has not come yet

  id; // null for a direct chat in which nothing is stored yet
  name;
  peer;
  open = false;
  muted = false;
  count = 0;
  head;
  since = 0;
  delivered = 0;
  read;
  complete = false;
  members = null;
  typing = [];
  positions = new Map();

  constructor(engine, { id = null, peer, cursor = 0, read = 0 }) {
    this.#engine = engine;
    this.#resumed = this.#acked = this.#ackWanted = this.head = cursor;
    Object.assign(this, { id, peer, read });
    this._log = this.#newLog(cursor);
    this._outbox = new Outbox(engine, this);
  }

  get messages() {
    this.#shown ??= [...this._log.messages, ...this._outbox.items.map((item) => item.message)];
    return this.#shown;
  }

  get last() {
    return this._outbox.items.at(-1)?.message ?? this._log.messages.at(-1);
  }

  get unread() {
    const from = Math.max(this.read, this.since - 1);
    const { messages } = this._log;
    const ours = messages.slice(placeOf(messages, from + 1)).filter(({ mine, event }) => mine || event);
    return Math.max(0, this.head - from) - ours.length; // what has not been loaded counts, whatever it is
  }

  /** Sends a body (any JSON). Its message goes through pending, sent, delivered and read; or it is failed. */
  send(body) {
    if (JSON.stringify(body) === undefined) throw new TypeError("the body is no JSON");
    const full = this._outbox.items.length >= this.#engine.options.outboxLimit;
    if (full) throw new ChatError("outbox_full", "too many messages are waiting");
    const error = tooLarge(body) ? new ChatError("too_large", "the body is too large") : undefined;
    const own = { cid: newCid(), order: this.#engine.order(), target: this.#target, at: Date.now(), tries: 0 };
    const message = this._queue({ ...own, body, error });
    this.#typedAt = 0;
    return message;
  }

  /** Sends a failed message again; false for others. */
  retry(message) {
    return this._outbox.retry(message);
  }

  /** Drops a message that failed or was never sent; false for others. */
  discard(message) {
    const done = this._outbox.discard(message);
    if (done) this._changed();
    return done;
  }

  /** "I have all up to here": needed with `autoAck: false` only. */
  ack(seq = this._log.cursor) {
    this.#ackWanted = Math.max(this.#ackWanted, Math.min(seq, this._log.cursor));
    this.#engine.report(this);
  }

  /** "I have read all up to here"; without a seq, all that is here. */
  markRead(seq = this._log.messages.at(-1)?.seq ?? this._log.cursor) {
    if (this.#readTo(Math.min(seq, this.head))) this.#engine.report(this);
  }

  /** Loads what is before the first message here, and gives what is new. `complete` says that there is no more. */
  history(limit = 50) {
    this.#older ??= this.#loadOlder(limit).finally(() => (this.#older = null));
    return this.#older;
  }

  /** Drops what `history` has loaded beyond what is kept anyway. */
  trim() {
    if (!this._log.trim(true)) return;
    this.complete = false;
    this._changed();
  }

  /** Loads who is in the room, and how far each has received and read. */
  async loadMembers() {
    const members = [];
    let page;
    do {
      page = await this.#ask({ type: "members", after: members.at(-1), limit: PAGE });
      members.push(...page.users);
      for (const { user, ...position } of page.receipts ?? []) this.#grow(user, position);
    } while (page.more);
    this.members = members;
    this.#grade();
    this._changed();
    return members;
  }

  /** Tells the others that this user is writing. Call it at each key: it is sent now and then. */
  sendTyping() {
    const now = Date.now();
    if (this.id === null || now < this.#typedAt + this.#engine.options.typingEvery) return;
    if (this.#engine.dropOrWrite({ type: "typing", room: this.id })) this.#typedAt = now;
  }

  /** Sends a body to who is connected now; it is not stored. False where it was dropped at once. */
  signal(body) {
    return this.#engine.signal(this.#target, body);
  }

  async add(users) {
    await this.#ask({ type: "add", users });
  }

  async remove(users) {
    await this.#ask({ type: "remove", users });
  }

  async leave() {
    await this.#ask({ type: "leave" });
  }

  /** No push for this room, or push again. */
  async mute(muted = true) {
    await this.#ask({ type: "settings", muted });
    this.muted = muted;
    this._changed();
  }

  // For the client below.

  /** Takes what the server says of the room. */
  _learn({ room, name, peer, open, head, since, delivered, read, count, muted = false }) {
    if (head < this.#resumed) return this.#startOver(head, read);
    this.#base ||= Math.max(delivered, since - 1);
    this.#countedAt = head;
    this.#readSaid = read;
    const grown = { head: Math.max(this.head, head), delivered: Math.max(this.delivered, delivered) };
    Object.assign(this, { id: room, name, peer, open, since, count, muted, ...grown });
    this.#readTo(read);
    if (this.read > read) this.#engine.report(this); // never said, or lost with a server
    // Receipts are not repeated: what they said meanwhile has to be asked for.
    if (this._log.messages.some(({ state }) => state === "sent" || state === "delivered")) this.#loadPositions();
    this._changed();
  }

  /** Where the stream is to begin on a new connection; a cursor is an `ack`, too. */
  _resume() {
    this.#resumed = this.#acked = this._place()[0];
    return this.#resumed;
  }

  /** What outlives a reload: the cursor, the read position and the peer. */
  _place() {
    return [this.#received || this.#base, this.read, this.peer];
  }

  /** Writes the positions that have grown. */
  _report() {
    const [received, { id: room, read }] = [this.#received, this];
    if (received > this.#acked) this.#engine.write({ type: "ack", room, seq: (this.#acked = received) });
    if (read > this.#readSaid) this.#engine.write({ type: "read", room, seq: (this.#readSaid = read) });
  }

  /** Puts a message into the outbox. */
  _queue({ cid, order, target, tries, body, at, error }) {
    const message = { room: this.id, cid, from: this.#engine.user(), at, body, mine: true, state: "pending" };
    if (error) Object.assign(message, { state: "failed", error: new ChatError(error.code, error.message) });
    this._outbox.add({ cid, order, target, tries, message });
    this._changed();
    return message;
  }

  /** `sent`: gives its entry of the stream, and whether its place there may be any. */
  _sent({ cid, room, id, seq, at }) {
    const repeat = this._outbox.find(cid)?.tries !== 1;
    const message = this.#settle({ cid, room, id, seq, at }) ?? this._log.find(seq);
    // None: the answer to a repeat, after another one that has settled it.
    return message && [{ room, id, seq, at, cid, from: this.#engine.user(), body: message.body }, repeat];
  }

  _receipt(user, { delivered = 0, read = 0 }) {
    if (user === this.#engine.user()) {
      this.delivered = Math.max(this.delivered, delivered);
      this.#readSaid = Math.max(this.#readSaid, read);
      this.#readTo(read);
    } else {
      this.#grow(user, { delivered, read });
      this.#grade();
    }
  }

  _trace(seq, trace) {
    const message = this._log.find(seq);
    if (message) message.trace = trace;
    else if (seq > this._log.cursor) this.#traces.set(seq, trace);
    if (this.#traces.size > MAX_HELD) this.#traces.delete(this.#traces.keys().next().value);
  }

  _typing(user) {
    const { timers, options } = this.#engine;
    timers.set(`typing ${this.id} ${user}`, options.typingFor, () => this.#stopTyping(user));
    if (!this.typing.includes(user)) this.#setTyping([...this.typing, user]);
  }

  _lost() {
    this._log.lost();
    this._outbox.lost();
    this.#traces.clear();
    for (const user of this.typing) this.#stopTyping(user);
  }

  _changed() {
    this.#shown = null;
    this.#engine.emit("change", this);
  }

  _updated(message) {
    this.#engine.emit("update", message, this);
    this._changed();
  }

  // For the room itself.

  get #target() {
    return this.id === null ? { to: this.peer } : { room: this.id };
  }

  /** Up to where the application has taken over what came. */
  get #received() {
    return this.#engine.options.autoAck ? this._log.cursor : this.#ackWanted;
  }

  #ask(frame) {
    return this.#engine.request({ ...frame, room: this.id });
  }

  #newLog(cursor) {
    return new Log(this.#engine, this, cursor, (entry) => this.#took(entry));
  }

  /** An entry has its turn in the stream. */
  #took(entry) {
    const message = this.#place(entry);
    if (this.#traces.has(entry.seq)) message.trace = this.#traces.get(entry.seq);
    this.#traces.delete(entry.seq);
    if (this._log.trim()) this.complete = false;
    if (entry.event) this.#changeMembers(entry);
    this.#stopTyping(entry.from);
    this.#engine.report(this);
    this.#engine.emit("message", message, this);
    this._changed();
    if (entry.event === "left" && entry.users.includes(this.#engine.user())) this.#engine.forget(this);
  }

  /** Makes an entry a message of this room, unless it is one. */
  #place(entry) {
    this.head = Math.max(this.head, entry.seq);
    const mine = entry.from === this.#engine.user();
    const known = this._log.find(entry.seq) ?? (mine ? this.#settle(entry) : undefined);
    if (known) return known;
    const { room, id, seq, from, at, body, event, users, cid } = entry;
    const message = { room, id, seq, from, at, mine, state: mine && !event ? this.#stateOf(seq) : "received" };
    Object.assign(message, event ? { event, users } : { body }, cid === undefined ? {} : { cid });
    this._log.insert(message);
    return message;
  }

  /** One's own message has been stored: it goes from the outbox to its place. */
  #settle({ cid, room, id, seq, at }) {
    const message = this._outbox.settle(cid);
    if (!message) return undefined;
    this.head = Math.max(this.head, seq);
    Object.assign(message, { room, id, seq, at, state: this.#stateOf(seq), error: undefined });
    this._log.insert(message);
    this._updated(message);
    return message;
  }

  async #loadOlder(limit) {
    if (this.complete || this.id === null) return [];
    const { messages, more } = await this._log.older(limit);
    const before = new Set(this._log.messages);
    const loaded = messages.map((entry) => this.#place(entry)).filter((message) => !before.has(message));
    this.complete = !more;
    this._changed();
    if (this.members === null) await this.#loadPositions();
    return loaded;
  }

  /** The states of one's own messages need the positions of the others. */
  async #loadPositions() {
    if (this.count <= RECEIPTS_UP_TO) await this.loadMembers().catch(() => {}); // the next connection asks again
  }

  #readTo(seq) {
    if (seq <= this.read) return false;
    this.read = seq;
    this.#engine.save(this);
    this._changed();
    return true;
  }

  #changeMembers({ event, users, seq }) {
    const came = event !== "left";
    if (came) this.#engine.meet(users);
    if (seq > this.#countedAt) this.count += came ? users.length : -users.length;
    if (this.members === null) return;
    const others = this.members.filter((user) => !users.includes(user));
    this.members = came ? [...others, ...users].sort() : others;
  }

  #stopTyping(user) {
    this.#engine.timers.clear(`typing ${this.id} ${user}`);
    if (this.typing.includes(user)) this.#setTyping(this.typing.filter((one) => one !== user));
  }

  #setTyping(users) {
    this.typing = users;
    this.#engine.emit("typing", this);
  }

  /** Positions only grow, in whatever order they come. */
  #grow(user, { delivered = 0, read = 0 }) {
    const old = this.positions.get(user) ?? { delivered: 0, read: 0 };
    const grown = { delivered: Math.max(old.delivered, delivered, read), read: Math.max(old.read, read) };
    this.positions.set(user, grown);
  }

  /** Up to where all others have received, or read. */
  #reached(kind) {
    const known = this.members ?? (this.peer === undefined ? [...this.positions.keys()] : [this.peer]);
    const others = known.filter((user) => user !== this.#engine.user());
    const isAll = this.members !== null || this.peer !== undefined || others.length >= this.count - 1;
    if (!isAll || others.length === 0) return 0;
    return others.reduce((least, user) => Math.min(least, this.positions.get(user)?.[kind] ?? 0), Infinity);
  }

  #stateOf(seq) {
    if (seq <= this.#reached("read")) return "read";
    return seq <= this.#reached("delivered") ? "delivered" : "sent";
  }

  /** Moves the states of one's own messages on. */
  #grade() {
    const [delivered, read] = [this.#reached("delivered"), this.#reached("read")];
    for (const message of this._log.messages) {
      if (!message.mine || message.event || message.seq > delivered || message.state === "read") continue;
      const state = message.seq <= read ? "read" : "delivered";
      if (state !== message.state) this._updated(Object.assign(message, { state }));
    }
  }

  /** The log of the server ends before what was here of it: it is another one. */
  #startOver(head, read) {
    Object.assign(this, { head, read, complete: false });
    this.#resumed = this.#acked = this.#ackWanted = this.#base = 0;
    this._log = this.#newLog(0);
    this.#engine.save(this);
    this.#engine.restart("the log of a room began anew");
  }
}

// ------------------------------------------------------------------------------------------------------- the client

/** A user's client. `minichat.d.ts` has the options and the events. */
export class Minichat {
  #options;
  #emitter = new Emitter();
  #timers = new Timers();
  #store;
  #link;
  #engine;
  #order = 0;
  #keptFor; // whose things are in the storage
  #listed = false; // whether the rooms are known, on this connection
  #announce = oncePerTurn(() => this.#emitter.emit("rooms", this.rooms));
  #askPresence = oncePerTurn(() => this.#writePresence());
  #strangers = new Map(); // room id -> { held, overflowed }: what is to be done with rooms that are not known yet
  #drafts = new Map(); // user id -> the direct chat in which nothing is stored yet
  #places = new Map(); // room id -> [cursor, read, peer], as it was before the reload
  #requests = new Map(); // cid -> { frame, resolve, reject, tries }
  #watched = new Set(); // those named last are at the end
  #presenceCid; // of the last question
  #unsaved = new Set();
  #unreported = new Set();
  #reportedAt = 0;
  #waiting = []; // for `connect`
  #listening = []; // functions that end it

  /** Room id -> room. */
  rooms = new Map();
  /** User id -> { user, online, lastSeen }, of those who are watched; `online` is null where nobody knows. */
  presence = new Map();
  /** The id of this user, once it is known. */
  user;
  /** How the connection is: the type `State`. */
  state = { phase: "closed", reason: "not connected yet", final: false };

  constructor(options = {}) {
    this.#options = { ...DEFAULTS, ...options };
    if (!(this.#options.WebSocket ?? globalThis.WebSocket)) {
      throw new Error("there is no WebSocket here: pass one as an option, such as that of the package ws");
    }
    if (options.token === undefined) this.user = options.user;
    this.#store = new Store(this.#options.storage ?? memoryStorage(), (error) => this.#emitter.emit("error", error));
    this.#link = new Link(this.#options, this.#timers, {
      hello: (user, token) => this.#hello(user, token),
      welcome: ({ user }) => this.#identify(user),
      state: (state) => this.#state(state),
      frame: (frame) => this.#hear(frame),
      lost: () => this.#lost(),
    });
    this.#engine = this.#makeEngine();
  }

  /** Calls `run` at each event of this name; gives a function that ends that. */
  on(event, run) {
    return this.#emitter.on(event, run);
  }

  /** Connects, and stays connected until `close` or a final end. Resolves when the rooms are known. */
  connect() {
    if (this.state.phase === "online" && this.#listed) return Promise.resolve(this);
    const ready = new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
    ready.catch(() => {}); // who does not wait is told by the state
    if (this.state.phase === "closed") this.#start();
    return ready;
  }

  /** Ends it and leaves no timer. Resolves when what is to be kept is kept. */
  async close() {
    if (this.state.phase === "online") this.#report();
    this.#link.stop("closed");
    await this.#store.idle;
  }

  /** Sees at once whether the connection holds, or tries again. Call it when an app comes to the foreground. */
  check() {
    this.#link.check();
  }

  /** The direct chat with a user. It is made by its first message. */
  direct(user) {
    for (const room of this.rooms.values()) if (room.peer === user) return room;
    for (const [id, [, , peer]] of this.#places) if (peer === user) return this.#open(id, peer);
    if (!this.#drafts.has(user)) this.#drafts.set(user, new Room(this.#engine, { peer: user }));
    return this.#drafts.get(user);
  }

  /** Makes a room; with the same id again, gives the same room. */
  async create({ id = `r-${newCid()}`, members = [], name, open = false } = {}) {
    return this.#know(await this.#request({ type: "create", room: id, members, name, open }));
  }

  /** Joins an open room; with `create`, makes it where it is missing. */
  async join(id, { create = false } = {}) {
    return this.#know(await this.#request({ type: "join", room: id, create }));
  }

  /** Asks for the presence of users, now and after each reconnect. It comes as the event `presence`. */
  watch(users) {
    for (const user of users) {
      this.#watched.delete(user);
      this.#watched.add(user);
    }
    this.unwatch([...this.#watched].slice(0, -PAGE));
  }

  unwatch(users) {
    for (const user of users) {
      this.#watched.delete(user);
      if (this.presence.has(user)) this.#setPresence(user, null);
      this.presence.delete(user);
    }
    this.#askPresence();
  }

  /** Sends a body to a user who is connected now; it is not stored. False where it was dropped at once. */
  signal(user, body) {
    return this.#engine.signal({ to: user }, body);
  }

  /** No push at all, or push again. */
  async mute(muted = true) {
    await this.#request({ type: "settings", muted });
  }

  /** Registers this installation for push; with `remove`, ends that. */
  async deviceToken(token, { provider = "fcm", remove = false } = {}) {
    await this.#request({ type: "device_token", provider, token, remove });
  }

  /** What rooms may use of their client. */
  #makeEngine() {
    return {
      options: this.#options,
      timers: this.#timers,
      store: this.#store,
      outgoing: new Map(), // cid -> the room that has it in its outbox
      user: () => this.user,
      online: () => this.state.phase === "online",
      order: () => (this.#order = Math.max(this.#order + 1, Date.now())),
      emit: (...event) => this.#emitter.emit(...event),
      request: (frame) => this.#request(frame),
      write: (frame) => this.#link.write(frame),
      dropOrWrite: (frame) => this.#engine.online() && this.#link.write(frame, { volatile: true }),
      signal: (to, body) => !tooLarge(body) && this.#engine.dropOrWrite({ type: "signal", ...to, body }),
      restart: (reason) => this.#link.restart(reason),
      report: (room) => this.#reportSoon(room),
      save: (room) => this.#saveSoon(room),
      forget: (room) => this.#forget(room),
      meet: (users) => this.#meet(users),
    };
  }

  async #start() {
    this.state = { phase: "connecting" };
    const starting = this.state;
    const values = await this.#store.load();
    if (this.state !== starting) return; // closed meanwhile
    this.#restore(values);
    this.#listen();
    this.#link.start();
  }

  #state(state) {
    this.state = state;
    if (state.phase === "closed") this.#end(state);
    this.#emitter.emit("state", state);
    if (this.state === state && state.phase === "online") this.#begin();
  }

  #begin() {
    for (const room of this.#allRooms()) room._outbox.pump();
    if (this.#watched.size > 0) this.#askPresence();
    this.#list().then(
      () => this.#listed && this.#wake(),
      () => this.#link.restart("the rooms could not be listed"), // if it is not lost already
    );
  }

  #end({ reason, code }) {
    this.#save();
    this.#timers.clearAll();
    for (const stop of this.#listening.splice(0)) stop();
    this.#wake(new ChatError(code === 4001 ? "unauthenticated" : "closed", reason));
  }

  #wake(error) {
    for (const { resolve, reject } of this.#waiting.splice(0)) error ? reject(error) : resolve(this);
  }

  /** Follows what a browser tells of the network and the tab. */
  #listen() {
    const listen = (target, event, run) => {
      if (typeof target?.addEventListener !== "function") return;
      target.addEventListener(event, run);
      this.#listening.push(() => target.removeEventListener(event, run));
    };
    const look = () => (globalThis.document?.visibilityState === "hidden" ? this.#save() : this.check());
    listen(globalThis, "online", look);
    listen(globalThis, "pageshow", look);
    listen(globalThis, "pagehide", () => this.#save());
    listen(globalThis.document, "visibilitychange", look);
  }

  // What follows is about who this is and what is kept.

  #restore(values) {
    const kept = new Map([...values].map(([key, text]) => [key, parsed(text)]));
    const sends = [];
    for (const [key, value] of kept) {
      if (key.startsWith("room/") && value && !this.rooms.has(key.slice(5))) this.#places.set(key.slice(5), value);
      if (key.startsWith("out/") && value) sends.push({ ...value, cid: key.slice(4) });
    }
    const user = this.user;
    if (kept.has("user")) this.user = this.#keptFor = kept.get("user");
    for (const item of sends.sort((one, other) => one.order - other.order)) {
      if (this.#engine.outgoing.has(item.cid)) continue;
      const { room, to } = item.target;
      (to === undefined ? (this.rooms.get(room) ?? this.#open(room)) : this.direct(to))._queue(item);
    }
    if (user !== undefined) this.#identify(user);
  }

  /** This is `user`. What is kept of another one is thrown away: it must not be sent in this one's name. */
  #identify(user) {
    if (this.#keptFor !== user) this.#store.set("user", (this.#keptFor = user));
    if (user === this.user) return;
    if (this.user !== undefined) {
      for (const id of [...this.#places.keys(), ...this.rooms.keys()]) this.#store.remove(`room/${id}`);
      for (const cid of this.#engine.outgoing.keys()) this.#store.remove(`out/${cid}`);
      const all = [this.#places, this.rooms, this.#drafts, this.#engine.outgoing, this.#unsaved, this.#unreported];
      for (const one of all) one.clear();
      this.#announce();
    }
    this.user = user;
  }

  #saveSoon(room) {
    this.#unsaved.add(room);
    if (this.state.phase === "closed") this.#save();
    else if (!this.#timers.has("save")) this.#timers.set("save", SAVE_AFTER, () => this.#save());
  }

  #save() {
    for (const room of this.#unsaved) if (room.id !== null) this.#store.set(`room/${room.id}`, room._place());
    this.#unsaved.clear();
  }

  // What follows is about frames.

  #hello(user, token) {
    if (user !== undefined) this.#identify(user);
    const known = [...this.#places].map(([id, [cursor]]) => [id, cursor]);
    const cursors = [...known, ...[...this.rooms].map(([id, room]) => [id, room._resume()])].filter(([, at]) => at > 0);
    const frames = [];
    do {
      const part = Object.fromEntries(cursors.splice(0, CURSORS_PER_HELLO));
      frames.push({ type: "hello", cursors: part, more: cursors.length > 0 });
    } while (cursors.length > 0);
    Object.assign(frames[0], { token, device: this.#options.device, trace: this.#options.trace });
    return frames;
  }

  #hear(frame) {
    if (frame.type === "message") this.#stream(frame);
    else if (frame.type === "sent") this.#sent(frame);
    else if (frame.type === "error") this.#error(frame);
    else if (frame.type === "receipt") this.#receipt(frame);
    else if (frame.type === "typing") this.rooms.get(frame.room)?._typing(frame.user);
    else if (frame.type === "presence") this.#hearPresence(frame);
    else if (frame.type === "signal") this.#signal(frame);
    else if (frame.type === "trace") this.#trace(frame);
    else this.#settle(frame.cid)?.resolve(frame);
  }

  #stream(entry, repeat) {
    this.#within(entry.room, (room) => room._log.stream(entry, repeat));
  }

  /** Does this with a room: now, or where it is not known yet, once it has been looked up. */
  #within(id, run) {
    const room = this.rooms.get(id);
    if (room) return run(room);
    const stranger = this.#strangers.get(id) ?? { held: [], overflowed: false };
    this.#strangers.set(id, stranger);
    if (stranger.held.length < MAX_HELD) stranger.held.push(run);
    else stranger.overflowed = true;
    if (this.#listed && stranger.held.length === 1) this.#lookUp(id);
  }

  #sent(frame) {
    const room = this.#engine.outgoing.get(frame.cid) ?? this.rooms.get(frame.room);
    const sent = room?._sent(frame);
    if (sent) this.#stream(...sent);
  }

  #error(frame) {
    const error = new ChatError(frame.code, frame.message, frame.retry_after_ms);
    const room = this.#engine.outgoing.get(frame.cid);
    const request = this.#requests.get(frame.cid);
    if (room) room._outbox.refuse(frame.cid, error);
    else if (request && error.retryAfter !== undefined && request.tries < MAX_RETRIES) {
      const wait = error.retryAfter * (1 + Math.random() * request.tries);
      this.#timers.set(frame.cid, wait, () => this.#ask(request));
    } else if (request) this.#settle(frame.cid).reject(error);
    else if (frame.cid === this.#presenceCid && error.retryAfter) this.#askLater(error.retryAfter);
    else if (frame.cid === undefined) this.#emitter.emit("error", error);
  }

  #receipt({ room: id, user, delivered, read }) {
    this.#within(id, (room) => {
      room._receipt(user, { delivered, read });
      this.#emitter.emit("receipt", { room: id, user, delivered, read });
    });
  }

  #signal({ room, from, body }) {
    this.#emitter.emit("signal", { room, from, body });
  }

  #trace({ room: id, seq, origin, path, ms }) {
    this.#within(id, (room) => room._trace(seq, { origin, path, ms }));
    this.#emitter.emit("trace", { room: id, seq, origin, path, ms });
  }

  async #request(frame) {
    if (!this.#engine.online()) throw new ChatError("offline", "there is no connection");
    const request = { frame: { ...frame, cid: newCid() }, tries: 0 };
    const isTooLarge = utf8Length(JSON.stringify(request.frame)) > MAX_FRAME_BYTES;
    if (isTooLarge) throw new ChatError("too_large", "the request is larger than a frame may be");
    this.#requests.set(request.frame.cid, request);
    this.#ask(request);
    return new Promise((resolve, reject) => Object.assign(request, { resolve, reject }));
  }

  #ask(request) {
    const { cid } = request.frame;
    request.tries += 1;
    this.#link.write(request.frame);
    const late = () => this.#settle(cid).reject(new ChatError("timeout", "the server did not answer"));
    this.#timers.set(cid, this.#options.answerTimeout, late);
  }

  #settle(cid) {
    const request = this.#requests.get(cid);
    this.#requests.delete(cid);
    if (request) this.#timers.clear(cid);
    return request;
  }

  #lost() {
    this.#listed = false;
    this.#strangers.clear();
    this.#unreported.clear(); // the cursors of the next hello say it
    for (const name of ["report", "presence"]) this.#timers.clear(name);
    const error = new ChatError("offline", "the connection broke");
    for (const cid of [...this.#requests.keys()]) this.#settle(cid).reject(error);
    for (const room of this.#allRooms()) room._lost();
    for (const user of this.presence.keys()) this.#setPresence(user, null);
  }

  // What follows is about rooms.

  #allRooms() {
    return [...this.rooms.values(), ...this.#drafts.values()];
  }

  #open(id, peer) {
    const [cursor, read, knownPeer] = this.#places.get(id) ?? [];
    this.#places.delete(id);
    const room = new Room(this.#engine, { id, peer: peer ?? knownPeer, cursor, read });
    this.#add(room);
    return room;
  }

  #add(room) {
    this.rooms.set(room.id, room);
    this.#announce();
    if (this.#listed) this.#meet(this.#watched); // its members, whoever they are
  }

  /** Reads which rooms there are. */
  async #list() {
    const gone = new Map(this.rooms);
    let page;
    do {
      page = await this.#request({ type: "rooms", after: page?.rooms.at(-1).room, limit: PAGE });
      for (const info of page.rooms) {
        gone.delete(info.room);
        this.#know(info);
      }
    } while (page.more);
    if (!this.#engine.online()) return; // a room has asked for a new start
    for (const room of gone.values()) this.#forget(room);
    for (const id of this.#places.keys()) this.#store.remove(`room/${id}`);
    this.#places.clear();
    this.#listed = true;
    for (const id of this.#strangers.keys()) this.#lookUp(id);
  }

  /** Finds out about a room of which something came. */
  async #lookUp(id) {
    try {
      const { rooms } = await this.#request({ type: "rooms", after: justBelow(id), limit: 1 });
      if (rooms[0]?.room === id) this.#know(rooms[0]);
      else this.#strangers.delete(id); // we are not in it any more
    } catch (error) {
      if (error.code !== "offline") this.#link.restart("a room could not be looked up");
    }
  }

  /** Takes what the server says of a room, and what came for it before. */
  #know(info) {
    let room = this.rooms.get(info.room);
    if (!room && this.#drafts.has(info.peer)) {
      room = this.#drafts.get(info.peer);
      this.#drafts.delete(info.peer);
      room.id = info.room;
      this.#add(room);
    }
    room ??= this.#open(info.room, info.peer);
    room._learn(info);
    const stranger = this.#strangers.get(info.room);
    this.#strangers.delete(info.room);
    for (const run of stranger?.held ?? []) run(room);
    if (stranger?.overflowed) room._log.fill();
    return room;
  }

  #forget(room) {
    if (this.rooms.get(room.id) !== room) return;
    this.rooms.delete(room.id);
    this.#unsaved.delete(room);
    this.#unreported.delete(room);
    this.#store.remove(`room/${room.id}`);
    room._outbox.abandon();
    this.#announce();
  }

  /** Tells the server how far this user is, for all rooms together: soon, and at most once per `ackEvery`. */
  #reportSoon(room) {
    this.#saveSoon(room);
    if (!this.#engine.online()) return;
    this.#unreported.add(room);
    if (this.#timers.has("report")) return;
    const wait = Math.max(REPORT_AFTER, this.#reportedAt + this.#options.ackEvery - Date.now());
    this.#timers.set("report", wait, () => this.#report());
  }

  #report() {
    this.#reportedAt = Date.now();
    for (const room of this.#unreported) room._report();
    this.#unreported.clear();
  }

  // What follows is about presence.

  /** Names all who are watched: the server forgets those it was told before. */
  #writePresence() {
    if (!this.#engine.online()) return;
    this.#timers.clear("presence");
    // With a cid, so that an error of a server that does not know presence is the answer to this and no alarm.
    this.#presenceCid = newCid();
    this.#link.write({ type: "presence", cid: this.#presenceCid, users: [...this.#watched] });
  }

  #askLater(wait) {
    if (!this.#timers.has("presence")) this.#timers.set("presence", wait, this.#askPresence);
  }

  /** These may share a room with this user now. Of whom that is news, the server tells only when it is asked again. */
  #meet(users) {
    const isUnknown = (user) => this.#watched.has(user) && (this.presence.get(user)?.online ?? null) === null;
    if ([...users].some(isUnknown)) this.#askLater(ASK_AGAIN_AFTER);
  }

  #hearPresence({ user, online = null, last_seen: lastSeen }) {
    if (this.#watched.has(user)) this.#setPresence(user, online, lastSeen);
  }

  #setPresence(user, online, lastSeen = this.presence.get(user)?.lastSeen) {
    const presence = { user, online, lastSeen };
    this.presence.set(user, presence);
    this.#emitter.emit("presence", presence);
  }
}
