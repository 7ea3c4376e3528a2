// The list of conversations: people and rooms, the latest first.

import { $, arrange, button, face, icon, isolated, make, unseen } from "./dom.js";
import { inShort, presenceWords, shortTime, titleOf } from "./words.js";

export class Rooms {
  #context;
  #rows = new Map(); // room -> { element, known }

  /** `context` has `chat`, `me` and `open(room)`. */
  constructor(context) {
    this.#context = context;
  }

  /** Shows what there is; `current` is the room that is open, which may be a chat in which nothing was said yet. */
  render(current) {
    const { chat } = this.#context;
    const all = new Set(chat.rooms.values());
    if (current) all.add(current);
    const latest = (room) => room.last?.at ?? (room === current ? Infinity : 0);
    const sorted = [...all].sort((one, other) => latest(other) - latest(one));
    this.#fill("people", sorted.filter((room) => room.peer !== undefined), current);
    this.#fill("rooms", sorted.filter((room) => room.peer === undefined), current);
    for (const room of this.#rows.keys()) if (!all.has(room)) this.#rows.delete(room);
  }

  /** Puts the focus on a room's row. */
  focus(room) {
    this.#rows.get(room)?.element.firstElementChild.focus();
  }

  #fill(list, rooms, current) {
    arrange($(list), rooms.map((room) => this.#row(room, room === current)));
    $(`no-${list}`).hidden = rooms.length > 0;
  }

  #row(room, isCurrent) {
    const row = this.#rows.get(room) ?? { element: make("li"), known: "" };
    this.#rows.set(room, row);
    const { last, unread, muted, typing, peer } = room;
    const presence = this.#context.chat.presence.get(peer);
    const day = new Date().toDateString();
    const { cid, seq, at } = last ?? {};
    const known = JSON.stringify([titleOf(room), cid, seq, at, unread, muted, typing, presence, isCurrent, day]);
    if (known === row.known) return row.element; // most have not changed
    row.known = known;
    const entry = row.element.firstElementChild ?? button("room", () => this.#context.open(room));
    entry.replaceChildren(...this.#parts(room, presence));
    if (isCurrent) entry.setAttribute("aria-current", "true");
    else entry.removeAttribute("aria-current");
    if (!entry.parentNode) row.element.append(entry);
    return row.element;
  }

  #parts(room, presence) {
    const { last, muted, peer } = room;
    const title = titleOf(room);
    const picture = make("span", "picture", peer === undefined ? face(title, "#") : face(title));
    if (presence?.online) picture.append(make("span", "here"));
    const name = make("span", "top", isolated("span", "name", title));
    if (muted) name.append(make("span", "quiet-mark", icon("muted"), unseen("muted")));
    if (last) name.append(shortTime(last.at));
    const says = make("span", "bottom", this.#preview(room, presence), ...this.#badge(room));
    return [picture, make("span", "lines", name, says)];
  }

  #preview({ typing, last, peer }, presence) {
    if (typing.length > 0) return make("span", "preview typing", peer ? "typing\u2026" : "someone is typing\u2026");
    if (!last) return make("span", "preview", presenceWords(presence) || "Nothing was said yet");
    const from = !peer && !last.mine && !last.event ? `${last.from}: ` : "";
    return isolated("span", "preview", from + inShort(last, this.#context.me, peer !== undefined));
  }

  #badge({ unread }) {
    if (unread === 0) return [];
    return [make("span", "unread", unread > 99 ? "99+" : String(unread), unseen(" unread"))];
  }
}
