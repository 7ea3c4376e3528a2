// The conversation that is open: its head, its messages, who is typing, and where one writes.

import { Composer } from "./composer.js";
import { $, face, icon, isolated, make, say } from "./dom.js";
import { Log } from "./log.js";
import { inShort, presenceWords, titleOf, typingWords } from "./words.js";

export class Conversation {
  #context;
  #room = null;
  #title;

  /** `context` has what a `Log` needs, and `complain(error)`, `showMembers(room)`, `close()` and `key(room)`. */
  constructor(context) {
    this.#context = context;
    this.log = new Log(context);
    this.composer = new Composer({ send: (text) => this.#send(text), typing: () => this.#room?.sendTyping() });
    $("back").append(icon("back"));
    $("members").append(icon("people"));
    $("back").onclick = () => context.close();
    $("members").onclick = () => context.showMembers(this.#room);
    $("mute").onclick = () => this.#room.mute(!this.#room.muted).catch((error) => context.complain(error));
    context.chat.on("message", (message, room) => this.#arrived(message, room));
    document.addEventListener("visibilitychange", () => (document.hidden ? this.log.lookAway() : this.log.render()));
  }

  show(room) {
    this.#room = room;
    this.#title = undefined;
    this.composer.show(room, room && this.#context.key(room));
    this.render(false);
    this.log.show(room);
  }

  /** Shows what has changed. */
  render(withLog = true) {
    const room = this.#room;
    if (!room) return;
    this.#showTitle(titleOf(room));
    say($("about"), this.#about());
    $("members").hidden = room.peer !== undefined;
    $("mute").disabled = room.id === null;
    if ($("mute").ariaPressed !== String(room.muted) || !$("mute").firstChild) {
      $("mute").ariaPressed = String(room.muted);
      $("mute").replaceChildren(icon(room.muted ? "muted" : "bell"));
    }
    this.#showTyping();
    if (withLog) this.log.render();
  }

  #showTitle(title) {
    if (title === this.#title) return;
    this.#title = title;
    say($("title"), title);
    $("face").replaceChildren(this.#room.peer === undefined ? face(title, "#") : face(title));
  }

  #about() {
    const { peer, count, open, members } = this.#room;
    const { chat } = this.#context;
    if (peer !== undefined) return presenceWords(chat.presence.get(peer)) || "Direct chat";
    const here = (members ?? []).filter((user) => user !== chat.user && chat.presence.get(user)?.online).length;
    const people = count === 1 ? "Only you" : `${count} people`;
    return [people, here > 0 && `${here} online`, open && "open to everyone"].filter(Boolean).join(" \u00b7 ");
  }

  #showTyping() {
    const words = typingWords(this.#room.typing);
    const dots = make("span", "dots", ..."...".split("").map((dot) => make("span", "", dot)));
    const shown = make("span", "", ...words);
    if ($("typing").dataset.shown === shown.textContent) return; // or its dots would start anew
    $("typing").dataset.shown = shown.textContent;
    $("typing").replaceChildren(...(words.length > 0 ? [shown, dots] : []));
  }

  #send(text) {
    try {
      this.#context.travels.begin(this.#room.send(text));
    } catch (error) {
      this.#context.complain(error);
      return false;
    }
    this.log.lookAway();
    this.log.toEnd();
    return true;
  }

  #arrived(message, room) {
    if (room === this.#room) this.log.arrived(message);
    if (message.mine || message.event) return;
    // Said once, by a line of its own: the list itself also changes when earlier messages are loaded.
    const where = room === this.#room || room.peer !== undefined ? [] : [" in ", isolated("bdi", "", titleOf(room))];
    const words = inShort(message, this.#context.me);
    $("news").replaceChildren(isolated("bdi", "", message.from), ...where, ": ", isolated("bdi", "", words));
  }
}
