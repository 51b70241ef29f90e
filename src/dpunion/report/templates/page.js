"use strict";
(() => {
  const PER_PAGE = matchMedia("(max-width: 40rem)").matches ? 60 : 200, MOST_PRINTED = 5000, LONGEST_SHOWN = 300;
  const byId = (id) => document.getElementById(id);
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // ---- the list of items: only a page of it is ever in the document, and only as text -------------------------
  const block = byId("data");
  if (block) showItems(JSON.parse(block.textContent));

  function showItems(values) {
    const list = byId("list"), filters = [...document.querySelectorAll(".filter input")], scale = byId("scale");
    const table = list.tagName === "TBODY", counted = "counted" in list.dataset;
    const width = table ? Number(list.dataset.texts) : 1;
    const FIRST_PRINTED = width === 1 ? 120 : 40; // one page: three columns of items, or a table of keys
    // cells: the texts of an item, one for each column; beside: the numbers beside them, the last people, low, high.
    const cells = values.map((one) => (Array.isArray(one) ? one.slice(0, width) : [one]));
    const beside = values.map((one) => (Array.isArray(one) ? one.slice(width) : []));
    const noun = byId("count").textContent.trim().split(" ").pop();
    const search = byId("search"), sort = byId("sort");
    const collator = new Intl.Collator(undefined, { numeric: true });
    const orders = new Map();
    const bars = counted ? popularityBars(beside.map((numbers) => numbers[numbers.length - 1])) : null;
    let lowered = null, shown = [], page = 0, narrowed = false;

    const heads = table ? [...list.parentElement.tHead.rows[0].cells] : [];
    heads.forEach(sortable);
    if (counted) list.parentElement.tHead.rows[0].append(bars.head);

    function order(name) {
      if (!orders.has(name)) orders.set(name, arrange(name));
      return orders.get(name);
    }
    function arrange(name) {
      if (name === "a-z") return cells.map((_, at) => at).sort((a, b) => compare(cells[a], cells[b]) || a - b);
      const alphabetic = order("a-z");
      if (name === "z-a") return alphabetic.slice().reverse();
      if (name === "most") return alphabetic.slice().sort((a, b) => beside[b][0] - beside[a][0]);
      const [, way, column] = /^(up|down) (\d+)$/.exec(name) || [];
      if (way) return alphabetic.slice().sort(byColumn(Number(column), way === "up" ? 1 : -1));
      const lengths = cells.map((texts) => [...texts.join("")].length), sign = name === "short" ? 1 : -1;
      return alphabetic.slice().sort((a, b) => sign * (lengths[a] - lengths[b]));
    }
    function byColumn(column, sign) {
      if (column < width) return (a, b) => sign * collator.compare(cells[a][column], cells[b][column]);
      return (a, b) => sign * (beside[a][column - width] - beside[b][column - width]);
    }
    function compare(one, other) {
      for (let at = 0; at < one.length; at += 1) {
        const order = collator.compare(one[at], other[at]);
        if (order) return order;
      }
      return 0;
    }
    function update() {
      const wanted = search.value.toLowerCase();
      const parts = filters.map((one) => [Number(one.dataset.column), one.value.toLowerCase()]).filter(([, part]) => part);
      const contains = (texts) => texts.some((text) => text.includes(wanted)) && parts.every(([at, part]) => texts[at].includes(part));
      narrowed = Boolean(wanted || parts.length);
      if (narrowed && !lowered) lowered = cells.map((texts) => texts.map((text) => text.toLowerCase()));
      const all = order(sort.value);
      shown = narrowed ? all.filter((at) => contains(lowered[at])) : all;
      page = 0;
      draw();
    }
    function draw() {
      const pages = Math.max(1, Math.ceil(shown.length / PER_PAGE));
      fill(shown.slice(page * PER_PAGE, (page + 1) * PER_PAGE));
      const total = cells.length.toLocaleString("en"), found = shown.length.toLocaleString("en");
      byId("count").textContent = narrowed ? `${found} of ${total} ${noun}` : `${total} ${noun}`;
      byId("place").textContent = `page ${page + 1} of ${pages}`;
      byId("previous").disabled = page === 0;
      byId("next").disabled = page + 1 >= pages;
      document.querySelector(".pages").hidden = pages === 1;
      for (const head of heads) {
        const way = { [`up ${head.cellIndex}`]: "ascending", [`down ${head.cellIndex}`]: "descending" }[sort.value];
        head.setAttribute("aria-sort", way || "none");
      }
    }
    // The head of a column sorts by it: texts rising at first, numbers falling.
    function sortable(head) {
      const button = make("button", "", head.textContent), column = head.cellIndex;
      button.type = "button";
      button.addEventListener("click", () => {
        const first = column < width ? "up" : "down", other = first === "up" ? "down" : "up";
        choose(`${sort.value === `${first} ${column}` ? other : first} ${column}`, button.textContent);
      });
      head.replaceChildren(button);
    }
    function choose(value, name) {
      const known = [...sort.options].some((option) => option.value === value);
      if (!known) sort.append(new Option(`${name}, ${value.startsWith("up") ? "rising" : "falling"}`, value));
      sort.value = value;
      update();
    }
    function fill(indices) {
      list.replaceChildren(...indices.map(row));
    }
    function row(at) {
      if (!table) return filled(make("li"), cells[at][0], beside[at].length ? beside[at][0] : null);
      const line = make("tr");
      line.append(...cells[at].map((text) => filled(make("td"), text, null)));
      line.append(...beside[at].map((value, one) => make("td", heads[width + one].className, value.toLocaleString("en"))));
      if (counted) line.append(bars.cell(...beside[at].slice(-3)));
      return line;
    }
    function filled(line, text, count) {
      const inner = make("bdi");
      if (text === "") inner.append(make("span", "blank", "empty"));
      const letters = [...text];
      inner.append(...visible(letters.slice(0, LONGEST_SHOWN).join("")));
      line.append(inner);
      if (letters.length > LONGEST_SHOWN) {
        const more = make("button", "", `… all ${letters.length.toLocaleString("en")} characters`);
        more.type = "button";
        more.addEventListener("click", () => { inner.replaceChildren(...visible(text)); more.remove(); });
        line.append(more);
      }
      if (count !== null) line.append(make("span", "tokens", String(count)));
      return line;
    }

    search.addEventListener("input", update);
    sort.addEventListener("change", update);
    for (const filter of filters) filter.addEventListener("input", update);
    if (scale) scale.addEventListener("change", () => { bars.measure(scale.value); draw(); });
    byId("previous").addEventListener("click", () => { page -= 1; draw(); });
    byId("next").addEventListener("click", () => { page += 1; draw(); });
    document.querySelector(".tools").addEventListener("submit", (event) => event.preventDefault());
    window.addEventListener("beforeprint", () => {
      const printed = byId("whole").checked ? MOST_PRINTED : FIRST_PRINTED, left = shown.length - printed;
      fill(shown.slice(0, printed));
      byId("unprinted").textContent = left > 0 ? `… and ${left.toLocaleString("en")} more ${noun}, which are in the page itself and in the release's files.` : "";
    });
    window.addEventListener("afterprint", draw);
    document.querySelector(".tools").hidden = false;
    update();
  }

  // Bars of people with their intervals, below an axis in the head of the table; highs: the ends of all intervals.
  function popularityBars(highs) {
    const LONG = 1000, most = highs.reduce((one, other) => Math.max(one, other), 2);
    const head = make("th", "bars"), axis = make("div");
    head.setAttribute("aria-hidden", "true");
    head.append(axis);
    let place = null, grid = "";

    function measure(scale) {
      const step = scale === "powers" ? 0 : roundStep(most / 4);
      const count = step ? Math.floor(most / step) : Math.floor(Math.log10(most));
      const marks = Array.from({ length: count + 1 }, (_, at) => (step ? at * step : 10 ** at));
      place = (people) => LONG * (step ? people / most : Math.log10(Math.max(people, 1)) / Math.log10(most));
      axis.replaceChildren(...marks.map((mark) => {
        const label = make("span", "", short(mark));
        label.style.left = `${place(mark) / 10}%`;
        return label;
      }));
      grid = marks.map((mark) => `M${place(mark).toFixed(1)} 0V24`).join("");
    }
    function cell(people, low, high) {
      const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      drawing.setAttribute("viewBox", `0 0 ${LONG} 24`);
      drawing.setAttribute("preserveAspectRatio", "none");
      const [at, from, to] = [people, low, high].map((one) => place(one).toFixed(1));
      const paths = { grid, bar: `M0 7H${at}V17H0z`, interval: `M${from} 12H${to}M${from} 8V16M${to} 8V16` };
      for (const [name, path] of Object.entries(paths)) {
        const drawn = document.createElementNS("http://www.w3.org/2000/svg", "path");
        drawn.setAttribute("class", name);
        drawn.setAttribute("d", path);
        drawing.append(drawn);
      }
      const holder = make("td", "bars");
      holder.setAttribute("aria-hidden", "true");
      holder.append(drawing);
      return holder;
    }
    measure("powers");
    return { head, cell, measure };
  }
  function roundStep(least) {
    const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
    return [1, 2, 5, 10].map((one) => one * power).find((step) => step >= least) || power;
  }
  function short(value) {
    if (value >= 1e9) return `${value / 1e9} B`;
    if (value >= 1e6) return `${value / 1e6} M`;
    return value >= 1e4 ? `${value / 1e3} k` : value.toLocaleString("en");
  }

  // Controls, invisible and direction-changing characters as escapes; joiners stay between letters that need them.
  function visible(text) {
    const hidden = /(?<=[\p{L}\p{M}\p{Extended_Pictographic}])[\u200c\u200d](?=[\p{L}\p{Extended_Pictographic}])|[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]|^ +| +$/gu;
    const parts = [];
    let from = 0;
    for (const found of text.matchAll(hidden)) {
      const letters = found[0];
      const joiner = (letters === "\u200c" || letters === "\u200d") && /[^\x00-\x7f]$/.test(text.slice(0, found.index));
      if (joiner) continue;
      parts.push(text.slice(from, found.index), make("span", "escape", [...letters].map(escaped).join("")));
      from = found.index + letters.length;
    }
    parts.push(text.slice(from));
    return parts;
  }
  function escaped(letter) {
    const code = letter.codePointAt(0).toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
  }

  // ---- one chart of several at a time -------------------------------------------------------------------------
  for (const group of document.querySelectorAll(".choices")) {
    const figures = [...group.querySelectorAll("figure")];
    if (figures.length < 2) continue;
    const bar = make("div", "choice"), buttons = make("div");
    buttons.setAttribute("role", "tablist");
    buttons.setAttribute("aria-label", group.dataset.label);
    const choose = (chosen) => {
      figures.forEach((figure, at) => {
        figure.classList.toggle("other", at !== chosen);
        buttons.children[at].setAttribute("aria-selected", String(at === chosen));
        buttons.children[at].tabIndex = at === chosen ? 0 : -1;
      });
    };
    figures.forEach((figure, at) => {
      const button = make("button", "", figure.dataset.short);
      button.type = "button";
      button.setAttribute("role", "tab");
      button.addEventListener("click", () => choose(at));
      buttons.append(button);
    });
    buttons.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const now = [...buttons.children].indexOf(document.activeElement);
      const next = (now + step + figures.length) % figures.length;
      choose(next);
      buttons.children[next].focus();
    });
    bar.append(make("span", "", group.dataset.label), buttons);
    group.prepend(bar);
    choose(Number(group.dataset.first));
  }

  // ---- values under the pointer: places from the drawing, words from the table behind it ----------------------
  const tip = byId("tip");
  for (const drawing of document.querySelectorAll(".drawing")) watch(drawing);

  function watch(drawing) {
    const table = drawing.closest("figure").querySelector("table");
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent));
    const along = drawing.dataset.kind === "bar" ? "y" : "x";
    const marks = along === "x" ? vertices() : bars();
    let current = -1;

    // marks: {row, series, x, y, element}; coordinates of the element's own group.
    function vertices() {
      return [...drawing.querySelectorAll(".line")].flatMap((line) => {
        const series = Number(line.dataset.series);
        const filled = rows.map((_, at) => at).filter((at) => rows[at][series + 1] !== "–");
        // Each command of the path ends where a value lies.
        return line.getAttribute("d").match(/[MLC][^MLC]*/g).map((command, at) => {
          const [x, y] = command.slice(1).split(",").map(Number).slice(-2);
          return { row: filled[at], series, x, y, element: line };
        });
      });
    }
    function bars() {
      const seen = new Map();
      return [...drawing.querySelectorAll(".bar")].map((element) => {
        const series = Number(element.dataset.series), at = seen.get(series) || 0;
        seen.set(series, at + 1);
        const filled = rows.map((_, row) => row).filter((row) => rows[row][series + 1] !== "–");
        return { row: filled[at], series, element };
      });
    }
    function screenPlace(mark) {
      if (along === "y") {
        const box = mark.element.getBoundingClientRect();
        return { x: box.right, y: (box.top + box.bottom) / 2 };
      }
      const at = new DOMPoint(mark.x, mark.y).matrixTransform(mark.element.getScreenCTM());
      return { x: at.x, y: at.y };
    }
    function point(event) {
      const pointer = { x: event.clientX, y: event.clientY };
      let best = -1, least = Infinity;
      for (const mark of marks) {
        const distance = Math.abs(screenPlace(mark)[along] - pointer[along]);
        if (distance < least) { least = distance; best = mark.row; }
      }
      if (best >= 0) show(best, pointer);
    }
    function show(row, pointer) {
      if (row !== current) {
        clear();
        current = row;
        const here = marks.filter((mark) => mark.row === row);
        for (const mark of here) highlight(mark);
        const lines = here.map((mark) => {
          const line = make("div", `s${mark.series % 8}`, names[mark.series + 1]);
          line.append(make("b", "", rows[row][mark.series + 1]));
          return line;
        });
        const heading = along === "x" ? `${rows[row][0]} ${names[0]}` : rows[row][0];
        tip.replaceChildren(make("strong", "", heading), ...lines);
      }
      tip.hidden = false;
      const box = tip.getBoundingClientRect(), edge = document.documentElement.clientWidth;
      const left = pointer.x + 16 + box.width < edge ? pointer.x + 16 : Math.max(4, pointer.x - 16 - box.width);
      tip.style.left = `${left}px`;
      tip.style.top = `${Math.max(4, Math.min(pointer.y - box.height / 2, window.innerHeight - box.height - 4))}px`;
    }
    function highlight(mark) {
      if (along === "y") { mark.element.classList.add("on"); return; }
      const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      dot.setAttribute("class", `dot s${mark.series % 8}`);
      dot.setAttribute("cx", mark.x);
      dot.setAttribute("cy", mark.y);
      dot.setAttribute("r", 5);
      mark.element.after(dot);
    }
    function clear() {
      if (current < 0) return;
      drawing.querySelectorAll(".dot").forEach((dot) => dot.remove());
      drawing.querySelectorAll(".on").forEach((bar) => bar.classList.remove("on"));
      current = -1;
      tip.hidden = true;
    }
    function step(event) {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") clear();
      if (!by) return;
      event.preventDefault();
      const row = Math.max(0, Math.min(rows.length - 1, current < 0 ? 0 : current + by));
      const mark = marks.find((one) => one.row === row);
      if (mark) show(row, screenPlace(mark));
    }
    drawing.addEventListener("pointermove", point);
    drawing.addEventListener("pointerdown", point);
    drawing.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") clear(); });
    document.addEventListener("pointerdown", (event) => { if (!drawing.contains(event.target)) clear(); });
    drawing.addEventListener("blur", clear);
    drawing.addEventListener("keydown", step);
  }
})();
