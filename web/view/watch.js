// Whose presence is asked for: of the people whom the page shows.

/** Of larger rooms, so many members are asked for. */
const MOST = 50;

export class Watch {
  #chat;
  #watched = new Set();
  #roomsChanged = false;

  constructor(chat) {
    this.#chat = chat;
    chat.on("rooms", () => (this.#roomsChanged = true));
  }

  /** Asks for the people of the list, and for those of the room that is open. */
  update(open) {
    const peers = [...this.#chat.rooms.values(), open].map((room) => room?.peer);
    const others = [...(open?.members ?? []).slice(0, MOST), ...peers].filter((user) => user !== this.#chat.user);
    const wanted = new Set(others.filter((user) => user !== undefined));
    const less = [...this.#watched].filter((user) => !wanted.has(user));
    if (less.length > 0) this.#chat.unwatch(less);
    // All of them, not only the new ones: of people with whom there was no room until now nothing could be told.
    if (this.#roomsChanged || [...wanted].some((user) => !this.#watched.has(user))) this.#chat.watch(wanted);
    this.#watched = wanted;
    this.#roomsChanged = false;
  }
}
