// The drawing of a message's way: people, servers, the store, and the hop between them.

import { shape } from "./dom.js";
import { lasted } from "./words.js";

const [WIDTH, HEIGHT] = [320, 150];
const ROW = 44;
const BELOW = 118;

/** Names may be long; the drawing has little room, and the list below it says them in full. */
function cut(name, most = 9) {
  const letters = Array.from(name);
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}\u2026` : name;
}

function words(x, y, text, kind = "") {
  return shape("text", { x, y, class: kind, "text-anchor": "middle", direction: "ltr" }, text);
}

function person(x, name) {
  return shape("g", { class: "person" }, shape("circle", { cx: x, cy: ROW, r: 15 }),
    words(x, ROW + 5, Array.from(name)[0]?.toUpperCase() ?? "?", "letter"), words(x, ROW + 32, cut(name, 7)));
}

function server(x, name, kind = "") {
  return shape("g", { class: `server ${kind}` }, shape("rect", { x: x - 33, y: ROW - 19, width: 66, height: 38, rx: 8 }),
    words(x, ROW + 4, cut(name)));
}

function store(x) {
  const top = BELOW - 14;
  const side = `M${x - 19} ${top}v24a19 6 0 0 0 38 0v-24`;
  return shape("g", { class: "store" }, shape("path", { d: side }),
    shape("ellipse", { cx: x, cy: top, rx: 19, ry: 6 }), words(x, BELOW + 7, "store"));
}

function hop(x1, y1, x2, y2, kind) {
  return shape("line", { x1, y1, x2, y2, class: `hop ${kind}`, "marker-end": "url(#tip)" });
}

function tip() {
  const head = shape("path", { d: "M0 0L7 3.5 0 7z" });
  const size = { viewBox: "0 0 7 7", refX: 6, refY: 3.5, markerWidth: 6, markerHeight: 6 };
  return shape("defs", {}, shape("marker", { id: "tip", ...size, orient: "auto" }, head));
}

const ABOVE = ROW - 28;

/** From one server to another, directly or by way of the store. */
function acrossServers({ path, origin, here, ms }, from) {
  const [left, right] = [102, 218];
  const isHealed = path === "healed"; // then nobody here knows which server took it
  const taker = isHealed ? server(left, "?", "unknown") : server(left, origin, "busy");
  const hops = isHealed
    ? [hop(left + 6, ROW + 21, 139, BELOW - 18, "on healed"), hop(181, BELOW - 18, right - 6, ROW + 23, "on healed")]
    : [hop(left + 34, ROW, right - 36, ROW, "on main"), hop(left, ROW + 20, left, BELOW - 24, "aside")];
  return [
    person(24, from), person(296, "You"), taker, server(right, here, "busy"), store(isHealed ? 160 : left),
    hop(41, ROW, left - 36, ROW, "on"), hop(right + 34, ROW, 278, ROW, "on"), ...hops,
    ...(isHealed ? [] : [words(160, ABOVE + 4, "one relay", "name")]),
    words(160, isHealed ? ABOVE + 4 : ROW + 18, lasted(ms), "ms"),
  ];
}

/** Within one server. */
function onOneServer({ path, origin, ms }, from) {
  const isOwn = path === "own";
  const middle = 160;
  const parts = [person(40, from), server(middle, origin, "busy"), store(middle), hop(58, ROW, middle - 36, ROW, "on main"),
    hop(middle, ROW + 20, middle, BELOW - 24, isOwn ? "on" : "aside"), words(isOwn ? 92 : 228, ROW - 8, lasted(ms), "ms")];
  return isOwn ? parts : [...parts, person(280, "You"), hop(middle + 34, ROW, 262, ROW, "on main")];
}

/** A picture of a way; `label` says the same in words. */
export function drawing(way, from, label) {
  const isOnOne = way.path === "own" || (way.path !== "healed" && way.origin === way.here);
  const parts = isOnOne ? onOneServer(way, from) : acrossServers(way, from);
  return shape("svg", { class: "travel", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, tip(), ...parts);
}
