// The demo page: shows what a `Connection` hears, and knows no socket.

import { Connection } from "/connection.js";

const $ = (id) => document.getElementById(id);

/** An element with a class, and text or children. Text is never read as markup. */
function make(tag, className, ...children) {
  const element = document.createElement(tag);
  element.className = className;
  element.append(...children);
  return element;
}

/** The text of a body, which may be any JSON. */
function textOf(body) {
  if (typeof body === "string") return body;
  if (typeof body?.text === "string") return body.text;
  try {
    return JSON.stringify(body);
  } catch {
    return "(too deeply nested to show)";
  }
}

function eventText({ event, from, users = [] }) {
  const others = users.filter((user) => user !== from).join(", ");
  const alone = { created: "opened this room", joined: "joined", left: "left" };
  const acted = { created: `opened this room with ${others}`, joined: `added ${others}`, left: `removed ${others}` };
  return `${from} ${(others ? acted : alone)[event] ?? event}`;
}

function pathBadge({ path, origin, ms }) {
  const way = { relay: `relay from ${origin}`, healed: "healed from the store" };
  return make("span", `path ${path}`, `${way[path] ?? path}, ${ms} ms`);
}

class View {
  #rooms = new Map(); // room -> what the server says of it
  #chat = {}; // { room, peer } that is open; a direct chat in which nothing was said has no room yet
  #items = new Map(); // seq -> its list item
  #loading = false;
  #retryAt = 0; // when the connection is tried again; 0 when it is not waiting for that
  #refreshing = 0; // timers
  #complaining = 0;

