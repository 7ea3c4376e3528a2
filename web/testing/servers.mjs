// Real servers for the tests: each a process of its own in a directory of its own, gone when the test run ends.

import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { eventually } from "./wait.mjs";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../..");
const SECRET = "a-secret-of-tests-0123456789";
const START_MS = 60_000;

/** Runs the rest of its arguments until its input ends, which it does however this process ends; then removes $1. */
const KEEPER = `
dir=$1; shift
exec 3<&0
"$@" 2>&1 </dev/null 3<&- &
child=$!
echo "keeper: $child"
{ read -r _; kill -CONT $child; kill -KILL $child; } <&3 >/dev/null 2>&1 &
wait $child
echo "keeper: ended"
rm -rf "$dir"
`;

/** A process and its files. */
class Process {
  /** All that it has printed. */
  output = "";
  #keeper;

  constructor(command, { dir = newDir(), keep = false } = {}) {
    this.dir = dir;
    // What is removed at the end is the directory, unless another run goes on in it.
    const removed = keep ? join(dir, "none") : dir;
    // The server takes each variable that begins with its name for a flag.
    const options = { cwd: dir, detached: true, env: { PATH: process.env.PATH } };
    this.#keeper = spawn("sh", ["-c", KEEPER, "keeper", removed, ...command], options);
    for (const stream of [this.#keeper.stdout, this.#keeper.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => (this.output += text));
    }
    this.#keeper.stdin.on("error", () => {}); // it has ended already
    this.ended = new Promise((resolve) => this.#keeper.once("close", resolve));
  }

  /** Waits until it has printed this; gives the match. */
  async prints(pattern) {
    const found = () => {
      const match = pattern.exec(this.output);
      if (!match && this.output.includes("keeper: ended")) throw new Error(`it has ended:\n${this.output}`);
      return match;
    };
    return eventually(() => `${pattern} in:\n${this.output}`, found, START_MS);
  }

  signal(name) {
    process.kill(Number(/keeper: (\d+)/.exec(this.output)[1]), name);
  }

  /** Kills it as a crash would. */
  async kill() {
    this.#keeper.stdin.end();
    await this.ended;
  }
}

/** A chat server; with `flags` that name no database, on SQLite in a directory of its own. */
export class Server {
  #flags;
  #process;

  static async start(flags = {}) {
    const server = new Server();
    server.#flags = { listen: "127.0.0.1:0", "admin-listen": "off", log: "warn", ...flags };
    await server.#run();
    return server;
  }

  get url() {
    return `ws://${this.address}/ws`;
  }

  get port() {
    return Number(this.address.split(":")[1]);
  }

  signal(name) {
    this.#process.signal(name);
  }

  async kill() {
    await this.#process.kill();
  }

  /** Ends it as an operator does, and waits until it is gone. */
  async stop() {
    this.signal("SIGTERM");
    await this.#process.prints(/keeper: ended/);
    await this.kill();
  }

  /** Starts it again, at the same address, with the same files. */
  async restart() {
    this.#flags.listen = this.address;
    await this.#run();
  }

  async #run() {
    this.dir ??= newDir();
    const flags = Object.entries(this.#flags).map(([name, value]) => `--${name}=${value}`);
    this.#process = new Process([binary(), ...flags], { dir: this.dir, keep: true });
    const [, address] = await this.#process.prints(/http:\/\/([\d.]+:\d+)/);
    this.address = address;
  }

  get output() {
    return this.#process.output;
  }
}

/** Servers local1, local2 and so on, with one Redis and one PostgreSQL. */
export class Cluster {
  static async of(count, flags = {}) {
    const cluster = new Cluster();
    [cluster.redis, cluster.postgres] = await Promise.all([startRedis(), startPostgres()]);
    cluster.servers = [];
    for (let number = 1; number <= count; number += 1) {
      cluster.servers.push(
        await Server.start({
          "server-id": `local${number}`,
          redis: cluster.redis.url,
          database: cluster.postgres.url,
          "cluster-secret": SECRET,
          "relay-listen": "127.0.0.1:0",
          lease: "2s",
          ...flags,
        }),
      );
    }
    return cluster;
  }

  get urls() {
    return this.servers.map((server) => server.url);
  }

  async end() {
    await Promise.all([...this.servers, this.redis.process, this.postgres.process].map((one) => one.kill()));
  }
}

async function startRedis() {
  const program = need("redis-server", onPath("redis-server"), "redis-server");
  const port = await freePort();
  const flags = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
  const process = new Process([program, ...flags.map(String)]);
  await process.prints(/Ready to accept connections/);
  return { process, url: `redis://127.0.0.1:${port}` };
}

async function startPostgres() {
  const debian = "/usr/lib/postgresql";
  const versions = existsSync(debian) ? readdirSync(debian).sort().reverse() : [];
  const places = [
    dirname(onPath("initdb") ?? "/none/initdb"),
    ...versions.map((version) => join(debian, version, "bin")),
  ];
  const bin = need(
    "PostgreSQL",
    places.find((place) => existsSync(join(place, "postgres")) && existsSync(join(place, "initdb"))),
    "postgresql",
  );
  const dir = newDir();
  // PostgreSQL does not run as root.
  const asUser =
    process.getuid() === 0 ? ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"] : [];
  if (asUser.length > 0) run(["chown", "postgres", dir]);
  const data = join(dir, "data");
  run([
    ...asUser,
    join(bin, "initdb"),
    "-U",
    "postgres",
    "-A",
    "trust",
    "-E",
    "UTF8",
    "--locale=C",
    "--no-sync",
    "-D",
    data,
  ]);
  const port = await freePort();
  const settings = ["listen_addresses=127.0.0.1", "fsync=off", "max_connections=100"].flatMap((one) => ["-c", one]);
  const command = [...asUser, join(bin, "postgres"), "-D", data, "-k", dir, "-p", String(port), ...settings];
  const server = new Process(command, { dir });
  await server.prints(/ready to accept connections/);
  return { process: server, url: `postgres://postgres@127.0.0.1:${port}/postgres` };
}

let built;

/** The program under test: $MINICHAT_BIN, or what cargo has built here; it is built where it is missing. */
function binary() {
  if (process.env.MINICHAT_BIN) return process.env.MINICHAT_BIN;
  built ??= join(process.env.CARGO_TARGET_DIR ?? join(ROOT, "target"), "debug/minichat");
  if (!existsSync(built)) {
    const cargo = need("cargo", onPath("cargo"), "rustup from https://rustup.rs");
    run([cargo, "build", "--locked", "--manifest-path", join(ROOT, "Cargo.toml")]);
  }
  return built;
}

function run([program, ...flags]) {
  const { status, error, stderr } = spawnSync(program, flags, { cwd: "/", encoding: "utf8" });
  if (status !== 0) throw new Error(`${program}: ${error?.message ?? stderr}`);
}

function onPath(program) {
  const places = process.env.PATH.split(":").map((place) => join(place, program));
  return places.find((place) => existsSync(place));
}

function need(what, found, install) {
  if (!found) throw new Error(`these tests need ${what}: install it (on Debian: apt-get install ${install})`);
  return found;
}

const dirs = [];

function newDir() {
  const dir = mkdtempSync(join(tmpdir(), "minichat-web-"));
  dirs.push(dir);
  return dir;
}

process.once("exit", () => {
  for (const dir of dirs) rmSync(dir, { recursive: true, force: true });
});

async function freePort() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}
