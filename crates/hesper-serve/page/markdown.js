// Renders Markdown as DOM nodes.
//
// The text comes from a model and is not trusted: nothing is parsed as HTML, tags appear as text,
// links have a safe scheme, images become links, nesting is bounded, and the time is close to linear in the length.
// While a text grows, `MarkdownView` renders only the blocks whose source has changed.

import { element } from "./dom.js";
import { highlight } from "./highlight.js";

const MAX_DEPTH = 12;
const MAX_EMPHASIS = 32;
const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])(?:[ \t]+(.*)|[ \t]*)$/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const SAFE_LINK = /^(?:https?:\/\/|mailto:|#)/i;

/** The address if its scheme is safe, else null. */
export function safeAddress(address) {
  // Browsers ignore control characters and spaces in a scheme.
  const compact = address.replace(/[\u0000-\u0020\u007f-\u009f]/g, "");
  return SAFE_LINK.test(compact) ? compact : null;
}

const blank = (line) => /^[ \t]*$/.test(line);

/** The column of the first character that is not white; tabs go to multiples of four. */
function indentOf(line) {
  let column = 0;
  for (const char of line) {
    if (char === " ") column += 1;
    else if (char === "\t") column += 4 - (column % 4);
    else break;
  }
  return column;
}

/** A line without its first columns of white space. */
function dedent(line, columns) {
  let [at, column] = [0, 0];
  while (column < columns && (line[at] === " " || line[at] === "\t")) {
    column += line[at] === " " ? 1 : 4 - (column % 4);
    at += 1;
  }
  return " ".repeat(Math.max(0, column - columns)) + line.slice(at);
}

/** Splits lines into blocks: `{ kind, source, ... }`. Two blocks of equal source and kind render equally. */
function blocksOf(lines) {
  const blocks = [];
  let at = 0;
  const take = (kind, from, to, more) => blocks.push({ kind, source: lines.slice(from, to).join("\n"), ...more });
  while (at < lines.length) {
    const line = lines[at];
    if (blank(line)) {
      at += 1;
      continue;
    }
    const from = at;
    const fence = FENCE.exec(line);
    if (fence) {
      const close = new RegExp(`^ {0,3}${fence[2][0]}{${fence[2].length},}[ \\t]*$`);
      at += 1;
      while (at < lines.length && !close.test(lines[at])) at += 1;
      const code = lines.slice(from + 1, at).map((each) => dedent(each, fence[1].length));
      at = Math.min(at + 1, lines.length);
      take("code", from, at, { language: fence[3].trim().split(/\s/)[0], code: code.join("\n") });
      continue;
    }
    const heading = HEADING.exec(line);
    if (heading) {
      at += 1;
      take("heading", from, at, { level: heading[1].length, text: (heading[2] ?? "").trim().replace(/(?:^|[ \t])#+$/, "") });
      continue;
    }
    if (RULE.test(line)) {
      at += 1;
      take("rule", from, at);
      continue;
    }
    if (QUOTE.test(line)) {
      while (at < lines.length && !blank(lines[at]) && (QUOTE.test(lines[at]) || !startsBlock(lines[at]))) at += 1;
      take("quote", from, at, { lines: lines.slice(from, at).map((each) => each.replace(QUOTE, "")) });
      continue;
    }
    if (ITEM.test(line)) {
      at = listEnd(lines, at);
      take("list", from, at, { lines: lines.slice(from, at) });
      continue;
    }
    if (line.includes("|") && at + 1 < lines.length && TABLE_RULE.test(lines[at + 1])) {
      const columns = cells(line).length;
      if (columns === cells(lines[at + 1]).length && (columns > 1 || lines[at + 1].includes("|"))) {
        at += 2;
        while (at < lines.length && lines[at].includes("|") && !blank(lines[at])) at += 1;
        take("table", from, at, { lines: lines.slice(from, at) });
        continue;
      }
    }
    at += 1;
    while (at < lines.length && !blank(lines[at]) && !startsBlock(lines[at])) at += 1;
    take("paragraph", from, at, { text: lines.slice(from, at).map((each) => each.trimStart()).join("\n") });
  }
  return blocks;
}

/** Whether a line ends the paragraph before it. */
function startsBlock(line) {
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
  const item = ITEM.exec(line);
  // A number other than 1 in a paragraph is more likely part of a sentence.
  return item !== null && item[3] !== undefined && (!/\d/.test(item[2]) || /^1[.)]$/.test(item[2]));
}

/** The line after a list: its items, what is indented below them, and paragraphs that run on. */
function listEnd(lines, from) {
  const marker = ITEM.exec(lines[from])[2];
  const width = indentOf(lines[from]) + marker.length;
  let at = from + 1;
  while (at < lines.length) {
    const line = lines[at];
    if (blank(line)) {
      let next = at;
      while (next < lines.length && blank(lines[next])) next += 1;
      if (next === lines.length) return at;
      const goesOn = indentOf(lines[next]) >= width || sameList(lines[next], marker);
      if (!goesOn) return at;
      at = next;
    } else if (indentOf(line) >= width || sameList(line, marker) || ITEM.test(line)) {
      if (indentOf(line) < width && !sameList(line, marker)) return at;
      at += 1;
    } else if (startsBlock(line) || blank(lines[at - 1])) {
      return at;
    } else {
      at += 1;
    }
  }
  return at;
}

const bulletOf = (marker) => (/\d/.test(marker) ? marker.at(-1) : marker);

function sameList(line, marker) {
  const item = RULE.test(line) ? null : ITEM.exec(line);
  return item !== null && bulletOf(item[2]) === bulletOf(marker);
}

/** The items of a list, each as lines without their indentation. */
function itemsOf(lines) {
  const items = [];
  const base = indentOf(lines[0]);
  const marker = ITEM.exec(lines[0])[2];
  let width = 0;
  for (const line of lines) {
    const item = ITEM.exec(line);
    const indent = indentOf(line);
    if (item && !RULE.test(line) && (indent < base + 2 || (indent < width && sameList(line, marker)))) {
      width = indent + item[2].length + 1;
      items.push([item[3] ?? ""]);
    } else {
      items.at(-1).push(dedent(line, width));
    }
  }
  return items;
}

/** The cells of a row of a table; a pipe after a backslash is text. */
function cells(line) {
  const row = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  return row.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function renderBlock(block, depth) {
  switch (block.kind) {
    case "heading":
      // The page has the headings above; those of an answer begin at level 3.
      return element(`h${Math.min(6, block.level + 2)}`, { class: `md-h${block.level}` }, ...inline(block.text));
    case "rule":
      return element("hr");
    case "code":
      return codeBlock(block.code, block.language);
    case "quote":
      return element("blockquote", {}, ...nested(block.lines, depth));
    case "list":
      return list(block.lines, depth);
    case "table":
      return table(block.lines);
    default:
      return element("p", {}, ...inline(block.text));
  }
}

function nested(lines, depth) {
  if (depth >= MAX_DEPTH) return [element("p", {}, lines.join("\n"))];
  return blocksOf(lines).map((block) => renderBlock(block, depth + 1));
}

function list(lines, depth) {
  const first = ITEM.exec(lines[0])[2];
  const ordered = /\d/.test(first);
  const items = itemsOf(lines);
  const loose = items.some((item, at) => item.some((line, index) => {
    const next = item[index + 1] ?? (at + 1 < items.length ? "next item" : "");
    return blank(line) && index > 0 && /^\S/.test(next);
  }));
  const start = ordered ? parseInt(first, 10) : 1;
  const node = element(ordered ? "ol" : "ul", { start: ordered && start !== 1 ? start : undefined });
  for (const item of items) {
    const task = /^\[([ xX])\][ \t]+/.exec(item[0]);
    if (task) item[0] = item[0].slice(task[0].length);
    const row = element("li", { class: task ? "task" : undefined });
    if (task) row.append(element("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": task[1] === " " ? "open" : "done" }));
    for (const child of nested(item, depth)) {
      if (!loose && child.tagName === "P") row.append(...child.childNodes);
      else row.append(child);
    }
    node.append(row);
  }
  return node;
}

function table(lines) {
  const sides = cells(lines[1]).map((rule) => (rule.endsWith(":") ? (rule.startsWith(":") ? "center" : "right") : "left"));
  const row = (line, tag) => {
    const given = cells(line);
    return element("tr", {}, ...sides.map((side, at) => element(tag, { class: `align-${side}` }, ...inline(given[at] ?? ""))));
  };
  const body = lines.slice(2).map((line) => row(line, "td"));
  // Wide tables scroll inside of the message; a scrolled area must be reachable by keyboard.
  return element("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    element("table", {}, element("thead", {}, row(lines[0], "th")), element("tbody", {}, ...body)));
}

function codeBlock(code, language) {
  const button = element("button", { type: "button", class: "copy-code", "data-copy": "code" }, "Copy");
  return element("figure", { class: "code" },
    element("figcaption", {}, element("span", {}, language || "text"), button),
    element("pre", { tabindex: "0" }, element("code", {}, ...highlight(code, language))));
}

const ESCAPABLE = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
const WORD = /[\p{L}\p{N}]/u;
const SPACE = /^\s?$/;
const PUNCTUATION = /[\p{P}\p{S}]/u;

/** The inline nodes of a text: code, emphasis, strikethrough, links, breaks. */
export function inline(text, links = true) {
  const parts = [];
  let plain = "";
  const missing = new Set();
  const flush = () => {
    if (plain) parts.push({ node: document.createTextNode(plain) });
    plain = "";
  };
  const push = (node) => {
    flush();
    parts.push({ node });
  };
  let at = 0;
  while (at < text.length) {
    const char = text[at];
    if (char === "\\" && text[at + 1] === "\n") {
      push(element("br"));
      at += 2;
    } else if (char === "\\" && ESCAPABLE.includes(text[at + 1] ?? " ")) {
      plain += text[at + 1];
      at += 2;
    } else if (char === "\n") {
      const hard = plain.endsWith("  ");
      plain = plain.trimEnd();
      if (hard) push(element("br"));
      else plain += "\n";
      at += 1;
    } else if (char === "`") {
      const ticks = runLength(text, at, "`");
      const end = missing.has(ticks) ? -1 : closingTicks(text, at + ticks, ticks);
      if (end < 0) {
        missing.add(ticks);
        plain += text.slice(at, at + ticks);
        at += ticks;
      } else {
        let code = text.slice(at + ticks, end).replaceAll("\n", " ");
        if (/^ .*[^ ].* $/.test(code)) code = code.slice(1, -1);
        push(element("code", {}, code));
        at = end + ticks;
      }
    } else if (links && (char === "[" || (char === "!" && text[at + 1] === "["))) {
      const from = char === "!" ? at + 1 : at;
      const link = linkAt(text, from);
      if (link) {
        push(linkNode(link.address, inline(link.label || link.address, false)));
        at = link.end;
      } else {
        plain += text.slice(at, from + 1);
        at = from + 1;
      }
    } else if (links && char === "<" && /^<(?:https?:\/\/|mailto:)[^\s<>]{1,2000}>/i.test(text.slice(at, at + 2020))) {
      const end = text.indexOf(">", at);
      const address = text.slice(at + 1, end);
      push(linkNode(address, [address]));
      at = end + 1;
    } else if (links && char === "h" && !WORD.test(text[at - 1] ?? " ") && /^https?:\/\/[^\s<>]/.test(text.slice(at, at + 12))) {
      const address = bareAddress(text.slice(at, at + 2000));
      push(linkNode(address, [address]));
      at += address.length;
    } else if (char === "*" || char === "_" || (char === "~" && text[at + 1] === "~")) {
      flush();
      const count = runLength(text, at, char);
      parts.push(delimiter(char, count, text[at - 1] ?? "", text[at + count] ?? ""));
      at += count;
    } else {
      plain += char;
      at += 1;
    }
  }
  flush();
  return emphasize(parts);
}

function runLength(text, at, char) {
  let end = at;
  while (text[end] === char) end += 1;
  return end - at;
}

function closingTicks(text, from, ticks) {
  for (let at = text.indexOf("`", from); at >= 0; at = text.indexOf("`", at)) {
    const count = runLength(text, at, "`");
    if (count === ticks) return at;
    at += count;
  }
  return -1;
}

/** A link `[label](address "title")` at a bracket. Labels and addresses are bounded, so that a failed attempt is cheap. */
function linkAt(text, from) {
  let depth = 0;
  let at = from;
  const limit = Math.min(text.length, from + 1000);
  for (; at < limit; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "[" && (depth += 1) > 8) return null;
    else if (text[at] === "]" && (depth -= 1) === 0) break;
  }
  if (text[at] !== "]" || text[at + 1] !== "(") return null;
  const rest = /^\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\([^\s()]*\))*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(text.slice(at + 1, at + 3000));
  if (!rest) return null;
  return { label: text.slice(from + 1, at), address: rest[1] ?? rest[2], end: at + 1 + rest[0].length };
}

/** A web address without the punctuation of the sentence around it. */
function bareAddress(text) {
  const address = /^[^\s<>]+/.exec(text)[0];
  let unopened = address.split(")").length - address.split("(").length;
  let end = address.length;
  for (; end > 0; end -= 1) {
    if (address[end - 1] === ")" && unopened > 0) unopened -= 1;
    else if (!"?!.,:*_~'\"`;]".includes(address[end - 1])) break;
  }
  return address.slice(0, end);
}

function linkNode(address, label) {
  const safe = safeAddress(address);
  // An address with another scheme is shown and cannot be followed.
  if (!safe) return element("span", { class: "unsafe-link", title: `Not a web address: ${address}` }, ...label);
  return element("a", { href: safe, target: "_blank", rel: "noopener noreferrer nofollow" }, ...label);
}

function delimiter(char, count, before, after) {
  const spaceBefore = SPACE.test(before);
  const spaceAfter = SPACE.test(after);
  const left = !spaceAfter && (!PUNCTUATION.test(after) || spaceBefore || PUNCTUATION.test(before));
  const right = !spaceBefore && (!PUNCTUATION.test(before) || spaceAfter || PUNCTUATION.test(after));
  const inWord = char === "_";
  return {
    char,
    count,
    original: count,
    opens: left && (!inWord || !right || PUNCTUATION.test(before)),
    closes: right && (!inWord || !left || PUNCTUATION.test(after)),
  };
}

/** Pairs delimiters with the delimiter stack of CommonMark; unmatched delimiters are text. */
function emphasize(parts) {
  const openers = [];
  const output = [];
  // Below these heights of the stack no opener matches a closer of the kind.
  const bottoms = new Map();
  for (const part of parts) {
    if (part.node) {
      output.push(part);
      continue;
    }
    if (part.closes) {
      const kind = `${part.char}${part.opens}${part.original % 3}`;
      while (part.count > 0) {
        const bottom = Math.min(bottoms.get(kind) ?? 0, openers.length);
        let index = openers.length - 1;
        while (index >= bottom && !matches(openers[index], part)) index -= 1;
        if (index < bottom) {
          bottoms.set(kind, openers.length);
          break;
        }
        const opener = openers[index];
        openers.length = index + 1;
        const used = part.char === "~" ? 2 : Math.min(2, opener.count, part.count);
        const children = output.splice(opener.place + 1).flatMap(nodesOf);
        output.push({ node: element(part.char === "~" ? "del" : used === 2 ? "strong" : "em", {}, ...children) });
        opener.count -= used;
        part.count -= used;
        if (opener.count === 0) openers.pop();
        for (const [key, height] of bottoms) if (height > openers.length) bottoms.set(key, openers.length);
      }
    }
    if (part.count > 0) {
      part.place = output.length;
      output.push(part);
      if (part.opens && part.count <= 8 && openers.length < MAX_EMPHASIS) openers.push(part);
    }
  }
  return output.flatMap(nodesOf);
}

function matches(opener, closer) {
  if (opener.char !== closer.char) return false;
  if (closer.char === "~") return opener.count >= 2 && closer.count >= 2;
  const either = opener.closes || closer.opens;
  return !(either && (opener.original + closer.original) % 3 === 0 && (opener.original % 3 !== 0 || closer.original % 3 !== 0));
}

function nodesOf(part) {
  if (part.node) return [part.node];
  return part.count > 0 ? [document.createTextNode(part.char.repeat(part.count))] : [];
}

/** A text that may grow, rendered into an element. */
export class MarkdownView {
  constructor(parent) {
    this.parent = parent;
    this.blocks = [];
  }

  /** Shows a text. Blocks that have not changed keep their nodes, and with them selection and scroll position. */
  set(text) {
    const blocks = blocksOf(text.replaceAll("\r\n", "\n").split("\n"));
    let same = 0;
    while (same < blocks.length && same < this.blocks.length && equal(blocks[same], this.blocks[same])) {
      blocks[same].node = this.blocks[same].node;
      same += 1;
    }
    for (const block of this.blocks.slice(same)) block.node.remove();
    for (const block of blocks.slice(same)) {
      block.node = renderBlock(block, 0);
      this.parent.append(block.node);
    }
    this.blocks = blocks;
  }
}

const equal = (one, other) => one.kind === other.kind && one.source === other.source;
