// People who chat with the client under test, and note what they see.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";

import { Minichat } from "../minichat.js";
import { eventually } from "./wait.mjs";

/** Reconnects fast, so that tests do. */
const HASTY = { backoff: [20, 200], settleAfter: 1_000, ackEvery: 100 };

/** A client and all that its user was shown. */
export class Person {
  /** The messages in the order in which they came. */
  seen = [];
  /** The states of the connection. */
  states = [];
  errors = [];

  /** One that is to connect; its room list is known when this resolves. */
  static async connect(options) {
    const person = new Person(options);
    await person.chat.connect();
    return person;
  }

  constructor(options) {
    this.chat = new Minichat({ ...HASTY, ...options });
    this.chat.on("message", (message) => this.seen.push(message));
    this.chat.on("state", (state) => this.states.push(state));
    this.chat.on("error", (error) => this.errors.push(error));
  }

  get phases() {
    return this.states.map((state) => state.phase);
  }

  room(id) {
    return this.chat.rooms.get(id);
  }

  /** The bodies that came in a room, in their order. */
  bodies(room) {
    return this.seen.filter((message) => message.room === room && !message.event).map((message) => message.body);
  }

  async until(phase) {
    await eventually(
      () => `${phase}, but it is ${JSON.stringify(this.chat.state)}`,
      () => this.chat.state.phase === phase,
    );
  }

  /** Waits until it was lost `times` times, however short that was. */
  async untilLost(times = 1) {
    await eventually(
      "the loss of the connection",
      () => this.phases.filter((phase) => phase === "offline").length >= times,
    );
  }

  async untilRoom(id) {
    return eventually(`the room ${id}`, () => this.room(id));
  }

  async untilSeen(room, count) {
    const what = () => `${count} messages, but there are ${this.bodies(room).length}`;
    await eventually(what, () => this.bodies(room).length >= count, 90_000);
  }

  /** Everything came once, in order, and is shown so. */
  assertOnceInOrder() {
    const last = new Map();
    for (const { room, seq } of this.seen) {
      if (last.has(room)) assert.equal(seq, last.get(room) + 1, `the next of ${room}`);
      last.set(room, seq);
    }
    for (const [id, room] of this.chat.rooms) {
      const seqs = room.messages.filter((message) => message.seq).map((message) => message.seq);
      assert.deepEqual(
        seqs,
        [...new Set(seqs)].sort((one, other) => one - other),
        `what is shown of ${id}`,
      );
    }
  }
}

/** A token as an application's backend would make it. */
export function jwt(secret, claims) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const text = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
}

export function numbers(count, from = 1) {
  return Array.from({ length: count }, (_, at) => at + from);
}
