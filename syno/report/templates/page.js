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
