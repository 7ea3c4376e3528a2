// How messages travelled: what the server's traces say of those of others, and what is seen here of one's own.

import { apart, lasted } from "./words.js";

/** Ways that are kept. Those of older messages are forgotten. */
const MOST = 2_000;

/**
 * What is known of one message's way: { path, origin, here, ms }; `path` is that of its trace, or `own`. Of one that was
 * healed it is not known which server took it.
 */
export class Travels {
  #chat;
  #ways = new Map(); // room and seq -> way: a trace may come before its message can be shown
  #begun = new WeakMap(); // one's own message -> when it could first leave
  #onlineSince = 0;

  constructor(chat) {
    this.#chat = chat;
    chat.on("state", ({ phase }) => phase === "online" && (this.#onlineSince = performance.now()));
    chat.on("trace", ({ origin, path, ms, ...place }) => this.#keep(place, { origin, path, ms }));
    chat.on("update", (message) => this.#updated(message));
  }

  /** Notes that one's own message was written now. */
  begin(message) {
    this.#begun.set(message, performance.now());
  }

  of(message) {
    return message && this.#ways.get(keyOf(message));
  }

  #keep(place, way) {
    this.#ways.set(keyOf(place), { ...way, here: this.#chat.state.server });
    if (this.#ways.size > MOST) this.#ways.delete(this.#ways.keys().next().value);
  }

  /** The answer to one's own message names no server: it came from the one that we are on. */
  #updated(message) {
    if (!this.#begun.has(message) || message.seq === undefined) return;
    // The wait for a connection is not the message's way.
    const ms = Math.round(performance.now() - Math.max(this.#begun.get(message), this.#onlineSince));
    this.#begun.delete(message);
    this.#keep(message, { path: "own", origin: this.#chat.state.server, ms });
  }
}

function keyOf({ room, seq }) {
  return `${room} ${seq}`;
}

/** The way in two words. */
export function wayShort({ path, ms }) {
  return `${path === "own" ? "stored" : path}, ${lasted(ms)}`;
}

/** The way in a sentence. */
export function wayWords({ path, origin, here, ms }, sender) {
  const [from, time] = [apart(sender), lasted(ms)];
  const ways = {
    own: `${origin} took your message and stored it. The answer was back here after ${time}.`,
    local: `${from} and you are both on ${origin}. It stored the message and gave it to you directly, in ${time}.`,
    relay: `${from} is on ${origin}, you are on ${here}. ${origin} stored the message and sent it to ${here}, over one relay, in ${time}.`,
healed: `${here} had missed it, or you were away. It read the message from the store, ${time} after that was written.`,
  };
  return ways[path] ?? `By the path “${path}” from ${origin}, in ${time}.`;
}
