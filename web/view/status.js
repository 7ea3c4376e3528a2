// The state of the connection, as it is.

import { $, say } from "./dom.js";

const NO_TOKEN = "This server wants a token, which this page has not. Start it with --dev-auth to try it out.";

export class Status {
  #chat;
  #slow;

  constructor(chat) {
    this.#chat = chat;
    chat.on("state", () => this.#show());
    setInterval(() => this.#countDown(), 500);
    $("again").onclick = () => (chat.state.phase === "closed" ? location.reload() : chat.check());
  }

  #show() {
    const { phase } = this.#chat.state;
    $("app").dataset.phase = phase;
    $("again").hidden = phase !== "offline" && phase !== "closed";
    clearTimeout(this.#slow);
    // While a try follows the other within moments, "offline" goes on being true.
    if (phase === "connecting") this.#slow = setTimeout(() => say($("state-text"), "Connecting\u2026"), 300);
    else say($("state-text"), this.#words());
    this.#countDown();
  }

  #words() {
    const { phase, server, code, reason } = this.#chat.state;
    if (phase === "online") return `Connected to ${server}`;
    if (phase === "offline") return "Offline.";
    return code === 4001 ? NO_TOKEN : `Ended: ${reason}.`;
  }

  #countDown() {
    const { phase, retryAt } = this.#chat.state;
    const seconds = Math.ceil((retryAt - Date.now()) / 1000);
    say($("countdown"), phase === "offline" && seconds > 0 ? `Next try in ${seconds} s.` : "");
  }
}
