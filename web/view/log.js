// The list of one conversation's messages: what is in it, and where the reader stands in it.

import { $, arrange, isolated, make, say } from "./dom.js";
import { Item } from "./message.js";
import { dayOf, dayWords } from "./words.js";

/** Who writes again within this time goes on in one group. */
const GROUP_MS = 5 * 60_000;
/** This near to the end counts as the end; this near to the top, earlier messages are loaded. */
const END_PX = 40;
const TOP_PX = 400;

export class Log {
  #context;
  #room = null;
  #items = new Map(); // message -> Item, of this room
  #days = new Map(); // day -> its line
  #unreadLine = make("li", "line unread-line", "New");
  #readTo = null; // above this seq, all was new when the person looked away
  #atEnd = true;
  #missed = 0; // messages that came below what is looked at
  #loading = false;

  /** `context` has `chat`, `me`, `travels`, `acts`, `selected()` and `online()`. */
  constructor(context) {
    this.#context = context;
    $("scroll").addEventListener("scroll", () => this.#scrolled(), { passive: true });
    $("latest").onclick = () => this.toEnd();
    new ResizeObserver(() => this.#atEnd && this.#jump()).observe($("scroll"));
  }

  /** Shows another room, or none. */
  show(room) {
    this.#room = room;
    this.#items.clear();
    this.#days.clear();
    this.#readTo = room && room.unread > 0 ? room.read : null;
    $("log").replaceChildren();
    this.#atEnd = true;
    this.#missed = 0;
    this.render();
  }

  /** The person looks away: what comes from now on is new when they come back. */
  lookAway() {
    this.#readTo = null;
  }

  /** A message has come into this room. */
  arrived(message) {
    if (message.mine) {
      this.#readTo = null;
      return;
    }
    if (this.#seen) return;
    this.#readTo ??= message.seq - 1;
    if (!this.#atEnd) this.#missed += 1;
  }

  toEnd() {
    this.#atEnd = true;
    this.#jump();
    this.#scrolled();
  }

  /** Makes the list what the room says now, without moving what the reader looks at. */
  render() {
    if (!this.#room) return;
    this.#atEnd = this.#isAtEnd(); // the event of a scroll may not have come yet
    const anchor = this.#atEnd ? null : this.#anchor();
    arrange($("log"), this.#nodes());
    this.#showEarlier();
    if (anchor) $("scroll").scrollTop += anchor.element.getBoundingClientRect().top - anchor.top;
    else this.#jump();
    this.#showLatest();
    this.#markRead();
    this.#loadEarlier();
  }

  /** Brings one message into view. */
  reveal(message) {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.#items.get(message)?.element.scrollIntoView({ block: "nearest", behavior: still ? "auto" : "smooth" });
  }

  get #seen() {
    return this.#atEnd && document.visibilityState === "visible";
  }

  #markRead() {
    if (this.#seen) this.#room.markRead();
  }

  #nodes() {
    const nodes = [];
    const items = new Map();
    let before = null;
    for (const message of this.#room.messages) {
      const isNewDay = !before || dayOf(before.at) !== dayOf(message.at);
      if (isNewDay) nodes.push(this.#day(message.at));
      const isNew = this.#isFirstUnread(before, message);
      if (isNew) nodes.push(this.#unreadLine);
      const item = this.#items.get(message) ?? new Item(message, this.#room.peer !== undefined, this.#context);
      items.set(message, item);
      const first = isNewDay || isNew || !before || this.#startsGroup(before, message);
      item.update({ first, selected: message === this.#context.selected() });
      nodes.push(item.element);
      before = message;
    }
    this.#items = items;
    if (nodes.length === 0 && (this.#room.id === null || this.#room.complete)) nodes.push(this.#empty());
    return nodes;
  }

  #startsGroup(before, { from, at, event }) {
    return Boolean(before.event || event) || before.from !== from || at - before.at > GROUP_MS;
  }

  #isFirstUnread(before, { seq, mine }) {
    if (this.#readTo === null || mine || !(seq > this.#readTo)) return false;
    return !before || before.seq <= this.#readTo;
  }

  #day(at) {
    const key = dayOf(at);
    if (!this.#days.has(key)) this.#days.set(key, make("li", "line", dayWords(at)));
    return this.#days.get(key);
  }

  #empty() {
    const { peer } = this.#room;
    const lead = peer ? ["Say hello to ", isolated("bdi", "", peer), "."] : ["Say hello."];
    const item = make("li", "empty", make("strong", "", ...lead));
    if (!peer) return item;
    const link = make("a", "", "Be them in a second window");
    Object.assign(link, {
      href: `/?user=${encodeURIComponent(peer)}#/with/${encodeURIComponent(this.#context.me)}`,
      target: "_blank",
      rel: "noopener noreferrer",
    });
    item.append(make("span", "", "They get it at once if they are here, and else when they come back. "), link);
    return item;
  }

  /** The first item that can be seen, and where it is. */
  #anchor() {
    const { top } = $("scroll").getBoundingClientRect();
    const seen = [...$("log").children].find((element) => element.getBoundingClientRect().bottom > top);
    return seen && { element: seen, top: seen.getBoundingClientRect().top };
  }

  #jump() {
    $("scroll").scrollTop = $("scroll").scrollHeight;
  }

  #isAtEnd() {
    const { scrollHeight, scrollTop, clientHeight } = $("scroll");
    return scrollHeight - scrollTop - clientHeight < END_PX;
  }

  #scrolled() {
    this.#atEnd = this.#isAtEnd();
    if (this.#atEnd) this.#missed = 0;
    this.#showLatest();
    if (!this.#room) return;
    this.#markRead();
    this.#loadEarlier();
  }

  #showLatest() {
    $("latest").hidden = this.#atEnd;
    const news = this.#missed === 1 ? "1 new message" : `${this.#missed} new messages`;
    say($("latest"), this.#missed > 0 ? `${news} \u2193` : "To the latest \u2193");
  }

  #showEarlier() {
    const { complete, id, messages } = this.#room;
    const loading = this.#context.online() ? "Loading what was before\u2026" : "What was before is shown once you are online.";
    const begins = messages.length > 0 ? "This is where it begins." : "";
    say($("earlier"), complete || id === null ? begins : loading);
  }

  /** Loads what was before, as long as the reader is near the top. */
  async #loadEarlier() {
    const room = this.#room;
    const wanted = room && !room.complete && room.id !== null && $("scroll").scrollTop < TOP_PX;
    if (!wanted || this.#loading || !this.#context.online()) return;
    this.#loading = true;
    const done = await room.history().then(() => true, () => false); // the next connection, or scrolling, asks again
    this.#loading = false;
    if (done || room !== this.#room) this.render();
  }
}
