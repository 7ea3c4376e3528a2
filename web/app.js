// The demo page: who this is, which conversation is open, and what shows when. The views are in view/, the protocol is in
// minichat.js.

import { Minichat, webStorage } from "./minichat.js";
import { Conversation } from "./view/conversation.js";
import { GroupDialog, StartDialog, troubleWords } from "./view/dialogs.js";
import { $, icon, say } from "./view/dom.js";
import { Journey } from "./view/journey.js";
import { Rooms } from "./view/rooms.js";
import { Status } from "./view/status.js";
import { Travels } from "./view/travels.js";
import { Watch } from "./view/watch.js";
import { titleOf } from "./view/words.js";

const COMPLAINT_MS = 6_000;
/** Words like "last seen 5 min ago" grow old by themselves, and a receipt may have been lost. */
const LOOK_AGAIN_MS = 30_000;
/** Of so many conversations the last message is loaded for the list. */
const MAX_PREVIEWS = 50;

class App {
  #room = null; // the conversation that is open
  #selected = null; // the message whose way is shown; none: the latest
  #rendering = false;
  #listed = false; // whether the rooms are known
  #complaining;

  constructor(me) {
    this.me = me;
    // Each person has a storage of their own, since several may share this browser.
    this.chat = new Minichat({ user: me, trace: true, storage: webStorage(`minichat/${encodeURIComponent(me)}/`) });
    this.travels = new Travels(this.chat);
    const context = this.#context();
    this.status = new Status(this.chat);
    this.rooms = new Rooms(context);
    this.journey = new Journey(context);
    this.conversation = new Conversation(context);
    this.start = new StartDialog(context);
    this.group = new GroupDialog(context);
    this.watch = new Watch(this.chat);
    this.#listen();
  }

