/** Any JSON. What it means is the application's. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json | undefined };

/** How the connection is. */
export type State =
  | { phase: "connecting" }
  | { phase: "online"; server: string }
  /** It is tried again at `retryAt`, ms since 1970. */
  | { phase: "offline"; reason: string; code: number; retryAt: number }
  /** It is not tried again before `connect`. `final`: the server will have it so; leave it to the person. */
  | { phase: "closed"; reason: string; code?: number; final: boolean };

export interface Options {
  /**
   * Where the server is: `wss://chat.example/ws`; one of several, used in turn; or a function that gives it for each
   * try. `http` and `https` are taken, too. If not said: the server that the page came from.
   */
  url?: string | readonly string[] | ((turn: number) => string | Promise<string>);
  /**
   * Gives a JWT whose `sub` is the user. Called when there is none yet, before one expires, and when the server does
   * not take it. Null or an empty one ends the connection: the person has to sign in. If it throws, it is tried again.
   */
  token?: string | (() => string | null | undefined | Promise<string | null | undefined>);
  /** For a server with `--dev-auth`: who this is, without a token. */
  user?: string;
  /** The name of this installation. A newer session of the same user and device replaces the older one. */
  device?: string;
  /** Where the outbox and the positions are kept over a reload. In memory, if not said. */
  storage?: Storage;
  /** The class to use where there is no global one: Node 20, with that of the package ws. */
  WebSocket?: new (url: string) => unknown;
  /** Asks for traces of how messages travelled: the event `trace`, and `message.trace`. */
  trace?: boolean;
  /** Messages kept per room, besides those that `history` was asked for: 1000. */
  keep?: number;
  /** The most messages that wait in one room: 1000. Then `send` throws `outbox_full`. */
  outboxLimit?: number;
  /** Sends per room without an answer yet: 1. With more, one that is refused for now may end up behind the next. */
  inFlight?: number;
  /** Whether what has come is acknowledged by itself: true. Otherwise call `room.ack`. */
  autoAck?: boolean;
  /** ms between two reports of positions: 1000. */
  ackEvery?: number;
  /** ms of silence after which the server is asked whether it is there: 20000. */
  pingEvery?: number;
  /** ms that it may take to answer that: 10000. */
  pingTimeout?: number;
  /** ms from the start of a socket to its welcome: 10000. */
  connectTimeout?: number;
  /** ms that `token` and `url` may take: 30000. */
  tokenTimeout?: number;
  /** ms that a request may take, and after which a send without an answer is repeated: 15000. */
  answerTimeout?: number;
  /** The first and the longest limit of the random wait before a reconnect, in ms: [500, 30000]. */
  backoff?: [first: number, longest: number];
  /** ms that a connection has to hold before the backoff starts anew: 10000. */
  settleAfter?: number;
  /** ms between two typing frames of one room: 3000. */
  typingEvery?: number;
  /** ms for which someone is shown as typing: 6000. */
  typingFor?: number;
}

/** Where texts are kept under keys. Each call may be synchronous or not. If one fails, the event `error` says so. */
export interface Storage {
  load(): Iterable<[string, string]> | Promise<Iterable<[string, string]>>;
  set(key: string, value: string): void | Promise<unknown>;
  remove(key: string): void | Promise<unknown>;
}

/** Keeps nothing beyond the object itself. */
export function memoryStorage(): Storage;
/** Keeps in `localStorage`, or an area like it, under keys that begin with `prefix`. */
export function webStorage(prefix?: string, area?: WebArea): Storage;

/** The part of `localStorage` that is used. */
export interface WebArea {
  readonly length: number;
  key(index: number): string | null;
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

/** What went wrong: a code of the protocol, or `offline`, `timeout`, `closed`, `unauthenticated`, `outbox_full`. */
export class ChatError extends Error {
  constructor(code: string, message: string, retryAfter?: number);
  readonly code: string;
  /** ms after which a repeat may succeed. Undefined: it would fail the same way. */
  readonly retryAfter?: number;
}

/** A message, or a change of the membership, which has `event` and `users` in place of `body`. The object is live. */
export interface Message {
  /** Null as long as it is on its way to a direct chat that is not there yet. */
  readonly room: string | null;
  /** Undefined until it is stored. */
  readonly id?: string;
  readonly seq?: number;
  readonly from: string;
  /** ms since 1970: when it was stored; until then, when it was written. */
  readonly at: number;
  readonly body?: Json;
  readonly event?: "created" | "joined" | "left" | (string & {});
  readonly users?: readonly string[];
  /** The mark of one's own message. */
  readonly cid?: string;
  /** Whether it is one's own. */
  readonly mine: boolean;
  /**
   * `received` for those of others and for events. One's own are `pending`, then `sent` (stored), `delivered` to all
   * others, `read` by all others; or `failed`, with `error`.
   */
  readonly state: "received" | "pending" | "sent" | "delivered" | "read" | "failed";
  readonly error?: ChatError;
  readonly trace?: Trace;
}

export interface Trace {
  /** The server that it was sent to. */
  readonly origin: string;
  readonly path: "local" | "relay" | "healed" | (string & {});
  readonly ms: number;
}

export interface Position {
  readonly delivered: number;
  readonly read: number;
}

/** `online` is null where nobody knows: while there is no connection, and of people in none of this user's rooms. */
export interface Presence {
  readonly user: string;
  readonly online: boolean | null;
  /** ms since 1970. */
  readonly lastSeen?: number;
}

/** A conversation, as this user sees it. The object is live. */
export interface Room {
  /** Null for a direct chat in which nothing is stored yet. */
  readonly id: string | null;
  readonly name?: string;
  /** The other person of a direct chat. */
  readonly peer?: string;
  /** Whether anyone may join. */
  readonly open: boolean;
  readonly muted: boolean;
  /** How many members. */
  readonly count: number;
  /** The seq of the latest entry that is known to exist. */
  readonly head: number;
  /** The seq at which the view of this user begins. */
  readonly since: number;
  /** Up to where this user has acknowledged and read, on any device. */
  readonly delivered: number;
  readonly read: number;
  /** How many messages of others are unread. What has not been loaded counts, whatever it is. */
  readonly unread: number;
  /** What is here: the stored ones in the order of seq, then those on their way. A new array after each change. */
  readonly messages: readonly Message[];
  /** The last of them. */
  readonly last: Message | undefined;
  /** Whether the first message of the view is here: `history` would bring nothing. */
  readonly complete: boolean;
  /** User ids, once `loadMembers` has answered; kept up to date from then on. */
  readonly members: readonly string[] | null;
  /** Who is writing. */
  readonly typing: readonly string[];
  /** How far the others are, as far as receipts tell. */
  readonly positions: ReadonlyMap<string, Position>;

