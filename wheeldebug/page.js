"use strict";

// Formats, as in page.go.

function count(n) { return Math.round(n).toLocaleString("en-US"); }

function digits(n) {
	const s = n.toFixed(n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2);
	return s.includes(".") ? s.replace(/\.?0+$/, "") : s;
}

function duration(ns) {
	for (const [unit, name] of [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]]) {
		const n = ns / unit;
		if (n < 999.5 && (unit < 1e9 || n < 59.95)) return digits(n) + " " + name;
	}
	for (const [unit, part, name, rest, limit] of [
		[60, 1, "min", "s", 60], [3600, 60, "h", "min", 24], [86400, 3600, "d", "h", 50000],
	]) {
		const parts = Math.round(ns / 1e9 / part), per = unit / part;
		if (parts >= limit * per) continue;
		const whole = Math.floor(parts / per), left = parts % per;
		return `${count(whole)} ${name}` + (left ? ` ${count(left)} ${rest}` : "");
	}
	return "never";
}

// about returns how many timers a level holds, as text.
function about(level) { return level.exact ? count(level.timers) : "≈ " + count(level.estimate); }

function show(format, v, row, wheel) {
	switch (format) {
	case "count": return count(v);
	case "duration": return duration(v);
	case "late": return v === 0 ? "no samples" : duration(v);
	case "in":
		if (v === null) return "not set";
		return v < 0 ? "overdue by " + duration(-v) : "in " + duration(v);
	case "below": return v === null ? "longer" : duration(v);
	case "yes": return v ? "yes" : "no";
	case "exact": return about(row);
	case "used": return row.slots ? duration(v) : "–";
	case "atleast": return (v > 0 && v >= wheel.count_limit ? "≥ " : "") + count(v);
	}
	return String(v);
}

// The tables.

function at(v, path) { return path.split(".").reduce((v, key) => v[key], v); }

function setText(el, text) { if (el.textContent !== text) el.textContent = text; }

// fill updates an element with its value.
function fill(el, v, row, wheel) {
	setText(el, show(el.dataset.f, v, row, wheel));
	if (el.dataset.f === "state") el.dataset.state = v;
	if (el.dataset.f === "wheel") el.href = "?wheel=" + encodeURIComponent(v);
}

// fillTables updates the tables from the JSON of a wheel, or from all of it for the overview.
function fillTables(wheel) {
	for (const el of document.querySelectorAll("[data-v]")) {
		fill(el, at(wheel, el.dataset.v), null, wheel);
	}
	for (const body of document.querySelectorAll("[data-each]")) {
		const rows = at(wheel, body.dataset.each);
		const blank = body.closest(".scroll").querySelector("template").content.firstElementChild;
		while (body.rows.length > rows.length) body.deleteRow(-1);
		while (body.rows.length < rows.length) body.append(blank.cloneNode(true));
		const most = Math.log1p(Math.max(1, ...rows.map(row => row.count || 0)));
		rows.forEach((row, i) => {
			for (const el of body.rows[i].querySelectorAll("[data-k]")) {
				const v = at(row, el.dataset.k);
				if (el.dataset.f !== "bar") fill(el, v, row, wheel);
				else el.setAttribute("width", (100 * Math.log1p(v) / most).toFixed(1));
			}
		});
	}
}

function svg(name, attributes, parent) {
	const el = document.createElementNS("http://www.w3.org/2000/svg", name);
	for (const key in attributes) el.setAttribute(key, attributes[key]);
	if (parent) parent.append(el);
	return el;
}

function html(name, attributes, parent) {
	const el = document.createElement(name);
	for (const key in attributes) el.setAttribute(key, attributes[key]);
	if (parent) parent.append(el);
	return el;
}

// The charts. The server keeps no past, so the readings of the last two minutes are kept here.

const keptFor = 120e9;
let past = [];

const per = key => (now, before) => 1e9 * (now[key] - before[key]) / (now.at_ns - before.at_ns);
const rate = n => (n < 99.95 && n > 0 ? digits(n) : count(n)) + "/s";
const charts = [
	["Pending", now => now.pending, count],
	["Started", per("started"), rate],
	["Fired", per("fired"), rate],
	["Stopped", per("stopped"), rate],
	["Extended", per("extended"), rate],
	["Reinserted", per("reinserted"), rate],
	["Wake-ups", per("wakeups"), rate],
	["Lateness, 99 %", latest99, duration],
	["Callbacks running", now => now.running - now.waiting, count, now => now.waiting],
].map(([title, value, format, other]) => ({ title, value, format, other }));

