"use strict";

// The server makes every text. This script asks for the same page again and puts what has changed in
// place of what was there. And it asks before it has the server change anything.

const complaint = document.getElementById("status");
const hold = document.getElementById("hold");
const dialog = document.getElementById("ask"); // null on a page for reading
let every = 2000; // ms
let held = false;
let asking = false;
let next = 0;
let answeredAt = performance.now();
let reads = 0; // how often the page was renewed, for the tests

// renew makes one node like another and keeps what is equal, so that focus, selection and scrolling
// stay.
function renew(from, to) {
	if (from.nodeName !== to.nodeName) {
		from.replaceWith(document.importNode(to, true));
		return;
	}
	if (from.nodeType !== 1) {
		if (from.data !== to.data) from.data = to.data;
		return;
	}
	for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
	for (const { name, value } of to.attributes) {
		if (from.getAttribute(name) !== value) from.setAttribute(name, value);
	}
	renewChildren(from, to);
}

// renewChildren renews what an element holds. Rows and sections stay those of the same job, queue or
// heading: the row of one job is never changed into that of another, under the pointer.
function renewChildren(from, to) {
	const news = [...to.childNodes];
	const wanted = new Set(news.map(identity));
	const known = new Map();
	for (const el of [...from.childNodes]) {
		const id = identity(el);
		if (id === undefined) continue;
		if (wanted.has(id)) known.set(id, el);
		else el.remove();
	}
	let at = from.firstChild; // what comes before it is renewed
	const drop = () => {
		const gone = at;
		at = at.nextSibling;
		gone.remove();
	};
	for (const el of news) {
		const id = identity(el);
		const old = id !== undefined ? known.get(id) : at && identity(at) === undefined ? at : undefined;
		if (old === undefined) {
			from.insertBefore(document.importNode(el, true), at);
			continue;
		}
		while (at && at !== old && identity(at) === undefined) drop(); // moving old would lose its focus
		if (at === old) at = at.nextSibling;
		else from.insertBefore(old, at);
		renew(old, el);
	}
	while (at) drop();
}

// identity returns what stays the same of a row or a section, or undefined.
function identity(node) {
	return node.nodeType === 1 ? node.dataset.row ?? node.getAttribute("aria-labelledby") ?? undefined : undefined;
}

function say(text, stale) {
	document.documentElement.classList.toggle("stale", stale);
	if (complaint.textContent !== text) complaint.textContent = text;
}

let said = "";     // what was done last
let again = false; // whether to ask again at once when the answer is there

// read asks for the page. now has it ask even while updates are paused.
async function read(now) {
	clearTimeout(next);
	if (asking) again ||= now === true;
	if (asking || now !== true && (held || document.hidden)) return;
	asking = true;
	try {
		const signal = AbortSignal.timeout(10000);
		const answer = await fetch(location.href, { cache: "no-store", signal });
		const isPage = (answer.headers.get("Content-Type") || "").startsWith("text/html");
		if (!isPage || !answer.ok && answer.status !== 404) throw new Error("the answer is " + answer.status);
		const page = new DOMParser().parseFromString(await answer.text(), "text/html");
		if (!page.querySelector("main")) throw new Error("the answer is another page");
		if (now === true || !held) renewChildren(document.querySelector("main"), page.querySelector("main"));
		answeredAt = performance.now();
		reads++;
		say(said, false);
	} catch (err) {
		const since = Math.round((performance.now() - answeredAt) / 1000);
		say(`no answer for ${since} s: ${err.message}`, true);
	}
	asking = false;
	if (again) {
		again = false;
		read(true);
		return;
	}
	clearTimeout(next);
	next = setTimeout(read, every);
}

hold.addEventListener("click", () => {
	held = !held;
	hold.textContent = held ? "Go on" : "Pause updates";
	read();
});
document.getElementById("every").addEventListener("change", e => {
	every = Number(e.target.value);
	read();
});
document.addEventListener("visibilitychange", read);

// Changes. Each has what the dialog says, what its button says, the request, and what is said when it
// is done.