  /** Sends a body. Without a connection it waits, also over a reload where there is a storage. */
  send(body: Json): Message;
  /** Sends a failed message again, behind the others; false if it has not failed. */
  retry(message: Message): boolean;
  /** Drops a message that failed or was never sent; false for others, since they may be stored. */
  discard(message: Message): boolean;
  /** "I have read all up to here"; without a seq, all that is here. */
  markRead(seq?: number): void;
  /** "I have taken over all up to here": with `autoAck: false` only. */
  ack(seq?: number): void;
  /** Loads what is before the first message here, the latest where there is none; gives what is new, in order. */
  history(limit?: number): Promise<Message[]>;
  /** Drops what `history` has loaded beyond `keep`. */
  trim(): void;
  loadMembers(): Promise<readonly string[]>;
  /** Tells the others that this user is writing. Call it at each key; it is sent now and then. */
  sendTyping(): void;
  /** Sends a body to who is connected now. It is not stored, and may be dropped: false where it was dropped at once. */
  signal(body: Json): boolean;
  /** Adds members to a room that this user has created. */
  add(users: readonly string[]): Promise<void>;
  remove(users: readonly string[]): Promise<void>;
  leave(): Promise<void>;
  /** No push for this room, or with false push again. */
  mute(muted?: boolean): Promise<void>;
}

export interface Events {
  state: (state: State) => void;
  /** There is a room more or less. */
  rooms: (rooms: ReadonlyMap<string, Room>) => void;
  /** An entry of a room has come: each once, in the order of seq. What `history` loads is not told here. */
  message: (message: Message, room: Room) => void;
  /** The state of one's own message has changed. */
  update: (message: Message, room: Room) => void;
  /** Anything that a room shows has changed. */
  change: (room: Room) => void;
  receipt: (receipt: { room: string; user: string; delivered?: number; read?: number }) => void;
  /** `room.typing` has changed. */
  typing: (room: Room) => void;
  presence: (presence: Presence) => void;
  /** Something volatile from someone; without a room, to this user alone. */
  signal: (signal: { room?: string; from: string; body: Json }) => void;
  trace: (trace: { room: string; seq: number } & Trace) => void;
  /** Something failed that nobody waits for, such as the storage. */
  error: (error: Error) => void;
}

export class Minichat {
  constructor(options?: Options);
  /** Room id -> room. */
  readonly rooms: ReadonlyMap<string, Room>;
  /** Of those who are watched. */
  readonly presence: ReadonlyMap<string, Presence>;
  /** The id of this user, once it is known. */
  readonly user: string | undefined;
  readonly state: State;

  /** Calls `run` at each event of this name; gives a function that ends that. */
  on<Name extends keyof Events>(event: Name, run: Events[Name]): () => void;
  /** Connects, and stays connected until `close` or a final end. Resolves when the rooms are known. */
  connect(): Promise<this>;
  /** Ends it and leaves no timer. Resolves when what is to be kept is kept. */
  close(): Promise<void>;
  /** Sees at once whether the connection holds, or tries again: for an app that comes to the foreground. */
  check(): void;
  /** The direct chat with a user. It is made by its first message. */
  direct(user: string): Room;
  /** Makes a room, of which this user is a member; with the same id again, gives the same room. */
  create(room?: { id?: string; members?: readonly string[]; name?: string; open?: boolean }): Promise<Room>;
  /** Joins an open room; with `create`, makes it where it is missing. */
  join(id: string, options?: { create?: boolean }): Promise<Room>;
  /**
   * Asks for the presence of users besides those who are watched already: now, after each reconnect, and again when
   * one of whom nothing can be told may have come into a room of this user. At most 200: the latest that were named.
   */
  watch(users: Iterable<string>): void;
  unwatch(users: Iterable<string>): void;
  /** Sends a body to a user who is connected now; it is not stored. False where it was dropped at once. */
  signal(user: string, body: Json): boolean;
  /** No push at all, or with false push again. */
  mute(muted?: boolean): Promise<void>;
  /** Registers this installation for push; with `remove`, ends that. */
  deviceToken(token: string, options?: { provider?: string; remove?: boolean }): Promise<void>;
}
