// A small terminal: the sequences that shells, editors and pagers use (a part of xterm's). Screen holds the state and
// knows nothing of the DOM; TerminalView shows it and turns keys into bytes.

const MOST_SCROLLBACK = 1000;
const PLAIN = { fg: -1, bg: -1, bold: false, dim: false, underline: false, inverse: false };

export class Screen {
  constructor(columns, rows) {
    this.columns = columns;
    this.rows = rows;
    this.scrollback = [];
    this.reset();
  }

  reset() {
    this.lines = this.blank(this.rows);
    this.x = this.y = 0;
    this.top = 0;
    this.bottom = this.rows - 1;
    this.style = PLAIN;
    this.saved = { x: 0, y: 0, style: PLAIN };
    this.main = null; // the main screen while the alternate one is shown
    this.cursorVisible = true;
    this.applicationKeys = false;
    this.bracketedPaste = false;
    this.pending = "";
    this.reply = "";
  }

  blank(count) {
    return Array.from({ length: count }, () => this.blankLine());
  }

  blankLine() {
    return Array.from({ length: this.columns }, () => ({ text: " ", style: PLAIN }));
  }

  resize(columns, rows) {
    this.columns = columns;
    const fit = (lines) => {
      for (const line of lines) {
        while (line.length < columns) line.push({ text: " ", style: PLAIN });
        line.length = columns;
      }
      while (lines.length > rows) {
        if (this.y > 0) {
          this.keep(lines.shift());
          this.y--;
        } else lines.pop();
      }
      while (lines.length < rows) lines.push(this.blankLine());
    };
    fit(this.lines);
    if (this.main) fit(this.main);
    this.rows = rows;
    this.top = 0;
    this.bottom = rows - 1;
    this.x = Math.min(this.x, columns - 1);
    this.y = Math.min(this.y, rows - 1);
  }

  keep(line) {
    if (this.main) return;
    this.scrollback.push(line);
    if (this.scrollback.length > MOST_SCROLLBACK) this.scrollback.shift();
  }

  /** Writes text with its control sequences; a sequence may arrive in parts. */
  write(text) {
    const all = this.pending + text;
    this.pending = "";
    let at = 0;
    while (at < all.length) {
      const code = all.charCodeAt(at);
      if (code === 27) {
        const used = this.escape(all, at);
        if (used === 0) {
          if (all.length - at < 4096) this.pending = all.slice(at);
          return;
        }
        at += used;
      } else if (code < 32 || code === 127) {
        this.control(code);
        at++;
      } else {
        const point = String.fromCodePoint(all.codePointAt(at));
        this.put(point);
        at += point.length;
      }
    }
  }

  put(character) {
    if (this.x >= this.columns) {
      this.x = 0;
      this.lineFeed();
    }
    this.lines[this.y][this.x] = { text: character, style: this.style };
    this.x++;
  }

  control(code) {
    if (code === 13) this.x = 0;
    else if (code === 10 || code === 11 || code === 12) this.lineFeed();
    else if (code === 8) this.x = Math.max(0, Math.min(this.x, this.columns - 1) - 1);
    else if (code === 9) this.x = Math.min(this.columns - 1, (Math.floor(this.x / 8) + 1) * 8);
  }

  lineFeed() {
    if (this.y === this.bottom) this.scrollUp(1);
    else if (this.y < this.rows - 1) this.y++;
  }

  scrollUp(count) {
    for (let n = 0; n < Math.min(count, this.rows); n++) {
      const [line] = this.lines.splice(this.top, 1);
      if (this.top === 0) this.keep(line);
      this.lines.splice(this.bottom, 0, this.blankLine());
    }
  }

  scrollDown(count) {
    for (let n = 0; n < Math.min(count, this.rows); n++) {
      this.lines.splice(this.bottom, 1);
      this.lines.splice(this.top, 0, this.blankLine());
    }
  }