const changes = {
	cancel: {
		title: "Cancel this job?",
		text: d => d.running ?
			"It is being worked on. No other delivery begins; a handler of this process is told to stop." :
			"It is removed. No delivery begins any more.",
		yes: "Cancel the job",
		done: (d, r) => r.running ? "cancelled while it was being worked on" : "cancelled",
	},
	remove: {
		title: "Remove this dead job?",
		text: () => "Its body and its error are gone then.",
		yes: "Remove the job",
		request: { do: "cancel", state: "dead" }, // not one that was requeued since the list was made
		done: () => "removed",
	},
	requeue: {
		title: "Requeue this dead job?",
		text: () => "It is ready at once and has all its attempts before it.",
		yes: "Requeue the job",
		done: () => "requeued",
	},
	requeueall: {
		title: "Requeue all dead jobs?",
		text: d => `All dead jobs of this queue are ready at once: ${Number(d.n).toLocaleString("en-US")} when this page was made.`,
		yes: "Requeue all",
		request: { do: "requeue", all: true },
		done: (d, r) => r.n === 1 ? "1 job requeued" : `${r.n.toLocaleString("en-US")} jobs requeued`,
	},
	reschedule: {
		title: "Reschedule this job?",
		text: () => "A duration such as 90s, 1h30m or 3d from now, or an instant in the time zone of this browser.",
		yes: "Reschedule the job",
		when: true,
		done: () => "rescheduled",
	},
	pause: {
		title: "Pause this queue?",
		text: () => "No job of it is delivered until it is resumed, in any process. What is being worked on goes on.",
		yes: "Pause the queue",
		done: () => "paused",
	},
	resume: {
		title: "Resume this queue?",
		text: () => "Its jobs are delivered again.",
		yes: "Resume the queue",
		done: () => "resumed",
	},
};

let asked = null; // the data of the button that opened the dialog, with its change

function el(id) { return document.getElementById(id); }

function open(button) {
	const data = { ...button.dataset };
	asked = { data, change: changes[data.do] };
	const { title, text, yes, when } = asked.change;
	const job = data.id ? `Job ${data.id}${data.key ? ` (${data.key})` : ""} of the queue ` : "The queue ";
	el("ask-title").textContent = title;
	el("ask-text").textContent = `${job}${data.queue}. ${text(data)}`;
	el("ask-yes").textContent = yes;
	el("ask-yes").disabled = false;
	el("ask-when").hidden = !when;
	el("ask-in").value = el("ask-at").value = "";
	el("ask-problem").textContent = "";
	dialog.showModal();
	el(when ? "ask-in" : "ask-no").focus();
}

async function send() {
	const { data, change } = asked;
	const request = { do: data.do, queue: data.queue, ...change.request };
	if (data.id) request.id = data.id;
	if (change.when) {
		if (el("ask-in").value.trim()) request.in = el("ask-in").value.trim();
		if (el("ask-at").value) request.at = new Date(el("ask-at").value).toISOString();
	}
	el("ask-yes").disabled = true;
	try {
		const answer = await fetch(location.pathname, {
			method: "POST",
			headers: { "Content-Type": "application/json" },
			body: JSON.stringify(request),
			signal: AbortSignal.timeout(30000),
		});
		const result = await answer.json().catch(() => ({}));
		if (!answer.ok) throw new Error(result.error || "the answer is " + answer.status);
		said = `${data.id ? "job " + data.id : data.queue}: ${change.done(data, result)}`;
		dialog.close();
		say(said, false);
		read(true);
	} catch (err) {
		el("ask-problem").textContent = err.message;
		el("ask-yes").disabled = false;
	}
}

if (dialog) {
	document.addEventListener("click", e => {
		const button = e.target.closest("button[data-do]");
		if (button) open(button);
	});
	el("ask-no").addEventListener("click", () => dialog.close());
	el("ask-yes").addEventListener("click", send);
	for (const id of ["ask-in", "ask-at"]) {
		el(id).addEventListener("keydown", e => {
			if (e.key === "Enter" && !el("ask-yes").disabled) send();
		});
	}
}

document.documentElement.classList.add("live");
next = setTimeout(read, every);
