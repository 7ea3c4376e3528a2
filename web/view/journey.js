// The panel "How it travelled": which server took a message, and by which path it came here.

import { $, arrange, button, icon, isolated, make } from "./dom.js";
import { drawing } from "./drawing.js";
import { wayShort, wayWords } from "./travels.js";
import { inShort, lasted, time } from "./words.js";

const RECENT = 8;
/** From this width on there is room for it beside the conversation. */
const ROOMY = "(min-width: 1080px)";
const PATHS = {
  own: "yours: from here to its server",
  local: "local: you both are on one server",
  relay: "relay: from server to server, once",
  healed: "healed: read from the store",
};

export class Journey {
  #context;
  #known = "";

  /** `context` has `travels`, `me`, `selected()`, `acts.select(message)` and `changed()`. */
  constructor(context) {
    this.#context = context;
    $("travel").append(icon("way"));
    $("journey-close").append(icon("close"));
    $("travel").onclick = () => this.toggle(!this.isOpen, true);
    $("journey-close").onclick = () => this.toggle(false, true);
    $("journey").onkeydown = (event) => event.key === "Escape" && this.toggle(false, true);
    const roomy = matchMedia(ROOMY);
    const fit = () => {
      this.toggle(roomy.matches && localStorage.getItem("minichat travelled") !== "closed");
      context.changed();
    };
    roomy.addEventListener("change", fit);
    fit();
  }

  get isOpen() {
    return !$("journey").hidden;
  }

  /** Opens or closes it. `byPerson`: then it stays so, and the focus follows. */
  toggle(open, byPerson = false) {
    $("journey").hidden = !open;
    $("app").toggleAttribute("data-journey", open);
    $("travel").ariaPressed = String(open);
    if (!byPerson) return;
    localStorage.setItem("minichat travelled", open ? "open" : "closed");
    (open ? $("journey-title") : $("travel")).focus();
    this.#context.changed();
  }

  render(room) {
    if (!this.isOpen) return;
    const { travels } = this.#context;
    const told = (room?.messages ?? []).filter((message) => !message.event && travels.of(message)).slice(-RECENT);
    const chosen = this.#context.selected();
    const shown = travels.of(chosen) ? chosen : told.at(-1);
    const known = JSON.stringify([room?.id, shown?.id, told.map(({ id }) => id), Boolean(chosen)]);
    if (known === this.#known) return; // or the drawing would move anew
    this.#known = known;
    $("journey-one").replaceChildren(...(shown ? this.#one(shown) : this.#nothing()));
    $("journey-recent-title").hidden = told.length === 0;
    arrange($("journey-recent"), told.reverse().map((message) => this.#row(message, message === shown)));
  }

  #one(message) {
    const { travels, me } = this.#context;
    const way = travels.of(message);
    const from = this.#sender(message, way);
    const words = wayWords(way, from);
    const quote = isolated("p", "quote", inShort(message, me));
    const rule = make("p", "hint", "A message goes to the servers that hold people of its conversation, and to no other.");
    return [drawing(way, from, words), quote, make("p", "story", words), this.#facts(message, way), rule];
  }

  /** Whom the drawing begins with. What another window of one's own has sent came here like anyone's. */
  #sender({ mine, from }, { path }) {
    if (!mine) return from;
    return path === "own" ? "You" : "Your other window";
  }

  #facts(message, { path, origin, here, ms }) {
    const rows = [["Path", PATHS[path] ?? path]];
    if (path !== "healed") rows.unshift(["Taken by", origin]);
    if (path !== "own") rows.push(["Came to you by", here]);
    rows.push([path === "own" ? "Answered after" : "Latency", lasted(ms)]);
    const list = make("dl");
    for (const [name, value] of rows) list.append(make("dt", "", name), isolated("dd", "", value));
    list.append(make("dt", "", "Stored at"), make("dd", "", time(message.at), ` as no. ${message.seq}`));
    return list;
  }

  #nothing() {
    const how = "on one server, over a relay between two, or from the store";
    return [
      make("p", "hint", `Messages that arrive while you watch say how they came: ${how}.`),
      make("p", "hint", "Older ones have lost their trace. Write something, or let someone write to you."),
    ];
  }

  #row(message, isShown) {
    const way = this.#context.travels.of(message);
    const text = isolated("span", "preview", inShort(message, this.#context.me));
    const row = button("", () => this.#context.acts.select(message), text, make("span", `way ${way.path}`, wayShort(way)));
    if (isShown) row.setAttribute("aria-current", "true");
    return make("li", "", row);
  }
}
