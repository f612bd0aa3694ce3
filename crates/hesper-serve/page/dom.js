// Creates DOM nodes. Text only ever becomes text nodes and attribute values; no string is parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** An HTML element. Attributes that begin with `on` are event listeners. */
export function element(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

const ICONS = {
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M4 12.5l5 5L20 6.5",
  edit: "M4 20l1-4L16.5 4.5l3 3L8 19zM14 7l3 3",
  retry: "M20 11a8 8 0 1 0-2 6.3M20 5v6h-6",
  trash: "M4 7h16M9 7V4h6v3M6.5 7l1 13h9l1-13",
  left: "M14.5 5l-7 7 7 7",
  right: "M9.5 5l7 7-7 7",
};

/** An icon of the list above, hidden from screen readers. */
export function icon(name) {
  return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

/** A button that shows an icon and is named by its label. */
export function iconButton(name, label, onclick, attributes = {}) {
  return element("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...attributes }, icon(name));
}
