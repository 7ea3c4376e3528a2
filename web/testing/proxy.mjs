// A TCP proxy that breaks the network on purpose.

import net from "node:net";

export class Proxy {
  #sockets = new Set();
  #server;

  /** A proxy on a free port that leads to this port. */
  static async to(port) {
    const proxy = new Proxy();
    proxy.#server = net.createServer((client) => proxy.#carry(client, net.connect(port, "127.0.0.1")));
    await new Promise((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    proxy.url = `ws://127.0.0.1:${proxy.#server.address().port}/ws`;
    return proxy;
  }

  /** Swallows all bytes of the connections that there are: they stay open, and dead for good. New ones work. */
  swallow() {
    for (const socket of this.#sockets) socket.isDead = true;
  }

  /** Swallows what the server says on the connections that there are. */
  swallowAnswers() {
    for (const socket of this.#sockets) socket.isDeaf = true;
  }

  /** Ends all connections without a word of the protocol. */
  cut() {
    for (const socket of this.#sockets) socket.destroy();
  }

  async end() {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #carry(client, server) {
    for (const [from, to] of [
      [client, server],
      [server, client],
    ]) {
      this.#sockets.add(from);
      from.on("data", (bytes) => from.isDead || (from === server && from.isDeaf) || to.write(bytes));
      from.on("end", () => from.isDead || to.end());
      from.on("error", () => to.destroy());
      from.on("close", () => {
        this.#sockets.delete(from);
        if (!from.isDead) to.destroy();
      });
    }
  }
}
