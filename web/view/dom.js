// Making elements. Text goes in as text: nothing here, or anywhere in the page, reads markup from data.

export const $ = (id) => document.getElementById(id);

/** An element with a class, and text or children. */
export function make(tag, className = "", ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** An element whose text has a direction of its own, so that it cannot turn around what stands beside it. */
export function isolated(tag, className, text) {
  const element = make(tag, className, text);
  element.dir = "auto";
  return element;
}

/** Text for screen readers only. */
export function unseen(text) {
  return make("span", "unseen", text);
}

export function button(className, run, ...children) {
  const element = make("button", className, ...children);
  element.type = "button";
  element.onclick = run;
  return element;
}

/** Changes a text only where it differs: a live region that is set to what it says already may be read out again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Makes the children of an element these, in this order. What stays is not moved, so it keeps focus and animation. */
export function arrange(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  let at = parent.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
}

/** An element of SVG. */
export function shape(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const ICONS = {
  back: ["M14 5l-7 7 7 7"],
  bell: ["M6 16v-5a6 6 0 0 1 12 0v5l1.5 2h-15z", "M10 21h4"],
  close: ["M6 6l12 12M18 6L6 18"],
  muted: ["M6 16v-5a6 6 0 0 1 9.5-4.9M18 11v5l1.5 2h-13", "M10 21h4", "M4 4l16 16"],
  people: ["M9 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM3.5 19a5.5 5.5 0 0 1 11 0", "M15.5 5.3a3 3 0 0 1 0 5.4M17 13.8a5.5 5.5 0 0 1 3.5 5.2"],
  send: ["M4 12h15", "M13 6l6 6-6 6"],
  leave: ["M14 4H6v16h8", "M10 12h10", "M17 9l3 3-3 3"],
  way: ["M5 8a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM19 20a2 2 0 1 0 0-4 2 2 0 0 0 0 4z", "M7 6h8a3 3 0 0 1 0 6H9a3 3 0 0 0 0 6h8"],
  pending: ["M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16z", "M12 8v4l3 2"],
  sent: ["M5 13l4 4L19 7"],
  delivered: ["M2 13l4 4L16 7", "M11.5 16.5l.5.5L22 7"],
  failed: ["M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16z", "M12 8v5M12 15.8v.2"],
};

/** A drawing that says nothing by itself: what it stands for is said by a label. */
export function icon(name) {
  const lines = ICONS[name].map((d) => shape("path", { d }));
  return shape("svg", { class: "drawn", viewBox: "0 0 24 24", "aria-hidden": "true" }, ...lines);
}

/** A round mark for a person or a room: the first letter, in a colour that the name decides. */
export function face(name, sign = Array.from(name.trim())[0]?.toUpperCase() ?? "?") {
  let sum = 7;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 9973;
  const element = make("span", `face hue-${sum % 6}`, sign);
  element.ariaHidden = "true";
  return element;
}