// grows reports whether the backlog of the executor was larger in the last five seconds than in the
// six before. It compares the least of each, because the backlog of an executor that keeps up comes
// back to zero again and again.
function grows(past) {
	const now = past[past.length - 1].at_ns;
	let recent = Infinity, before = Infinity;
	for (const { at_ns, waiting } of past) {
		if (at_ns > now - 5e9) recent = Math.min(recent, waiting);
		else if (at_ns > now - 11e9) before = Math.min(before, waiting);
	}
	return recent > before; // false if there is nothing before
}

// latest99 returns the bound that 99 % of the samples between two readings were below, or NaN if
// there were none.
function latest99(now, before) {
	const bins = now.lateness.bins, last = bins.length - 1; // the last one has no bound
	const all = now.lateness.samples - before.lateness.samples;
	let seen = 0;
	for (let i = 0; i <= last; i++) {
		const added = bins[i].count - before.lateness.bins[i].count;
		seen += added;
		if (added > 0 && seen >= 0.99 * all) return bins[Math.min(i, last - 1)].below_ns;
	}
	return NaN;
}

function makeCharts() {
	const parent = document.getElementById("charts");
	for (const chart of charts) {
		const figure = html("figure", { class: "chart" }, parent);
		html("figcaption", {}, figure).textContent = chart.title;
		chart.number = html("b", {}, figure);
		chart.number.textContent = "–";
		const box = { viewBox: "0 0 120 40", preserveAspectRatio: "none", role: "img" };
		chart.svg = svg("svg", box, figure);
		chart.area = svg("path", { class: "area" }, chart.svg);
		chart.line = svg("path", { class: "line" }, chart.svg);
		if (chart.other) chart.others = svg("path", { class: "other" }, chart.svg);
		chart.most = html("small", {}, figure);
		chart.most.textContent = "\u00a0";
	}
}

function keep(wheel) {
	const last = past[past.length - 1];
	// If another wheel has taken the name, forget the readings of the former one.
	if (last && (wheel.at_ns < last.at_ns || wheel.started < last.started)) past = [];
	past.push(wheel);
	while (past.length > 2 && past[1].at_ns < wheel.at_ns - keptFor) past.shift();
}

function drawCharts() {
	const now = past[past.length - 1];
	const growing = grows(past);
	const x = reading => (120 + 120 * (reading.at_ns - now.at_ns) / keptFor).toFixed(2);
	for (const chart of charts) {
		const rates = chart.value.length > 1;
		const points = [];
		for (let i = rates ? 1 : 0; i < past.length; i++) {
			const value = chart.value(past[i], past[i - 1]);
			if (!Number.isNaN(value)) points.push([x(past[i]), value]);
		}
		if (!points.length) continue;
		const others = chart.other ? past.map(reading => [x(reading), chart.other(reading)]) : [];
		const most = Math.max(...points.map(p => p[1]));
		const top = Math.max(most, ...others.map(p => p[1])) || 1;
		const point = ([x, value]) => `${x} ${(40 - 38 * value / top).toFixed(2)}`;
		const line = points => points.map(point).join("L");
		const first = points[0], last = points[points.length - 1];
		chart.line.setAttribute("d", "M" + line(points));
		chart.area.setAttribute("d", `M${first[0]} 40L${line(points)}L${last[0]} 40Z`);
		setText(chart.number, chart.format(last[1]));
		setText(chart.most, "most " + chart.format(most));
		if (chart.other) {
			chart.others.setAttribute("d", "M" + line(others));
			setText(chart.most, chart.format(chart.other(now)) + " waiting");
			chart.most.classList.toggle("warn", growing);
		}
		chart.svg.setAttribute("aria-label",
			`${chart.title}: now ${chart.number.textContent}, ${chart.most.textContent}`);
	}
	document.querySelector("[data-v=waiting]").classList.toggle("warn", growing);
}

// overview shows all wheels. It keeps the backlog of each, which is red while it grows.
const backlogs = new Map();

function overview(all) {
	fillTables(all);
	const rows = document.querySelector("[data-each=wheels]").rows;
	all.wheels.forEach(({ name, at_ns, waiting }, i) => {
		const backlog = (backlogs.get(name) || []).filter(before => {
			return before.at_ns > at_ns - 12e9 && before.at_ns <= at_ns;
		});
		backlog.push({ at_ns, waiting });
		backlogs.set(name, backlog);
		rows[i].querySelector("[data-k=waiting]").classList.toggle("warn", grows(backlog));
	});
}

