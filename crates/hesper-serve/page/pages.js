// A map of the KV pages: a cell for each page, coloured by the request that holds it.

const CELL = 12;
const MAX_ROWS = 26;

/** The colour of a request: a hue from its id, so that it stays the same while it runs. */
export function colourOf(id) {
  let hash = 2166136261;
  for (const char of id) hash = Math.imul(hash ^ char.codePointAt(0), 16777619);
  return `hsl(${(hash >>> 0) % 360} 62% 62%)`;
}

export class PagePicture {
  constructor(canvas, caption) {
    Object.assign(this, { canvas, caption, owners: new Map(), each: 1, columns: 1, at: null });
    canvas.addEventListener("pointermove", (event) => {
      this.at = Math.floor(event.offsetY / CELL) * this.columns + Math.floor(event.offsetX / CELL);
      this.describe();
    });
    canvas.addEventListener("pointerleave", () => {
      this.at = null;
      this.describe();
    });
    new ResizeObserver(() => this.state && this.draw(this.state, this.chosen)).observe(canvas.parentElement);
  }

  /** Draws a state; the pages of the chosen request stand out. */
  draw(state, chosen) {
    Object.assign(this, { state, chosen });
    this.owners = new Map();
    for (const request of state.requests) {
      for (const page of request.pages) {
        if (!this.owners.has(page)) this.owners.set(page, []);
        this.owners.get(page).push(request.id);
      }
    }
    const { canvas } = this;
    const width = canvas.clientWidth;
    this.columns = Math.max(1, Math.floor(width / CELL));
    // If there are too many pages for the screen, a cell represents several.
    this.each = Math.max(1, Math.ceil(state.pages / (this.columns * MAX_ROWS)));
    this.cells = Math.ceil(state.pages / this.each);
    const rows = Math.max(1, Math.ceil(this.cells / this.columns));
    const ratio = window.devicePixelRatio || 1;
    const [pixelsWide, pixelsHigh] = [Math.round(width * ratio), Math.round(rows * CELL * ratio)];
    if (canvas.width !== pixelsWide || canvas.height !== pixelsHigh) {
      Object.assign(canvas, { width: pixelsWide, height: pixelsHigh });
      canvas.style.height = `${rows * CELL}px`;
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, rows * CELL);
    const style = getComputedStyle(canvas);
    // A probe resolves light-dark() to the colour of the current scheme.
    canvas.style.color = "var(--line)";
    const free = style.color;
    canvas.style.color = "var(--ink)";
    const ink = style.color;
    for (let cell = 0; cell < this.cells; cell += 1) this.cell(context, cell, free, ink, chosen);
    canvas.setAttribute("aria-label", `${state.pages} pages; ${this.owners.size} are held by ${state.requests.length} requests`);
    this.describe();
  }

  cell(context, cell, free, ink, chosen) {
    const x = (cell % this.columns) * CELL + 1;
    const y = Math.floor(cell / this.columns) * CELL + 1;
    const pages = Math.min(this.each, this.state.pages - cell * this.each);
    const held = [];
    for (let at = 0; at < pages; at += 1) {
      const owners = this.owners.get(cell * this.each + at);
      if (owners) held.push(owners);
    }
    const box = (colour, alpha) => {
      context.globalAlpha = alpha;
      context.fillStyle = colour;
      context.beginPath();
      context.roundRect(x, y, CELL - 2, CELL - 2, 2.5);
      context.fill();
    };
    box(free, 0.55);
    if (!held.length) return;
    const mine = held.find((owners) => owners.includes(chosen));
    const dimmed = chosen && !mine ? 0.2 : 1;
    box(colourOf((mine && chosen) || held[0][0]), dimmed * (0.35 + (0.65 * held.length) / pages));
    if (held.some((owners) => owners.length > 1)) {
      // A page that several requests share: a prefix.
      context.globalAlpha = dimmed;
      context.fillStyle = ink;
      context.beginPath();
      context.arc(x + CELL / 2 - 1, y + CELL / 2 - 1, 2, 0, 7);
      context.fill();
    }
  }

  /** Describes the page under the pointer. */
  describe() {
    const first = this.at * this.each;
    if (this.at === null || this.at < 0 || this.at >= this.cells) {
      this.caption.textContent = this.each > 1 ? `A cell stands for ${this.each} pages. A dot marks a page of several requests.` : "A dot marks a page of several requests.";
      return;
    }
    const owners = new Set();
    for (let page = first; page < Math.min(first + this.each, this.state.pages); page += 1) for (const id of this.owners.get(page) ?? []) owners.add(id);
    const name = this.each > 1 ? `Pages ${first} to ${Math.min(first + this.each, this.state.pages) - 1}` : `Page ${first}`;
    this.caption.textContent = `${name}: ${owners.size ? [...owners].slice(0, 6).join(", ") + (owners.size > 6 ? ` and ${owners.size - 6} more` : "") : "no request"}`;
  }
}
