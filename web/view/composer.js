// Where one writes. A draft stays with its conversation, also over a reload.

import { $, icon } from "./dom.js";

/** Lines that it grows to before it scrolls. */
const TALLEST_PX = 180;

export class Composer {
  #room = null;
  #key = null;

  /** `send(text)` and `typing()` are called as the person writes. */
  constructor({ send, typing }) {
    $("send").append(icon("send"));
    $("text").oninput = () => {
      this.#fit();
      this.#keep();
      if ($("text").value.trim()) typing();
    };
    $("text").onkeydown = (event) => {
      // On a phone the return key makes a line; there is a button to send. While an input method composes, it is its key.
      const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches;
      if (!sends) return;
      event.preventDefault();
      $("compose").requestSubmit();
    };
    $("compose").onsubmit = (event) => {
      event.preventDefault();
      const text = $("text").value.trim();
      if (!text || !this.#room || send(text) === false) return;
      $("text").value = "";
      this.#fit();
      this.#keep();
      $("text").focus();
    };
  }

  show(room, key) {
    this.#room = room;
    this.#key = key;
    $("text").value = (key && sessionStorage.getItem(`draft ${key}`)) ?? "";
    this.#fit();
  }

  #keep() {
    const { value } = $("text");
    if (value) sessionStorage.setItem(`draft ${this.#key}`, value);
    else sessionStorage.removeItem(`draft ${this.#key}`);
  }

  #fit() {
    const { style } = $("text");
    style.height = "auto";
    style.height = `${Math.min($("text").scrollHeight + 2, TALLEST_PX)}px`;
  }
}
