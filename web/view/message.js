// One entry of the conversation, as an item of its list. Messages are live objects: `update` looks again.

import { button, face, icon, isolated, make, unseen } from "./dom.js";
import { wayShort } from "./travels.js";
import { eventText, STATES, textOf, time, withLinks } from "./words.js";

/** Longer texts are folded. */
const LONG = { letters: 1_500, lines: 25 };

/** What the person can do with a message: `select`, `retry`, `discard`, each called with it. */
export class Item {
  #message;
  #travels;
  #acts;
  #meta = make("div", "meta");
  #trouble = make("div", "trouble");
  #known;

  constructor(message, isDirect, { me, travels, acts }) {
    this.#message = message;
    this.#travels = travels;
    this.#acts = acts;
    this.element = message.event ? this.#event(me, isDirect) : this.#bubble();
  }

  /** Shows the state of now. `first`: nothing by the same person stands right above. */
  update({ first, selected }) {
    if (this.#message.event) return;
    this.element.classList.toggle("first", first);
    this.element.classList.toggle("selected", selected);
    const { state, error, at } = this.#message;
    const way = this.#travels.of(this.#message);
    const known = [state, error?.code, at, way && wayShort(way)].join("|");
    if (known === this.#known) return; // most have not changed
    this.#known = known;
    this.element.dataset.state = state;
    this.#showMeta(way);
    this.#showTrouble();
  }

  #event(me, isDirect) {
    return make("li", "event", eventText(this.#message, me, isDirect));
  }

  #bubble() {
    const { mine, from, body } = this.#message;
    const name = isolated("div", "from", mine ? "You" : from);
    const words = textOf(body);
    const text = make("div", "text", ...withLinks(words));
    text.dir = "auto";
    const isLong = words.length > LONG.letters || words.split("\n", LONG.lines + 1).length > LONG.lines;
    const bubble = make("div", "bubble", name, text, ...(isLong ? [this.#fold()] : []), this.#meta, this.#trouble);
    bubble.classList.toggle("folded", isLong);
    return mine ? make("li", "message mine", bubble) : make("li", "message", face(from), bubble);
  }

  #fold() {
    const fold = button("fold", () => {
      const folded = fold.parentNode.classList.toggle("folded");
      fold.textContent = folded ? "Show all" : "Show less";
    }, "Show all");
    return fold;
  }

  #showMeta(way) {
    const { mine, at } = this.#message;
    const parts = [time(at)];
    if (way) parts.push(this.#chip(way));
    if (mine) parts.push(this.#mark());
    this.#meta.replaceChildren(...parts);
  }

  #chip(way) {
    const chip = button(`way ${way.path}`, () => this.#acts.select(this.#message), unseen("How it travelled: "), wayShort(way));
    chip.title = "How it travelled";
    return chip;
  }

  #mark() {
    const { state } = this.#message;
    const mark = make("span", `mark ${state}`, icon(state === "read" ? "delivered" : state), unseen(STATES[state]));
    mark.title = STATES[state];
    return mark;
  }

  #showTrouble() {
    const { state, error } = this.#message;
    if (state !== "failed") return this.#trouble.replaceChildren();
    const again = button("quiet", () => this.#acts.retry(this.#message), "Try again");
    const discard = button("quiet", () => this.#acts.discard(this.#message), "Discard");
    const mayGo = error.code !== "too_large"; // it would be as large the next time
    this.#trouble.replaceChildren(make("span", "", `Not sent: ${error.message}.`), ...(mayGo ? [again] : []), discard);
  }
}