  /** What the views may use. */
  #context() {
    return {
      me: this.me,
      chat: this.chat,
      travels: this.travels,
      acts: {
        select: (message) => this.#select(message),
        retry: (message) => this.#retry(message),
        discard: (message) => this.#room.discard(message),
      },
      selected: () => this.#selected,
      online: () => this.chat.state.phase === "online",
      open: (room) => this.#go(room),
      close: () => this.#go(null),
      complain: (error) => this.#complain(troubleWords(error)),
      showMembers: (room) => this.group.show(room),
      changed: () => this.#changed(),
      key: placeOf,
    };
  }

  async run() {
    say($("me"), this.me);
    $("logout").append(icon("leave"));
    for (const link of document.querySelectorAll(".second")) link.href = `/#/with/${encodeURIComponent(this.me)}`;
    $("app").hidden = false;
    this.#route();
    this.#changed();
    await this.chat.connect();
    this.#listed = true;
    this.#route();
    this.#loadPreviews();
  }

  #listen() {
    const { chat } = this;
    for (const event of ["state", "rooms", "change", "typing", "presence", "trace"]) chat.on(event, () => this.#changed());
    chat.on("state", ({ phase }) => phase === "online" && this.#room && this.#loadMembers());
    chat.on("rooms", () => this.#route());
    chat.on("message", (message, room) => message.event && room === this.#room && this.#loadMembers());
    chat.on("error", (error) => this.#complain(error.message));
    addEventListener("hashchange", () => this.#route());
    document.addEventListener("visibilitychange", () => this.#changed());
    setInterval(() => this.#lookAgain(), LOOK_AGAIN_MS);
    $("skip").onclick = (event) => (event.preventDefault(), ($("chat").hidden ? $("new") : $("text")).focus());
    $("missing-back").onclick = () => this.#go(null);
    $("missing-join").onclick = () => this.#joinMissing();
    $("logout").onclick = () => this.#signOut();
  }

  /** Shows all that has changed within one turn, once. A tab in the background has no animation frames. */
  #changed() {
    if (this.#rendering) return;
    this.#rendering = true;
    queueMicrotask(() => {
      this.#rendering = false;
      this.rooms.render(this.#room);
      this.conversation.render();
      this.journey.render(this.#room);
      this.group.render();
      this.#showTitle();
      this.watch.update(this.#room);
    });
  }

  /** The title counts what is unread, for who looks at another tab. */
  #showTitle() {
    const counted = [...this.chat.rooms.values()].filter((room) => !room.muted);
    const unread = counted.reduce((sum, room) => sum + room.unread, 0);
    const name = this.#room ? `${titleOf(this.#room)} \u00b7 minichat` : "minichat";
    const title = unread > 0 ? `(${unread}) ${name}` : name;
    if (document.title !== title) document.title = title;
  }

  // Which conversation is open stands in the address, so that a reload keeps it and the back button leaves it.

  #go(room) {
    const place = room ? `#/${placeOf(room)}` : "";
    if (location.hash === place) return this.#route();
    if (place) location.hash = place;
    else history.pushState(null, "", location.pathname), this.#route();
  }

  /** Opens what the address names. */
  #route() {
    const [kind, name] = placeIn(location.hash);
    let room = null;
    if (kind === "with" && name !== this.me) room = this.chat.direct(name);
    if (kind === "room") room = this.chat.rooms.get(name) ?? null;
    const isMissing = kind === "room" && !room && this.#listed;
    $("missing").hidden = !isMissing;
    say($("missing-id"), isMissing ? name : "");
    if (room !== this.#room) this.#open(room);
    $("welcome").hidden = isMissing || room !== null || kind === "room";
    $("app").dataset.pane = room || isMissing ? "chat" : "list";
  }

  #open(room) {
    const left = this.#room;
    this.#room = room;
    this.#selected = null;
    $("chat").hidden = room === null;
    this.rooms.render(room);
    $("app").dataset.pane = room ? "chat" : "list";
    this.conversation.show(room);
    this.#changed();
    if (room) {
      this.#loadMembers();
      // On a phone the keyboard would cover half of what is to be read.
      $(matchMedia("(pointer: coarse)").matches ? "title" : "text").focus();
    } else if (left) this.rooms.focus(left);
  }

  /** After a reload, what was said last has to be asked for, with what is unread: events among that do not count. */
  async #loadPreviews() {
    const bare = [...this.chat.rooms.values()].filter((room) => !room.last);
    for (const room of bare.slice(0, MAX_PREVIEWS)) await room.history(Math.min(room.unread + 1, 50)).catch(() => {});
  }

  #lookAgain() {
    const isOpen = ({ mine, state }) => mine && (state === "sent" || state === "delivered");
    if (this.#room?.messages.some(isOpen)) this.#loadMembers();
    this.#changed();
  }

  /** Who is in a room: for presence and receipts. Where it fails, the next change or connection asks again. */
  #loadMembers() {
    const room = this.#room;
    if (room.id !== null && this.chat.state.phase === "online") room.loadMembers().catch(() => {});
  }

  async #joinMissing() {
    const [, name] = placeIn(location.hash);
    try {
      await this.chat.join(name);
      this.#route();
    } catch (error) {
      this.#complain(troubleWords(error));
    }
  }

  #select(message) {
    this.#selected = message;
    if (!this.journey.isOpen) this.journey.toggle(true, true);
    this.conversation.log.reveal(message);
    this.#changed();
  }

  #retry(message) {
    if (this.#room.retry(message)) this.travels.begin(message);
  }

  #complain(words) {
    say($("problem"), words);
    $("problem").hidden = false;
    clearTimeout(this.#complaining);
    this.#complaining = setTimeout(() => ($("problem").hidden = true), COMPLAINT_MS);
  }

  async #signOut() {
    sessionStorage.clear();
    await this.chat.close();
    location.assign("/");
  }
}

/** A conversation, as the address names it. */
function placeOf(room) {
  return room.peer !== undefined ? `with/${encodeURIComponent(room.peer)}` : `room/${encodeURIComponent(room.id)}`;
}

/** What an address names: a kind and a name. It may be of anyone's making. */
function placeIn(hash) {
  const [, kind, name] = /^#\/(with|room)\/(.+)$/.exec(hash) ?? [];
  try {
    return [kind, name && decodeURIComponent(name)];
  } catch {
    return [];
  }
}

function signIn(name) {
  $("login").hidden = true;
  // It fails where the server wants no one without a token; the state says so.
  new App(name).run().catch(() => {});
}

function askForName() {
  $("login").hidden = false;
  $("name").value = new URLSearchParams(location.search).get("user") ?? "";
  $("name").focus();
  $("login-form").onsubmit = (event) => {
    event.preventDefault();
    const name = $("name").value.trim();
    if (!name) return;
    sessionStorage.setItem("name", name);
    signIn(name);
  };
}

// Kept by the tab, so that two tabs can be two people.
const kept = sessionStorage.getItem("name");
if (kept) signIn(kept);
else askForName();
