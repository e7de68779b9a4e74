/* The few lines of script of a page: light or dark, the list of pages on narrow screens, the search. */
"use strict";

const root = document.documentElement;
var base_url = root.dataset.base; // read by search/main.js of mkdocs

function remembered() {
    try { return localStorage.getItem("muster-theme"); } catch { return null; }
}

function dark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();

document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme"), query = document.getElementById("mkdocs-search-query");
    const found = document.getElementById("found"), pages = document.querySelector(".pages details");
    const named = () => { button.textContent = dark() ? "Light" : "Dark"; };

    named();
    button.addEventListener("click", () => {
        root.dataset.theme = dark() ? "light" : "dark";
        try { localStorage.setItem("muster-theme", root.dataset.theme); } catch { /* it holds for this page */ }
        named();
    });
    document.querySelector(".dashboard").hidden = !/\/docs\//.test(location.pathname) || location.protocol === "file:";
    pages.open = matchMedia("(min-width: 900px)").matches;
    const ask = sign => {
        const words = query.value.toLowerCase().match(/[\p{L}\p{N}_./-]+/gu) || [];
        searchWorker.postMessage({ query: words.map(w => (w.length > 3 ? sign : "") + w).join(" ") });
    };
    let any = false; // sections with all of the longer words, since the index has no "the" and "by"; else with some
    window.doSearch = () => {
        any = false;
        if (query.value.trim().length < 3) displayResults([]); else ask("+");
    };
    searchWorker.addEventListener("message", event => {
        if (event.data.allowSearch) window.doSearch(); // what was typed before the index was there
        else if (event.data.results && !event.data.results.length && !any) { any = true; ask(""); }
    });
    const show = () => { found.hidden = query.value.trim().length < 3; };
    query.addEventListener("input", show);
    document.getElementById("search").addEventListener("submit", event => {
        event.preventDefault();
        found.querySelector("a")?.click();
    });
    document.addEventListener("keydown", event => {
        if (event.key === "/" && !/INPUT|TEXTAREA/.test(event.target.tagName)) { event.preventDefault(); query.focus(); }
        if (event.key === "Escape" && !found.hidden) { query.value = ""; show(); query.focus(); }
    });
    for (const table of document.querySelectorAll("main table")) { // a wide table scrolls, the page does not
        const around = document.createElement("div");
        around.className = "scroll";
        around.tabIndex = 0;
        around.setAttribute("role", "region");
        around.setAttribute("aria-label", "Table");
        table.replaceWith(around);
        around.append(table);
    }
    for (const block of document.querySelectorAll("main pre")) block.tabIndex = 0;
});
