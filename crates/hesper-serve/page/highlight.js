// Colours source text: comments, strings, numbers and keywords, by one pattern for each family of languages.

import { element } from "./dom.js";

const words = (text) => new Set(text.split(" "));
const KEYWORDS = {
  c: words("auto break case catch char class const constexpr continue default delete do double else enum explicit extern false final float for friend goto if inline int interface let long namespace new null nullptr operator override package private protected public return short signed sizeof static struct super switch template this throw true try typedef typename union unsigned using virtual void volatile while"),
  js: words("async await break case catch class const continue debugger default delete do else enum export extends false finally for from function get if implements import in instanceof interface let new null of private public readonly return set static super switch this throw true try type typeof undefined var void while yield"),
  rust: words("as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while"),
  go: words("break case chan const continue default defer else fallthrough false for func go goto if import interface map nil package range return select struct switch true type var"),
  python: words("and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield"),
  shell: words("case do done elif else esac exit export fi for function if in local return set shift then until while"),
  sql: words("add all alter and as asc between by case create delete desc distinct drop else end exists foreign from group having in index inner insert into is join key left like limit not null offset on or order outer primary references right select set table then union unique update values view when where with"),
  data: words("true false null yes no on off"),
};
const FAMILIES = {
  c: "c", h: "c", cpp: "c", "c++": "c", cc: "c", hpp: "c", cuda: "c", cu: "c", metal: "c", java: "c", kotlin: "c", swift: "c", cs: "c", csharp: "c", php: "c",
  js: "js", javascript: "js", jsx: "js", mjs: "js", ts: "js", typescript: "js", tsx: "js",
  rust: "rust", rs: "rust", go: "go", golang: "go",
  python: "python", py: "python", ruby: "python", rb: "python",
  sh: "shell", bash: "shell", shell: "shell", zsh: "shell", console: "shell", dockerfile: "shell", makefile: "shell",
  sql: "sql", json: "data", yaml: "data", yml: "data", toml: "data", ini: "data",
};

const SLASHES = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`;
const HASH = String.raw`#[^\n]*`;
const QUOTED = String.raw`"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?`;
const NUMBER = String.raw`\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*`;
const NAME = String.raw`[A-Za-z_$][\w$]*!?(?=(\s*\()?)`;
const pattern = (comment, string) => new RegExp(`(${comment})|(${string})|(${NUMBER})|(${NAME})`, "g");
const PATTERNS = {
  c: pattern(SLASHES, QUOTED),
  go: pattern(SLASHES, `${QUOTED}|\`[^\`]*\`?`),
  js: pattern(SLASHES, String.raw`${QUOTED}|` + "`(?:[^`\\\\]|\\\\.)*`?"),
  // A quote before a name may begin a lifetime.
  rust: pattern(SLASHES, String.raw`"(?:[^"\\]|\\[\s\S])*"?|'(?:[^'\\\n]|\\[^\n]+?)'`),
  python: pattern(HASH, String.raw`[rbfRBF]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|${QUOTED})`),
  shell: pattern(String.raw`(?<![\w$\\{])#[^\n]*`, String.raw`"(?:[^"\\]|\\[\s\S])*"?|'[^']*'?`),
  sql: pattern(String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`, QUOTED),
  data: pattern(String.raw`(?<![\w"'])#[^\n]*`, QUOTED),
};

/** Longer texts are not highlighted: thousands of nodes make a page slow. */
const MAX_LENGTH = 40_000;

/** The nodes of a source text. An unknown language is one text node. */
export function highlight(code, language) {
  const family = FAMILIES[(language ?? "").toLowerCase()];
  if (!family || code.length > MAX_LENGTH) return [code];
  const keywords = KEYWORDS[family];
  const nodes = [];
  let end = 0;
  for (const match of code.matchAll(PATTERNS[family])) {
    const [text, comment, string, number, name, call] = match;
    const known = name && keywords.has(family === "sql" ? name.toLowerCase() : name);
    const kind = comment ? "comment" : string ? "string" : number ? "number" : known ? "keyword" : name && call ? "call" : null;
    if (!kind) continue;
    nodes.push(code.slice(end, match.index), element("span", { class: `hl-${kind}` }, text));
    end = match.index + text.length;
  }
  nodes.push(code.slice(end));
  return nodes.filter((node) => node !== "");
}
