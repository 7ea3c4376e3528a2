// What things are called: texts, times, states.

import { isolated, make } from "./dom.js";

const DAY_MS = 86_400_000;
/** A link in a text: up to a space or a quote. What belongs to the sentence around it is taken off its end. */
const LINK = /\bhttps?:\/\/[^\s<>"'`]+/giu;
const AFTER_LINK = /[.,:;!?)\]}\u2026\u00bb\u201d\u2019]+$/u;

/** The text of a body, which may be any JSON. */
export function textOf(body) {
  if (typeof body === "string") return body;
  if (typeof body?.text === "string") return body.text;
  try {
    return JSON.stringify(body);
  } catch {
    return "(too deeply nested to show)";
  }
}

/** A text with its links made to be clicked. All that is not http or https stays text. */
export function withLinks(text) {
  const parts = [];
  let done = 0;
  for (const { 0: found, index } of text.matchAll(LINK)) {
    const address = found.replace(AFTER_LINK, "");
    const link = linkTo(address);
    if (!link) continue;
    parts.push(text.slice(done, index), link);
    done = index + address.length;
  }
  return [...parts, text.slice(done)];
}

function linkTo(address) {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (!url || !["http:", "https:"].includes(url.protocol)) return null;
  const link = make("a", "", address);
  Object.assign(link, { href: url.href, target: "_blank", rel: "noopener noreferrer" });
  return link;
}

/** A name within a sentence, set apart by characters, so that its direction does not turn the sentence around. */
export function apart(name) {
  return `\u2068${name}\u2069`;
}

/** What a change of the membership says. */
export function eventText({ event, from, users = [] }, me, isDirect = false) {
  const who = from === me ? "You" : apart(from);
  if (isDirect) return `${who} started this chat`;
  const name = (user) => (user === me ? "you" : apart(user));
  const others = users.filter((user) => user !== from).map(name).join(", ");
  const alone = { created: "opened this room", joined: "joined", left: "left" };
  const acted = { created: `opened this room with ${others}`, joined: `added ${others}`, left: `removed ${others}` };
  return `${who} ${(others ? acted : alone)[event] ?? event}`;
}

/** One line of a message, for lists and for what is read out. */
export function inShort(message, me, isDirect) {
  if (message.event) return eventText(message, me, isDirect);
  const text = textOf(message.body).replace(/\s+/gu, " ").slice(0, 160);
  return message.mine ? `You: ${text}` : text;
}

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const weekday = new Intl.DateTimeFormat(undefined, { weekday: "long" });
const date = new Intl.DateTimeFormat(undefined, { dateStyle: "long" });
const shortDate = new Intl.DateTimeFormat(undefined, { dateStyle: "short" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** The time of day, which says the rest when it is pointed at. */
export function time(at, text = clock.format(at)) {
  const element = make("time", "", text);
  element.dateTime = new Date(at).toISOString();
  element.title = exact.format(at);
  return element;
}

/** How long something took. */
export function lasted(ms) {
  if (ms < 1_000) return `${ms} ms`;
  const units = [["s", 1_000, 60], ["min", 60_000, 60], ["h", 3_600_000, 48], ["days", DAY_MS, Infinity]];
  const [unit, size] = units.find(([, size, most]) => ms < size * most);
  return `${(ms / size).toFixed(ms < size * 10 ? 1 : 0)} ${unit}`;
}

/** A mark that is the same for all times of one day here. */
export function dayOf(at) {
  return new Date(at).toDateString();
}

function daysAgo(at) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  return at >= midnight ? 0 : Math.ceil((midnight - at) / DAY_MS);
}

export function dayWords(at) {
  const ago = daysAgo(at);
  if (ago < 2) return ago === 0 ? "Today" : "Yesterday";
  return ago < 7 ? weekday.format(at) : date.format(at);
}

/** The time today, the day of this week, or else the date: for the list of conversations. */
export function shortTime(at) {
  const ago = daysAgo(at);
  if (ago === 0) return time(at);
  if (ago === 1) return time(at, "Yesterday");
  return time(at, ago < 7 ? weekday.format(at) : shortDate.format(at));
}

/** Whether someone is here, in words; empty where nobody knows. */
export function presenceWords(presence) {
  if (presence?.online !== false) return presence?.online ? "online" : "";
  if (!presence.lastSeen) return "offline";
  const minutes = Math.floor((Date.now() - presence.lastSeen) / 60_000);
  if (minutes < 1) return "last seen just now";
  if (minutes < 60) return `last seen ${minutes} min ago`;
  return `last seen ${dayWords(presence.lastSeen).toLowerCase()} at ${clock.format(presence.lastSeen)}`;
}

/** Who is writing. */
export function typingWords(users) {
  if (users.length === 0) return [];
  if (users.length > 2) return [`${users.length} people are typing`];
  const names = users.map((user) => isolated("bdi", "", user));
  return [...(names[1] ? [names[0], " and ", names[1], " are"] : [names[0], " is"]), " typing"];
}

/** What a room is called. */
export function titleOf(room) {
  return room.peer ?? room.name ?? room.id ?? "";
}

export const STATES = {
  pending: "Waiting to be sent",
  sent: "Sent, and stored",
  delivered: "Delivered",
  read: "Read",
  failed: "Not sent",
};

/** The names in a text with commas. */
export function namesIn(text) {
  return [...new Set(text.split(",").map((name) => name.trim()).filter(Boolean))];
}
