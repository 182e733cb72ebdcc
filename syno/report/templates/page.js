"use strict";
// The address after # holds the state of the page: filter=<words>, sort=<order>, card=<operator> (any number of cards).
(() => {
  const gallery = document.getElementById("gallery");
  const cards = [...document.querySelectorAll(".card")];
  const filter = document.getElementById("filter");
  const sort = document.getElementById("sort");
  const isOpen = (card) => card.classList.contains("open");
  document.body.classList.add("script"); // without the script, all cards stay open

  function open(card, opened) {
    card.classList.toggle("open", opened);
    card.querySelector(".toggle").setAttribute("aria-expanded", String(opened));
  }

  function applyFilter() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const card of cards) {
      card.hidden = !words.every((word) => card.dataset.name.toLowerCase().includes(word));
    }
    const left = cards.filter((card) => !card.hidden).length;
    document.getElementById("count").textContent = words.length ? `${left} of ${cards.length}` : "";
  }

  function applySort() {
    const name = sort.value;
    const direction = sort.selectedOptions[0].dataset.first === "most" ? -1 : 1; // the best first
    const value = (card) => JSON.parse(card.dataset.order)[name] ?? null;
    gallery.append(...[...cards].sort((one, other) => compare(value(one), value(other), direction)));
  }

  // Numbers come before texts. Unknown values come last in both directions.
  function compare(one, other, direction) {
    if (one === null || other === null) return (one === null) - (other === null);
    if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1;
    return direction * (typeof one === "number" ? one - other : one.localeCompare(other, "en", { numeric: true }));
  }

  function readAddress() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    if (!["filter", "sort", "card"].some((key) => wanted.has(key))) return; // a section, or nothing
    if (wanted.has("filter")) filter.value = wanted.get("filter");
    if ([...sort.options].some((option) => option.value === wanted.get("sort"))) sort.value = wanted.get("sort");
    applyFilter();
    applySort();
    const named = cards.filter((card) => wanted.getAll("card").includes(card.dataset.name));
    for (const card of named) {
      card.hidden = false;
      open(card, true);
    }
    (named[0] ?? (wanted.has("filter") || wanted.has("sort") ? document.getElementById("operators") : null))?.scrollIntoView();
  }

  function writeAddress() {
    const shown = new URLSearchParams();
    if (filter.value) shown.set("filter", filter.value);
    if (sort.selectedIndex > 0) shown.set("sort", sort.value);
    for (const card of cards.filter(isOpen)) shown.append("card", card.dataset.name);
    history.replaceState(null, "", shown.size ? `#${shown}` : "#operators");
  }

  function sortTable(table, column) {
    const heading = table.tHead.rows[0].cells[column];
    const direction = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const value = (row) => {
      const cell = row.cells[column];
      if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
      return cell.classList.contains("text") ? cell.textContent : null;
    };
    const rows = [...table.tBodies[0].rows].sort((one, other) => compare(value(one), value(other), direction));
    table.tBodies[0].append(...rows);
    for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
  }

  async function copy(button) {
    const text = button.nextElementSibling;
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text); // the page may not use the clipboard: select the text, so that the reader can copy it
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  // Points of figures: the pointer and the keyboard show what a point is; a click or Enter opens its operator's card.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);

  function hideTip() {
    tip.hidden = true;
    for (const point of document.querySelectorAll(".point.at")) point.classList.remove("at");
  }

  function showTip(point) {
    hideTip();
    point.classList.add("at");
    tip.textContent = point.getAttribute("aria-label") + (cardOf(point) ? " – click for its card" : "");
    tip.hidden = false;
    const box = point.getBoundingClientRect();
    const left = Math.min(box.left + box.width / 2 + 10, document.documentElement.clientWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 6;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above < 4 ? box.bottom + 8 : above}px`;
  }

  const cardOf = (point) => cards.find((card) => card.dataset.name === point.dataset.operator);

  function nearest(points, event) {
    let best = null, least = 14; // pixels: marks are small
    for (const point of points) {
      const box = point.getBoundingClientRect();
      const across = Math.max(box.left - event.clientX, 0, event.clientX - box.right);
      const along = Math.max(box.top - event.clientY, 0, event.clientY - box.bottom);
      const distance = Math.hypot(across, along);
      if (distance < least) [best, least] = [point, distance];
    }
    return best;
  }

  function openCard(point) {
    const card = point && cardOf(point);
    if (!card) return;
    hideTip();
    location.hash = new URLSearchParams({ card: card.dataset.name });
  }

  for (const picture of document.querySelectorAll(".plot svg")) {
    const points = [...picture.querySelectorAll(".point")];
    points.forEach((point, place) => {
      const title = point.querySelector("title");
      point.setAttribute("aria-label", title.textContent);
      title.remove(); // or the browser would show it as well
      point.setAttribute("role", cardOf(point) ? "link" : "img");
      point.setAttribute("tabindex", place ? "-1" : "0"); // one stop for each figure; arrows go on from there
      point.addEventListener("focus", () => showTip(point));
      point.addEventListener("blur", hideTip);
    });
    if (!points.length) continue;
    picture.addEventListener("pointermove", (event) => {
      const point = nearest(points, event);
      picture.classList.toggle("linked", Boolean(point && cardOf(point)));
      if (point) showTip(point); else hideTip();
    });
    picture.addEventListener("pointerleave", hideTip);
    picture.addEventListener("click", (event) => openCard(nearest(points, event)));
    picture.addEventListener("keydown", (event) => {
      const place = points.indexOf(document.activeElement);
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (place < 0) return;
      if (event.key === "Enter") openCard(points[place]);
      if (event.key === "Escape") hideTip();
      if (!step) return;
      event.preventDefault();
      const next = points[(place + step + points.length) % points.length];
      points[place].setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus({ preventScroll: true });
    });
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      cell.querySelector("button").addEventListener("click", () => sortTable(table, column));
    });
  }
  for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", () => copy(button));
  if (!gallery) return;
  for (const card of cards) {
    open(card, false);
    card.querySelector(".toggle").addEventListener("click", () => { open(card, !isOpen(card)); writeAddress(); });
    card.querySelector(".drawing").addEventListener("click", () => {
      if (!isOpen(card)) { open(card, true); writeAddress(); }
    });
  }
  filter.addEventListener("input", () => { applyFilter(); writeAddress(); });
  sort.addEventListener("change", () => { applySort(); writeAddress(); });
  filter.form.addEventListener("submit", (event) => event.preventDefault());
  for (const [id, opened] of [["open-all", true], ["close-all", false]]) {
    document.getElementById(id).addEventListener("click", () => {
      for (const card of cards.filter((card) => !card.hidden)) open(card, opened);
      writeAddress();
    });
  }
  addEventListener("hashchange", readAddress);
  readAddress();
})();