// The wheels: each level is a ring of slots with a hand.

const inner = 58, outer = 114;
let rings = [];

function point(turn, radius) {
	const a = 2 * Math.PI * turn;
	return (120 + radius * Math.sin(a)).toFixed(2) + " " + (120 - radius * Math.cos(a)).toFixed(2);
}

// wedge returns the outline of a part of a ring, between two angles in turns.
function wedge(from, to, radius) {
	const big = to - from > 0.5 ? 1 : 0;
	return `M${point(from, inner)}A${inner} ${inner} 0 ${big} 1 ${point(to, inner)}` +
		`L${point(to, radius)}A${radius} ${radius} 0 ${big} 0 ${point(from, radius)}Z`;
}

function makeRing() {
	const ring = {};
	ring.figure = html("figure", { class: "ring" }, document.getElementById("rings"));
	ring.title = html("strong", {}, ring.figure);
	ring.speed = html("p", {}, ring.figure);
	ring.svg = svg("svg", { viewBox: "0 0 240 240", role: "img" }, ring.figure);
	const track = svg("path", { class: "track", "fill-rule": "evenodd" }, ring.svg);
	const circle = r => `M${120 - r} 120a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
	track.setAttribute("d", circle(outer) + circle(inner));
	ring.few = svg("path", { class: "few" }, ring.svg);
	const hatch = svg("pattern", {
		id: "hatch" + rings.length, class: "hatch",
		patternUnits: "userSpaceOnUse", width: 5, height: 5,
	}, ring.svg);
	svg("path", { d: "M-1 6L6 -1M-1 1L1 -1M4 6L6 4" }, hatch);
	ring.full = svg("path", { class: "full", fill: `url(#${hatch.id})` }, ring.svg);
	ring.hand = svg("line", {
		class: "hand", x1: 120, y1: 120 - inner + 8, x2: 120, y2: 120 - outer - 4,
	}, ring.svg);
	ring.sum = svg("text", { class: "sum", x: 120, y: 124 }, ring.svg);
	ring.unit = svg("text", { class: "unit", x: 120, y: 142 }, ring.svg);
	ring.about = html("p", {}, ring.figure);
	ring.svg.addEventListener("pointermove", e => {
		ring.under = turnAt(ring.svg, e);
		explain(ring);
	});
	ring.svg.addEventListener("pointerleave", () => {
		ring.under = null;
		explain(ring);
	});
	return ring;
}

function turnAt(el, e) {
	const box = el.getBoundingClientRect();
	const x = (e.clientX - box.left) / box.width - 0.5;
	const y = (e.clientY - box.top) / box.height - 0.5;
	return Math.hypot(x, y) * 240 < inner - 10 ? null : (Math.atan2(x, -y) / (2 * Math.PI) + 1) % 1;
}

// explain shows what the slot under the pointer holds, or else how full the level is.
function explain(ring) {
	const level = ring.level;
	if (!level.slots) {
		setText(ring.about, "no timer yet");
		return;
	}
	if (ring.under == null) {
		setText(ring.about, `${count(level.busy)} of ${count(level.slots)} slots in use`);
		return;
	}
	const cell = Math.min(Math.floor(ring.under * level.cells.length), level.cells.length - 1);
	const slot = cell * level.slots_per_cell, last = slot + level.slots_per_cell - 1;
	const n = level.cells[cell];
	const current = Math.floor(wheel.at_ns / level.tick_ns) % level.slots;
	const ahead = (slot - current + level.slots) % level.slots;
	const due = Math.max(0, ahead * level.tick_ns - wheel.at_ns % level.tick_ns);
	setText(ring.about, (last > slot ? `slots ${slot} to ${last}` : `slot ${slot}`) +
		`, due in ${duration(due)}: ` +
		(level.full.includes(cell) ? "≥ " : "") + count(n) + (n === 1 ? " timer" : " timers"));
}

function drawRings() {
	while (rings.length > wheel.levels.length) rings.pop().figure.remove();
	while (rings.length < wheel.levels.length) rings.push(makeRing());
	const most = Math.log1p(Math.max(63, ...wheel.levels.flatMap(level => level.cells)));
	wheel.levels.forEach((level, i) => {
		const ring = rings[i], cells = level.cells.length;
		ring.level = level;
		const gap = cells > 120 ? 0 : 0.12 / cells;
		const isFull = new Set(level.full);
		let few = "", full = "";
		level.cells.forEach((n, cell) => {
			if (!n) return;
			const radius = inner + (outer - inner) * (0.12 + 0.88 * Math.log1p(n) / most);
			const w = wedge(cell / cells + gap / 2, (cell + 1) / cells - gap / 2, radius);
			if (isFull.has(cell)) full += w; else few += w;
		});
		ring.few.setAttribute("d", few);
		ring.full.setAttribute("d", full);
		setText(ring.title, `Level ${level.level}`);
		setText(ring.speed, `a slot ${duration(level.tick_ns)}` +
			(level.slots ? `, a turn ${duration(level.lap_ns)}` : ""));
		setText(ring.sum, about(level));
		ring.sum.setAttribute("font-size", Math.min(22, 160 / ring.sum.textContent.length));
		setText(ring.unit, level.timers === 1 ? "timer" : "timers");
		ring.svg.setAttribute("aria-label", `Level ${level.level}: ` +
			`${count(level.busy)} of ${count(level.slots)} slots in use, ` +
			`${level.exact ? "" : "about "}${count(level.estimate)} timers`);
		explain(ring);
	});
	turnHands();
}

// turnHands turns the hands between two readings, until the next one is a second overdue.
function turnHands() {
	let at = wheel.at_ns;
	if (wheel.state === "stopped") at = wheel.levels[0].now_ns;
	else if (!still.matches) at += 1e6 * Math.min(performance.now() - readAt, every + 1000);
	for (const { hand, level } of rings) {
		hand.setAttribute("visibility", level.slots ? "visible" : "hidden");
		if (!level.slots) continue;
		const angle = (360 * (at % level.lap_ns) / level.lap_ns).toFixed(2);
		hand.setAttribute("transform", `rotate(${angle} 120 120)`);
	}
}

// Reading.

const name = document.body.dataset.wheel; // empty for the overview
const address = "?format=json" + (name ? "&wheel=" + encodeURIComponent(name) : "");
const still = matchMedia("(prefers-reduced-motion: reduce)");
const complaint = document.getElementById("status");
const pause = document.getElementById("pause");
let wheel = null;  // the latest reading
let readAt = 0;    // when it arrived
let every = 1000;  // ms
let paused = false;
let asking = false;
let next = 0;

const goneError = "this wheel is gone";
let answeredAt = null;

// setStale marks the numbers as out of date, or as current.
function setStale(stale) {
	document.documentElement.classList.toggle("stale", stale);
	const badge = document.getElementById("state");
	if (!badge) return;
	if (stale) badge.dataset.state = "unknown";
	else badge.dataset.state = wheel.state;
	setText(badge, stale ? "no answer" : wheel.state);
}

async function read() {
	clearTimeout(next);
	if (asking || paused || document.hidden) return;
	asking = true;
	try {
		const signal = AbortSignal.timeout(10000);
		const answer = await fetch(address, { cache: "no-store", signal });
		if (answer.status === 404) throw new Error(goneError);
		if (!answer.ok) throw new Error("the answer is " + answer.status);
		const all = await answer.json();
		const latest = all.wheels[0];
		if (!name) overview(all);
		else if (!wheel || latest.at_ns !== wheel.at_ns) { // else we have this reading already
			wheel = latest;
			readAt = performance.now();
			keep(wheel);
			fillTables(wheel);
			drawCharts();
			drawRings();
		}
		setText(complaint, "");
		answeredAt = performance.now();
		setStale(false);
	} catch (err) {
		let since = "";
		if (answeredAt !== null && err.message !== goneError) {
			since = " for " + duration(1e6 * (performance.now() - answeredAt));
		}
		setText(complaint, `no numbers${since}: ${err.message}`);
		setStale(true);
	}
	asking = false;
	clearTimeout(next);
	next = setTimeout(read, every);
}

function frame() {
	const stale = document.documentElement.classList.contains("stale");
	if (wheel && !paused && !stale && !still.matches) turnHands();
	requestAnimationFrame(frame);
}

pause.addEventListener("click", () => {
	paused = !paused;
	pause.textContent = paused ? "Resume" : "Pause";
	read();
});
document.getElementById("every").addEventListener("change", e => {
	every = Number(e.target.value);
	read();
});
document.addEventListener("visibilitychange", read);

document.documentElement.classList.add("live");
if (name) makeCharts();
read();
requestAnimationFrame(frame);