  /** The length of the sequence at `at`; 0 if it is not complete. */
  escape(all, at) {
    const next = all[at + 1];
    if (next === undefined) return 0;
    if (next === "[") {
      const match = /^\x1b\[([?>=!]?)([0-9;:]*)([ -/]*)([@-~])/.exec(all.slice(at, at + 256));
      if (match) {
        this.csi(match[1], match[2], match[4]);
        return match[0].length;
      }
      return all.length - at < 256 ? 0 : 2;
    }
    if (next === "]" || next === "P" || next === "_" || next === "^") {
      const end = /\x07|\x1b\\/g;
      end.lastIndex = at + 2;
      const found = end.exec(all);
      return found ? found.index + found[0].length - at : 0;
    }
    if ("()*+#%".includes(next)) return all[at + 2] === undefined ? 0 : 3;
    if (next === "7") this.saved = { x: this.x, y: this.y, style: this.style };
    else if (next === "8") ({ x: this.x, y: this.y, style: this.style } = this.saved);
    else if (next === "M") {
      if (this.y === this.top) this.scrollDown(1);
      else this.y = Math.max(0, this.y - 1);
    } else if (next === "D") this.lineFeed();
    else if (next === "E") {
      this.x = 0;
      this.lineFeed();
    } else if (next === "c") this.reset();
    return 2;
  }

  csi(mark, text, letter) {
    const numbers = text.split(/[;:]/).map((part) => (part === "" ? 0 : Math.min(9999, Number(part))));
    const n = numbers[0] || 1;
    if (mark === "?") {
      if (letter === "h" || letter === "l") for (const one of numbers) this.mode(one, letter === "h");
      return;
    }
    if (mark) return;
    const column = Math.min(this.x, this.columns - 1);
    switch (letter) {
      case "A": this.y = Math.max(this.y >= this.top ? this.top : 0, this.y - n); break;
      case "B": case "e": this.y = Math.min(this.y <= this.bottom ? this.bottom : this.rows - 1, this.y + n); break;
      case "C": case "a": this.x = Math.min(this.columns - 1, column + n); break;
      case "D": this.x = Math.max(0, column - n); break;
      case "E": this.x = 0; this.y = Math.min(this.rows - 1, this.y + n); break;
      case "F": this.x = 0; this.y = Math.max(0, this.y - n); break;
      case "G": case "`": this.x = Math.min(this.columns, n) - 1; break;
      case "d": this.y = Math.min(this.rows, n) - 1; break;
      case "H": case "f": this.y = Math.min(this.rows, n) - 1; this.x = Math.min(this.columns, numbers[1] || 1) - 1; break;
      case "J": this.eraseScreen(numbers[0]); break;
      case "K": this.eraseLine(this.y, numbers[0] === 0 ? column : 0, numbers[0] === 1 ? column + 1 : this.columns); break;
      case "L": this.insertLines(n); break;
      case "M": this.deleteLines(n); break;
      case "P": this.lines[this.y].splice(column, Math.min(n, this.columns)); this.pad(); break;
      case "@": this.lines[this.y].splice(column, 0, ...this.blankLine().slice(0, n)); this.pad(); break;
      case "X": this.eraseLine(this.y, column, Math.min(this.columns, column + n)); break;
      case "S": this.scrollUp(n); break;
      case "T": this.scrollDown(n); break;
      case "m": this.setStyle(text === "" ? [0] : numbers); break;
      case "r": this.top = n - 1; this.bottom = Math.min(this.rows, numbers[1] || this.rows) - 1; if (this.top >= this.bottom) { this.top = 0; this.bottom = this.rows - 1; } this.x = this.y = 0; break;
      case "s": this.saved = { x: this.x, y: this.y, style: this.style }; break;
      case "u": ({ x: this.x, y: this.y, style: this.style } = this.saved); break;
      case "n": if (n === 6) this.reply += `\x1b[${this.y + 1};${column + 1}R`; else if (n === 5) this.reply += "\x1b[0n"; break;
      case "c": this.reply += "\x1b[?1;2c"; break;
    }
  }

  pad() {
    const line = this.lines[this.y];
    while (line.length < this.columns) line.push({ text: " ", style: this.style });
    line.length = this.columns;
  }

  insertLines(count) {
    if (this.y < this.top || this.y > this.bottom) return;
    for (let n = 0; n < Math.min(count, this.rows); n++) {
      this.lines.splice(this.bottom, 1);
      this.lines.splice(this.y, 0, this.blankLine());
    }
  }

  deleteLines(count) {
    if (this.y < this.top || this.y > this.bottom) return;
    for (let n = 0; n < Math.min(count, this.rows); n++) {
      this.lines.splice(this.y, 1);
      this.lines.splice(this.bottom, 0, this.blankLine());
    }
  }

  eraseScreen(how) {
    if (how === 3) this.scrollback = [];
    const first = how === 0 ? this.y + 1 : 0;
    const last = how === 1 ? this.y : this.rows;
    if (how === 0) this.eraseLine(this.y, Math.min(this.x, this.columns - 1), this.columns);
    if (how === 1) this.eraseLine(this.y, 0, this.x + 1);
    for (let y = first; y < last; y++) this.lines[y] = this.blankLine();
  }

  eraseLine(y, from, to) {
    for (let x = from; x < Math.min(to, this.columns); x++) this.lines[y][x] = { text: " ", style: this.style.bg >= 0 ? { ...PLAIN, bg: this.style.bg } : PLAIN };
  }

  mode(number, on) {
    if (number === 25) this.cursorVisible = on;
    else if (number === 1) this.applicationKeys = on;
    else if (number === 2004) this.bracketedPaste = on;
    else if (number === 1049 || number === 47 || number === 1047) {
      if (on && !this.main) {
        this.main = this.lines;
        this.saved = { x: this.x, y: this.y, style: this.style };
        this.lines = this.blank(this.rows);
      } else if (!on && this.main) {
        this.lines = this.main;
        this.main = null;
        ({ x: this.x, y: this.y, style: this.style } = this.saved);
      }
    }
  }

  setStyle(numbers) {
    let style = { ...this.style };
    for (let at = 0; at < numbers.length; at++) {
      const n = numbers[at];
      if (n === 0) style = { ...PLAIN };
      else if (n === 1) style.bold = true;
      else if (n === 2) style.dim = true;
      else if (n === 4) style.underline = true;
      else if (n === 7) style.inverse = true;
      else if (n === 22) style.bold = style.dim = false;
      else if (n === 24) style.underline = false;
      else if (n === 27) style.inverse = false;
      else if (n >= 30 && n <= 37) style.fg = n - 30;
      else if (n >= 40 && n <= 47) style.bg = n - 40;
      else if (n >= 90 && n <= 97) style.fg = n - 82;
      else if (n >= 100 && n <= 107) style.bg = n - 92;
      else if (n === 39) style.fg = -1;
      else if (n === 49) style.bg = -1;
      else if (n === 38 || n === 48) {
        const indexed = numbers[at + 1] === 5;
        const colour = indexed ? numbers[at + 2] : -1;
        if (n === 38) style.fg = colour < 16 ? colour : -1;
        else style.bg = colour < 16 ? colour : -1;
        at += indexed ? 2 : 4;
      }
    }
    this.style = style;
  }

  /** The visible text, without trailing spaces. */
  text() {
    return [...this.scrollback, ...this.lines].map((line) => line.map((cell) => cell.text).join("").trimEnd()).join("\n").trimEnd();
  }
}

const KEYS = {
  Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b", Delete: "\x1b[3~", Insert: "\x1b[2~", PageUp: "\x1b[5~", PageDown: "\x1b[6~",
  F1: "\x1bOP", F2: "\x1bOQ", F3: "\x1bOR", F4: "\x1bOS", F5: "\x1b[15~", F6: "\x1b[17~", F7: "\x1b[18~", F8: "\x1b[19~", F9: "\x1b[20~", F10: "\x1b[21~",
};
const CURSOR_KEYS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };

export class TerminalView {
  /** `onbytes` gets the text that the user types, `onsize` the new columns and rows. */
  constructor(box, { onbytes, onsize }) {
    this.onbytes = onbytes;
    this.onsize = onsize;
    this.output = document.createElement("pre");
    this.output.className = "terminal";
    this.output.setAttribute("role", "log");
    this.output.setAttribute("aria-label", "Terminal output");
    this.output.tabIndex = -1;
    this.input = document.createElement("textarea");
    this.input.className = "terminal-input";
    this.input.setAttribute("aria-label", "Terminal input");
    this.input.autocapitalize = "off";
    this.input.autocomplete = "off";
    this.input.spellcheck = false;
    box.replaceChildren(this.output, this.input);
    this.screen = new Screen(80, 24);
    this.frame = 0;
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("input", () => {
      if (this.input.value) this.onbytes(this.input.value);
      this.input.value = "";
    });
    this.input.addEventListener("paste", (event) => {
      event.preventDefault();
      const text = event.clipboardData.getData("text").replace(/\r?\n/g, "\r");
      this.onbytes(this.screen.bracketedPaste ? `\x1b[200~${text.replaceAll("\x1b", "")}\x1b[201~` : text);
    });
    this.output.addEventListener("pointerup", () => {
      if (getSelection().isCollapsed) this.input.focus({ preventScroll: true });
    });
    this.input.addEventListener("focus", () => this.output.classList.add("focused"));
    this.input.addEventListener("blur", () => this.output.classList.remove("focused"));
    this.watcher = new ResizeObserver(() => this.measure());
    this.watcher.observe(this.output);
    this.measure();
  }

  measure() {
    const probe = document.createElement("span");
    probe.textContent = "MMMMMMMMMM";
    this.output.append(probe);
    const bounds = probe.getBoundingClientRect();
    probe.remove();
    const style = getComputedStyle(this.output);
    const width = this.output.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const height = this.output.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
    if (!bounds.width || width < 50) return;
    const columns = Math.max(20, Math.min(300, Math.floor(width / (bounds.width / 10))));
    const rows = Math.max(5, Math.min(120, Math.floor(height / parseFloat(style.lineHeight))));
    if (columns === this.screen.columns && rows === this.screen.rows) return;
    this.screen.resize(columns, rows);
    this.onsize(columns, rows);
    this.draw();
  }

  write(text) {
    this.screen.write(text);
    if (this.screen.reply) {
      this.onbytes(this.screen.reply);
      this.screen.reply = "";
    }
    this.draw();
  }

  draw() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    this.frame = 0;
    const { screen } = this;
    const rows = document.createDocumentFragment();
    for (const line of screen.scrollback) rows.append(this.row(line, -1));
    screen.lines.forEach((line, y) => rows.append(this.row(line, y === screen.y && screen.cursorVisible ? Math.min(screen.x, screen.columns - 1) : -1)));
    this.output.replaceChildren(rows);
    this.output.scrollTop = this.output.scrollHeight;
  }

  row(line, cursor) {
    const row = document.createElement("div");
    let last = line.length - 1;
    while (last > cursor && line[last].text === " " && line[last].style === PLAIN) last--;
    let run = null;
    let before = null;
    for (let x = 0; x <= last; x++) {
      const { text, style } = line[x];
      if (x === cursor || style !== before || run === null) {
        run = document.createElement("span");
        run.className = styleClass(style) + (x === cursor ? " cursor" : "");
        row.append(run);
        before = x === cursor ? null : style;
      }
      run.textContent += text;
    }
    row.append("\n");
    return row;
  }

  key(event) {
    if (event.isComposing || event.metaKey) return;
    if (event.key === "Escape" && event.ctrlKey && event.shiftKey) {
      this.input.blur();
      return;
    }
    if (event.ctrlKey && event.shiftKey) return; // copy and paste of the browser
    let text = "";
    if (event.key in CURSOR_KEYS) text = (this.screen.applicationKeys ? "\x1bO" : "\x1b[") + CURSOR_KEYS[event.key];
    else if (event.key in KEYS) text = KEYS[event.key];
    else if (event.ctrlKey && event.key.length === 1) {
      const code = event.key.toUpperCase().charCodeAt(0);
      if (event.key === " ") text = "\x00";
      else if (code >= 64 && code < 96) text = String.fromCharCode(code - 64);
    } else if (event.altKey && event.key.length === 1) text = `\x1b${event.key}`;
    if (!text) return;
    event.preventDefault();
    this.onbytes(text);
  }

  close() {
    this.watcher.disconnect();
  }
}

function styleClass(style) {
  const names = [];
  if (style.fg >= 0) names.push(`fg-${style.bold && style.fg < 8 ? style.fg + 8 : style.fg}`);
  if (style.bg >= 0) names.push(`bg-${style.bg}`);
  for (const name of ["bold", "dim", "underline", "inverse"]) if (style[name]) names.push(name);
  return names.join(" ");
}