  constructor(connection) {
    this.connection = connection;
    const on = (name, handle) => connection.addEventListener(name, (event) => handle(event.detail));
    on("state", (state) => this.#showState(state));
    on("welcome", () => this.#refresh());
    on("entry", (entry) => this.#entry(entry));
    on("trace", (trace) => this.#showTrace(trace));
    on("unsent", () => this.#showUnsent());
    this.#listen();
  }

  #listen() {
    const submit = (form, input, handle) => ($(form).onsubmit = (event) => {
      event.preventDefault();
      const text = $(input).value.trim();
      $(input).value = "";
      if (text) handle(text);
    });
    submit("direct", "peer", (peer) => this.#open({ room: this.#roomWith(peer)?.room, peer }));
    submit("join", "room", (room) => this.#join(room));
    submit("compose", "text", (text) => this.#send(text));
    $("again").onclick = () => this.connection.connect();
    $("leave").onclick = () => this.#ask({ type: "leave", room: this.#chat.room });
    $("back").onclick = () => this.#open({});
    $("scroll").onscroll = () => this.#fill();
    const look = () => (this.connection.check(), this.#saw());
    for (const name of ["online", "offline"]) addEventListener(name, look);
    document.addEventListener("visibilitychange", () => document.hidden || look());
    setInterval(() => this.#countDown(), 500);
  }

  #showState({ phase, server, code, why, until = 0 }) {
    const words = {
      connecting: "Connecting\u2026",
      open: `${this.connection.user}, connected to ${server}`,
      waiting: `No connection${why ? ` (${why})` : ""}.`,
      ended: `The server ended the connection (${why || code}).`,
    };
    const token = "This server wants a token, which this page has not. Start it with --dev-auth to try it out.";
    $("state-text").textContent = code === 4001 ? token : words[phase];
    $("again").hidden = phase !== "waiting" && phase !== "ended";
    $("app").dataset.phase = phase;
    this.#retryAt = until;
    this.#countDown();
    this.#showUnsent();
  }

  #countDown() {
    const seconds = Math.max(0, Math.ceil((this.#retryAt - Date.now()) / 1000));
    $("countdown").textContent = this.#retryAt ? `Trying again in ${seconds} s.` : "";
  }

  /** Asks the server for something; says what is wrong if it cannot be. */
  async #ask(frame) {
    return this.connection.request(frame).catch((error) => this.#complain(error));
  }

  #complain({ message }) {
    $("problem").textContent = message;
    $("problem").hidden = false;
    clearTimeout(this.#complaining);
    this.#complaining = setTimeout(() => ($("problem").hidden = true), 6_000);
  }

  async #refresh() {
    const rooms = new Map();
    for (let page = { more: true }, after; page.more; ) {
      page = await this.#ask({ type: "rooms", after });
      if (!page) return; // the next welcome comes here again
      for (const info of page.rooms) rooms.set((after = info.room), info);
    }
    this.#rooms = rooms;
    this.#showRooms();
    this.#saw();
    this.#fill();
  }

  /** Reads the list of rooms again, once for all that happens within a moment. */
  #refreshSoon() {
    clearTimeout(this.#refreshing);
    this.#refreshing = setTimeout(() => this.connection.phase === "open" && this.#refresh(), 100);
  }

  #showRooms() {
    const chat = this.#chat;
    const info = this.#rooms.get(chat.room) ?? this.#roomWith(chat.peer);
    if (info && !chat.room) return this.#open(info); // the first message of a direct chat has made its room
    const latest = ({ room }) => this.connection.log(room).entries.get(this.connection.log(room).highest)?.at ?? 0;
    const sorted = [...this.#rooms.values()].sort((a, b) => latest(b) - latest(a));
    $("rooms").replaceChildren(...sorted.map((info) => this.#roomItem(info)));
    $("title").textContent = chat.peer ?? info?.name ?? chat.room ?? "";
    $("count").textContent = info && !info.peer ? `${info.count} ${info.count === 1 ? "member" : "members"}` : "";
    $("leave").hidden = !info || Boolean(info.peer);
  }

  #roomWith(peer) {
    return peer && [...this.#rooms.values()].find((info) => info.peer === peer);
  }

  #roomItem(info) {
    const log = this.connection.log(info.room);
    const unread = Math.max(info.head, log.highest) - Math.max(info.read, log.seen);
    const title = make("span", "title", info.peer ?? info.name ?? info.room);
    const button = make("button", "", make("span", "kind", info.peer ? "@" : "#"), title);
    if (unread > 0) button.append(make("span", "unread", unread));
    button.ariaCurrent = info.room === this.#chat.room;
    button.onclick = () => this.#open(info);
    return make("li", "", button);
  }

  async #join(room) {
    const info = await this.#ask({ type: "join", room, create: true });
    if (!info) return;
    this.#rooms.set(info.room, info);
    this.#open(info);
  }

  #open({ room, peer }) {
    const some = Boolean(room || peer);
    this.#chat = { room, peer };
    this.#items.clear();
    $("app").toggleAttribute("data-chat", some);
    $("nothing").hidden = some;
    $("chat").hidden = !some;
    $("log").replaceChildren();
    this.#showEntries();
    this.#showUnsent();
    this.#showRooms();
    this.#toEnd();
    this.#fill();
    if (some) $("text").focus();
  }

  /** Loads earlier entries while the reader is at the top and there are any. */
  async #fill() {
    const { room } = this.#chat;
    if (!room || this.#loading || this.connection.phase !== "open" || $("scroll").scrollTop > 80) return;
    const lowest = [...this.connection.log(room).fromTheTop()].at(-1)?.seq;
    if (lowest <= (this.#rooms.get(room)?.since ?? 1)) return;
    $("log").ariaBusy = this.#loading = true; // what comes is not news, to be read out
    const some = await this.connection.history(room, lowest).catch((error) => this.#complain(error));
    $("log").ariaBusy = this.#loading = false;
    if (some || room !== this.#chat.room) this.#fill();
  }

  #entry(entry) {
    if (entry.room === this.#chat.room) this.connection.putsMeOut(entry) ? this.#open({}) : this.#showEntries();
    if (entry.event || !this.#rooms.has(entry.room)) this.#refreshSoon();
    else this.#showRooms();
  }

  /** Shows what is there of the open room down to the first hole: what lies below waits for the history. */
  #showEntries() {
    const log = this.connection.logs.get(this.#chat.room);
    if (!log) return;
    this.#keepPlace(() => {
      let below = null;
      for (const entry of log.fromTheTop()) {
        if (!this.#items.has(entry.seq)) {
          this.#items.set(entry.seq, this.#entryItem(entry, log.traces.get(entry.seq)));
          $("log").insertBefore(this.#items.get(entry.seq), below);
        }
        below = this.#items.get(entry.seq);
      }
    });
    this.#saw();
  }

  #entryItem(entry, trace) {
    if (entry.event) return make("li", "event", eventText(entry));
    const at = new Date(entry.at);
    const time = make("time", "", at.toLocaleTimeString([], { timeStyle: "short" }));
    time.title = at.toLocaleString();
    const meta = make("div", "meta", time, ...(trace ? [pathBadge(trace)] : []));
    const text = make("div", "text", textOf(entry.body));
    if (entry.from === this.connection.user) return make("li", "message mine", text, meta);
    return make("li", "message", make("div", "from", entry.from), text, meta);
  }

  #showTrace(trace) {
    if (trace.room === this.#chat.room) this.#items.get(trace.seq)?.querySelector(".meta")?.append(pathBadge(trace));
  }

  #send(text) {
    const { room, peer } = this.#chat;
    this.connection.send(room ? { room } : { to: peer }, { text });
    this.#toEnd();
  }

  #showUnsent() {
    const { room, peer } = this.#chat;
    const here = ({ frame }) => (frame.to ? frame.to === peer : frame.room === room);
    const waiting = this.connection.phase === "open" ? "sending\u2026" : "waits for a connection";
    const items = [...this.connection.unsent.values()].filter(here).map(({ frame, error }) => {
      const meta = make("div", "meta", error ? `Not sent: ${error.message}` : waiting);
      return make("li", `message mine ${error ? "failed" : "unsent"}`, make("div", "text", textOf(frame.body)), meta);
    });
    this.#keepPlace(() => $("unsent").replaceChildren(...items));
  }

  #saw() {
    if (this.#chat.room && !document.hidden) this.connection.saw(this.#chat.room);
  }

  /** Changes the list, and leaves the reader where they were: at the end, or as far from it as before. */
  #keepPlace(change) {
    const list = $("scroll");
    const fromEnd = list.scrollHeight - list.scrollTop;
    const atEnd = fromEnd - list.clientHeight < 60;
    change();
    list.scrollTop = list.scrollHeight - (atEnd ? 0 : fromEnd);
  }

  #toEnd() {
    $("scroll").scrollTop = $("scroll").scrollHeight;
  }
}

function start(name) {
  $("login").hidden = true;
  $("app").hidden = false;
  const url = `${location.origin.replace("http", "ws")}/ws?user=${encodeURIComponent(name)}`;
  if (name === $("peer").placeholder) $("peer").placeholder = "alice";
  const connection = new Connection(url, name);
  new View(connection);
  connection.connect();
}

$("logout").onclick = () => (sessionStorage.removeItem("name"), location.reload());
$("login").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem("name", $("name").value.trim());
  if (sessionStorage.getItem("name")) start(sessionStorage.getItem("name"));
};
// Kept by the tab, so that two tabs can be two people.
if (sessionStorage.getItem("name")) start(sessionStorage.getItem("name"));
else {
  $("login").hidden = false;
  $("name").focus();
}
