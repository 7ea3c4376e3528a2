// The dialogs: a new conversation, and the people of a room.

import { $, arrange, face, icon, isolated, make, say } from "./dom.js";
import { namesIn, presenceWords, titleOf } from "./words.js";

const WORDS = {
  forbidden: "Only who made this room can change who is in it.",
  not_found: "There is no such room, or it is not open to everyone.",
  offline: "There is no connection at the moment.",
  room_taken: "This id belongs to a room that you are not in.",
};

/** What went wrong, for people. */
export function troubleWords({ code, message }) {
  return WORDS[code] ?? `That did not work: ${message}.`;
}

/** Lets a form do something; its dialog closes when that has worked, and says why it has not. */
function onSubmit(form, run) {
  $(form).onsubmit = async (event) => {
    event.preventDefault();
    const dialog = $(form).closest("dialog");
    const problem = dialog.querySelector(".problem");
    const done = $(form).querySelector("button");
    say(problem, "");
    done.disabled = true;
    try {
      await run();
      $(form).reset();
    } catch (error) {
      say(problem, error.code ? troubleWords(error) : error.message);
    }
    done.disabled = false;
  };
}

function prepare(dialog) {
  const close = dialog.querySelector(".close");
  close.append(icon("close"));
  close.onclick = () => dialog.close();
  // A click beside it closes it: only there the dialog itself is hit, its content fills it.
  dialog.onclick = (event) => event.target === dialog && dialog.close();
  dialog.addEventListener("close", () => say(dialog.querySelector(".problem"), ""));
}

/** Starts conversations. `open(room)` shows one. */
export class StartDialog {
  constructor({ chat, me, open }) {
    prepare($("start"));
    const done = (room) => {
      $("start").close();
      open(room);
    };
    onSubmit("direct", () => {
      const peer = $("peer").value.trim();
      if (!peer || peer === me) throw new Error(peer ? "That is you." : "Whom to?");
      done(chat.direct(peer));
    });
    onSubmit("create", async () => {
      const members = namesIn($("room-members").value).filter((name) => name !== me);
      done(await chat.create({ name: $("room-name").value.trim(), members, open: $("room-open").checked }));
    });
    onSubmit("join", async () => done(await chat.join($("room-id").value.trim(), { create: true })));
    $("new").onclick = () => this.show();
  }

  show() {
    $("start").showModal();
    $("peer").focus();
  }
}

/** Shows and changes who is in a room. */
export class GroupDialog {
  #chat;
  #room = null;

  /** `close()` leaves the conversation that is open. */
  constructor({ chat, close }) {
    this.#chat = chat;
    prepare($("group"));
    $("leave").prepend(icon("leave"));
    onSubmit("add", async () => {
      await this.#room.add(namesIn($("add-name").value));
      await this.#room.loadMembers();
    });
    $("leave").onclick = async () => {
      try {
        await this.#room.leave();
        $("group").close();
        close();
      } catch (error) {
        say($("group").querySelector(".problem"), troubleWords(error));
      }
    };
    $("group").addEventListener("close", () => (this.#room = null));
  }

  async show(room) {
    this.#room = room;
    say($("group-title"), titleOf(room));
    say($("group-id"), room.id);
    this.render();
    $("group").showModal();
    await room.loadMembers().catch((error) => say($("group").querySelector(".problem"), troubleWords(error)));
  }

  /** Shows who is in it now. */
  render() {
    if (!this.#room) return;
    arrange($("group-list"), (this.#room.members ?? []).map((user) => this.#row(user)));
  }

  #row(user) {
    const isMe = user === this.#chat.user;
    const words = isMe ? "you" : presenceWords(this.#chat.presence.get(user));
    return make("li", "", face(user), isolated("span", "name", user), make("span", "hint", words));
  }
}
