// Live updates, parts that load later, charts that show values under the pointer. Pages work without.
"use strict";
(() => {
  const EVERY_MS = 5000, SHOW_AFTER_MS = 1000, RELOAD_MS = 120000;
  document.documentElement.classList.add("scripts");
  const main = () => document.getElementById("main");
  let etag = null, isLive = true, isPolling = false, pending = null, timer = null;

  const parsed = (text) => new DOMParser().parseFromString(text, "text/html");

  // --- requests that take long: shown after a second, and can be given up -------------------------------
  function request(address, options = {}) {
    const control = new AbortController();
    let box = null;
    const show = setTimeout(() => {
      box = document.createElement("div");
      box.className = "waiting";
      box.setAttribute("role", "status");
      const text = document.createElement("span");
      text.className = "under-way";
      text.textContent = "Reading the tables … ";
      const stop = document.createElement("button");
      stop.type = "button"; stop.className = "plain"; stop.textContent = "Give up";
      stop.addEventListener("click", () => control.abort());
      box.append(text, stop);
      document.body.append(box);
    }, options.isQuiet ? 2 ** 30 : SHOW_AFTER_MS);
    const done = () => { clearTimeout(show); box?.remove(); };
    return fetch(address, { headers: options.headers, signal: control.signal, credentials: "same-origin", cache: "no-store" })
      .then(async (answer) => ({ status: answer.status, etag: answer.headers.get("etag"), text: answer.status === 304 ? "" : await answer.text() }))
      .finally(done);
  }

  // --- live updates -------------------------------------------------------------------------------------
  const isTouched = () =>
    main().querySelector("table:hover, .list:hover, .chart:hover, .past:hover, .filters:focus-within, .past:focus-within, .command:hover") !== null
    || isSelected(document.getSelection());
  // as a range: what the Tab key selects in a search field it passes does not count
  const isSelected = (selection) => selection.rangeCount > 0 && String(selection.getRangeAt(0)) !== "";

  function say(text) {
    const state = document.querySelector("[data-live-state]");
    if (state && state.textContent !== text) state.textContent = text;
  }

  function replace(text) {
    const fresh = parsed(text).getElementById("main");
    if (!fresh) return;
    for (const part of main().querySelectorAll("[data-part]")) {
      const same = [...fresh.querySelectorAll("[data-part]")].find((one) => one.dataset.part === part.dataset.part);
      if (same && part.dataset.loaded) same.replaceWith(part);
    }
    const held = document.activeElement, alike = () => [...main().querySelectorAll(held.tagName)];
    const place = main().contains(held) ? alike().indexOf(held) : -1, target = held.getAttribute("href");
    const scrolls = [...main().querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    const opened = [...main().querySelectorAll("details")].map((one) => one.open);
    main().replaceChildren(...fresh.childNodes);
    [...main().querySelectorAll(".scroll")].forEach((one, number) => { one.scrollLeft = scrolls[number] ?? 0; });
    [...main().querySelectorAll("details")].forEach((one, number) => { one.open = opened[number] ?? false; });
    if (place >= 0) (target ? alike().find((one) => one.getAttribute("href") === target) : alike()[place])?.focus({ preventScroll: true });
    prepare(main());
  }

  function update() {
    if (pending === null) return;
    if (isTouched()) { say("new data: shown when the pointer leaves"); return; }
    const text = pending;
    pending = null;
    replace(text);
    say("");
  }

  async function poll() {
    if (isPolling) return;
    isPolling = true;
    clearTimeout(timer);
    if (isLive && document.visibilityState === "visible" && main().hasAttribute("data-live")) {
      try {
        const answer = await request(location.href, { isQuiet: true, headers: etag ? { "If-None-Match": etag } : {} });
        if (answer.status === 200 && answer.etag) {
          if (etag !== null || pending === null) pending = answer.text;
          etag = answer.etag;
        } else if (answer.status === 401) { location.reload(); return; }
        else if (answer.status !== 304) say("the page cannot be refreshed");
        if (answer.status === 304 && pending === null) say("");
      } catch { say("offsetlake does not answer"); }
      update();
    }
    isPolling = false;
    for (const part of main().querySelectorAll("[data-loaded]")) {
      if (isLive && document.visibilityState === "visible" && Date.now() - Number(part.dataset.loadedAt) > RELOAD_MS && !isTouched()) load(part, part.dataset.loaded, true);
    }
    timer = setTimeout(poll, EVERY_MS);
  }

  document.addEventListener("pointerout", () => setTimeout(update, 300));
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") poll();
  });

  // --- parts that load later ----------------------------------------------------------------------------
  async function load(part, address, isQuiet = false) {
    part.dataset.loadedAt = Date.now();
    const shown = setTimeout(() => part.querySelector("p")?.classList.add("under-way"), 200);
    try {
      const answer = await request(address, { isQuiet });
      const fresh = parsed(answer.text).querySelector("[data-content]");
      if (answer.status === 200 && fresh) {
        part.replaceChildren(...fresh.childNodes);
        part.dataset.loaded = address;
        prepare(part);
      } else if (answer.status === 404) {
        part.querySelector("p").textContent = parsed(answer.text).querySelector("main h1 + p")?.textContent ?? "";
      }
    } catch { /* given up: its link remains */ }
    clearTimeout(shown);
    part.querySelector(".under-way")?.classList.remove("under-way");
  }

  // --- charts -------------------------------------------------------------------------------------------
  function draw(plot) {
    if (!window.uPlot || plot.clientWidth < 200) return;
    const data = JSON.parse(plot.dataset.chart), style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const colours = { lag: "--accent", committed: "--accent", end: "--weak", start: "--weak" };
    const axis = { stroke: colour("--weak"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const svg = plot.querySelector("svg");
    const shades = [...svg.querySelectorAll("rect")].map((one) => ["x", "width"].map((name) => Number(one.getAttribute(name))).concat(getComputedStyle(one).fill));
    const marks = [...svg.querySelectorAll("line")].map((one) => [Number(one.getAttribute("x1")), getComputedStyle(one).stroke]);
    const width = svg.viewBox.baseVal.width, until = Number(data.until);
    const options = {
      width: plot.clientWidth, height: 240, tzDate: (at) => window.uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      scales: { x: { range: () => [data.times[0], until] } },
      cursor: { drag: { x: false, y: false } },
      axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map((tick) => words(tick, ticks)) }, { ...axis, size: 90, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString("en")) }],
      series: [{ label: "UTC", value: (_, at) => (at == null ? "–" : new Date(at * 1000).toISOString().slice(0, 19) + "Z") }].concat(
        data.lines.map((line) => ({
          label: line.label, stroke: colour(colours[line.kind] ?? "--accent"), width: line.kind === "committed" || line.kind === "lag" ? 2 : 1,
          dash: line.kind === "start" ? [4, 4] : undefined, points: { show: false },
          value: (_, value) => (value == null ? "–" : value.toLocaleString("en")),
        }))),
      hooks: { drawClear: [(chart) => {
        const { ctx, bbox } = chart;
        ctx.save();
        ctx.globalAlpha = 0.2;
        for (const [x, size, fill] of shades) { ctx.fillStyle = fill; ctx.fillRect(bbox.left + (x / width) * bbox.width, bbox.top, (size / width) * bbox.width, bbox.height); }
        ctx.globalAlpha = 1;
        for (const [x, stroke] of marks) { ctx.strokeStyle = stroke; ctx.lineWidth = 2; ctx.beginPath(); ctx.moveTo(bbox.left + (x / width) * bbox.width, bbox.top); ctx.lineTo(bbox.left + (x / width) * bbox.width, bbox.top + bbox.height); ctx.stroke(); }
        ctx.restore();
      }] },
    };
    function words(tick, ticks) {
      const text = new Date(tick * 1000).toISOString(), span = ticks[ticks.length - 1] - ticks[0];
      return span > 86400 ? `${text.slice(5, 10)} ${text.slice(11, 16)}` : text.slice(11, span < 600 ? 19 : 16);
    }
    const values = [data.times, ...data.lines.map((line) => line.values)];
    for (const one of plot.querySelectorAll(".y, .x")) one.remove();
    svg.classList.add("hidden");
    plot.removeAttribute("data-chart");
    const chart = new window.uPlot(options, values, plot);
    new ResizeObserver(() => { if (plot.clientWidth >= 200) chart.setSize({ width: plot.clientWidth, height: options.height }); }).observe(plot);
  }

  // --- everything on a page or a part of it -------------------------------------------------------------
  function prepare(root) {
    for (const part of root.querySelectorAll("[data-part]")) if (!part.dataset.loaded) load(part, part.dataset.part);
    for (const plot of root.querySelectorAll("[data-chart]")) draw(plot);
    for (const one of root.querySelectorAll("[data-moment]")) {
      const shown = root.querySelector("[data-moment-shown]");
      one.addEventListener("input", () => { one.setAttribute("aria-valuetext", new Date(Number(one.value)).toISOString().slice(0, 16).replace("T", " ") + " UTC"); shown.textContent = new Date(Number(one.value)).toISOString().slice(0, 19).replace("T", " ") + " UTC"; });
    }
    for (const one of root.querySelectorAll("[data-copy]")) {
      const text = one.textContent, button = document.createElement("button");
      button.type = "button"; button.className = "plain copy"; button.textContent = "Copy";
      button.addEventListener("click", async () => { await navigator.clipboard.writeText(text); button.textContent = "Copied"; });
      if (navigator.clipboard) one.append(button);
    }
    for (const link of root.querySelectorAll("[data-loaded] .switch a")) {
      if (link.dataset.ready) continue;
      link.dataset.ready = "yes";
      link.addEventListener("click", (event) => { event.preventDefault(); load(link.closest("[data-part]"), link.href); });
    }
  }

  const control = document.querySelector("[data-live-switch]");
  if (main().hasAttribute("data-live")) {
    control.parentElement.hidden = false;
    control.addEventListener("click", () => {
      isLive = !isLive;
      control.setAttribute("aria-pressed", String(isLive));
      control.textContent = isLive ? "Live updates: on" : "Live updates: off";
      say("");
    });
    timer = setTimeout(poll, EVERY_MS);
  }
  prepare(document);
})();
